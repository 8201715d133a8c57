//! `ms`.

use super::super::clock::expiry;
use super::super::storing::{Offer, Outcome, count_refusal, measure, offer};
use super::super::{Context, Value, watching};
use memcache::meta::MetaSet;
use memcache::{KEY_MAX, Refusal, reply};

/// The size of the item that a request would store.
pub(in super::super) fn item_size(request: &MetaSet<'_>) -> usize {
    let mut scratch = [0; KEY_MAX];
    measure(request.key.decoded(&mut scratch).len(), request.length, request.flags.client_flags)
}

pub(in super::super) fn set(
    request: &MetaSet<'_>,
    value: Value<'_>,
    out: &mut Vec<u8>,
    context: &Context<'_>,
) {
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
            b'c' => reply::flag(out, b'c', unique),
            b's' => reply::flag(out, b's', length as u64),
            _ => super::echo(out, &flag, key),
        }
    }
    out.extend_from_slice(reply::LINE_ENDING);
}

/// Refuses a value before it has come, and forgets the old one, in every mode.
pub(in super::super) fn give_up(
    request: &MetaSet<'_>,
    refusal: Refusal,
    out: &mut Vec<u8>,
    context: &Context<'_>,
) {
    context.counters.cmd_meta.raise(1);
    count_refusal(refusal, context);
    let mut scratch = [0; KEY_MAX];
    let mut entry = context.store.entry(request.key.decoded(&mut scratch), context.now);
    entry.remove();
    let how = (request.verb, request.flags.compare.is_some());
    watching::stored(&entry, how, (0, 0), Outcome::Refused(refusal), context);
    reply::refusal(out, refusal);
}
