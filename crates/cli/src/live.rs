//! A run's live output, for a person or a program: a text whose next drawing takes its place, or a
//! line of JSON.

use daemon::Log;
use linux::printable;
use machine::{Duration, Instant};
use serde::Serialize;
use std::io::{IsTerminal as _, Write as _};

/// A text on a terminal. Its reader may go; the work goes on.
pub struct Live {
    /// A reader is there.
    is_live: bool,
    every: Duration,
    drawn: Instant,
    /// Lines of the last drawing, which the next one takes the place of.
    lines: usize,
    log: Log,
}

impl Live {
    /// Drawn no more often than `every`, on a terminal, unless a program reads.
    pub fn new(json: bool, every: Duration) -> Self {
        let is_live = is_watched() && !json;
        Self { is_live, every, drawn: Instant::ZERO, lines: 0, log: Log::default() }
    }

    /// It is for a person on a terminal.
    pub fn is_live(&self) -> bool {
        self.is_live
    }

    /// True once per interval, if a reader is there.
    pub fn is_due(&mut self, now: Instant) -> bool {
        let left_out = self.log.due(now);
        self.write(left_out);
        // A shell that has put it into the background since has another program in the foreground.
        let is_due = self.is_live && now >= self.drawn + self.every && is_watched();
        if is_due {
            self.drawn = now;
        }
        is_due
    }

    /// A line that stays; in a flood of them, one that is counted.
    pub fn say(&mut self, notice: &str) {
        let lines = self.log.once(linux::now(), notice);
        self.write(lines);
    }

    fn write(&mut self, lines: impl IntoIterator<Item = String>) {
        for line in lines {
            self.lines = 0;
            eprintln!("{line}");
        }
    }

    /// Takes the place of the last text.
    pub fn draw(&mut self, text: &str) {
        let mut out = std::io::stdout();
        if self.lines > 0 {
            let _ = write!(out, "\x1b[{}A\x1b[J", self.lines);
        }
        // A line that wraps would be two, and the next drawing would go up too few.
        let width = rustix::termios::tcgetwinsize(&out).map_or(WIDTH, |size| usize::from(size.ws_col));
        let text = fitted(&printable(text), if width == 0 { WIDTH } else { width });
        self.lines = text.lines().count();
        let _ = write!(out, "{text}");
        let _ = out.flush();
    }

    pub fn end(&mut self) {
        if self.is_live {
            println!();
        }
        let left_out = self.log.rest();
        self.write(left_out);
    }
}

/// True if standard output is seen: it is a terminal, and this program is in its foreground.
pub fn is_watched() -> bool {
    let out = std::io::stdout();
    let is_in_front =
        || rustix::termios::tcgetpgrp(&out).is_ok_and(|group| group == rustix::process::getpgrp());
    out.is_terminal() && is_in_front()
}

/// A text whose lines are no wider than a terminal, the rest cut off.
fn fitted(text: &str, width: usize) -> String {
    text.lines().flat_map(|line| line.chars().take(width).chain(std::iter::once('\n'))).collect()
}

/// Of a terminal that does not say it.
const WIDTH: usize = 80;

/// Prints a record of a stream, an object, as a line that says its format.
pub fn print_line(record: &impl Serialize) {
    println!("{}", line(record));
}

fn line(record: &impl Serialize) -> String {
    #[derive(Serialize)]
    struct Line<'a, T> {
        format: u32,
        #[serde(flatten)]
        record: &'a T,
    }
    serde_json::to_string(&Line { format: 1, record }).expect("plain data")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_of_a_stream_says_its_format() {
        assert_eq!(line(&serde_json::json!({ "name": "cache" })), r#"{"format":1,"name":"cache"}"#);
    }

    #[test]
    fn a_text_is_no_wider_than_its_terminal_and_keeps_its_lines() {
        assert_eq!(fitted("abcdef\n\nab", 4), "abcd\n\nab\n");
        assert_eq!(fitted("\u{b5}\u{b5}\u{b5}", 2), "\u{b5}\u{b5}\n");
    }
}
