//! Text of other programs, without the control characters that a terminal obeys.
//!
//! A thread's name, a function's name, a profiler's complaint: each is chosen by a program that may
//! be another user's. Printed raw, an escape sequence in it retitles root's terminal, hides lines,
//! or answers in root's name.

use std::borrow::Cow;
use std::fmt::Write as _;

/// `text` with every character that steers a terminal written out as `\u001b`; line feeds and tabs
/// stay. JSON means the same by it, and stays JSON.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(steers) {
        return Cow::Borrowed(text);
    }
    let mut plain = String::with_capacity(text.len() + 16);
    for one in text.chars() {
        match steers(one) {
            // None of them needs more than four digits.
            true => drop(write!(plain, "\\u{:04x}", u32::from(one))),
            false => plain.push(one),
        }
    }
    Cow::Owned(plain)
}

/// The same on one line: for a name.
pub fn printable_name(text: &str) -> String {
    printable(text).replace('\n', "\\n").replace('\t', "\\t")
}

/// Controls of ASCII and of Latin 1, and characters that change the direction of text.
fn steers(one: char) -> bool {
    let turns = matches!(one, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    one.is_control() && one != '\n' && one != '\t' || turns
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_steers_a_terminal_is_written_out() {
        assert_eq!(printable("\x1b]0;x\x07 a\tb\nc"), "\\u001b]0;x\\u0007 a\tb\nc");
        assert_eq!(printable("\u{9b}2J \u{202e}"), "\\u009b2J \\u202e");
        assert!(matches!(printable("µs, größer, 日本\n"), Cow::Borrowed(_)));
        assert_eq!(printable_name("a\n\tb\r"), "a\\n\\tb\\u000d");
    }

    #[test]
    fn what_is_written_out_in_json_means_the_same() {
        let text = "a\u{9b}\u{7f}\u{202e}\u{1b}\"\n";
        let json = serde_json::to_string(text).unwrap();
        assert_ne!(printable(&json), json);
        assert_eq!(serde_json::from_str::<String>(&printable(&json)).unwrap(), text);
    }

    proptest! {
        #[test]
        fn nothing_that_steers_is_left(text in "\\PC{0,20}\\p{C}{0,20}.{0,20}") {
            prop_assert!(!printable(&text).contains(steers));
            prop_assert!(!printable_name(&text).contains(char::is_control));
        }
    }
}
