//! Commands to the server itself. Those that steer memcached's own slabs, LRU and logs are refused
//! in the words that memcached has for a server on which they are switched off.

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
    fn statistics_come_in_groups() {
        assert_eq!(request(b"stats\r\n"), Request::Stats { group: None });
        assert_eq!(request(b"stats items x\r\n"), Request::Stats { group: Some(b"items") });
        assert_eq!(request(b"stats detail on\r\n"), Refused::new(Refusal::NoStatsDetail).into());
    }
}
