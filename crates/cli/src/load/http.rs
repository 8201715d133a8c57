//! The load of an HTTP server, such as a search engine.

use super::Load;
use crate::exit::usage;
use anyhow::Result;
use loadgen::{Plan, Url};
use machine::Duration;
use std::path::PathBuf;
use workload::{Keywords, Words};

#[derive(clap::Args, Debug)]
pub(super) struct HttpOptions {
    /// Send this with a POST, as application/json: text, or @FILE
    #[arg(long, value_name = "TEXT")]
    body: Option<String>,
    /// Keywords of each query: paper (1 to 18), cloudsuite (1 to 16), light (3-4), heavy (12-18),
    /// or numbers such as 7 or 2-5 [default: paper]
    #[arg(long, value_name = "MIX", requires = "words", hide_short_help = true)]
    keywords: Option<Keywords>,
    /// A file of words, one to a line, most frequent first; best the index's own
    #[arg(long, value_name = "FILE")]
    words: Option<PathBuf>,
    /// Give a request up when the server owes its answer for this long [default: 10s]
    #[arg(long, value_name = "TIME", hide_short_help = true)]
    timeout: Option<Duration>,
}

impl HttpOptions {
    pub(super) fn given(&self) -> Option<&'static str> {
        let given = [
            ("--body", self.body.is_some()),
            ("--words", self.words.is_some()),
            ("--timeout", self.timeout.is_some()),
        ];
        given.into_iter().find_map(|(flag, is_given)| is_given.then_some(flag))
    }

    pub(super) fn plan(&self, load: &Load, url: &Url) -> Result<Plan<loadgen::Http>> {
        let body = match self.body.as_deref().map(|text| (text, text.strip_prefix('@'))) {
            Some((_, Some(file))) => Some(
                std::fs::read_to_string(file).map_err(|cause| usage(format!("--body @{file}: {cause}")))?,
            ),
            Some((text, None)) => Some(text.to_owned()),
            None => None,
        };
        let words = self.words.as_deref().map(Words::read).transpose().map_err(usage)?;
        let asks = loadgen::Http {
            seed: load.seed,
            url: url.clone(),
            body,
            keywords: self.keywords.clone().unwrap_or_else(|| "paper".parse().expect("a mix")),
            words: words.unwrap_or_else(|| Words::new([])),
            popularity: load.popularity.unwrap_or_else(|| "zipf:1".parse().expect("a law")),
        };
        match (asks.wants_words(), self.words.is_some()) {
            (true, false) => {
                return Err(usage(
                    "the URL or the body has {words} in it: name a word list with --words FILE",
                ));
            }
            (false, true) => {
                return Err(usage(
                    "--words is of no use without {words} in the URL or in --body, where they shall stand",
                ));
            }
            _ => {}
        }
        let plan = Plan::http(asks, load.pace()?);
        let timeout = self.timeout.unwrap_or(Duration::from_secs(10));
        // The run gives up on a server that is silent for longer than each of its answers may take.
        let patience = plan.patience.max(timeout.scale(2.0));
        Ok(load.in_force(Plan { timeout: Some(timeout), patience, ..plan }))
    }
}
