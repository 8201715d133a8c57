//! `delete`, `incr`, `decr`, `touch`, `flush_all`, and the arithmetic underneath them and `ma`.

use super::clock::expiry;
use super::storing::measure;
use super::{Context, watching};
use crate::store::{Entry, NewItem, StoreError};
use memcache::number::lenient_u64;
use memcache::request::{Arithmetic, Delete, Direction, Touch};
use memcache::{Refusal, reply};

pub(super) fn delete(request: &Delete<'_>, out: &mut Vec<u8>, context: &Context<'_>) {
    let mut entry = context.store.entry(request.key, context.now);
    watching::deleted(&entry, "delete", context);
    let removed = entry.remove();
    drop(entry);
    let counters = context.counters;
    if removed { &counters.delete_hits } else { &counters.delete_misses }.raise(1);
    if !request.noreply {
        out.extend_from_slice(if removed { reply::DELETED } else { reply::NOT_FOUND });
    }
}

pub(super) fn touch(request: &Touch<'_>, out: &mut Vec<u8>, context: &Context<'_>) {
    let mut entry = context.store.entry(request.key, context.now);
    let found = entry.item().is_some();
    if found {
        entry.bump();
        entry.set_exptime(expiry(request.exptime, context.now, context.unix_offset));
    }
    let counters = context.counters;
    counters.cmd_touch.raise(1);
    if found { &counters.touch_hits } else { &counters.touch_misses }.raise(1);
    if !request.noreply {
        out.extend_from_slice(if found { reply::TOUCHED } else { reply::NOT_FOUND });
    }
}

/// Lowers the memory limit, or raises it again up to the start value.
pub(super) fn cache_memlimit(mebibytes: u32, noreply: bool, out: &mut Vec<u8>, context: &Context<'_>) {
    let set = (mebibytes as usize).checked_mul(1 << 20).is_some_and(|bytes| context.store.set_limit(bytes));
    if noreply {
        return;
    }
    if set {
        out.extend_from_slice(reply::OK);
    } else {
        out.extend_from_slice(Refusal::NoMemoryLimitChange.to_string().as_bytes());
        out.extend_from_slice(reply::LINE_ENDING);
    }
}

pub(super) fn flush_all(delay: i32, noreply: bool, out: &mut Vec<u8>, context: &Context<'_>) {
    context.counters.cmd_flush.raise(1);
    let at = if delay > 0 { expiry(delay, context.now, context.unix_offset) } else { context.now };
    context.store.flush_all(at);
    if !noreply {
        out.extend_from_slice(reply::OK);
    }
}

pub(super) fn arithmetic(request: &Arithmetic<'_>, out: &mut Vec<u8>, context: &Context<'_>) {
    let mut entry = context.store.entry(request.key, context.now);
    let outcome =
        change(&mut entry, request.key.len(), request.direction, request.amount, None, None, context);
    if request.noreply {
        return;
    }
    match outcome {
        Changed::To(number) => {
            reply::number(out, number);
            out.extend_from_slice(reply::LINE_ENDING);
        }
        Changed::NotFound => out.extend_from_slice(reply::NOT_FOUND),
        Changed::Exists => out.extend_from_slice(reply::EXISTS),
        Changed::Refused(refusal) => reply::refusal(out, refusal),
    }
}

/// An item above this size is never taken for a number, whatever it holds (memcached's
/// `slab_chunk_max`).
const CHUNKED: usize = 512 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Changed {
    To(u64),
    NotFound,
    /// The item has another unique number.
    Exists,
    /// The value is no number, or the changed one finds no room.
    Refused(Refusal),
}

/// Changes the number that an item holds. A number that becomes shorter keeps its place and is
/// padded with spaces, as memcached does; a longer one becomes a new item.
pub(super) fn change(
    entry: &mut Entry<'_>,
    key_length: usize,
    direction: Direction,
    amount: u64,
    compare: Option<u64>,
    unique: Option<u64>,
    context: &Context<'_>,
) -> Changed {
    let counters = context.counters;
    let (hits, misses) = match direction {
        Direction::Up => (&counters.incr_hits, &counters.incr_misses),
        Direction::Down => (&counters.decr_hits, &counters.decr_misses),
    };
    let Some(item) = entry.item() else {
        misses.raise(1);
        return Changed::NotFound;
    };
    if item.value.is_empty() || measure(key_length, item.value.len(), item.flags) > CHUNKED {
        return Changed::Refused(Refusal::NotANumber);
    }
    if compare.is_some_and(|compare| compare != 0 && compare != item.cas) {
        return Changed::Exists;
    }
    let Some(number) = lenient_u64(item.value) else {
        return Changed::Refused(Refusal::NotANumber);
    };
    let number = match direction {
        Direction::Up => number.wrapping_add(amount),
        Direction::Down => number.saturating_sub(amount),
    };
    let (flags, exptime) = (item.flags, item.exptime);
    let mut digits = itoa::Buffer::new();
    let digits = digits.format(number).as_bytes();
    if digits.len() <= item.value.len() {
        let Some(value) = entry.value_mut() else { unreachable!("the item was found under the same lock") };
        let (head, padding) = value.split_at_mut(digits.len());
        head.copy_from_slice(digits);
        padding.fill(b' ');
        entry.fresh_cas(unique);
    } else if let Err(error) = entry.put(NewItem { flags, exptime, value: &[digits], cas: unique }) {
        return Changed::Refused(match error {
            StoreError::TooLarge | StoreError::OutOfMemory => Refusal::OutOfMemoryChanging,
        });
    }
    hits.raise(1);
    Changed::To(number)
}
