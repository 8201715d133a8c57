//! `stats` and `version`: the figures of memcached's monitoring under memcached's names.
//!
//! A name that memcached has and that means nothing here (slab reassignment, the LRU crawler) is
//! left out rather than shown as zero.

use super::{Context, ServerFacts};
use crate::store::{ClassStats, EventCounts, StoreStats};
use memcache::{Refusal, reply};

/// The answer to `version`. Clients look at the first three numbers to learn which commands there
/// are, so they name the memcached whose protocol this is.
pub const VERSION: &str = concat!("1.6.45-roost.", env!("CARGO_PKG_VERSION"));

/// The server's clock reads this when it starts.
const FIRST_SECOND: u32 = 2;

pub(super) fn version(out: &mut Vec<u8>) {
    for part in ["VERSION ", VERSION, "\r\n"] {
        out.extend_from_slice(part.as_bytes());
    }
}

/// Answers `stats [<group>]`. Any beginning of `reset`, `settings` and `conns` stands for them, as
/// in memcached.
pub(super) fn stats(group: Option<&[u8]>, out: &mut Vec<u8>, context: &Context<'_>) {
    let begin = out.len();
    let known = match group {
        None => {
            general(&mut Lines { out }, context);
            true
        }
        Some(group) if b"reset".starts_with(group) => {
            context.all.reset();
            return out.extend_from_slice(reply::RESET);
        }
        Some(b"items") => {
            items(&mut Lines { out }, &context.store.stats());
            true
        }
        Some(b"slabs") => {
            slabs(&mut Lines { out }, &context.store.stats());
            true
        }
        // Keys are not listed: there is no slab class to list them by. An empty list is a valid
        // answer to such a question.
        Some(b"cachedump") => true,
        Some(b"sizes") => {
            Lines { out }.text("sizes_status", "disabled");
            true
        }
        Some(group) => {
            let group = [&b"settings"[..], b"conns"]
                .into_iter()
                .find(|name| name.starts_with(group))
                .unwrap_or(group);
            context.all.stats_group(group, &mut |name, value| reply::stat(out, name, value))
        }
    };
    if known {
        out.extend_from_slice(reply::END);
    } else {
        out.truncate(begin);
        reply::refusal(out, Refusal::UnknownCommand);
    }
}

/// `STAT` lines under way.
struct Lines<'o> {
    out: &'o mut Vec<u8>,
}

impl Lines<'_> {
    fn text(&mut self, name: &str, value: &str) {
        reply::stat(self.out, name, value);
    }

    fn number(&mut self, name: &str, value: impl Into<u64>) {
        reply::stat(self.out, name, itoa::Buffer::new().format(value.into()));
    }

    fn of_class(&mut self, prefix: &str, class: usize, name: &str, value: u64) {
        reply::stat(self.out, &format!("{prefix}{class}:{name}"), itoa::Buffer::new().format(value));
    }
}

fn general(lines: &mut Lines<'_>, context: &Context<'_>) {
    let ServerFacts {
        max_connections,
        connections,
        connections_total,
        connections_rejected,
        accept_pauses,
        accept_paused_us,
        accepting,
        workers,
    } = context.all.facts();
    let (user, system) = processor_time();
    lines.number("pid", std::process::id());
    lines.number("uptime", context.now.saturating_sub(FIRST_SECOND));
    lines.text("time", itoa::Buffer::new().format(i64::from(context.now) + context.unix_offset));
    lines.text("version", VERSION);
    lines.number("pointer_size", usize::BITS);
    lines.text("rusage_user", &user);
    lines.text("rusage_system", &system);
    lines.number("max_connections", max_connections);
    lines.number("curr_connections", connections);
    lines.number("total_connections", connections_total);
    lines.number("rejected_connections", connections_rejected);
    context.all.totals().each(|name, value| lines.number(name, value));
    lines.number("accepting_conns", u32::from(accepting));
    lines.number("listen_disabled_num", accept_pauses);
    lines.number("time_in_listen_disabled_us", accept_paused_us);
    lines.number("threads", workers);
    let EventCounts { watchers, sent, skipped } = context.store.events().counts();
    lines.number("log_watchers", watchers as u64);
    lines.number("log_watcher_skipped", skipped);
    lines.number("log_watcher_sent", sent);

    let store = context.store.stats();
    lines.number("limit_maxbytes", store.limit_bytes);
    lines.number("hash_power_level", store.index_buckets.max(1).ilog2());
    lines.number("hash_bytes", store.index_bytes);
    lines.number("bytes", store.bytes);
    lines.number("curr_items", store.items);
    lines.number("total_items", store.total_items);
    lines.number("get_expired", store.get_expired);
    lines.number("get_flushed", store.get_flushed);
    lines.number("expired_unfetched", store.expired_unfetched);
    lines.number("evicted_unfetched", store.evicted_unfetched);
    lines.number("evictions", store.evictions);
    lines.number("reclaimed", store.reclaimed);
}

/// `stats items`, one class for each power of two that an item's size may reach.
fn items(lines: &mut Lines<'_>, store: &StoreStats) {
    for (number, class) in
        store.classes.iter().enumerate().filter(|(_, class)| **class != ClassStats::default())
    {
        for (name, value) in [
            ("number", class.items),
            ("mem_requested", class.bytes),
            ("evicted", class.evictions),
            ("evicted_nonzero", class.evicted_nonzero),
            ("evicted_time", class.evicted_time),
            ("evicted_unfetched", class.evicted_unfetched),
            ("reclaimed", class.reclaimed),
        ] {
            lines.of_class("items:", number, name, value);
        }
    }
}

/// `stats slabs`. There are no slabs: a class holds just the chunks that are in use.
fn slabs(lines: &mut Lines<'_>, store: &StoreStats) {
    let mut active = 0u32;
    for (number, class) in store.classes.iter().enumerate().filter(|(_, class)| class.items > 0) {
        active += 1;
        for (name, value) in [
            ("chunk_size", 1 << number),
            ("total_chunks", class.items),
            ("used_chunks", class.items),
            ("free_chunks", 0),
            ("mem_requested", class.bytes),
        ] {
            lines.of_class("", number, name, value);
        }
    }
    lines.number("active_slabs", active);
    lines.number("total_malloced", store.held_bytes);
}

/// Processor time that the process has used, in user and in kernel mode, as seconds with six
/// decimals. From `/proc/self/stat`, fields 14 and 15, in hundredths of a second; zero where there
/// is no `/proc`.
fn processor_time() -> (String, String) {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The second field, the program's name in parentheses, may hold spaces.
    let mut fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_ascii_whitespace().skip(11);
    let mut seconds = || {
        let ticks: u64 = fields.next().and_then(|field| field.parse().ok()).unwrap_or(0);
        format!("{}.{:02}0000", ticks / 100, ticks % 100)
    };
    (seconds(), seconds())
}
