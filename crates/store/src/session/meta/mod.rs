//! The meta commands.
//!
//! Flags act, and are answered, in the order in which they came: `t` before `T30` tells the old
//! time to live, after it the new one.

mod arithmetic;
mod delete;
mod get;
mod set;

pub(super) use arithmetic::arithmetic;
pub(super) use delete::delete;
pub(super) use get::get;
pub(super) use set::{give_up, item_size, set};

use super::Context;
use crate::store::Item;
use memcache::meta::{Flag, Flags, MetaDebug};
use memcache::{KEY_MAX, MetaKey, reply};

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

/// Appends a return flag that echoes the request: opaque or key.
fn echo(out: &mut Vec<u8>, flag: &Flag<'_>, key: &MetaKey<'_>) {
    match flag.letter {
        b'O' => {
            out.push(b' ');
            out.extend_from_slice(flag.token);
        }
        b'k' => key.echo(out),
        _ => {}
    }
}

/// A line of two letters, opaque and key.
fn short_answer(out: &mut Vec<u8>, code: &[u8], flags: &Flags<'_>, key: &MetaKey<'_>) {
    out.extend_from_slice(code);
    flags.iter().for_each(|flag| echo(out, &flag, key));
    out.extend_from_slice(reply::LINE_ENDING);
}
