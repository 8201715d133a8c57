//! `lru_crawler metadump` and `mgdump`: a line for each item, as tools that copy or survey a cache read it.
//!
//! The walk goes by the store's buckets ([`Store::walk`](crate::store::Store::walk)), a few in a turn, so
//! that other clients of the worker wait no longer than for some gets. The command's line stays unused
//! until the last item is listed.
//!
//! Always true: an item that is there from the first turn to the last is listed once, whatever is stored,
//! evicted or expires meanwhile.

use super::{Context, Next, Step, Turn};
use crate::store::{CLASSES, Cursor, Listed};
use memcache::request::Dump;
use memcache::{Escaped, Refusal, base64, reply};

/// A walk under way over the items of some classes.
#[derive(Debug)]
pub(super) struct Walk {
    shows_meta: bool,
    /// A bit for each size class to be listed, as `stats items` numbers them.
    classes: u32,
    cursor: Cursor,
    /// Bytes of the command's line, which is used up at the end.
    length: usize,
}

impl Walk {
    pub(super) fn new(dump: &Dump<'_>, length: usize, context: &Context<'_>) -> Result<Self, Refusal> {
        if !context.limits.dump {
            return Err(if dump.meta { Refusal::NoMetaDump } else { Refusal::NoKeyDump });
        }
        let class = |text: &[u8]| {
            let number = std::str::from_utf8(text).ok()?.parse::<u32>().ok()?;
            (number > 0 && number < CLASSES as u32).then(|| 1 << number)
        };
        let classes = match dump.classes {
            b"all" | b"hash" => u32::MAX,
            list => list
                .split(|&byte| byte == b',')
                .try_fold(0, |all, text| Some(all | class(text)?))
                .ok_or(Refusal::BadClass)?,
        };
        Ok(Self { shows_meta: dump.meta, classes, cursor: Cursor::default(), length })
    }

    /// [`Step::Used`] means that all items are listed.
    pub(super) fn serve(&mut self, turn: &mut Turn<'_, '_>) -> Step {
        if let Some(next) = turn.obstacle() {
            return Step::Stop(0, next);
        }
        turn.requests += 1;
        turn.took_long = true;
        let Context { store, now, unix_offset, limits, .. } = *turn.context;
        let mut left = BUCKETS_A_TURN;
        while left > 0 && turn.out.len() < limits.out_high_water {
            left -= 1;
            let is_over = !store.walk(&mut self.cursor, now, |listed| {
                let is_wanted = self.classes & 1 << listed.class != 0;
                match self.shows_meta {
                    true if is_wanted => metadata(turn.out, &listed, unix_offset),
                    false if is_wanted => get(turn.out, listed.key),
                    _ => {}
                }
            });
            if is_over {
                turn.out.extend_from_slice(if self.shows_meta { reply::END } else { b"EN\r\n" });
                return Step::Used(self.length);
            }
        }
        Step::Stop(0, Next::Yield)
    }
}

/// Some hundred items, which take as long as a hundred gets.
const BUCKETS_A_TURN: u32 = 32;

fn metadata(out: &mut Vec<u8>, listed: &Listed<'_>, unix_offset: i64) {
    let unix = |second: u32| i64::from(second) + unix_offset;
    let Listed { key, item, bytes, class, .. } = listed;
    let expiry = if item.exptime == 0 { -1 } else { unix(item.exptime) };
    let line = format!(
        "key={} exp={expiry} la={} cas={} fetch={} cls={class} size={bytes} flags={} \n",
        Escaped(key),
        unix(item.last_access),
        item.cas,
        if item.fetched { "yes" } else { "no" },
        item.flags
    );
    out.extend_from_slice(line.as_bytes());
}

/// A request for the item; a key with bytes that no line may have, in Base64.
fn get(out: &mut Vec<u8>, key: &[u8]) {
    out.extend_from_slice(b"mg ");
    if key.iter().any(|&byte| byte <= b' ' || byte == 0x7f) {
        base64::encode(key, out);
        out.extend_from_slice(b" b\r\n");
    } else {
        out.extend_from_slice(key);
        out.extend_from_slice(reply::LINE_ENDING);
    }
}
