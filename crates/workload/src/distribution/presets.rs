//! Service times from publications, and stand-ins for services without a published one.
//!
//! The papers' figures are simulated with the values in `papers/estimates.toml`, with a range and
//! the reasoning; the presets of the same services carry the same values. Tags: [P] a paper that
//! Roost builds on, [C] published research code, [M] measured by us from BigHouse's files, [R]
//! recalled, ESTIMATE where no figure exists. An ESTIMATE is a guess that was written down once,
//! before any result was looked at.

use super::Distribution;
use machine::Duration;

/// A named distribution of service times and its source.
#[derive(Clone, Debug)]
pub struct ServicePreset {
    pub name: &'static str,
    pub distribution: Distribution,
    pub sources: &'static str,
}

impl Distribution {
    pub fn presets() -> &'static [ServicePreset] {
        PRESETS
    }

    pub fn by_name(name: &str) -> Option<Self> {
        PRESETS.iter().find(|preset| preset.name == name).map(|preset| preset.distribution.clone())
    }
}

const fn us(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

const fn lognormal(mean_us: u64, cv: f64) -> Distribution {
    Distribution::Lognormal { mean: us(mean_us), cv }
}

/// See the preset `hurry-up-mix`.
const fn keywords(fewest: u8, most: u8, cv: f64) -> Distribution {
    Distribution::Keywords { base: us(16_000), each: us(39_000), fewest, most, cv }
}

static PRESETS: &[ServicePreset] = &[
    ServicePreset {
        name: "memcached",
        distribution: lognormal(8, 0.5),
        sources: "95th percentile 15 us [C uDPM's code]; lognormal, cv 0.5: ESTIMATE",
    },
    ServicePreset {
        name: "peafowl",
        distribution: Distribution::Exponential { mean: us(10) },
        sources: "exponential, mean 10 us, from the rate at which completions level off [P Peafowl 4.3]",
    },
    ServicePreset {
        name: "carb",
        distribution: lognormal(30, 0.6),
        sources: "memcached under CloudSuite, kernel network included: mean 30 us, cv 0.6: ESTIMATE",
    },
    ServicePreset {
        name: "xapian",
        distribution: lognormal(900, 0.8),
        sources: "a name in uDPM's code [C], data absent: mean 0.9 ms, cv 0.8 ESTIMATE",
    },
    ServicePreset {
        name: "masstree",
        distribution: lognormal(200, 0.3),
        sources: "a name in uDPM's code [C], data absent: mean 200 us, nearly constant: ESTIMATE",
    },
    ServicePreset {
        name: "specjbb",
        distribution: lognormal(70, 1.5),
        sources: "a name in uDPM's code [C], data absent: mean 70 us, cv 1.5 ESTIMATE",
    },
    ServicePreset {
        name: "search",
        distribution: lognormal(4_170, 1.15),
        sources: "a name in uDPM's code [C], data absent: as google-search, ESTIMATE",
    },
    ServicePreset {
        name: "google-search",
        distribution: lognormal(4_170, 1.15),
        sources: "mean 4.17 ms, cv 1.15 [M BigHouse]; lognormal fitted to both: p95 12.4 and p99 23.2 ms, \
                  where the file has 10.1 and 18.2",
    },
    ServicePreset {
        name: "dns",
        distribution: lognormal(194_000, 1.03),
        sources: "mean 194 ms [R BigHouse paper], cv 1.03 of its truncated file [M]; lognormal fitted",
    },
    ServicePreset {
        name: "mail",
        distribution: lognormal(92_000, 3.6),
        sources: "mean 92 ms, cv 3.6 [R BigHouse paper; its file, cut at 0.999, has 77.5 and 1.93]; \
                  lognormal fitted",
    },
    ServicePreset {
        name: "shell",
        distribution: lognormal(46_000, 15.0),
        sources: "mean 46 ms, cv 15 [R BigHouse paper; its file, cut at 0.999, has 28.8 and 2.94]; \
                  lognormal fitted",
    },
    ServicePreset {
        name: "web",
        distribution: lognormal(75_000, 3.4),
        sources: "mean 75 ms, cv 3.4 [R BigHouse paper; its file, cut at 0.999, has 63.0 and 2.27]; \
                  lognormal fitted",
    },
    ServicePreset {
        name: "search1",
        distribution: lognormal(2_400, 1.0),
        sources: "Tradeoffs' search leaf: more than 90 % of queries within 5 ms [P Tradeoffs IV-A, of \
                  Meisner et al.]; mean 2.4 ms, cv 1 ESTIMATE",
    },
    ServicePreset {
        name: "search2",
        distribution: lognormal(3_600, 1.0),
        sources: "Tradeoffs' second search: the same shape, half as long again: ESTIMATE",
    },
    ServicePreset {
        name: "ads",
        distribution: lognormal(8_000, 0.7),
        sources: "Tradeoffs' ads, the least bursty of its four [P III-C]: longer and more alike, mean 8 \
                  ms, cv 0.7 ESTIMATE",
    },
    ServicePreset {
        name: "bigtable",
        distribution: lognormal(150, 1.5),
        sources: "Tradeoffs' bigtable: mostly bursts and sleeps below 1 ms [P III-B]; mean 150 us, cv 1.5 \
                  ESTIMATE",
    },
    ServicePreset {
        name: "rpc",
        distribution: Distribution::Deterministic { mean: us(25) },
        sources: "Tradeoffs' RPC ping-pong (Figure 6), the worker's part: below 100 us [P Tradeoffs II]; \
                  25 us ESTIMATE",
    },
    ServicePreset {
        name: "hurry-up-light",
        distribution: keywords(3, 4, 0.43),
        sources: "3 to 4 keywords [P Hurry-up III]; times as hurry-up-mix, cv 0.43: ESTIMATE",
    },
    ServicePreset {
        name: "hurry-up-heavy",
        distribution: keywords(12, 18, 0.11),
        sources: "12 to 18 keywords [P Hurry-up III]; times as hurry-up-mix, cv 0.11: ESTIMATE",
    },
    ServicePreset {
        name: "hurry-up-mix",
        distribution: keywords(1, 18, 0.3),
        sources: "keywords 1 to 8 for 95 %, 9 to 18 for 5 %, Zipf [P Hurry-up II-C], exponent 1 [D]; 16 ms \
                  + 39 ms a keyword at 2.6 GHz, so that heavy queries take four times the work of light \
                  ones [P Hurry-up III]; lognormal with cv 0.3 [D]: ESTIMATE; the figures give each number \
                  of keywords a cv of its own",
    },
    ServicePreset {
        name: "ssd-read",
        distribution: lognormal(100, 0.05),
        sources: "a device-level 4 KB read takes about 100 us [P CPU sleeps]; cv 0.05 ESTIMATE",
    },
    ServicePreset {
        name: "k-means",
        distribution: Distribution::Uniform { from: us(515), to: us(565) },
        sources: "GPU kernels of 540 us +- 25 [P CPU sleeps, Figure 2]; uniform within: ESTIMATE",
    },
    ServicePreset {
        name: "streamcluster",
        distribution: Distribution::Uniform { from: us(450), to: us(550) },
        sources: "GPU kernels of 500 us +- 50 [P CPU sleeps, Figure 2], its few outliers left out; uniform \
                  within: ESTIMATE",
    },
    ServicePreset {
        name: "bbench-wait",
        distribution: Distribution::Deterministic { mean: us(100_000) },
        sources: "the 100 ms network wait of each page [P CPU sleeps]",
    },
    ServicePreset {
        name: "solr",
        distribution: lognormal(30_000, 1.0),
        sources: "p99.9 of 284 ms at 100 requests/s on 24 CPUs [P CPU sleeps]; lognormal with cv 1: mean \
                  30 ms ESTIMATE",
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sampler;
    use std::collections::BTreeSet;

    fn sampler(name: &str) -> Sampler {
        Distribution::by_name(name).unwrap().sampler().unwrap()
    }

    fn millis(time: Duration) -> f64 {
        time.as_secs_f64() * 1e3
    }

    #[test]
    fn every_preset_holds_and_says_what_it_rests_on() {
        let names: BTreeSet<&str> = PRESETS.iter().map(|preset| preset.name).collect();
        assert_eq!(names.len(), PRESETS.len());
        for preset in PRESETS {
            preset.distribution.check().unwrap();
            let tagged = ["[P", "[C", "[M", "[R"].iter().any(|tag| preset.sources.contains(tag));
            assert!(tagged || preset.sources.contains("ESTIMATE"), "{}", preset.name);
        }
    }

    #[test]
    fn presets_have_the_published_tails() {
        let p95_us = millis(sampler("memcached").quantile(0.95)) * 1e3;
        assert!((p95_us - 15.0).abs() < 1.0, "uDPM's 15 us: {p95_us}");
        let p90 = millis(sampler("search1").quantile(0.9));
        assert!(p90 < 5.0, "90 % within 5 ms: {p90}");
        let p999 = millis(sampler("solr").quantile(0.999));
        assert!((p999 - 284.0).abs() < 15.0, "Solr's 284 ms: {p999}");
        let google = sampler("google-search");
        assert!((millis(google.quantile(0.95)) - 12.4).abs() < 0.1, "{}", google.quantile(0.95));
        assert!((millis(google.quantile(0.99)) - 23.2).abs() < 0.2, "{}", google.quantile(0.99));
    }

    #[test]
    fn heavy_queries_take_four_times_as_long_as_light_ones() {
        let mean = |name| sampler(name).mean().as_secs_f64();
        let ratio = mean("hurry-up-heavy") / mean("hurry-up-light");
        assert!((3.8..4.3).contains(&ratio), "{ratio}");
    }
}
