//! `mg`.

use super::super::clock::expiry;
use super::super::{Context, watching};
use super::{Facts, short_answer, time_to_live};
use crate::store::NewItem;
use memcache::meta::MetaGet;
use memcache::{KEY_MAX, reply};

pub(in super::super) fn get(request: &MetaGet<'_>, out: &mut Vec<u8>, context: &Context<'_>) {
    let MetaGet { key, flags } = request;
    let counters = context.counters;
    counters.cmd_meta.raise(1);
    let mut scratch = [0; KEY_MAX];
    let mut entry = context.store.entry(key.decoded(&mut scratch), context.now);
    let mut created = false;
    if entry.item().is_none() && flags.has(b'N') {
        created = entry.put(NewItem { flags: 0, exptime: 0, value: &[], cas: flags.unique }).is_ok();
    }
    watching::retrieved(&entry, context);
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

/// Appends the line about an item that was found or created; returns its new expiry and whether
/// this client is the one to bring a fresh value.
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
            _ => super::echo(out, &flag, key),
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
