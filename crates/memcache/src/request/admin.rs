//! Commands to the server itself. Those that steer memcached's own slabs and LRU are refused in the
//! words that memcached has for a server on which they are switched off.

use super::{Dump, Refused, Request};
use crate::number::{strict_i32, strict_u32};
use crate::refusal::Refusal;
use crate::token::{TOKENS_MAX, Tokens, ends_in_noreply};

/// Commands that memcached looks for last: leading spaces are allowed, and the last word may ask
/// for silence whatever the first one is.
pub(super) fn parse(text: &[u8]) -> Result<Request<'_>, Refused> {
    let mut tokens = Tokens::new(text);
    let noreply = ends_in_noreply(tokens.clone(), 0, b"");
    let refused = |refusal| Refused { noreply, ..Refused::new(refusal) };
    let command = tokens.next().ok_or(refused(Refusal::UnknownCommand))?;
    let argument = tokens.clone().next();
    match command {
        b"flush_all" => {
            let bare = tokens.clone().count() == usize::from(noreply);
            let delay = if bare { Some(0) } else { argument.and_then(strict_i32) };
            Ok(Request::FlushAll { delay: delay.ok_or(refused(Refusal::BadExpiry))?, noreply })
        }
        b"verbosity" => {
            argument.and_then(strict_u32).ok_or(refused(Refusal::BadFormat))?;
            Ok(Request::Verbosity { noreply })
        }
        b"shutdown" => Err(refused(Refusal::NoShutdown)),
        b"slabs" => Err(refused(Refusal::NoSlabs)),
        b"lru_crawler" => match (tokens.next(), tokens.next(), tokens.next()) {
            (Some(b"metadump"), Some(classes), None) => Ok(Request::Dump(Dump { meta: true, classes })),
            (Some(b"mgdump"), Some(classes), None) => Ok(Request::Dump(Dump { meta: false, classes })),
            _ => Err(refused(Refusal::NoCrawler)),
        },
        b"cache_memlimit" => {
            let mebibytes = argument.and_then(strict_u32).ok_or(refused(Refusal::BadFormat))?;
            Ok(Request::CacheMemlimit { mebibytes, noreply })
        }
        _ => match tokens.take(TOKENS_MAX - 1).last() {
            Some(last) if last.starts_with(b"HTTP/") => Ok(Request::Http),
            _ => Err(refused(Refusal::UnknownCommand)),
        },
    }
}

/// Kinds of events that a client can watch: looks for a key are `FETCHERS`, stored values and those
/// that were not are `MUTATIONS`, clients that come and go are `CONNEVENTS`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Topics(u8);

impl Topics {
    pub const EVICTIONS: Self = Self(1);
    pub const FETCHERS: Self = Self(2);
    pub const MUTATIONS: Self = Self(4);
    pub const CONNEVENTS: Self = Self(8);
    pub const DELETIONS: Self = Self(16);

    /// The words behind `watch`: any beginning of a kind's name, the first in this order, as in
    /// memcached. Five of its kinds have no events here.
    pub(super) fn parse(words: &[u8]) -> Option<Self> {
        const NAMES: [(&[u8], Topics); 10] = [
            (b"rawcmds", Topics(0)),
            (b"evictions", Topics::EVICTIONS),
            (b"fetchers", Topics::FETCHERS),
            (b"mutations", Topics::MUTATIONS),
            (b"sysevents", Topics(0)),
            (b"connevents", Topics::CONNEVENTS),
            (b"proxyreqs", Topics(0)),
            (b"proxyevents", Topics(0)),
            (b"proxyuser", Topics(0)),
            (b"deletions", Topics::DELETIONS),
        ];
        let words = Tokens::new(words);
        if words.clone().next().is_none() {
            return Some(Self::FETCHERS);
        }
        words.take(TOKENS_MAX - 1).try_fold(Self(0), |all, word| {
            let (_, topic) = NAMES.iter().find(|(name, _)| name.starts_with(word))?;
            Some(all.and(*topic))
        })
    }

    pub const fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// Whether they have a kind in common.
    pub const fn meet(self, others: Self) -> bool {
        self.0 & others.0 != 0
    }

    pub const fn bits(self) -> u8 {
        self.0
    }
}

/// `stats [<group> ...]`. memcached takes any beginning of some groups' names for the group.
pub(super) fn stats(rest: &[u8]) -> Result<Request<'_>, Refused> {
    let group = Tokens::new(rest).next();
    match group {
        Some(group) if b"detail".starts_with(group) => Err(Refused::new(Refusal::NoStatsDetail)),
        Some(group) if b"cachedump".starts_with(group) => Ok(Request::Stats { group: Some(b"cachedump") }),
        _ => Ok(Request::Stats { group }),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::request;
    use super::*;

    #[test]
    fn a_memory_limit_is_a_number_of_mebibytes() {
        let limit = |mebibytes, noreply| Request::CacheMemlimit { mebibytes, noreply };
        assert_eq!(request(b"cache_memlimit 50\r\n"), limit(50, false));
        assert_eq!(request(b"cache_memlimit 50 noreply\r\n"), limit(50, true));
        assert_eq!(request(b"cache_memlimit much\r\n"), Refused::new(Refusal::BadFormat).into());
    }

    #[test]
    fn a_flush_takes_a_delay_or_none() {
        let flush = |delay, noreply| Request::FlushAll { delay, noreply };
        assert_eq!(request(b"flush_all\r\n"), flush(0, false));
        assert_eq!(request(b"flush_all noreply\r\n"), flush(0, true));
        assert_eq!(request(b"flush_all 10 noreply\r\n"), flush(10, true));
        assert_eq!(request(b"flush_all -5\r\n"), flush(-5, false));
        assert_eq!(request(b"flush_all x\r\n"), Refused::new(Refusal::BadExpiry).into());
    }

    #[test]
    fn verbosity_wants_a_level() {
        assert_eq!(request(b"verbosity 1\r\n"), Request::Verbosity { noreply: false });
        assert_eq!(request(b"verbosity\r\n"), Refused::new(Refusal::BadFormat).into());
        assert_eq!(
            request(b"verbosity noreply\r\n"),
            Refused { noreply: true, ..Refused::new(Refusal::BadFormat) }.into()
        );
    }

    #[test]
    fn kinds_of_events_are_named_by_any_beginning() {
        let watch = |topics| Request::Watch(Some(topics));
        assert_eq!(request(b"watch\r\n"), watch(Topics::FETCHERS));
        assert_eq!(request(b"watch m e\r\n"), watch(Topics::MUTATIONS.and(Topics::EVICTIONS)));
        assert_eq!(request(b"watch  deletions conn\r\n"), watch(Topics::DELETIONS.and(Topics::CONNEVENTS)));
        assert_eq!(request(b"watch rawcmds proxy\r\n"), watch(Topics::default()));
        for unknown in [&b"watch fetchersx\r\n"[..], b"watch f noreply\r\n"] {
            assert_eq!(request(unknown), Request::Watch(None));
        }
    }

    #[test]
    fn statistics_come_in_groups() {
        assert_eq!(request(b"stats\r\n"), Request::Stats { group: None });
        assert_eq!(request(b"stats items x\r\n"), Request::Stats { group: Some(b"items") });
        assert_eq!(request(b"stats detail on\r\n"), Refused::new(Refusal::NoStatsDetail).into());
    }
}
