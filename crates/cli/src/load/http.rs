//! `roost load http`: an HTTP server, such as a search engine.

use super::Load;
use crate::exit::usage;
use anyhow::Result;
use loadgen::{Body, Plan, Url};
use machine::Duration;
use std::path::PathBuf;
use workload::{Keywords, Popularity, Words};

/// Load an HTTP server, such as a search engine with queries of keywords
///
/// As `roost load memcache`, over kept-alive connections of HTTP/1.1. A request takes any free
/// connection; if none is free it waits, and its latency counts on. {words} in the URL and in the
/// body stands for the query's keywords. The server's own time in the answers of Elasticsearch,
/// OpenSearch (took) and Solr (QTime) is shown next to the latency.
#[derive(clap::Args, Debug)]
#[command(after_help = concat!(include_str!("../../help/load-http.txt"), include_str!("../../help/shapes.txt")))]
pub(super) struct Http {
    /// The target: http://HOST:PORT/PATH?QUERY
    #[arg(value_name = "URL")]
    url: Url,
    /// Send this with a POST: text, or @FILE
    #[arg(long, value_name = "TEXT")]
    body: Option<String>,
    /// The type of the body
    #[arg(long, value_name = "TYPE", default_value = "application/json", requires = "body", value_parser = parse_content_type)]
    content_type: String,
    #[command(flatten)]
    pub(super) load: Load,
    /// Keywords of each query: paper (1 to 18), cloudsuite (1 to 16), light (3-4), heavy (12-18),
    /// or numbers such as 7 or 2-5
    #[arg(long, value_name = "MIX", default_value = "paper", requires = "words")]
    keywords: Keywords,
    /// A file of words, one to a line, most frequent first; best the index's own
    #[arg(long, value_name = "FILE")]
    words: Option<PathBuf>,
    /// How often each word is asked for: uniform or zipf:S
    #[arg(long, value_name = "LAW", default_value = "zipf:1")]
    popularity: Popularity,
    /// Requests on one connection at a time; above 1 they are pipelined, which few servers are used
    /// to
    #[arg(long, value_name = "N", default_value_t = 1)]
    outstanding: u32,
    /// Give a request up when the server owes its answer for this long
    #[arg(long, value_name = "TIME", default_value = "10s")]
    timeout: Duration,
}

impl Http {
    pub(super) fn plan(&self) -> Result<Plan<loadgen::Http>> {
        let body = match self.body.as_deref().map(|text| (text, text.strip_prefix('@'))) {
            Some((_, Some(file))) => Some(
                std::fs::read_to_string(file).map_err(|cause| usage(format!("--body @{file}: {cause}")))?,
            ),
            Some((text, None)) => Some(text.to_owned()),
            None => None,
        };
        let words = self.words.as_deref().map(Words::read).transpose().map_err(usage)?;
        let asks = loadgen::Http {
            seed: self.load.seed,
            url: self.url.clone(),
            body: body.map(|text| Body { text, content_type: self.content_type.clone() }),
            keywords: self.keywords.clone(),
            words: words.unwrap_or_else(|| Words::new([])),
            popularity: self.popularity,
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
        let plan = Plan::http(asks, self.load.pace()?);
        // The run gives up on a server that is silent for longer than each of its answers may take.
        let patience = plan.patience.max(self.timeout.scale(2.0));
        let plan = Plan { outstanding_max: self.outstanding, timeout: Some(self.timeout), patience, ..plan };
        Ok(self.load.in_force(plan))
    }
}

/// The characters that a header's line can carry.
fn parse_content_type(text: &str) -> Result<String, String> {
    if !text.is_empty() && text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()) {
        Ok(text.to_owned())
    } else {
        Err(format!("`{}` is no media type: write one such as application/json", text.escape_default()))
    }
}
