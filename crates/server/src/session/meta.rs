//! The meta commands.
//!
//! Flags act, and are answered, in the order in which they came: `t` before `T30` tells the old time to live, after
//! it the new one.

use super::change::{Changed, change};
use super::clock::expiry;
use super::storing::{Offer, Outcome, count_refusal, measure, offer};
use super::{Context, Value};
use crate::store::{Entry, Item, NewItem};
use memcache::meta::{Flags, MetaArithmetic, MetaDebug, MetaDelete, MetaGet, MetaSet};
use memcache::{KEY_MAX, MetaKey, Refusal, reply};

/// Everything about an item but its value.
#[derive(Clone, Copy)]
struct Facts {
    length: usize,
    flags: u32,
    unique: u64,
    exptime: u32,
    last_access: u32,
    fetched: bool,
    stale: bool,
    win_sent: bool,
}

impl Facts {
    fn of(item: &Item<'_>) -> Self {
        Self {
            length: item.value.len(),
            flags: item.flags,
            unique: item.cas,
            exptime: item.exptime,
            last_access: item.last_access,
            fetched: item.fetched,
            stale: item.stale,
            win_sent: item.win_sent,
        }
    }
}

/// Appends the return flag `t`: seconds to live, -1 for ever.
fn time_to_live(out: &mut Vec<u8>, exptime: u32, now: u32) {
    match exptime {
        0 => out.extend_from_slice(b" t-1"),
        _ => reply::flag(out, b't', u64::from(exptime.saturating_sub(now))),
    }
}

/// Appends the return flags that say again what the request said: opaque and key.
fn echo(out: &mut Vec<u8>, flags: &Flags<'_>, key: &MetaKey<'_>) {
    for flag in flags.iter() {
        match flag.letter {
            b'O' => {
                out.push(b' ');
                out.extend_from_slice(flag.token);
            }
            b'k' => key.echo(out),
            _ => {}
        }
    }
}

/// A line of two letters, opaque and key.
fn short_answer(out: &mut Vec<u8>, code: &[u8], flags: &Flags<'_>, key: &MetaKey<'_>) {
    out.extend_from_slice(code);
    echo(out, flags, key);
    out.extend_from_slice(reply::LINE_ENDING);
}

pub(super) fn get(request: &MetaGet<'_>, out: &mut Vec<u8>, context: &Context<'_>) {
    let MetaGet { key, flags } = request;
    let counters = context.counters;
    counters.cmd_meta.raise(1);
    let mut scratch = [0; KEY_MAX];
    let mut entry = context.store.entry(key.decoded(&mut scratch), context.now);
    let mut created = false;
    if entry.item().is_none() && flags.has(b'N') {
        created = entry.put(NewItem { flags: 0, exptime: 0, value: &[], cas: flags.unique }).is_ok();
    }
    let Some(item) = entry.item() else {
        counters.cmd_get.raise(1);
        counters.get_misses.raise(1);
        if !flags.has(b'q') {
            short_answer(out, reply::META_MISS, flags, key);
        }
        return;
    };
    let facts = Facts::of(&item);
    let with_value = flags.has(b'v') && flags.compare != Some(facts.unique);
    let (exptime, won) = describe(request, &facts, created, with_value, out, context);
    if with_value {
        out.extend_from_slice(item.value);
        out.extend_from_slice(reply::LINE_ENDING);
    }
    if exptime != facts.exptime {
        entry.set_exptime(exptime);
    }
    if won {
        entry.set_win_sent(true);
    }
    if !flags.has(b'u') {
        entry.bump();
    }
    if flags.has(b'T') {
        counters.cmd_touch.raise(1);
        counters.touch_hits.raise(1);
    } else {
        counters.cmd_get.raise(1);
        counters.get_hits.raise(1);
    }
}

