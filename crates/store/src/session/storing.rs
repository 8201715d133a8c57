//! `set`, `add`, `replace`, `append`, `prepend`, `cas`, and the store underneath them and `ms`.

use super::clock::expiry;
use super::{Context, Value, watching};
use crate::store::{Entry, NewItem, StoreError};
use memcache::request::{Store as StoreRequest, Verb};
use memcache::{Refusal, reply};

/// memcached's overhead besides key and value when it compares an item with its limit: a header of
/// 48 bytes, the unique number, a NUL behind the key, a line ending behind the value. Counted here
/// as well, so that the same values are refused.
const AROUND: usize = 48 + 8 + 1 + 2;

/// memcached's addition if the client flags are not zero.
const FLAGS_SIZE: usize = 4;

/// The size of an item as memcached measures it, which is never less than the store does.
pub(super) const fn measure(key: usize, value: usize, flags: u32) -> usize {
    key + value + AROUND + if flags == 0 { 0 } else { FLAGS_SIZE }
}

/// The size of the item that a request would store.
#[inline]
pub(super) const fn item_size(request: &StoreRequest<'_>) -> usize {
    measure(request.key.len(), request.length, request.flags)
}

/// A value and the conditions on which it is stored.
pub(super) struct Offer<'a> {
    pub verb: Verb,
    /// The key's length, bytes.
    pub key_length: usize,
    pub value: &'a [u8],
    pub flags: u32,
    /// Server seconds.
    pub exptime: u32,
    /// The unique number that the old item must have. With [`Verb::Set`] and [`Verb::Replace`] it
    /// makes the store a `cas`; zero matches nothing there, and anything with [`Verb::Append`] and
    /// [`Verb::Prepend`].
    pub compare: Option<u64>,
    /// The unique number for the new item.
    pub unique: Option<u64>,
    /// A `cas` that comes too late stores all the same, marked stale (`ms` with `I`).
    pub allow_stale: bool,
    /// `append` and `prepend` create the item, with this expiry in server seconds, if there is
    /// none.
    pub vivify: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Stored, under this unique number, with so many bytes of value.
    Stored {
        unique: u64,
        length: usize,
    },
    NotStored,
    /// The old item has another unique number.
    Exists,
    /// There is no item to compare with.
    NotFound,
    Refused(Refusal),
}

/// Carries out a storage command whose value has come.
#[inline]
pub(super) fn store(request: &StoreRequest<'_>, value: Value<'_>, out: &mut Vec<u8>, context: &Context<'_>) {
    let Value::Whole(value) = value else {
        return refuse(Refusal::BadChunk, request.noreply, out);
    };
    let mut entry = context.store.entry(request.key, context.now);
    let outcome = offer(
        &mut entry,
        &Offer {
            verb: request.verb,
            key_length: request.key.len(),
            value,
            flags: request.flags,
            exptime: expiry(request.exptime, context.now, context.unix_offset),
            compare: request.compare,
            unique: None,
            allow_stale: false,
            vivify: None,
        },
        context,
    );
    let answer = match outcome {
        Outcome::Refused(refusal) => return refuse(refusal, request.noreply, out),
        Outcome::Stored { .. } => reply::STORED,
        Outcome::NotStored => reply::NOT_STORED,
        Outcome::Exists => reply::EXISTS,
        Outcome::NotFound => reply::NOT_FOUND,
    };
    if !request.noreply {
        out.extend_from_slice(answer);
    }
}

/// Refuses a value before it has come. The item that `set` would have replaced goes as well: a
/// client whose store was refused must not read the value that it meant to overwrite.
pub(super) fn give_up(
    request: &StoreRequest<'_>,
    refusal: Refusal,
    out: &mut Vec<u8>,
    context: &Context<'_>,
) {
    count_refusal(refusal, context);
    let mut entry = context.store.entry(request.key, context.now);
    if request.verb == Verb::Set && request.compare.is_none() {
        entry.remove();
    }
    let how = (request.verb, request.compare.is_some());
    watching::stored(&entry, how, (0, 0), Outcome::Refused(refusal), context);
    drop(entry);
    refuse(refusal, request.noreply, out);
}

pub(super) fn count_refusal(refusal: Refusal, context: &Context<'_>) {
    match refusal {
        Refusal::TooLarge => context.counters.store_too_large.raise(1),
        _ => context.counters.store_no_memory.raise(1),
    }
}

