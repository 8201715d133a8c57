//! Any pages are pages of metrics, or answers of servers of a known kind, or are refused in one
//! line; their sum is a possible rate and tail.
//!
//! The first letter says which: `p`age, `m`emcached, `r`oost, re`d`is, `n`ginx, `e`nvoy. A
//! line `---` ends one answer and begins the next.

use machine::{Duration, Instant};
use observe::scrape::{Names, Reading, Tally, exposition, percentile};
use observe::scrape::{of_envoy, of_memcached, of_nginx, of_page, of_redis, of_roost};

pub fn run(bytes: &[u8]) {
    let [kind, text @ ..] = bytes else { return };
    let text = String::from_utf8_lossy(text);
    let mut tally = Tally::default();
    let mut now = Instant::ZERO;
    for answer in text.split("\n---\n").take(8) {
        now += Duration::from_secs(1);
        for sample in exposition::samples(answer) {
            assert!(!sample.name.is_empty() && !sample.name.contains(char::is_whitespace));
        }
        let reading = match kind {
            b'm' => of_memcached(answer),
            b'r' => of_roost(answer),
            b'd' => of_redis(answer),
            b'n' => of_nginx(answer),
            b'e' => of_envoy(answer),
            _ => of_page(answer, &names(), 0.99),
        };
        if let Ok(Reading { requests, tail, .. }) = &reading {
            assert!(requests.is_finite());
            if let Some(observe::scrape::Tail::Buckets(buckets)) = tail {
                assert!(buckets.is_sorted_by(|a, b| a.0 < b.0));
                let _ = percentile(buckets, 0.99);
            }
        }
        tally.take(now, reading.map_err(|failure| format!("{failure:#}")));
        if let Some(step) = tally.step() {
            assert!(step.rate.as_per_second() >= 0.0 && step.rate.as_per_second().is_finite());
        }
        assert!(tally.requests() >= 0.0 && tally.requests().is_finite());
    }
}

fn names() -> Names {
    Names {
        rate: Some("http_requests".to_owned()),
        tail: Some("http_request_duration_seconds".to_owned()),
        called: [",rate=NAME", ",p99=NAME"],
    }
}
