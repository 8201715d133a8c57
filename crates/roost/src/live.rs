//! What a person sees of a run while it goes on, or a program: a text whose next drawing takes its place, or a line of JSON.

use machine::{Duration, Instant};
use serde::Serialize;
use std::io::{IsTerminal as _, Write as _};

/// A text on a terminal. Whoever reads it may go; what is done goes on.
pub struct Live {
    /// Somebody looks.
    is_live: bool,
    every: Duration,
    drawn: Instant,
    /// Lines of the last drawing, which the next one takes the place of.
    lines: usize,
}

impl Live {
    /// Drawn no more often than `every`, on a terminal, unless a program reads.
    pub fn new(json: bool, every: Duration) -> Self {
        let is_live = std::io::stdout().is_terminal() && !json;
        Self { is_live, every, drawn: Instant::ZERO, lines: 0 }
    }

    /// Somebody looks.
    pub fn is_live(&self) -> bool {
        self.is_live
    }

    /// True once per interval, if somebody looks.
    pub fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self.is_live && now >= self.drawn + self.every;
        if is_due {
            self.drawn = now;
        }
        is_due
    }

    /// A line that stays.
    pub fn say(&mut self, notice: &str) {
        self.lines = 0;
        eprintln!("{notice}");
    }

    /// Takes the place of the last text.
    pub fn draw(&mut self, text: &str) {
        let mut out = std::io::stdout();
        if self.lines > 0 {
            let _ = write!(out, "\x1b[{}A\x1b[J", self.lines);
        }
        self.lines = text.lines().count();
        let _ = write!(out, "{text}");
        let _ = out.flush();
    }

    /// The last text stays.
    pub fn end(&self) {
        if self.is_live {
            println!();
        }
    }
}

/// A line of JSON.
pub fn print_line(value: &impl Serialize) {
    // Who read this may have gone; what is done goes on.
    let _ = writeln!(std::io::stdout(), "{}", serde_json::to_string(value).expect("plain data"));
}
