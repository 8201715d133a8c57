//! `md`.

use super::super::clock::expiry;
use super::super::{Context, watching};
use super::short_answer;
use crate::store::{Entry, NewItem};
use memcache::meta::{Flags, MetaDelete};
use memcache::{KEY_MAX, Refusal, reply};

pub(in super::super) fn delete(request: &MetaDelete<'_>, out: &mut Vec<u8>, context: &Context<'_>) {
    let MetaDelete { key, flags } = request;
    let counters = context.counters;
    counters.cmd_meta.raise(1);
    let mut scratch = [0; KEY_MAX];
    let mut entry = context.store.entry(key.decoded(&mut scratch), context.now);
    let Some(unique) = entry.item().map(|item| item.cas) else {
        counters.delete_misses.raise(1);
        return short_answer(out, reply::META_NOT_FOUND, flags, key);
    };
    if flags.compare.is_some_and(|compare| compare != unique) {
        counters.delete_misses.raise(1);
        return short_answer(out, reply::META_EXISTS, flags, key);
    }
    if let Err(refusal) = remove_or_mark(&mut entry, flags, unique, context) {
        return reply::refusal(out, refusal);
    }
    if !flags.has(b'q') {
        short_answer(out, reply::META_DONE, flags, key);
    }
}

/// The effect of `md` on an item: forgets it, or (`x`) its value alone, or (`I`) marks it stale.
fn remove_or_mark(
    entry: &mut Entry<'_>,
    flags: &Flags<'_>,
    unique: u64,
    context: &Context<'_>,
) -> Result<(), Refusal> {
    let exptime = expiry(flags.exptime, context.now, context.unix_offset);
    if flags.has(b'x') {
        // A tombstone has the unique number of the item that it replaces, unless the client names
        // one.
        let unique = flags.unique.unwrap_or(unique);
        entry
            .put(NewItem { flags: flags.client_flags, exptime, value: &[], cas: Some(unique) })
            .map_err(|_| Refusal::OutOfMemoryChanging)?;
    }
    if flags.has(b'I') {
        if flags.has(b'T') {
            entry.set_exptime(exptime);
        }
        entry.set_stale(true);
        entry.set_win_sent(false);
        entry.fresh_cas(flags.unique);
    } else {
        context.counters.delete_hits.raise(1);
        watching::deleted(entry, "md", context);
        if !flags.has(b'x') {
            entry.remove();
        }
    }
    Ok(())
}
