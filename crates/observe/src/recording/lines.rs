//! Lines of a stream of any size, one at a time, none of them longer in memory than `LINE_MAX`.

use std::io::{self, BufRead, Read as _};

/// A line longer than this, in bytes, is no event: the longest lists one field after the other for
/// a few hundred.
pub(super) const LINE_MAX: u64 = 4096;

pub(super) struct Lines<R> {
    input: R,
    buffer: Vec<u8>,
    number: u64,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line<'a> {
    /// Its place in the file, from 1 on.
    pub number: u64,
    /// The line without its end, and cut at [`LINE_MAX`].
    pub text: &'a [u8],
    /// False for a last line that breaks off without an end.
    pub whole: bool,
}

impl<R: BufRead> Lines<R> {
    pub fn new(input: R) -> Self {
        Self { input, buffer: Vec::new(), number: 0 }
    }

    /// The next line; `None` at the end.
    pub fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        self.buffer.clear();
        self.input.by_ref().take(LINE_MAX).read_until(b'\n', &mut self.buffer)?;
        if self.buffer.is_empty() {
            return Ok(None);
        }
        self.number += 1;
        let mut whole = self.buffer.last() == Some(&b'\n');
        if whole {
            self.buffer.pop();
            self.buffer.pop_if(|last| *last == b'\r');
        } else if self.buffer.len() as u64 == LINE_MAX {
            whole = self.skip()?;
        }
        Ok(Some(Line { number: self.number, text: &self.buffer, whole }))
    }

    /// Leaves out the rest of a line; true if it has an end.
    fn skip(&mut self) -> io::Result<bool> {
        loop {
            let ahead = self.input.fill_buf()?;
            if ahead.is_empty() {
                return Ok(false);
            }
            let end = ahead.iter().position(|&byte| byte == b'\n');
            let length = end.map_or(ahead.len(), |end| end + 1);
            self.input.consume(length);
            if end.is_some() {
                return Ok(true);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &[u8]) -> Vec<(u64, usize, bool)> {
        let mut lines = Lines::new(io::BufReader::with_capacity(16, text));
        let mut all = Vec::new();
        while let Some(line) = lines.next().unwrap() {
            all.push((line.number, line.text.len(), line.whole));
        }
        all
    }

    #[test]
    fn lines_end_where_they_end_and_the_last_says_if_it_does() {
        assert_eq!(all(b""), []);
        assert_eq!(all(b"one\n\ntwo\r\nthree"), [(1, 3, true), (2, 0, true), (3, 3, true), (4, 5, false)]);
    }

    #[test]
    fn a_long_line_is_cut_and_the_next_one_is_whole_again() {
        let long = vec![b'x'; 3 * LINE_MAX as usize];
        let text = [&long[..], b"\nshort\n", &long[..]].concat();
        let max = LINE_MAX as usize;
        assert_eq!(all(&text), [(1, max, true), (2, 5, true), (3, max, false)]);
    }
}
