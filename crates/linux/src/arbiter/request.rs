//! The requests of another process for the daemon's knobs, and the answers: lines of JSON on the
//! control socket (`docs/formats.md`).
//!
//! ```text
//! {"knobs":{"asker":"roost serve","active":"0-1","idle":[{"cpus":"2-3","limit":{"exit_latency":2000}}]}}
//! {"combined":{"refused":[{"cpus":"3","why":"cpu3 is not ours to limit"}]}}
//! ```
//!
//! Properties. A request replaces the last one over its connection, and lasts as long as the
//! connection does. An unknown key is refused. Nothing here reads a clock, a file or a socket, so
//! that any bytes may be tried (`fuzz/src/knobs.rs`).

use machine::{CpuList, IdleLimit};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// A name for people. The kernel tells the process ID.
    pub asker: String,
    /// The CPUs that the process needs.
    #[serde(with = "list", default)]
    pub active: CpuList,
    /// Idle limits. A CPU that is not listed has none.
    #[serde(default)]
    pub idle: Vec<IdleRequest>,
}

/// The idle limit of some CPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IdleRequest {
    #[serde(with = "list")]
    pub cpus: CpuList,
    pub limit: IdleLimit,
}

impl Request {
    /// Refuses names that a terminal does not show as they are.
    pub fn check(&self) -> Result<(), String> {
        if self.asker.is_empty() || self.asker.len() > 80 || self.asker.contains(char::is_control) {
            return Err("an asker's name has 1 to 80 letters".to_owned());
        }
        Ok(())
    }
}

/// The answer to a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Combined {
    pub refused: Vec<RefusedCpus>,
}

/// CPUs whose limit could not be set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedCpus {
    #[serde(with = "list")]
    pub cpus: CpuList,
    pub why: String,
}

pub(super) fn line(request: &Request) -> Vec<u8> {
    let mut line = serde_json::to_vec(&serde_json::json!({ "knobs": request })).expect("plain data");
    line.push(b'\n');
    line
}

/// Parses a line of the daemon: the result of a request, or the reason why the daemon does not hear
/// it.
pub fn told(line: &[u8]) -> Result<Combined, String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Answer {
        Combined(Combined),
        NotLeased { message: String },
        Refused(String),
        Denied(String),
    }
    match serde_json::from_slice(line) {
        Ok(Answer::Combined(combined)) => Ok(combined),
        Ok(Answer::NotLeased { message: why } | Answer::Refused(why) | Answer::Denied(why)) => {
            Err(crate::printable(&why).into_owned())
        }
        Err(error) => Err(format!("it answers something else ({})", plain(&error))),
    }
}

/// Replaces control characters: an error quotes the unknown text, which may have line ends and
/// sequences that move a terminal's cursor.
pub fn plain(error: &impl std::fmt::Display) -> String {
    error.to_string().replace(char::is_control, "?")
}

/// Serializes lists of CPUs as the kernel writes them, `0-3,8`; an empty text is an empty list.
pub(super) mod list {
    use machine::CpuList;
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub fn serialize<S: Serializer>(cpus: &CpuList, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(cpus)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<CpuList, D::Error> {
        let text = String::deserialize(from)?;
        if text.is_empty() { Ok(CpuList::default()) } else { text.parse().map_err(D::Error::custom) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::Duration;
    use proptest::prelude::*;

    #[test]
    fn the_documented_line_is_what_is_written() {
        let limit = IdleLimit::ExitLatency(Duration::from_micros(2));
        let request = Request {
            asker: "roost serve".to_owned(),
            active: "0-1".parse().unwrap(),
            idle: vec![IdleRequest { cpus: "2-3".parse().unwrap(), limit }],
        };
        assert_eq!(
            String::from_utf8(line(&request)).unwrap(),
            "{\"knobs\":{\"active\":\"0-1\",\"asker\":\"roost serve\",\
             \"idle\":[{\"cpus\":\"2-3\",\"limit\":{\"exit_latency\":2000}}]}}\n"
        );
    }

    #[test]
    fn refusals_are_told_in_the_daemons_words() {
        assert_eq!(told(br#"{"combined":{"refused":[]}}"#), Ok(Combined::default()));
        for refused in
            [r#"{"refused":"no"}"#, r#"{"denied":"no"}"#, r#"{"not_leased":{"kind":"held","message":"no"}}"#]
        {
            assert_eq!(told(refused.as_bytes()), Err("no".to_owned()));
        }
        assert!(told(b"{\"x\n\":1}").unwrap_err().contains("something else"));
        let named = |asker: &str| Request { asker: asker.to_owned(), ..Request::default() }.check();
        assert!(named(&"x".repeat(81)).is_err() && named("\x1b[2J").is_err() && named("").is_err());
        assert_eq!(named("roost serve"), Ok(()));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(line in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = told(&line);
        }
    }
}
