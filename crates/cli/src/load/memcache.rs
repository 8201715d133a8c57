//! `roost load memcache`: a memcached server, or the store.

use super::Load;
use anyhow::Result;
use loadgen::{Items, Plan, Target};
use machine::Ratio;
use workload::{KeySize, Popularity, ValueSize, Workload};

/// Load a memcached server, such as `roost serve`
///
/// Requests are sent when they are due, whatever the server does, and latency counts from then. A
/// figure is marked `late` if over a tenth of it is the generator's own lateness. The run is
/// INVALID when that is so of the median or of --percentile.
#[derive(clap::Args, Debug)]
#[command(after_help = concat!(include_str!("../../help/load-memcache.txt"), include_str!("../../help/shapes.txt")))]
pub(super) struct Memcache {
    /// The server: HOST:PORT or unix:PATH
    #[arg(long, value_name = "SERVER", default_value = "127.0.0.1:11211")]
    server: Target,
    #[command(flatten)]
    pub(super) load: Load,
    /// Number of keys
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    keys: u64,
    /// How often each key is asked for: uniform or zipf:S
    #[arg(long, value_name = "LAW", default_value = "uniform")]
    popularity: Popularity,
    /// Bytes of a key, or etc or usr for the sizes of Facebook's pools
    #[arg(long, value_name = "SIZE", default_value = "20")]
    key_size: KeySize,
    /// Bytes of a value, or etc or usr
    #[arg(long, value_name = "SIZE", default_value = "100")]
    value_size: ValueSize,
    /// Share of requests that read; the others write
    #[arg(long, value_name = "SHARE", default_value = "0.9", value_parser = parse_share)]
    gets: Ratio,
    /// Store every key first, and check that the server kept them
    #[arg(long)]
    preload: bool,
    /// Check every value that is read, byte for byte; only this generator may have stored them
    #[arg(long)]
    verify: bool,
    /// Unanswered requests per connection beyond which further ones wait (their latency counts on)
    #[arg(long, value_name = "N", default_value_t = 1024)]
    outstanding: u32,
}

impl Memcache {
    pub(super) fn plan(&self) -> Result<Plan> {
        let workload = Workload {
            seed: self.load.seed,
            keys: self.keys,
            popularity: self.popularity,
            key_size: self.key_size,
            value_size: self.value_size,
            gets: self.gets,
        };
        let plan = Plan::new(self.server.clone(), self.load.pace()?);
        Ok(self.load.in_force(Plan {
            asks: Items { workload, preload: self.preload, verify: self.verify },
            outstanding_max: self.outstanding,
            ..plan
        }))
    }
}

fn parse_share(text: &str) -> Result<Ratio, String> {
    match text.parse::<f64>() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(Ratio::new(share)),
        _ => Err(format!("`{text}` is no share: write a number from 0 to 1, such as 0.9")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Args as _;
    use workload::{ArrivalKind, Shape, SpecError};

    #[test]
    fn the_help_has_every_shape_and_every_kind_of_arrivals_that_there_is() {
        let help = Memcache::augment_args(clap::Command::new("memcache")).render_long_help().to_string();
        // Errors about others list them all.
        let known = |error: SpecError| -> Vec<String> {
            let text = error.to_string();
            let (_, list) = text.split_once(": write ").expect("a list");
            let list = list.replace(" or ", ", ").replace(" with CV from 1 to 100, such as h2:1.5", "");
            list.split(", ")
                .map(|name| name.trim_matches([' ', ',']))
                .filter(|name| !name.is_empty())
                .map(str::to_owned)
                .collect()
        };
        let shapes = known("saw".parse::<Shape>().unwrap_err());
        let arrivals = known("saw".parse::<ArrivalKind>().unwrap_err());
        assert!(shapes.len() > 10 && arrivals.len() >= 5, "{shapes:?} {arrivals:?}");
        let (_, table) = help.split_once("Shapes:").expect("a table");
        for shape in shapes {
            let name = shape.split(':').next().unwrap_or(&shape);
            let is_there = table.split([' ', ',', ';', ':', '[', '\n']).any(|word| word == name);
            assert!(is_there, "{shape} is not in\n{help}");
        }
        for kind in arrivals {
            let is_there = help.split([' ', ',', '\n']).any(|word| word == kind);
            assert!(is_there, "{kind} is not in\n{help}");
        }
    }
}
