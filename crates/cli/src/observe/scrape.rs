//! The watched service's own telemetry, as it is named on the command line (`--scrape`);
//! `observe::scrape` asks it.

use super::Args;
use crate::exit::usage;
use anyhow::{Context as _, Result};
use observe::scrape::{Failure, Names, Scraper, Source};

/// Asks the named service a first time; `None` if none is named.
pub fn opened(args: &Args) -> Result<Option<Scraper>> {
    let Some(named) = &args.scrape else { return Ok(None) };
    let wrong = |failure: Failure| usage(format!("--scrape {named}: {failure:#}"));
    let (address, names) = parts(named);
    let source = Source::named(&address, names, 0.99).map_err(wrong)?;
    let scraper = Scraper::open(source).context("cannot ask the service beside")?;
    Ok(Some(scraper.map_err(wrong)?))
}

/// The address, and the names of figures behind it.
fn parts(named: &str) -> (String, Names) {
    let mut names = Names { called: [",rate=NAME", ",p99=NAME"], ..Names::default() };
    let mut address = String::new();
    for (at, part) in named.split(',').enumerate() {
        match part.split_once('=') {
            Some(("rate", name)) if at > 0 => names.rate = Some(name.to_owned()),
            Some(("p99", name)) if at > 0 => names.tail = Some(name.to_owned()),
            // A comma of the address itself.
            _ => address = if at == 0 { part.to_owned() } else { format!("{address},{part}") },
        }
    }
    (address, names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::sleep;
    use clap::Parser as _;
    use observe::scrape::Tail;
    use std::sync::{Arc, Mutex};

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn opened(flags: &[&str]) -> Result<Option<Scraper>> {
        super::opened(&parsed(flags))
    }

    fn parsed(flags: &[&str]) -> Args {
        Line::try_parse_from([&["observe"], flags].concat()).unwrap().args
    }

    #[test]
    fn a_service_that_cannot_be_asked_is_one_line_and_code_2() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        for (flags, told) in [
            (vec![format!("memcached:{free}")], "start the service, or name the address where it listens"),
            (vec!["memcached:nowhere.invalid:1".to_owned()], "write HOST:PORT"),
            (vec!["memcached:11211".to_owned()], "write HOST:PORT"),
            (vec!["valkey:127.0.0.1:6379".to_owned()], "write memcached:HOST:PORT, redis:HOST:PORT,"),
            (vec![format!("nginx:{free}")], "write HOST:PORT/PATH after nginx:"),
            (vec![format!("envoy:{free}")], "start the service, or name"),
            (vec![format!("http://{free}/metrics")], "name the counter of requests with ,rate=NAME"),
            (vec![format!("http://{free}/metrics,rate=x")], "start the service, or name"),
            (vec!["https://127.0.0.1/metrics,rate=x".into()], "http://"),
            (vec![format!("roost:{free},rate=x")], "leave out ,rate=NAME"),
        ] {
            let flags: Vec<&str> =
                std::iter::once("--scrape").chain(flags.iter().map(String::as_str)).collect();
            let error = opened(&flags).err().expect("no service answers there");
            let said = format!("{error:#}");
            assert!(said.starts_with(&format!("--scrape {}: ", flags[1])) && said.contains(told), "{said}");
            assert_eq!(said.lines().count(), 1, "{said}");
            assert_eq!(
                format!("{:?}", crate::exit::code_of(&error)),
                format!("{:?}", std::process::ExitCode::from(2))
            );
        }
        assert!(opened(&[]).unwrap().is_none());
    }

    #[test]
    fn our_own_page_can_be_asked() {
        let board = Arc::new(Mutex::new(Some(sleep::tests::everything())));
        let address = sleep::serve("127.0.0.1:0".parse().unwrap(), &Default::default(), board).unwrap();
        let page = format!("http://{address}/metrics");
        let named = format!("{page}?a=b,c,rate=roost_observed_requests,p99=roost_observed_response_seconds");
        let (address, names) = parts(&named);
        assert_eq!(address, format!("{page}?a=b,c"));
        let reading = Source::named(&address, names, 0.99).unwrap().ask().unwrap();
        assert_eq!(reading.requests, 1.0);
        let Some(Tail::Buckets(buckets)) = reading.tail else { panic!("no histogram: {reading:?}") };
        assert_eq!(buckets.last(), Some(&(f64::INFINITY, 1.0)));
        assert!(buckets.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1));
    }
}
