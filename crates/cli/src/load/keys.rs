//! The load of a server of keys: memcached, the store, Redis.

use super::Load;
use crate::exit::usage;
use anyhow::Result;
use loadgen::{Dialect, Items, Plan, Target};
use machine::Ratio;
use std::path::PathBuf;
use tls::Client;
use workload::{KeySize, Popularity, ValueSize, Workload};

#[derive(clap::Args, Debug)]
pub(super) struct KeyOptions {
    /// Number of keys [default: 100000]
    #[arg(long, value_name = "N")]
    keys: Option<u64>,
    /// Bytes of a key, or etc or usr for the sizes of Facebook's pools [default: 20]
    #[arg(long, value_name = "SIZE", hide_short_help = true)]
    key_size: Option<KeySize>,
    /// Bytes of a value, or etc or usr [default: 100]
    #[arg(long, value_name = "SIZE", hide_short_help = true)]
    value_size: Option<ValueSize>,
    /// Share of requests that read; the others write [default: 0.9]
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    gets: Option<Ratio>,
    /// Store every key first, and check that the server kept them
    #[arg(long)]
    preload: bool,
    /// Speak TLS: the server's certificate is of one of these authorities (PEM)
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    tls_ca: Option<PathBuf>,
    /// Check every value that is read, byte for byte; only this generator may have stored them
    #[arg(long, hide_short_help = true)]
    verify: bool,
}

impl KeyOptions {
    pub(super) fn given(&self) -> Option<&'static str> {
        let given = [
            ("--keys", self.keys.is_some()),
            ("--key-size", self.key_size.is_some()),
            ("--value-size", self.value_size.is_some()),
            ("--gets", self.gets.is_some()),
            ("--preload", self.preload),
            ("--verify", self.verify),
            ("--tls-ca", self.tls_ca.is_some()),
        ];
        given.into_iter().find_map(|(flag, is_given)| is_given.then_some(flag))
    }

    pub(super) fn plan(&self, load: &Load, server: &Target, dialect: Dialect) -> Result<Plan> {
        let size = "a size";
        let workload = Workload {
            seed: load.seed,
            keys: self.keys.unwrap_or(100_000),
            popularity: load.popularity.unwrap_or(Popularity::Uniform),
            key_size: self.key_size.unwrap_or_else(|| "20".parse().expect(size)),
            value_size: self.value_size.unwrap_or_else(|| "100".parse().expect(size)),
            gets: self.gets.unwrap_or(Ratio::new(0.9)),
        };
        let tls = self.tls_ca.as_deref().map(|file| Client::new(file, &host_of(server)));
        let tls = tls.transpose().map_err(usage)?;
        let asks = Items { workload, dialect, preload: self.preload, verify: self.verify };
        Ok(load.in_force(Plan { tls, asks, ..Plan::new(server.clone(), load.pace()?) }))
    }
}

/// The name that the server's certificate has to have.
fn host_of(server: &Target) -> String {
    match server {
        Target::Tcp(text) => {
            let host = text.rsplit_once(':').map_or(&**text, |(host, _)| host);
            host.trim_matches(['[', ']']).to_owned()
        }
        Target::Unix(_) => "localhost".to_owned(),
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
    use clap::Args as _;
    use workload::{ArrivalKind, Shape, SpecError};

    #[test]
    fn the_help_has_every_shape_and_every_kind_of_arrivals_that_there_is() {
        let help =
            super::super::Args::augment_args(clap::Command::new("load")).render_long_help().to_string();
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
