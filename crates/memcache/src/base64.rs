//! Base64 (RFC 4648 section 4) as the `b` flag of the meta commands uses it.
//!
//! Decoding is as forgiving as memcached's: characters outside the alphabet are skipped, everything
//! after the first padded group is ignored, and only the number of characters that remain must be
//! right. A client that relies on one of these would otherwise find its keys missing.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

pub fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    for group in bytes.chunks(3) {
        let bits =
            group.iter().fold(0u32, |bits, &byte| bits << 8 | u32::from(byte)) << (8 * (3 - group.len()));
        for place in 0..4 {
            let letter = ALPHABET[(bits >> (18 - 6 * place)) as usize & 63];
            out.push(if place > group.len() { b'=' } else { letter });
        }
    }
}

/// Decodes `text` into `out`, which must be able to hold three bytes for every four of it; returns
/// the length, or `None` if `text` is not Base64.
pub fn decode(text: &[u8], out: &mut [u8]) -> Option<usize> {
    let count = text.iter().filter(|&&byte| value(byte).is_some()).count();
    if count == 0 || count % 4 != 0 {
        return None;
    }
    let mut letters = text.iter().filter_map(|&byte| value(byte).map(|value| (value, byte == b'=')));
    let mut length = 0;
    for _ in 0..count / 4 {
        let (mut bits, mut padding) = (0u32, 0);
        for (value, is_padding) in letters.by_ref().take(4) {
            bits = bits << 6 | u32::from(value);
            padding += usize::from(is_padding);
        }
        if padding > 2 {
            return None;
        }
        let kept = 3 - padding;
        out[length..length + kept].copy_from_slice(&bits.to_be_bytes()[1..=kept]);
        length += kept;
        if padding > 0 {
            break;
        }
    }
    Some(length)
}

/// The six bits of a letter; padding stands for zero.
const fn value(letter: u8) -> Option<u8> {
    match letter {
        b'A'..=b'Z' => Some(letter - b'A'),
        b'a'..=b'z' => Some(letter - b'a' + 26),
        b'0'..=b'9' => Some(letter - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        b'=' => Some(0),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encoded(bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        encode(bytes, &mut out);
        out
    }

    #[test]
    fn the_vectors_of_rfc_4648_hold() {
        for (plain, text) in [("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
            assert_eq!(encoded(plain.as_bytes()), text.as_bytes());
        }
    }

    #[test]
    fn decoding_forgives_what_memcached_forgives() {
        let mut out = [0; 16];
        assert_eq!(decode(b"Zm!9v", &mut out), Some(3));
        assert_eq!(&out[..3], b"foo");
        assert_eq!(decode(b"Zg==Zm9v", &mut out), Some(1), "nothing counts after the padding");
        assert_eq!(decode(b"Zm9", &mut out), None);
        assert_eq!(decode(b"Z===", &mut out), None);
        assert_eq!(decode(b"!", &mut out), None);
        assert_eq!(decode(b"", &mut out), None);
    }

    proptest! {
        #[test]
        fn what_is_encoded_decodes(bytes in proptest::collection::vec(any::<u8>(), 1..300)) {
            let text = encoded(&bytes);
            prop_assert_eq!(text.len(), bytes.len().div_ceil(3) * 4);
            let mut out = vec![0; text.len()];
            let length = decode(&text, &mut out);
            prop_assert_eq!(length.map(|length| &out[..length]), Some(&bytes[..]));
        }

        #[test]
        fn a_decoded_key_never_outgrows_its_text(text: Vec<u8>) {
            let mut out = vec![0; text.len()];
            if let Some(length) = decode(&text, &mut out) {
                prop_assert!(length >= 1 && length <= text.len() / 4 * 3);
            }
        }
    }
}
