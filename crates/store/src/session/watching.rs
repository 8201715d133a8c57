//! Tells the clients that watch events of requests and their results.

use super::Context;
use super::storing::Outcome;
use crate::store::{Entry, Event};
use memcache::request::Verb;
use memcache::{Refusal, Topics};

/// A client has asked for the key.
#[inline]
pub(super) fn retrieved(entry: &Entry<'_>, context: &Context<'_>) {
    let events = context.store.events();
    if events.are_wanted(Topics::FETCHERS) {
        let size = entry.item().map(|item| item.value.len());
        events.tell(&Event::Retrieved {
            key: entry.key(),
            is_found: size.is_some(),
            class: entry.class(),
            size: size.unwrap_or(0),
            client: context.client,
        });
    }
}

/// A client has offered a value of this size.
#[inline]
pub(super) fn stored(
    entry: &Entry<'_>,
    (verb, is_compared): (Verb, bool),
    (size, exptime): (usize, u32),
    outcome: Outcome,
    context: &Context<'_>,
) {
    let events = context.store.events();
    if events.are_wanted(Topics::MUTATIONS) {
        let is_stored = matches!(outcome, Outcome::Stored { .. });
        // Of a value that was put behind another: both, with the time to live that they have.
        let whole = entry.item().filter(|_| is_stored).map(|item| (item.value.len(), item.exptime));
        let (size, exptime) = whole.unwrap_or((size, exptime));
        events.tell(&Event::Stored {
            key: entry.key(),
            status: match outcome {
                Outcome::Stored { .. } => "stored",
                Outcome::NotStored => "not_stored",
                Outcome::Exists => "exists",
                Outcome::NotFound => "not_found",
                Outcome::Refused(Refusal::TooLarge) => "too_large",
                Outcome::Refused(_) => "no_memory",
            },
            command: match verb {
                Verb::Set if is_compared => "cas",
                Verb::Set => "set",
                Verb::Add => "add",
                Verb::Replace => "replace",
                Verb::Append => "append",
                Verb::Prepend => "prepend",
            },
            ttl: exptime.saturating_sub(context.now),
            class: entry.class(),
            size,
            client: context.client,
        });
    }
}

/// A client deletes the item that is there.
#[inline]
pub(super) fn deleted(entry: &Entry<'_>, command: &'static str, context: &Context<'_>) {
    let events = context.store.events();
    if events.are_wanted(Topics::DELETIONS)
        && let Some(item) = entry.item()
    {
        let (key, class) = (entry.key(), entry.class());
        events.tell(&Event::Deleted { key, command, class, size: item.value.len() });
    }
}
