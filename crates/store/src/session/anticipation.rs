//! Which key a request will ask for, guessed from its first bytes, so that the store can be told
//! before it is asked.

/// The key of the first request in `input`, if it looks like a command with one. A wrong guess
/// costs a useless fetch and nothing else.
#[inline]
pub fn first_key(input: &[u8]) -> Option<&[u8]> {
    /// Longer commands (`touch`, `append`) are rare, and no key is longer than 250 bytes.
    const COMMAND_MAX: usize = 5;
    const KEY_MAX: usize = 250;
    let space = input.iter().take(COMMAND_MAX).position(|&byte| byte == b' ')?;
    let rest = &input[space + 1..];
    let length = rest.iter().take(KEY_MAX + 1).position(|&byte| byte <= b' ')?;
    (1..=KEY_MAX).contains(&length).then(|| &rest[..length])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_key_is_found_and_junk_has_none() {
        let key =
            |text: &'static str| first_key(text.as_bytes()).map(|key| std::str::from_utf8(key).unwrap());
        assert_eq!(key("get abc\r\nget d\r\n"), Some("abc"));
        assert_eq!(key("set abc 0 0 1\r\n"), Some("abc"));
        assert_eq!(key("mg abc v t\r\n"), Some("abc"));
        assert_eq!(key("get abc"), None, "the key may go on");
        for junk in ["", "get", "get  x\r\n", "\r\n", "stats\r\n", "verbosity 1\r\n"] {
            assert_eq!(key(junk), None, "{junk:?}");
        }
        assert_eq!(first_key(&[b'a'; 1000]), None);
    }
}
