//! The wait of a thread that was blocked before the watch began, by its files in `/proc`.
//!
//! A socket's other end is not looked up here: until its next wait it counts as one on this
//! machine, of which more has to be known before any process stands still for it.

use super::WaitKind;
use super::calls::{ON_DESCRIPTOR, ON_FUTEX, ON_MANY, ON_TIME, class_of};
use std::fs;

/// Of `FUTEX_PRIVATE_FLAG`.
const PRIVATE: u64 = 128;

/// The kind of its wait and the place, as the program in the kernel would report them; `None` if it
/// runs, or has ended.
pub(super) fn wait_of(process: u32, thread: u32) -> Option<(WaitKind, u64)> {
    let text = fs::read_to_string(format!("/proc/{process}/task/{thread}/syscall")).ok()?;
    let link = |descriptor: u64| fs::read_link(format!("/proc/{process}/fd/{descriptor}")).ok();
    wait_in(&text, |descriptor| link(descriptor).is_some_and(|target| target.starts_with("socket:")))
}

/// `running`, or the number, six arguments and two registers; -1 for a thread that is blocked
/// outside of system calls.
fn wait_in(text: &str, is_socket: impl Fn(u64) -> bool) -> Option<(WaitKind, u64)> {
    let mut words = text.split_ascii_whitespace();
    let number = words.next().filter(|word| *word != "running")?;
    let Ok(number) = number.parse::<u32>() else { return Some((WaitKind::Other, 0)) };
    let mut argument =
        || words.next().and_then(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok());
    let (first, second) = (argument().unwrap_or(0), argument().unwrap_or(0));
    let place = u64::from(number & 0xFFFF) << 48;
    Some(match class_of(number) {
        ON_MANY => (WaitKind::Many, place | (first & 0xFFFF_FFFF)),
        ON_TIME => (WaitKind::Within, place),
        ON_FUTEX if second & PRIVATE != 0 => (WaitKind::Within, place),
        ON_DESCRIPTOR if is_socket(first) => (WaitKind::Local, place),
        _ => (WaitKind::Other, place),
    })
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_proc_tells_what_is_waited_for() {
        let of = |line: &str| wait_in(line, |descriptor| descriptor == 5).map(|(kind, _)| kind);
        assert_eq!(of("running\n"), None);
        assert_eq!(of("202 0x7f00 0x80 0x0 0x0 0x0 0x0 0x7ffe 0x7f01\n"), Some(WaitKind::Within));
        assert_eq!(
            of("202 0x7f00 0x0 0x0 0x0 0x0 0x0 0x7ffe 0x7f01\n"),
            Some(WaitKind::Other),
            "shared with others"
        );
        assert_eq!(of("45 0x5 0x0 0x0 0x0 0x0 0x0 0x0 0x0\n"), Some(WaitKind::Local));
        assert_eq!(of("0 0x3 0x0 0x0 0x0 0x0 0x0 0x0 0x0\n"), Some(WaitKind::Other), "a pipe");
        assert_eq!(of("232 0x4 0x0\n"), Some(WaitKind::Many));
        assert_eq!(of("-1 0x7ffe 0x7f01\n"), Some(WaitKind::Other));
        assert_eq!(of(""), None);
    }
}
