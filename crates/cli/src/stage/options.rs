//! The arguments and the file as one configuration: the file first, then flags.

use crate::exit::usage;
use ::proxy::{Class, Config, Server};
use anyhow::Result;
use machine::{Duration, Goal};
use std::net::SocketAddr;
use std::path::PathBuf;

/// Hold requests to a server and let them in together, so that its CPUs sleep together in between
///
/// A reverse proxy for HTTP/1.1 and HTTP/2. Requests go at the end of every period, earlier when
/// the learned length of bursts puts the goal in danger, and at once when the stage is full or the
/// load is high.
#[derive(clap::Args, Debug)]
#[command(after_long_help = include_str!("../../help/stage.txt"))]
pub struct Args {
    /// A server, as http://HOST:PORT or https://HOST:PORT; several are replicas
    #[arg(long, value_name = "URL")]
    to: Vec<String>,
    /// Where clients come [default: 127.0.0.1:8080]; port 0 lets the system choose and prints it
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = crate::exit::parse_address)]
    listen: Vec<SocketAddr>,
    /// The time that requests may take at the most, and the share that must keep it
    /// [default: 500 ms at p99.9]
    #[arg(long, value_name = "TIME@pQ")]
    goal: Option<Goal>,
    /// Let requests go every so often, and earlier where the goal is in danger
    /// [default: when it is in danger]
    #[arg(long, value_name = "TIME")]
    period: Option<Duration>,
    /// A kind of requests with a deadline of its own; may be given several times
    #[arg(
        long,
        value_name = "CLASS",
        value_parser = parse_class,
        help_heading = "Advanced",
        hide_short_help = true
    )]
    class: Vec<Class>,
    /// All of this as TOML, TLS and more; unknown keys are refused
    #[arg(long, value_name = "FILE", help_heading = "Advanced", hide_short_help = true)]
    config: Option<PathBuf>,
    #[command(flatten)]
    pub(super) names: crate::metrics::Names,
    /// Leave readings, bursts, a summary and a page in this folder
    #[arg(long, value_name = "DIR", help_heading = "Advanced", hide_short_help = true)]
    pub(super) out: Option<PathBuf>,
    /// End after this long
    #[arg(long = "for", value_name = "TIME")]
    pub(super) length: Option<Duration>,
    /// Show the live view; q ends it
    #[arg(long, conflicts_with = "json")]
    pub(super) live: bool,
    /// Print the results as JSON
    #[arg(long)]
    pub(super) json: bool,
}

impl Args {
    pub(super) fn config(&self) -> Result<Config> {
        let mut config = match &self.config {
            None => Config::default(),
            Some(path) => {
                let text = std::fs::read_to_string(path).map_err(|cause| {
                    usage(format!(
                        "cannot read {}: {cause}\nhint: --config takes a TOML file",
                        path.display()
                    ))
                })?;
                Config::read(&text).map_err(|error| {
                    usage(format!(
                        "{}: {error}\nhint: `[config]` in run.toml of a run with --out has every key",
                        path.display()
                    ))
                })?
            }
        };
        if !self.to.is_empty() {
            config.servers = self.to.iter().map(|to| Server::at(to)).collect();
        }
        if !self.listen.is_empty() {
            config.listen.clone_from(&self.listen);
        }
        config.goal = self.goal.unwrap_or(config.goal);
        config.period = self.period.map(::proxy::Period).or(config.period);
        // Before the file's: flags are nearer to the hand.
        config.classes = self.class.iter().cloned().chain(config.classes).collect();
        Ok(config)
    }
}

fn parse_class(text: &str) -> Result<Class, String> {
    let wrong = |what: &str| {
        format!(
            "{what}; write NAME;path=/BEGINNING;header=NAME: VALUE;deadline=TIME, or never in the deadline's place"
        )
    };
    let mut parts = text.split(';').map(str::trim);
    let name = parts.next().unwrap_or_default().to_owned();
    let mut class = Class { name, ..Class::default() };
    for part in parts {
        match part.split_once('=') {
            None if part == "never" => class.never_stage = true,
            Some(("path", path)) => class.path = Some(path.to_owned()),
            Some(("header", header)) => class.header = Some(header.to_owned()),
            Some(("deadline", time)) => {
                let time = time.parse().map_err(|error| format!("class {}: {error}", class.name))?;
                class.deadline = Some(::proxy::Period(time));
            }
            _ => return Err(wrong(&format!("`{part}` says nothing about a class"))),
        }
    }
    Ok(class)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Alone {
        #[command(flatten)]
        args: Args,
    }

    fn typed(words: &[&str]) -> Config {
        Alone::try_parse_from([&["stage"], words].concat()).unwrap().args.config().unwrap()
    }

    #[test]
    fn flags_come_before_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("stage.toml");
        std::fs::write(
            &file,
            "goal = \"1s@p99\"\nperiod = \"100ms\"\n[[class]]\nname = \"a\"\n\
             path = \"/\"\n[[server]]\nto = \"http://h:1\"\n",
        )
        .unwrap();
        let file = file.to_str().unwrap();
        let config = typed(&[
            "--config",
            file,
            "--goal",
            "2s@p99.9",
            "--class",
            "live;path=/live;never",
            "--class",
            "b;header=X-B;deadline=3s",
        ]);
        config.check().unwrap();
        assert_eq!(config.goal, "2s@p99.9".parse().unwrap());
        assert_eq!(config.period, Some(::proxy::Period(Duration::from_millis(100))));
        let names: Vec<&str> = config.classes.iter().map(|class| class.name.as_str()).collect();
        assert_eq!(names, ["live", "b", "a"]);
        assert_eq!(config.servers, [Server::at("http://h:1")]);
        assert_eq!(typed(&["--config", file, "--to", "http://h:2"]).servers, [Server::at("http://h:2")]);
    }

    #[test]
    fn classes_read_as_written_and_others_are_refused() {
        let class = parse_class("live; path=/x; header=A: b; never").unwrap();
        assert_eq!(
            (class.name.as_str(), class.path.as_deref(), class.header.as_deref()),
            ("live", Some("/x"), Some("A: b"))
        );
        assert!(class.never_stage);
        for wrong in ["a;deadline=soon", "a;colour=red", "a;path"] {
            assert!(parse_class(wrong).unwrap_err().contains("write"), "{wrong}");
        }
    }

    /// The commented file shows the defaults, all of them: it cannot fall behind the code.
    #[test]
    fn the_shipped_configuration_is_the_default_one_with_a_server() {
        let shipped: toml::Table = toml::from_str(include_str!("../../../../config/stage.toml")).unwrap();
        let config = Config {
            servers: vec![Server::at("http://127.0.0.1:9200")],
            period: Some(::proxy::Period(Duration::from_millis(250))),
            ..Config::default()
        };
        let defaults: toml::Table = toml::from_str(&toml::to_string(&config).unwrap()).unwrap();
        assert_eq!(shipped, defaults);
    }
}