/// Appends the line about an item that was found or created; returns its new expiry and whether this client is the
/// one to bring a fresh value.
fn describe(
    request: &MetaGet<'_>,
    facts: &Facts,
    created: bool,
    with_value: bool,
    out: &mut Vec<u8>,
    context: &Context<'_>,
) -> (u32, bool) {
    let MetaGet { key, flags } = request;
    let at = |exptime| expiry(exptime, context.now, context.unix_offset);
    if with_value {
        out.extend_from_slice(b"VA ");
        reply::number(out, facts.length as u64);
    } else {
        out.extend_from_slice(reply::META_DONE);
    }
    let (mut exptime, mut won) = (facts.exptime, false);
    for flag in flags.iter() {
        match flag.letter {
            b'T' => exptime = at(flags.exptime),
            b'N' if created => {
                exptime = at(flags.vivify);
                won = true;
            }
            b'R' => {
                let due = exptime != 0 && exptime < at(flags.recache);
                won |= due && !created && !facts.win_sent;
            }
            b's' => reply::flag(out, b's', facts.length as u64),
            b't' => time_to_live(out, exptime, context.now),
            b'c' => reply::flag(out, b'c', facts.unique),
            b'f' => reply::flag(out, b'f', u64::from(facts.flags)),
            b'l' => reply::flag(out, b'l', u64::from(context.now.saturating_sub(facts.last_access))),
            b'h' => reply::flag(out, b'h', u64::from(facts.fetched)),
            b'k' => key.echo(out),
            b'O' => {
                out.push(b' ');
                out.extend_from_slice(flag.token);
            }
            _ => {}
        }
    }
    if facts.win_sent {
        out.extend_from_slice(b" Z");
    }
    if facts.stale {
        out.extend_from_slice(b" X");
        won |= !facts.win_sent;
    }
    if won {
        out.extend_from_slice(b" W");
    }
    out.extend_from_slice(reply::LINE_ENDING);
    (exptime, won)
}

/// The size of the item that a request would store.
pub(super) fn item_size(request: &MetaSet<'_>) -> usize {
    let mut scratch = [0; KEY_MAX];
    measure(request.key.decoded(&mut scratch).len(), request.length, request.flags.client_flags)
}

pub(super) fn set(request: &MetaSet<'_>, value: Value<'_>, out: &mut Vec<u8>, context: &Context<'_>) {
    let MetaSet { key, flags, verb, length } = request;
    context.counters.cmd_meta.raise(1);
    let Value::Whole(value) = value else {
        return reply::refusal(out, Refusal::BadChunk);
    };
    let at = |exptime| expiry(exptime, context.now, context.unix_offset);
    let mut scratch = [0; KEY_MAX];
    let name = key.decoded(&mut scratch);
    let mut entry = context.store.entry(name, context.now);
    let outcome = offer(
        &mut entry,
        &Offer {
            verb: *verb,
            key_length: name.len(),
            value,
            flags: flags.client_flags,
            exptime: at(flags.exptime),
            compare: flags.compare,
            unique: flags.unique.filter(|&unique| unique != 0),
            allow_stale: flags.has(b'I'),
            vivify: flags.has(b'N').then(|| at(flags.vivify)),
        },
        context,
    );
    let (code, unique, length) = match outcome {
        Outcome::Stored { unique, length } => (reply::META_DONE, unique, length),
        Outcome::NotStored => (reply::META_NOT_STORED, 0, *length),
        Outcome::Exists => (reply::META_EXISTS, 0, *length),
        Outcome::NotFound => (reply::META_NOT_FOUND, 0, *length),
        Outcome::Refused(refusal) => {
            entry.remove();
            return reply::refusal(out, refusal);
        }
    };
    if flags.has(b'q') && code == reply::META_DONE {
        return;
    }
    out.extend_from_slice(code);
    for flag in flags.iter() {
        match flag.letter {
            b'O' => {
                out.push(b' ');
                out.extend_from_slice(flag.token);
            }
            b'k' => key.echo(out),
            b'c' => reply::flag(out, b'c', unique),
            b's' => reply::flag(out, b's', length as u64),
            _ => {}
        }
    }
    out.extend_from_slice(reply::LINE_ENDING);
}

/// Refuses a value before it has come, and forgets the old one, in every mode.
pub(super) fn give_up(request: &MetaSet<'_>, refusal: Refusal, out: &mut Vec<u8>, context: &Context<'_>) {
    context.counters.cmd_meta.raise(1);
    count_refusal(refusal, context);
    let mut scratch = [0; KEY_MAX];
    context.store.entry(request.key.decoded(&mut scratch), context.now).remove();
    reply::refusal(out, refusal);
}

