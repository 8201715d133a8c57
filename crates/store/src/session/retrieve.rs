//! `get`, `gets`, `gat`, `gats`: the values of a list of keys, as long a list as the client likes.
//!
//! Keys are taken from the input one by one, so that a list of any length needs no memory of ours
//! and can be interrupted after any key.

use super::clock::expiry;
use super::{Context, Next, Step, Turn, watching};
use memcache::request::Retrieve;
use memcache::{KEY_MAX, Refusal, reply};
use memchr::memchr2;

/// A list of keys under way.
#[derive(Debug)]
pub(super) struct KeyList {
    unique: bool,
    touch: Option<i32>,
    failed: bool,
}

impl KeyList {
    pub(super) const fn new(request: &Retrieve<'_>) -> Self {
        Self { unique: request.unique, touch: request.touch, failed: false }
    }

    /// Whether the list ended in an error and the rest of its line means nothing.
    pub(super) const fn failed(&self) -> bool {
        self.failed
    }

    /// Answers the keys at the beginning of `input`. [`Step::Used`] means that the list is done
    /// with.
    #[inline]
    pub(super) fn serve(&mut self, input: &[u8], turn: &mut Turn<'_, '_>) -> Step {
        let mut used = 0;
        loop {
            while input.get(used) == Some(&b' ') {
                used += 1;
            }
            let rest = &input[used..];
            let Some(length) = memchr2(b' ', b'\n', rest) else {
                // A key that is too long already, whatever comes; one byte more may be the return
                // before a newline.
                if rest.len() > KEY_MAX + 1 {
                    return self.fail(input.len(), turn);
                }
                return Step::Stop(used, Next::Read { wanted: 0 });
            };
            let last = rest[length] == b'\n';
            let key = match &rest[..length] {
                [key @ .., b'\r'] if last => key,
                key => key,
            };
            if key.len() > KEY_MAX {
                return self.fail(used + length, turn);
            }
            if !key.is_empty() {
                if let Some(next) = turn.obstacle() {
                    return Step::Stop(used, next);
                }
                turn.requests += 1;
                self.retrieve(key, turn.out, turn.context);
            }
            used += length;
            if last {
                turn.out.extend_from_slice(reply::END);
                return Step::Used(used + 1);
            }
        }
    }

    #[inline]
    fn retrieve(&self, key: &[u8], out: &mut Vec<u8>, context: &Context<'_>) {
        let counters = context.counters;
        let mut entry = context.store.entry(key, context.now);
        let found = match entry.item() {
            Some(item) => {
                reply::value(out, key, item.flags, item.value, self.unique.then_some(item.cas));
                true
            }
            None => false,
        };
        watching::retrieved(&entry, context);
        if found {
            entry.bump();
        }
        match self.touch {
            None => {
                counters.cmd_get.raise(1);
                if found { &counters.get_hits } else { &counters.get_misses }.raise(1);
            }
            Some(exptime) => {
                if found {
                    entry.set_exptime(expiry(exptime, context.now, context.unix_offset));
                }
                counters.cmd_touch.raise(1);
                if found { &counters.touch_hits } else { &counters.touch_misses }.raise(1);
            }
        }
    }

    fn fail(&mut self, used: usize, turn: &mut Turn<'_, '_>) -> Step {
        self.failed = true;
        reply::refusal(turn.out, Refusal::BadFormat);
        Step::Used(used)
    }
}
