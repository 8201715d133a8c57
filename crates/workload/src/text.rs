//! The bytes of keys and values.
//!
//! A key's text is its number, in as many digits of base 64 as the key space needs, behind a
//! padding of `k`: real keys share their beginnings too. SplitMix64 makes a value from the key's
//! text and its own length. So a client that holds a key and a value can check them without a
//! record of earlier stores: a store that mixes up two keys, cuts a value or flips a bit is found
//! out.

use crate::random::{GAMMA, mix};

/// Digits needed to tell `keys` keys apart.
pub(crate) fn digits_for(keys: u64) -> usize {
    let mut digits = 1;
    let mut reach = 64u128;
    while reach < u128::from(keys) {
        reach *= 64;
        digits += 1;
    }
    digits
}

/// Appends the text of key number `key`, `size` bytes long, its last `digits` bytes telling it from
/// all others.
pub fn write_key(out: &mut Vec<u8>, mut key: u64, size: usize, digits: usize) {
    let start = out.len();
    out.resize(start + size, b'k');
    for place in out[start..].iter_mut().rev().take(digits) {
        *place = ALPHABET[(key & 63) as usize];
        key >>= 6;
    }
}

/// Fills `value` with the bytes that belong to `key` at this length.
pub fn fill_value(key: &[u8], value: &mut [u8]) {
    let mut state = value_seed(key, value.len());
    for chunk in value.chunks_mut(8) {
        state = state.wrapping_add(GAMMA);
        chunk.copy_from_slice(&mix(state).to_le_bytes()[..chunk.len()]);
    }
}

/// True if `value` is, byte for byte, the value that [`fill_value`] makes for this key and length.
pub fn value_matches(key: &[u8], value: &[u8]) -> bool {
    let mut state = value_seed(key, value.len());
    value.chunks(8).all(|chunk| {
        state = state.wrapping_add(GAMMA);
        chunk == &mix(state).to_le_bytes()[..chunk.len()]
    })
}

fn value_seed(key: &[u8], len: usize) -> u64 {
    key.chunks(8).fold(mix(len as u64 ^ GAMMA), |seed, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        mix(seed ^ u64::from_le_bytes(word)).wrapping_add(chunk.len() as u64)
    })
}

/// 64 printable bytes that need no escaping anywhere.
const ALPHABET: &[u8; 64] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_";

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn keys_of_every_space_differ() {
        for keys in [1u64, 2, 64, 65, 4096, 4097] {
            let digits = digits_for(keys);
            let texts: BTreeSet<Vec<u8>> = (0..keys)
                .map(|key| {
                    let mut text = Vec::new();
                    write_key(&mut text, key, digits, digits);
                    text
                })
                .collect();
            assert_eq!(texts.len() as u64, keys);
        }
        assert_eq!(digits_for(u64::MAX), 11);
    }

    proptest! {
        #[test]
        fn a_value_matches_its_own_key_and_no_other(
            key in "[!-~]{1,250}",
            other in "[!-~]{1,250}",
            len in 4usize..300,
        ) {
            let mut value = vec![0; len];
            fill_value(key.as_bytes(), &mut value);
            prop_assert!(value_matches(key.as_bytes(), &value));
            if key != other {
                prop_assert!(!value_matches(other.as_bytes(), &value));
            }
            prop_assert!(!value_matches(key.as_bytes(), &value[..len - 1]), "a cut value");
        }

        #[test]
        fn a_single_flipped_bit_is_found(
            key in "[!-~]{1,40}",
            len in 1usize..100,
            at: prop::sample::Index,
            bit in 0u8..8,
        ) {
            let mut value = vec![0; len];
            fill_value(key.as_bytes(), &mut value);
            value[at.index(len)] ^= 1 << bit;
            prop_assert!(!value_matches(key.as_bytes(), &value));
        }

        #[test]
        fn key_texts_have_their_size(key: u64, size in 11usize..=250) {
            let mut text = b"get ".to_vec();
            write_key(&mut text, key, size, 11);
            prop_assert_eq!(text.len(), 4 + size);
            prop_assert!(text[4..].iter().all(u8::is_ascii_graphic));
        }
    }
}
