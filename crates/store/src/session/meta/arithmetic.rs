//! `ma`.

use super::super::Context;
use super::super::change::{Changed, change};
use super::super::clock::expiry;
use super::{Facts, short_answer, time_to_live};
use crate::store::{Entry, NewItem};
use memcache::meta::{Flags, MetaArithmetic};
use memcache::{KEY_MAX, Refusal, reply};

pub(in super::super) fn arithmetic(request: &MetaArithmetic<'_>, out: &mut Vec<u8>, context: &Context<'_>) {
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

/// Appends the answer about a changed number, unless it is to be quiet; returns the item's new
/// expiry.
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
            _ => super::echo(out, &flag, key),
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
