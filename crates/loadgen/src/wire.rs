//! The few words of memcached's text protocol that a generator speaks.

/// Appends a request to read `key`.
pub(crate) fn compose_get(out: &mut Vec<u8>, key: &[u8]) {
    out.extend_from_slice(b"get ");
    out.extend_from_slice(key);
    out.extend_from_slice(b"\r\n");
}

/// Appends a request to write `len` bytes to `key`, which `fill` supplies.
pub(crate) fn compose_set(out: &mut Vec<u8>, key: &[u8], len: usize, fill: impl FnOnce(&mut [u8])) {
    out.extend_from_slice(b"set ");
    out.extend_from_slice(key);
    out.extend_from_slice(b" 0 0 ");
    out.extend_from_slice(len.to_string().as_bytes());
    out.extend_from_slice(b"\r\n");
    let start = out.len();
    out.resize(start + len, 0);
    fill(&mut out[start..]);
    out.extend_from_slice(b"\r\n");
}

/// One answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer<'a> {
    /// A value and the key that it was sent for.
    Value { key: &'a [u8], value: &'a [u8] },
    /// No such key.
    Miss,
    /// Written.
    Stored,
    /// An error, in the server's words.
    Refused(&'a [u8]),
}

/// Bytes that are no answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Garbled;

/// The answer at the beginning of `input` and its length, or none if it is not complete yet.
pub(crate) fn parse(input: &[u8]) -> Result<Option<(Answer<'_>, usize)>, Garbled> {
    let Some(line_len) = input.iter().take(LINE_MAX).position(|byte| *byte == b'\n') else {
        return if input.len() >= LINE_MAX { Err(Garbled) } else { Ok(None) };
    };
    let line = input[..line_len].strip_suffix(b"\r").ok_or(Garbled)?;
    let whole = line_len + 1;
    if let Some(header) = line.strip_prefix(b"VALUE ") {
        let mut words = header.split(|byte| *byte == b' ');
        let (Some(key), Some(_flags), Some(len), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(Garbled);
        };
        let len: usize = std::str::from_utf8(len).ok().and_then(|len| len.parse().ok()).ok_or(Garbled)?;
        if len > workload::ValueSize::MAX {
            return Err(Garbled);
        }
        let end = whole + len;
        let Some(ending) = input.get(end..end + VALUE_END.len()) else {
            return Ok(None);
        };
        return if ending == VALUE_END {
            Ok(Some((Answer::Value { key, value: &input[whole..end] }, end + VALUE_END.len())))
        } else {
            Err(Garbled)
        };
    }
    let answer = match line {
        b"END" => Answer::Miss,
        b"STORED" => Answer::Stored,
        b"ERROR" | b"NOT_STORED" => Answer::Refused(line),
        _ if line.starts_with(b"SERVER_ERROR") || line.starts_with(b"CLIENT_ERROR") => Answer::Refused(line),
        _ => return Err(Garbled),
    };
    Ok(Some((answer, whole)))
}

/// What follows a value.
const VALUE_END: &[u8] = b"\r\nEND\r\n";
/// Longest line of an answer, in bytes.
const LINE_MAX: usize = 2048;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_whole_or_not_yet() {
        for (input, answer) in [
            (&b"END\r\n"[..], Answer::Miss),
            (b"STORED\r\n", Answer::Stored),
            (b"VALUE k 0 3\r\na\r\n\r\nEND\r\n", Answer::Value { key: b"k", value: b"a\r\n" }),
            (b"SERVER_ERROR out of memory\r\n", Answer::Refused(b"SERVER_ERROR out of memory")),
        ] {
            for cut in 0..input.len() {
                assert_eq!(parse(&input[..cut]), Ok(None), "{cut}");
            }
            assert_eq!(parse(input), Ok(Some((answer, input.len()))));
        }
    }

    #[test]
    fn what_is_no_answer_is_garbled() {
        for input in [
            &b"HTTP/1.1 400 Bad Request\r\n"[..],
            b"VALUE k 0\r\n",
            b"VALUE k 0 x\r\n",
            b"VALUE k 0 99999999999999999999\r\n",
            b"VALUE k 0 200000000\r\n",
            b"VALUE k 0 1\r\nab\r\nEND\r\n",
            b"END\n",
        ] {
            assert_eq!(parse(input), Err(Garbled), "{}", String::from_utf8_lossy(input));
        }
        assert_eq!(parse(&[b'x'; LINE_MAX]), Err(Garbled));
    }
}
