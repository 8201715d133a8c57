//! The terminal itself: taken over, drawn on, and given back as it was.

use machine::Duration;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::{DefaultTerminal, Frame};
use std::io;

/// A terminal taken over: raw mode, the alternate screen, no cursor. Dropping it gives the terminal
/// back, and so does a panic, before its message is printed.
#[derive(Debug)]
pub struct Screen {
    terminal: DefaultTerminal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Leave: `q`, Escape or Ctrl-C.
    Quit,
    Up,
    Down,
    /// Nothing yet; or the window has another size, so the view must be drawn anew.
    Nothing,
}

impl Screen {
    pub fn open() -> io::Result<Self> {
        Ok(Self { terminal: ratatui::try_init()? })
    }

    pub fn draw(&mut self, view: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.terminal.draw(view).map(|_| ())
    }

    /// Waits for a key for at most `patience`.
    pub fn wish(&self, patience: Duration) -> io::Result<Wish> {
        // Asked first whether the terminal is still there: crossterm reads the end of a vanished
        // one again and again without coming back, at the cost of a whole CPU.
        if is_gone(patience)? {
            return Ok(Wish::Quit);
        }
        if !event::poll(std::time::Duration::ZERO)? {
            return Ok(Wish::Nothing);
        }
        Ok(match event::read()? {
            Event::Key(key) if key.kind != KeyEventKind::Release => {
                wish_of(key.code, key.modifiers.contains(KeyModifiers::CONTROL))
            }
            _ => Wish::Nothing,
        })
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Waits for input or for the window's end; true for the latter. Without a terminal on standard
/// input, keys come from the controlling terminal, which is not looked at here.
#[cfg(target_os = "linux")]
fn is_gone(patience: Duration) -> io::Result<bool> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::io::Errno;
    use std::io::IsTerminal as _;
    let stdin = io::stdin();
    if !stdin.is_terminal() {
        return Ok(false);
    }
    let nanos = patience.as_nanos();
    let timeout =
        Timespec { tv_sec: (nanos / 1_000_000_000) as i64, tv_nsec: (nanos % 1_000_000_000) as i64 };
    let mut watched = [PollFd::new(&stdin, PollFlags::IN)];
    match poll(&mut watched, Some(&timeout)) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(errno) => return Err(errno.into()),
    }
    Ok(watched[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL))
}

/// Waits for input. A vanished window ends the process there by itself, or not at all.
#[cfg(not(target_os = "linux"))]
fn is_gone(patience: Duration) -> io::Result<bool> {
    event::poll(patience.into()).map(|_| false)
}

fn wish_of(code: KeyCode, control: bool) -> Wish {
    match (code, control) {
        (KeyCode::Char('q') | KeyCode::Esc, false) | (KeyCode::Char('c'), true) => Wish::Quit,
        (KeyCode::Up | KeyCode::Char('k'), false) => Wish::Up,
        (KeyCode::Down | KeyCode::Char('j'), false) => Wish::Down,
        _ => Wish::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_named_keys_leave() {
        assert_eq!(wish_of(KeyCode::Char('q'), false), Wish::Quit);
        assert_eq!(wish_of(KeyCode::Esc, false), Wish::Quit);
        assert_eq!(wish_of(KeyCode::Char('c'), true), Wish::Quit);
        assert_eq!(wish_of(KeyCode::Char('c'), false), Wish::Nothing);
        assert_eq!(wish_of(KeyCode::Enter, false), Wish::Nothing);
    }
}
