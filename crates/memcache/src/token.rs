//! A line cut at its spaces, and only there: tabs and other controls belong to the token around
//! them.
//!
//! memcached keeps at most 23 tokens of a line and forgets the rest, which shows where the *last*
//! token matters (`noreply`).

use memchr::memchr;

/// Tokens of a line that memcached looks at (`MCMC_PARSER_MAX_TOKENS` less one).
pub(crate) const TOKENS_MAX: usize = 23;

/// The tokens of a text, first to last.
#[derive(Clone, Debug)]
pub(crate) struct Tokens<'a> {
    rest: &'a [u8],
}

impl<'a> Tokens<'a> {
    pub(crate) const fn new(text: &'a [u8]) -> Self {
        Self { rest: text }
    }

    /// The rest of the text, from the next token on if there is one.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        self.skip_spaces();
        self.rest
    }

    fn skip_spaces(&mut self) {
        while let [b' ', rest @ ..] = self.rest {
            self.rest = rest;
        }
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        self.skip_spaces();
        if self.rest.is_empty() {
            return None;
        }
        let length = memchr(b' ', self.rest).unwrap_or(self.rest.len());
        let (token, rest) = self.rest.split_at(length);
        self.rest = rest;
        Some(token)
    }
}

/// Whether the last token that memcached looks at is `noreply`. `seen` tokens came before `tokens`,
/// the last of them being `last`.
pub(crate) fn ends_in_noreply(tokens: Tokens<'_>, seen: usize, last: &[u8]) -> bool {
    tokens.take(TOKENS_MAX - seen).last().unwrap_or(last) == b"noreply"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spaces_separate_and_nothing_else_does() {
        let tokens: Vec<_> = Tokens::new(b"  a \tb\r  c ").collect();
        assert_eq!(tokens, [&b"a"[..], b"\tb\r", b"c"]);
        assert_eq!(Tokens::new(b"   ").next(), None);
    }

    #[test]
    fn the_rest_begins_with_the_next_token() {
        let mut tokens = Tokens::new(b"a   b c");
        tokens.next();
        assert_eq!(tokens.rest(), b"b c");
        tokens.next();
        tokens.next();
        assert_eq!(tokens.rest(), b"");
    }

    #[test]
    fn noreply_counts_only_as_the_last_token_looked_at() {
        let ends = |text: &'static [u8]| ends_in_noreply(Tokens::new(text), 0, b"");
        assert!(ends(b"delete k noreply"));
        assert!(!ends(b"delete noreply k"));
        let many = [b"x ".repeat(22), b"noreply and more".to_vec()].concat();
        assert!(ends_in_noreply(Tokens::new(&many), 0, b""), "the 23rd is the last");
    }
}
