//! Numbers as memcached reads them: strictly in most places, as C's `strtoul` does in the flags and
//! the expiry of a storage command and in the value that `incr` changes.

/// Longest text of a strict 32-bit number, leading zeroes included (`MCMC_TOKTO32_MAX`).
const STRICT_32_MAX: usize = 11;

/// Longest text of a strict 64-bit number (`MCMC_TOKTO64_MAX`).
const STRICT_64_MAX: usize = 22;

/// A decimal number of digits alone; `None` if it is anything else, out of range, or longer than 11
/// characters.
pub fn strict_u32(text: &[u8]) -> Option<u32> {
    if text.len() > STRICT_32_MAX {
        return None;
    }
    u32::try_from(digits(text)?).ok()
}

/// A decimal number of digits alone; `None` if it is anything else, out of range, or longer than 22
/// characters.
pub fn strict_u64(text: &[u8]) -> Option<u64> {
    if text.len() > STRICT_64_MAX { None } else { digits(text) }
}

/// A decimal number with an optional minus; a minus alone is zero, as memcached has it.
#[inline]
pub fn strict_i32(text: &[u8]) -> Option<i32> {
    if text.len() > STRICT_32_MAX {
        return None;
    }
    let (negative, text) = match text {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    let magnitude = i64::try_from(digits(text)?).ok()?;
    i32::try_from(if negative { -magnitude } else { magnitude }).ok()
}

/// The value of decimal digits; nothing at all is zero.
#[inline]
fn digits(text: &[u8]) -> Option<u64> {
    let mut sum = 0u64;
    for &byte in text {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        sum = sum.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(sum)
}

/// The C library's `strtol` family, on the beginning of a text.
struct Lenient {
    negative: bool,
    magnitude: u64,
}

/// Optional white space, an optional sign, digits; then white space, a NUL or the end must follow.
fn lenient(text: &[u8]) -> Option<Lenient> {
    let text = &text[text.iter().position(|&byte| !is_space(byte))?..];
    let (negative, text) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    let length = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    if length == 0 || text.get(length).is_some_and(|&byte| byte != 0 && !is_space(byte)) {
        return None;
    }
    Some(Lenient { negative, magnitude: digits(&text[..length])? })
}

/// C's `isspace`.
const fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r')
}

/// An unsigned number at the beginning of `text`, as `safe_strtoull` reads it: a negative one wraps
/// round, and is refused only if the result, taken as signed, is negative.
pub fn lenient_u64(text: &[u8]) -> Option<u64> {
    let Lenient { negative, magnitude } = lenient(text)?;
    if !negative {
        return Some(magnitude);
    }
    let wrapped = magnitude.wrapping_neg();
    (wrapped as i64 >= 0).then_some(wrapped)
}

/// The client flags of a storage command: the low 32 bits of [`lenient_u64`]'s value, as memcached
/// keeps them.
#[inline]
pub fn client_flags(text: &[u8]) -> Option<u32> {
    match text {
        [digit @ b'0'..=b'9', b' ', ..] => Some(u32::from(digit - b'0')),
        _ => lenient_u64(text).map(|number| number as u32),
    }
}

/// The expiry of a storage command: the low 32 bits of the C `long` that `text` begins with.
#[inline]
pub fn lenient_expiry(text: &[u8]) -> Option<i32> {
    if let [digit @ b'0'..=b'9', b' ', ..] = text {
        return Some(i32::from(digit - b'0'));
    }
    let Lenient { negative, magnitude } = lenient(text)?;
    let number = if negative { -i128::from(magnitude) } else { i128::from(magnitude) };
    i64::try_from(number).ok().map(|number| number as i32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn strict_numbers_are_digits_of_bounded_length() {
        assert_eq!(strict_u32(b"4294967295"), Some(u32::MAX));
        assert_eq!(strict_u32(b"4294967296"), None);
        assert_eq!(strict_u32(b"+1"), None);
        assert_eq!(strict_u32(b"00000000001"), Some(1));
        assert_eq!(strict_u32(b"000000000001"), None, "twelve characters");
        assert_eq!(strict_u64(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(strict_u64(b"18446744073709551616"), None);
        assert_eq!(strict_i32(b"-2147483648"), Some(i32::MIN));
        assert_eq!(strict_i32(b"-2147483649"), None);
        assert_eq!(strict_i32(b"2147483648"), None);
        assert_eq!(strict_i32(b"-"), Some(0));
        assert_eq!(strict_i32(b"1 "), None);
    }

    #[test]
    fn lenient_numbers_are_what_the_c_library_takes() {
        assert_eq!(lenient_u64(b" +12 abc"), Some(12));
        assert_eq!(lenient_u64(b"12abc"), None);
        assert_eq!(lenient_u64(b"12\0abc"), Some(12));
        assert_eq!(lenient_u64(b"-1"), None);
        assert_eq!(lenient_u64(b"-0"), Some(0));
        assert_eq!(lenient_u64(b"-9223372036854775809"), Some(9_223_372_036_854_775_807));
        assert_eq!(lenient_u64(b"18446744073709551616"), None);
        assert_eq!(lenient_u64(b""), None);
        assert_eq!(lenient_u64(b" \t"), None);
        assert_eq!(lenient_u64(b"-"), None);
        assert_eq!(client_flags(b"4294967297 0 1"), Some(1));
        assert_eq!(lenient_expiry(b"4294967297 1"), Some(1));
        assert_eq!(lenient_expiry(b"-1 1"), Some(-1));
        assert_eq!(lenient_expiry(b"9223372036854775808"), None);
    }

    proptest! {
        #[test]
        fn what_rust_prints_reads_back(number: u64) {
            let text = number.to_string();
            prop_assert_eq!(strict_u64(text.as_bytes()), Some(number));
            prop_assert_eq!(lenient_u64(text.as_bytes()), Some(number));
            let signed = number as i32;
            prop_assert_eq!(strict_i32(signed.to_string().as_bytes()), Some(signed));
            prop_assert_eq!(lenient_expiry(signed.to_string().as_bytes()), Some(signed));
        }

        #[test]
        fn no_text_panics(text: Vec<u8>) {
            let _ = (strict_u32(&text), strict_u64(&text), strict_i32(&text));
            let _ = (lenient_u64(&text), client_flags(&text), lenient_expiry(&text));
        }
    }
}
