//! How threads hand each other things: a bounded-by-nature list and a bell.
//!
//! A worker blocks in `epoll_wait`, so the bell is an eventfd in its epoll set. Ringing costs a
//! system call and, when the receiver's CPU sleeps, a wake-up; so the bell is rung only if the
//! receiver said that it is about to block. The handshake is Dekker's: the receiver announces
//! *asleep* and then looks for mail; the sender posts mail and then looks for *asleep*. With
//! sequentially consistent stores at least one of them sees the other, so no letter lies unread
//! while its reader sleeps.
//!
//! ```text
//!   sender: push, waiting = true, asleep?  -> ring         receiver: asleep = true, waiting? -> do not block
//! ```

use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Debug)]
pub(crate) struct Mailbox<T> {
    letters: Mutex<Vec<T>>,
    waiting: AtomicBool,
    asleep: AtomicBool,
    bell: OwnedFd,
}

impl<T> Mailbox<T> {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            letters: Mutex::new(Vec::new()),
            waiting: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    /// Leaves a letter. Answers whether the receiver was asleep and had to be woken.
    pub(crate) fn post(&self, letter: T) -> bool {
        self.leave(letter);
        self.nudge()
    }

    /// Leaves a letter that may wait until the receiver wakes for something else.
    pub(crate) fn leave(&self, letter: T) {
        self.letters.lock().unwrap_or_else(|e| e.into_inner()).push(letter);
        self.waiting.store(true, Ordering::SeqCst);
    }

    /// Wakes the receiver if it sleeps, and answers whether it did.
    pub(crate) fn nudge(&self) -> bool {
        let asleep = self.asleep.load(Ordering::SeqCst);
        if asleep {
            self.ring();
        }
        asleep
    }

    /// The descriptor that becomes readable when the bell rings; watch it edge-triggered, it is
    /// never read.
    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Whether the receiver blocks, or is about to.
    pub(crate) fn is_asleep(&self) -> bool {
        self.asleep.load(Ordering::Relaxed)
    }

    /// Announces that the receiver is about to block; `false` if it must not, because mail waits.
    pub(crate) fn fall_asleep(&self) -> bool {
        self.asleep.store(true, Ordering::SeqCst);
        !self.waiting.load(Ordering::SeqCst)
    }

    /// Ends the sleep that [`fall_asleep`](Self::fall_asleep) began.
    pub(crate) fn wake_up(&self) {
        self.asleep.store(false, Ordering::SeqCst);
    }

    /// Takes all letters, in the order in which they were posted, by swapping them for the emptied
    /// `into`.
    pub(crate) fn collect(&self, into: &mut Vec<T>) {
        into.clear();
        // The flag is lowered before the list is taken: a letter that comes between raises it
        // again.
        if self.waiting.load(Ordering::Relaxed) && self.waiting.swap(false, Ordering::SeqCst) {
            std::mem::swap(&mut *self.letters.lock().unwrap_or_else(|e| e.into_inner()), into);
        }
    }

    fn ring(&self) {
        // The only failure of an eventfd write is a counter about to overflow, and then the bell
        // rings already.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, poll};
    use std::sync::Arc;

    /// Two threads exchange letters; the reader blocks whenever it may. A lost wake-up would hang
    /// the test.
    #[test]
    fn no_letter_lies_unread_while_its_reader_sleeps() {
        let mailbox = Arc::new(Mailbox::new().unwrap());
        let sender = {
            let mailbox = Arc::clone(&mailbox);
            std::thread::spawn(move || {
                for n in 0..200_000_u32 {
                    mailbox.post(n);
                }
            })
        };
        let (mut next, mut letters) = (0, Vec::new());
        while next < 200_000 {
            mailbox.collect(&mut letters);
            for &n in &letters {
                assert_eq!(n, next);
                next += 1;
            }
            if letters.is_empty() && mailbox.fall_asleep() {
                poll(&mut [PollFd::from_borrowed_fd(mailbox.bell(), PollFlags::IN)], None).unwrap();
                rustix::io::read(mailbox.bell(), &mut [0_u8; 8]).unwrap();
            }
            mailbox.wake_up();
        }
        sender.join().unwrap();
    }
}
