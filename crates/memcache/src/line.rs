//! Where a command line ends.
//!
//! A command is a line that ends in `\n`, optionally preceded by `\r`. memcached looks for the
//! newline in the bytes that have arrived so far. It gives up on a connection that has sent more
//! than 2048 bytes without one, except where they begin a `get` or `gets`, whose key list may be of
//! any length. Whether it gives up therefore depends on how the network cut the stream. Ours is the
//! same rule without that dependence: a line whose newline is not among its first 2049 bytes is
//! [`Head::Long`], however it came.

use memchr::memchr;

/// A command line may be this long, its newline not counted (memcached 1.6.45,
/// `try_read_command_ascii`).
pub const LINE_MAX: usize = 2048;

/// The first byte of every request of the binary protocol (`PROTOCOL_BINARY_REQ` in memcached's
/// `protocol_binary.h`). No text command begins with it.
pub const BINARY_MAGIC: u8 = 0x80;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// The line without its ending.
    pub text: &'a [u8],
    /// Bytes that it takes in the stream, its ending included.
    pub length: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head<'a> {
    Line(Line<'a>),
    /// With part of one; more bytes will tell.
    Partial,
    /// With more than [`LINE_MAX`] bytes that hold no newline.
    Long,
}

#[inline]
pub fn head(input: &[u8]) -> Head<'_> {
    let window = &input[..input.len().min(LINE_MAX + 1)];
    match memchr(b'\n', window) {
        Some(end) => Head::Line(Line { text: without_return(&window[..end]), length: end + 1 }),
        None if input.len() > LINE_MAX => Head::Long,
        None => Head::Partial,
    }
}

#[inline]
fn without_return(text: &[u8]) -> &[u8] {
    text.strip_suffix(b"\r").unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_ends_in_newline_with_or_without_return() {
        assert_eq!(head(b"get a\r\nrest"), Head::Line(Line { text: b"get a", length: 7 }));
        assert_eq!(head(b"get a\nrest"), Head::Line(Line { text: b"get a", length: 6 }));
        assert_eq!(head(b"\n"), Head::Line(Line { text: b"", length: 1 }));
        assert_eq!(head(b"\r\r\n"), Head::Line(Line { text: b"\r", length: 3 }));
    }

    #[test]
    fn an_unfinished_line_is_partial_until_it_is_too_long() {
        assert_eq!(head(b""), Head::Partial);
        assert_eq!(head(b"get a\r"), Head::Partial);
        let mut bytes = vec![b'x'; LINE_MAX];
        assert_eq!(head(&bytes), Head::Partial);
        bytes.push(b'x');
        assert_eq!(head(&bytes), Head::Long);
    }

    #[test]
    fn length_alone_decides_about_a_long_line() {
        let mut bytes = vec![b'x'; LINE_MAX];
        bytes.push(b'\n');
        assert!(matches!(head(&bytes), Head::Line(line) if line.length == LINE_MAX + 1));
        bytes.insert(0, b'x');
        assert_eq!(head(&bytes), Head::Long, "its newline has arrived, and it is long all the same");
    }
}
