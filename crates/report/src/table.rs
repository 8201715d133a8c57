//! Text for a terminal: columns as wide as their widest cell, sentences wrapped between words.

use anyhow::{Context as _, Result};
use std::fmt::Write as _;
use std::io::{self, Write as _};

/// Rows under a header. Names stand to the left, figures to the right.
pub struct Table {
    rows: Vec<Row>,
    /// Leading columns of words.
    words: usize,
}

enum Row {
    Cells(Vec<String>),
    /// A name, and a sentence where the figures would be.
    Remark(String, String),
}

/// A first cell longer than this has a line of its own.
const NAME_CHARS: usize = 24;

impl Table {
    /// A table with this header, of which the first `words` columns hold words.
    pub fn new(words: usize, header: Vec<String>) -> Self {
        Self { rows: vec![Row::Cells(header)], words }
    }

    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(Row::Cells(cells));
    }

    /// A row without figures.
    pub fn remark(&mut self, name: String, remark: &str) {
        self.rows.push(Row::Remark(name, remark.to_owned()));
    }

    /// True without a row below the header.
    pub fn is_empty(&self) -> bool {
        self.rows.len() == 1
    }

    pub fn text(&self) -> String {
        let mut widths: Vec<usize> = Vec::new();
        for row in &self.rows {
            let cells = match row {
                Row::Cells(cells) => &cells[..],
                Row::Remark(name, _) => std::slice::from_ref(name),
            };
            for (column, cell) in cells.iter().enumerate() {
                let chars = cell.chars().count();
                let width = if column == 0 && chars > NAME_CHARS { 0 } else { chars };
                match widths.get_mut(column) {
                    Some(known) => *known = (*known).max(width),
                    None => widths.push(width),
                }
            }
        }
        let mut text = String::new();
        for row in &self.rows {
            let line = match row {
                Row::Cells(cells) => self.line(cells, &widths, &mut text),
                Row::Remark(name, remark) => format!("{name:<width$}  {remark}", width = widths[0]),
            };
            let _ = writeln!(text, "{}", line.trim_end());
        }
        text
    }

    fn line(&self, cells: &[String], widths: &[usize], text: &mut String) -> String {
        let mut line = String::new();
        for (column, (cell, &width)) in cells.iter().zip(widths).enumerate() {
            let gap = if column == 0 { "" } else { "  " };
            let _ = if column == 0 && cell.chars().count() > width {
                writeln!(text, "{cell}").and_then(|()| write!(line, "{:width$}", ""))
            } else if column < self.words {
                write!(line, "{gap}{cell:<width$}")
            } else {
                write!(line, "{gap}{cell:>width$}")
            };
        }
        line
    }
}

/// `line` wrapped at its spaces, the first line after `first`, the others indented as far. Words
/// that must stay together have [`TIE`]s for spaces.
pub fn wrap(text: &mut String, first: &str, line: &str, columns: usize) {
    let indent = first.chars().count();
    let mut used = indent;
    text.push_str(first);
    for (at, word) in line.split(' ').filter(|word| !word.is_empty()).enumerate() {
        let word = word.replace(TIE, " ");
        let chars = word.chars().count();
        if at > 0 && used + 1 + chars > columns {
            let _ = write!(text, "\n{:indent$}{word}", "");
            used = indent + chars;
        } else {
            let gap = if at == 0 { "" } else { " " };
            let _ = write!(text, "{gap}{word}");
            used += gap.len() + chars;
        }
    }
    text.push('\n');
}

/// A space at which no line ends.
pub const TIE: char = '\u{a0}';

/// How wide standard output is: as `COLUMNS` says, or the terminal, or 100.
pub fn columns() -> usize {
    let named = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    named.or_else(|| width(io::stdout())).filter(|&columns| columns >= 40).unwrap_or(100)
}

/// How wide a stream's terminal is, if it has one.
#[cfg(unix)]
pub fn width(stream: impl std::os::fd::AsFd) -> Option<usize> {
    terminal_size::terminal_size_of(stream).map(|(width, _)| usize::from(width.0))
}

#[cfg(windows)]
pub fn width(stream: impl std::os::windows::io::AsHandle) -> Option<usize> {
    terminal_size::terminal_size_of(stream).map(|(width, _)| usize::from(width.0))
}

/// Prints a command's output. A reader that has seen enough (`| head`) is no failure. Names that
/// other programs chose are in it: characters that would steer the terminal are written out.
pub fn print(text: &str) -> Result<()> {
    match io::stdout().lock().write_all(os::printable(text).as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context("standard output"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|&text| text.to_owned()).collect()
    }

    #[test]
    fn figures_stand_below_each_other_and_long_names_above_their_row() {
        let mut table = Table::new(1, cells(&["", "mean", "p99"]));
        table.row(cells(&["menu", "12.0us ±1.2%", "40us"]));
        table.row(cells(&["peafowl + menu-feedback + pegasus", "9us ±1%", "140us"]));
        table.remark("deep".into(), "unstable");
        let expected = "
              mean    p99
menu  12.0us ±1.2%   40us
peafowl + menu-feedback + pegasus
           9us ±1%  140us
deep  unstable
";
        assert_eq!(table.text(), expected[1..].to_owned());
    }

    #[test]
    fn long_sentences_are_wrapped_between_words() {
        let mut text = String::new();
        wrap(&mut text, "- ", "one two three four five", 12);
        assert_eq!(text, "- one two\n  three four\n  five\n");
        text.clear();
        wrap(&mut text, "met: ", "teo, menu\u{a0}+\u{a0}rubik", 14);
        assert_eq!(text, "met: teo,\n     menu + rubik\n");
    }
}
