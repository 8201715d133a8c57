//! Keys: 1 to 250 bytes without spaces or newlines, or any bytes where a meta command carries them
//! in Base64.

use crate::base64;
use std::fmt::{self, Write as _};

/// Longest key, in bytes on the wire (`KEY_MAX_LENGTH`). In Base64 it stands for 187 bytes at the
/// most.
pub const KEY_MAX: usize = 250;

/// The key of a meta command as it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaKey<'a> {
    pub wire: &'a [u8],
    /// Whether they are Base64 (flag `b`), which the parser has checked.
    pub encoded: bool,
}

impl<'a> MetaKey<'a> {
    /// The bytes that name the item; `scratch` holds them if they had to be decoded.
    #[inline]
    pub fn decoded<'s>(&self, scratch: &'s mut [u8; KEY_MAX]) -> &'s [u8]
    where
        'a: 's,
    {
        if !self.encoded {
            return self.wire;
        }
        let length = base64::decode(self.wire, scratch).unwrap_or(0);
        &scratch[..length]
    }

    /// Appends the return flag `k`: the key in the encoding in which it was asked for.
    pub fn echo(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b" k");
        if self.encoded {
            let mut scratch = [0; KEY_MAX];
            base64::encode(self.decoded(&mut scratch), out);
            out.extend_from_slice(b" b");
        } else {
            out.extend_from_slice(self.wire);
        }
    }
}

/// A key within a line of text: all bytes but letters, digits and `-._~` as `%XX`.
#[derive(Clone, Copy, Debug)]
pub struct Escaped<'a>(pub &'a [u8]);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|&byte| {
            if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                f.write_char(char::from(byte))
            } else {
                write!(f, "%{byte:02X}")
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_in_a_line_has_no_spaces_and_no_bytes_beyond_ascii() {
        assert_eq!(Escaped(b"a-Z._~9").to_string(), "a-Z._~9");
        assert_eq!(Escaped(b"a b\n%=\xff").to_string(), "a%20b%0A%25%3D%FF");
    }

    #[test]
    fn a_key_is_echoed_as_it_was_asked_for() {
        let mut out = Vec::new();
        MetaKey { wire: b"foo", encoded: false }.echo(&mut out);
        MetaKey { wire: b"Zm!9v", encoded: true }.echo(&mut out);
        assert_eq!(out, b" kfoo kZm9v b");
    }
}