pub(super) fn delete(request: &MetaDelete<'_>, out: &mut Vec<u8>, context: &Context<'_>) {
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

/// What `md` does to an item: forgets it, or (`x`) its value alone, or (`I`) marks it stale.
fn remove_or_mark(
    entry: &mut Entry<'_>,
    flags: &Flags<'_>,
    unique: u64,
    context: &Context<'_>,
) -> Result<(), Refusal> {
    let exptime = expiry(flags.exptime, context.now, context.unix_offset);
    if flags.has(b'x') {
        // A tombstone has the unique number of what it replaces, unless the client names one.
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
        if !flags.has(b'x') {
            entry.remove();
        }
    }
    Ok(())
}

pub(super) fn arithmetic(request: &MetaArithmetic<'_>, out: &mut Vec<u8>, context: &Context<'_>) {
    let MetaArithmetic { key, flags, direction } = request;
    context.counters.cmd_meta.raise(1);
    let mut scratch = [0; KEY_MAX];
    let name = key.decoded(&mut scratch);
    let mut entry = context.store.entry(name, context.now);
    let created = entry.item().is_none() && flags.has(b'N');
    let outcome = if created {
        create(&mut entry, flags)
    } else {
        change(&mut entry, name.len(), *direction, flags.delta, flags.compare, flags.unique, context)
    };
    let number = match outcome {
        Changed::To(number) => number,
        Changed::NotFound => return short_answer(out, reply::META_NOT_FOUND, flags, key),
        Changed::Exists => return short_answer(out, reply::META_EXISTS, flags, key),
        Changed::Refused(refusal) => return reply::refusal(out, refusal),
    };
    let Some(facts) = entry.item().map(|item| Facts::of(&item)) else { return };
    let exptime = tell_number(request, &facts, created, number, out, context);
    if exptime != facts.exptime {
        entry.set_exptime(exptime);
    }
}

/// Creates the number of `ma` with `N` and `J`.
fn create(entry: &mut Entry<'_>, flags: &Flags<'_>) -> Changed {
    let mut digits = itoa::Buffer::new();
    let digits = digits.format(flags.initial).as_bytes();
    match entry.put(NewItem { flags: 0, exptime: 0, value: &[digits], cas: flags.unique }) {
        Ok(_) => Changed::To(flags.initial),
        Err(_) => Changed::Refused(Refusal::OutOfMemoryCreating),
    }
}

/// Appends the answer about a changed number, unless it is to be quiet; returns the item's new expiry.
fn tell_number(
    request: &MetaArithmetic<'_>,
    facts: &Facts,
    created: bool,
    number: u64,
    out: &mut Vec<u8>,
    context: &Context<'_>,
) -> u32 {
    let MetaArithmetic { key, flags, .. } = request;
    let at = |exptime| expiry(exptime, context.now, context.unix_offset);
    let begin = out.len();
    let mut digits = itoa::Buffer::new();
    let digits = digits.format(number).as_bytes();
    if flags.has(b'v') {
        out.extend_from_slice(b"VA ");
        reply::number(out, digits.len() as u64);
    } else {
        out.extend_from_slice(reply::META_DONE);
    }
    let mut exptime = facts.exptime;
    for flag in flags.iter() {
        match flag.letter {
            b'c' => reply::flag(out, b'c', facts.unique),
            b't' => time_to_live(out, exptime, context.now),
            b'T' => exptime = at(flags.exptime),
            b'N' if created => exptime = at(flags.vivify),
            b'k' => key.echo(out),
            b'O' => {
                out.push(b' ');
                out.extend_from_slice(flag.token);
            }
            _ => {}
        }
    }
    out.extend_from_slice(reply::LINE_ENDING);
    if flags.has(b'v') {
        out.extend_from_slice(digits);
        out.extend_from_slice(reply::LINE_ENDING);
    }
    if flags.has(b'q') {
        out.truncate(begin);
    }
    exptime
}

/// `me`: one line for a person. There are no slab classes; the size is that of key and value.
pub(super) fn debug(request: &MetaDebug<'_>, out: &mut Vec<u8>, context: &Context<'_>) {
    let key = &request.key;
    context.counters.cmd_meta.raise(1);
    let mut scratch = [0; KEY_MAX];
    let name = key.decoded(&mut scratch);
    let entry = context.store.entry(name, context.now);
    let Some(item) = entry.item() else {
        return out.extend_from_slice(b"EN\r\n");
    };
    let expires = match item.exptime {
        0 => "-1".to_owned(),
        exptime => exptime.saturating_sub(context.now).to_string(),
    };
    out.extend_from_slice(b"ME ");
    out.extend_from_slice(key.wire);
    let facts = format!(
        " exp={expires} la={} cas={} fetch={} cls=1 size={}\r\n",
        context.now.saturating_sub(item.last_access),
        item.cas,
        if item.fetched { "yes" } else { "no" },
        name.len() + item.value.len(),
    );
    out.extend_from_slice(facts.as_bytes());
}