fn refuse(refusal: Refusal, noreply: bool, out: &mut Vec<u8>) {
    if !noreply {
        reply::refusal(out, refusal);
    }
}

/// Stores a value if its conditions are met.
#[inline]
pub(super) fn offer(entry: &mut Entry<'_>, offer: &Offer<'_>, context: &Context<'_>) -> Outcome {
    context.counters.cmd_set.raise(1);
    let plain = Place { flags: offer.flags, exptime: offer.exptime, stale: false, win_sent: false };
    let outcome = match (offer.verb, offer.compare) {
        (Verb::Set | Verb::Replace, Some(compare)) => compare_and_put(entry, offer, compare, plain, context),
        (Verb::Set, None) => put(entry, offer, plain),
        (Verb::Add, _) if entry.item().is_some() => Ok(Outcome::NotStored),
        (Verb::Add, _) => put(entry, offer, plain),
        (Verb::Replace, None) if entry.item().is_none() => Ok(Outcome::NotStored),
        (Verb::Replace, None) => put(entry, offer, plain),
        (Verb::Append | Verb::Prepend, compare) => extend(entry, offer, compare, context),
    };
    let outcome = outcome.unwrap_or_else(|error| {
        let refusal = match error {
            StoreError::TooLarge => Refusal::TooLarge,
            StoreError::OutOfMemory => Refusal::OutOfMemory,
        };
        count_refusal(refusal, context);
        if offer.verb == Verb::Set && offer.compare.is_none() {
            entry.remove();
        }
        Outcome::Refused(refusal)
    });
    let how = (offer.verb, offer.compare.is_some());
    watching::stored(entry, how, (offer.value.len(), offer.exptime), outcome, context);
    outcome
}

/// A stored item's parts besides its value.
#[derive(Clone, Copy)]
struct Place {
    flags: u32,
    exptime: u32,
    stale: bool,
    win_sent: bool,
}

#[inline]
fn put(entry: &mut Entry<'_>, offer: &Offer<'_>, place: Place) -> Result<Outcome, StoreError> {
    let unique = entry.put(NewItem {
        flags: place.flags,
        exptime: place.exptime,
        value: &[offer.value],
        cas: offer.unique,
    })?;
    if place.stale {
        entry.set_stale(true);
        entry.set_win_sent(place.win_sent);
    }
    Ok(Outcome::Stored { unique, length: offer.value.len() })
}

fn compare_and_put(
    entry: &mut Entry<'_>,
    offer: &Offer<'_>,
    compare: u64,
    plain: Place,
    context: &Context<'_>,
) -> Result<Outcome, StoreError> {
    let counters = context.counters;
    let place = match entry.item() {
        None => {
            counters.cas_misses.raise(1);
            return Ok(Outcome::NotFound);
        }
        Some(old) if compare != 0 && old.cas == compare => plain,
        // Another client marked the item stale meanwhile: the late value serves until the winner
        // brings a fresh one.
        Some(old) if offer.allow_stale && compare != 0 && compare < old.cas => {
            Place { exptime: old.exptime, stale: true, win_sent: old.win_sent, ..plain }
        }
        Some(_) => {
            counters.cas_badval.raise(1);
            return Ok(Outcome::Exists);
        }
    };
    counters.cas_hits.raise(1);
    put(entry, offer, place)
}

fn extend(
    entry: &mut Entry<'_>,
    offer: &Offer<'_>,
    compare: Option<u64>,
    context: &Context<'_>,
) -> Result<Outcome, StoreError> {
    let Some(old) = entry.item() else {
        return match offer.vivify {
            Some(exptime) => {
                put(entry, offer, Place { flags: offer.flags, exptime, stale: false, win_sent: false })
            }
            None => Ok(Outcome::NotStored),
        };
    };
    if compare.is_some_and(|compare| compare != 0 && compare != old.cas) {
        return Ok(Outcome::Exists);
    }
    let length = old.value.len() + offer.value.len();
    // Too long together: the old value stays as it is, and memcached says no more than that.
    if measure(offer.key_length, length, old.flags) > context.limits.max_item_size {
        return Ok(Outcome::NotStored);
    }
    let (before, after): (&[u8], &[u8]) = match offer.verb {
        Verb::Prepend => (offer.value, b""),
        _ => (b"", offer.value),
    };
    Ok(match entry.put_around(before, after, offer.unique) {
        Some(Ok(unique)) => Outcome::Stored { unique, length },
        Some(Err(_)) | None => Outcome::NotStored,
    })
}
