//! `println!` and its kin for Roost's binaries: a reader that is gone ends nothing.
//!
//! The standard macros panic when their stream cannot be written. A daemon whose log was piped into
//! `head`, or to a service that ended, would die of its next line, with all that it holds; a table
//! of which the first rows were enough would end in a backtrace. These have the same names, so that
//! no file of a binary that imports them has the others by mistake, and drop text without a reader.
//! One whose disk is full ends as failed, after all its work.

use os::{printable, printable_name};
use std::fmt;
use std::io::{self, Write as _};
use std::sync::OnceLock;

#[macro_export]
macro_rules! println {
    () => { $crate::print::out(format_args!("\n")) };
    ($($text:tt)*) => { $crate::print::out(format_args!("{}\n", format_args!($($text)*))) };
}

#[macro_export]
macro_rules! print {
    ($($text:tt)*) => { $crate::print::out(format_args!($($text)*)) };
}

#[macro_export]
macro_rules! eprintln {
    () => { $crate::print::err(format_args!("\n")) };
    ($($text:tt)*) => { $crate::print::err(format_args!("{}\n", format_args!($($text)*))) };
}

/// To the standard output. A reader that has seen enough (`| head`) is no failure; a full disk is
/// told at the end.
pub fn out(text: fmt::Arguments<'_>) {
    if let Err(error) = io::stdout().write_all(printable(&text.to_string()).as_bytes())
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        let _ = LOST.set(error.to_string());
    }
}

/// To the standard error stream, each line in one write, so that lines of two processes do not mix.
pub fn err(text: fmt::Arguments<'_>) {
    let _ = io::stderr().write_all(printable(&text.to_string()).as_bytes());
}

/// On a terminal: a line that takes the place of the one before; without text, none does.
pub fn over(mut terminal: impl io::Write, text: &str) {
    // The reader may have gone; the work goes on.
    let _ = write!(terminal, "\r\x1b[2K{}", printable_name(text));
    let _ = terminal.flush();
}

/// Why something that was to be in the standard output is not.
pub fn lost() -> Option<&'static str> {
    LOST.get().map(String::as_str)
}

static LOST: OnceLock<String> = OnceLock::new();
