//! Reading and writing keys in the protocol of Redis and Valkey, RESP2 of
//! <https://redis.io/docs/latest/develop/reference/protocol-spec/>.

/// The longest line that a server may answer with: a length, `OK`, the text of an error.
const LINE_MAX: usize = 2048;
/// The largest value that is believed, so that a garbled length is not waited for: Redis's own upper
/// bound, 512 MiB.
const VALUE_MAX: usize = 512 << 20;

/// An answer to `GET` or `SET`, or its first part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply<'a> {
    /// A value, without the line end that follows it.
    Value(&'a [u8]),
    /// The server has no value for this key.
    Nil,
    Ok,
    /// The server refuses, in these words.
    Error(&'a [u8]),
}

pub(super) fn get(out: &mut Vec<u8>, key: &[u8]) {
    command(out, &[b"GET", key]);
}

pub(super) fn set(out: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    command(out, &[b"SET", key, value]);
}

fn command(out: &mut Vec<u8>, words: &[&[u8]]) {
    head(out, b'*', words.len());
    for word in words {
        head(out, b'$', word.len());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

fn head(out: &mut Vec<u8>, kind: u8, length: usize) {
    out.push(kind);
    out.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// The reply at the front of `bytes` and the bytes that it takes; `None` if more are needed.
///
/// # Errors
/// The bytes are no answer to `GET` or `SET`.
pub fn parse(bytes: &[u8]) -> Result<Option<(Reply<'_>, usize)>, String> {
    let Some(end) = bytes.iter().take(LINE_MAX).position(|&byte| byte == b'\n') else {
        return if bytes.len() < LINE_MAX { Ok(None) } else { Err(garbled(bytes)) };
    };
    let line = bytes[..end].strip_suffix(b"\r").ok_or_else(|| garbled(&bytes[..end]))?;
    let length = end + 1;
    let reply = match line {
        b"+OK" => Reply::Ok,
        b"$-1" => Reply::Nil,
        [b'-', words @ ..] => Reply::Error(words),
        [b'$', digits @ ..] => {
            let size = std::str::from_utf8(digits).ok().filter(|_| digits.iter().all(u8::is_ascii_digit));
            let size = size.and_then(|size| size.parse().ok()).filter(|&size: &usize| size <= VALUE_MAX);
            let size = size.ok_or_else(|| garbled(line))?;
            let value = bytes.get(length..length + size);
            return Ok(value.map(|value| (Reply::Value(value), length + size)));
        }
        _ => return Err(garbled(line)),
    };
    Ok(Some((reply, length)))
}

#[cold]
fn garbled(bytes: &[u8]) -> String {
    let begin = String::from_utf8_lossy(&bytes[..bytes.len().min(80)]).into_owned();
    format!("what the server answers is not the protocol of Redis: {begin:?}; check address and port")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn commands_are_arrays_of_bulk_strings() {
        let mut out = Vec::new();
        get(&mut out, b"key");
        set(&mut out, b"k", &[b'v'; 100]);
        let expected = [
            &b"*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$100\r\n"[..],
            &[b'v'; 100],
            b"\r\n",
        ];
        assert_eq!(out, expected.concat());
        out.clear();
        set(&mut out, b"k", b"");
        assert!(out.ends_with(b"$0\r\n\r\n"));
    }

    #[test]
    fn answers_are_read_and_what_is_none_is_refused() {
        assert_eq!(parse(b"$3\r\na\nb\r\n").unwrap(), Some((Reply::Value(b"a\nb"), 7)));
        assert_eq!(parse(b"$0\r\n").unwrap(), Some((Reply::Value(b""), 4)));
        assert_eq!(parse(b"$-1\r\n+OK\r\n").unwrap(), Some((Reply::Nil, 5)));
        assert_eq!(parse(b"+OK\r\n").unwrap(), Some((Reply::Ok, 5)));
        let error = parse(b"-NOAUTH Authentication required.\r\n").unwrap();
        assert_eq!(error, Some((Reply::Error(b"NOAUTH Authentication required."), 34)));
        for text in ["", "$", "$3\r\nab", "$3\r", "+O", "-ERR"] {
            assert_eq!(parse(text.as_bytes()).unwrap(), None, "{text:?}");
        }
        let huge = format!("${}\r\n", VALUE_MAX + 1);
        for text in [
            "END\r\n",
            "$\r\n",
            "$-2\r\n",
            "$+3\r\n",
            "$3\n",
            ":1\r\n",
            "*1\r\n",
            &huge,
            &"x".repeat(LINE_MAX),
        ] {
            let error = parse(text.as_bytes()).unwrap_err();
            assert!(error.contains("check address"), "{text:?}: {error}");
        }
    }

    proptest! {
        #[test]
        fn a_value_is_read_whatever_its_bytes_and_only_when_it_is_whole(
            value in proptest::collection::vec(any::<u8>(), 0..3000),
            kept in any::<prop::sample::Index>(),
        ) {
            let mut bytes = Vec::new();
            head(&mut bytes, b'$', value.len());
            bytes.extend_from_slice(&value);
            prop_assert_eq!(parse(&bytes).unwrap(), Some((Reply::Value(&value), bytes.len())));
            let kept = kept.index(bytes.len());
            prop_assert_eq!(parse(&bytes[..kept]).unwrap(), None);
        }
    }
}
