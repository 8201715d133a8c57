//! What another process asks of the daemon's knobs, and what it is told: lines of JSON on the control socket (`docs/formats.md`).
//!
//! ```text
//! {"knobs":{"asker":"roost serve on 127.0.0.1:11211","active":"0-1","idle":[{"cpus":"2-3","limit":{"exit_latency":2000}}]}}
//! {"combined":{"refused":[{"cpus":"3","why":"cpu3 is not ours to limit"}]}}
//! ```
//!
//! Properties: a request takes the place of the last one over its connection, and all of it lasts as long as the connection does.
//! A key that is not known is refused. Nothing here reads a clock, a file or a socket, so that any bytes may be tried
//! (`fuzz/src/knobs.rs`).

use machine::{CpuList, IdleLimit};
use serde::{Deserialize, Serialize};

/// All that a process asks for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// For people; its process the kernel tells.
    pub asker: String,
    /// The CPUs that it needs.
    #[serde(with = "list", default)]
    pub active: CpuList,
    /// How deeply others may sleep. A CPU that stands nowhere has no limit.
    #[serde(default)]
    pub idle: Vec<IdleRequest>,
}

/// How deeply some CPUs may sleep.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IdleRequest {
    /// These.
    #[serde(with = "list")]
    pub cpus: CpuList,
    /// So.
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

/// What became of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Combined {
    /// CPUs whose limit could not be set.
    pub refused: Vec<RefusedCpus>,
}

/// CPUs whose limit could not be set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedCpus {
    /// These.
    #[serde(with = "list")]
    pub cpus: CpuList,
    /// The reason.
    pub why: String,
}

/// A request, as a line.
pub(super) fn line(request: &Request) -> Vec<u8> {
    let mut line = serde_json::to_vec(&serde_json::json!({ "knobs": request })).expect("plain data");
    line.push(b'\n');
    line
}

/// What a line of the daemon tells: what became of the request, or the reason why it is not heard at all.
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

/// An error quotes what it does not understand: a stranger's text, which may hold line ends and what moves a terminal's cursor.
pub fn plain(error: &impl std::fmt::Display) -> String {
    error.to_string().replace(char::is_control, "?")
}

/// Lists of CPUs as the kernel writes them, `0-3,8`; an empty text is none.
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
