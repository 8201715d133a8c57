//! The messages to the planner over the control socket, in a datagram or by HTTP: a line of JSON, and
//! a line back (`docs/formats.md`).
//!
//! ```text
//! {"wake":{"cpus":"1","in":"400us","stay":"100us"}}   ready in 400 us, for 100 us
//! {"came":{"id":1}}   {"withdraw":{"id":1}}           the CPU may sleep again
//! {"began":{"key":7,"cpus":"1"}}  {"ended":{"id":2}}  a computation like those before
//! {"armed":{"in":"10ms","cpus":"1"}}                  a timer; over with "ended"
//! {"arrived":{"key":7,"cpus":"1"}}                    one event of a stream
//! {"follows":{"key":7,"in":"400us","cpus":"1"}}       a peer will send; over with "ended"
//! {"hello":{"name":"db"}}                             the name that asks and pays
//! {"ring":{"name":"db","entries":256}}                shared memory; two descriptors come
//! "planner"                                           the planner's status
//! ```
//!
//! The answer to the first two is `{"done":{"id":1}}`.
//!
//! Invariants: an unknown key is refused. Nothing here reads a clock, a file or a socket, so that
//! any bytes may be tried (`fuzz/src/wake_line.rs`).

use super::status::WakeStatus;
use linux::arbiter::request::plain;
use machine::{CpuList, Duration, Instant};
use serde::{Deserialize, Serialize};
use slots::wake::{Cpus, Said};
use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum WakeAsk {
    /// Sets the name of the caller.
    Hello {
        name: String,
    },
    /// Asks for shared memory instead of lines.
    Ring {
        name: String,
        entries: Option<u32>,
    },
    /// Asks for CPUs to be ready.
    Wake {
        /// A list such as `1` or `0-1,3`.
        cpus: Option<String>,
        /// The time from now until they are ready.
        #[serde(rename = "in")]
        ahead: String,
        /// The time for which they stay ready.
        stay: String,
    },
    /// The event of a request came.
    Came {
        id: u64,
    },
    Withdraw {
        id: u64,
    },
    /// A computation of this kind begins.
    Began {
        key: u64,
        /// The CPUs to be awake at its end.
        cpus: Option<String>,
    },
    /// A computation, timer or announced message has ended.
    Ended {
        id: u64,
    },
    Armed {
        /// The time from now until it fires.
        #[serde(rename = "in")]
        ahead: String,
        /// The CPUs to be awake.
        cpus: Option<String>,
    },
    /// One more event of a stream arrived.
    Arrived {
        key: u64,
        /// The CPUs to be awake for the next.
        cpus: Option<String>,
    },
    /// A peer announces that it will send.
    Follows {
        #[serde(default)]
        key: u64,
        /// The time from now until it sends.
        #[serde(rename = "in")]
        ahead: String,
        /// The CPUs to be awake.
        cpus: Option<String>,
    },
    /// Asks for the status.
    Planner,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WakeAnswer {
    /// The message was carried out.
    Done {
        /// The name of the request, for `came`, `withdraw` and `ended`.
        id: u64,
    },
    /// The descriptors of the memory and of its doorbell come with this answer.
    Ring {
        entries: u32,
    },
    Status(Box<WakeStatus>),
    /// The reason for a refusal, and the remedy.
    Refused(String),
}

/// A message of a remote caller.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Envelope {
    /// The token, unless it came in an HTTP header.
    #[serde(default)]
    pub token: String,
    pub client: String,
    pub say: WakeAsk,
}

/// The longest line.
pub(super) const LINE_MAX: usize = 4096;

/// A list of as many CPUs as a request may name is shorter, however it is written.
const LIST_MAX: usize = 32;

pub fn wake_ask(line: &[u8]) -> Result<WakeAsk, String> {
    if line.len() > LINE_MAX {
        return Err(format!("a line has up to {LINE_MAX} bytes"));
    }
    serde_json::from_slice(line).map_err(|error| {
        format!(
            "not understood ({}); write \
             {{\"wake\":{{\"cpus\":\"1\",\"in\":\"400us\",\"stay\":\"100us\"}}}}, for example",
            plain(&error)
        )
    })
}

/// The names of the messages, none of which is a question to the daemon.
const MESSAGES: [&str; 11] =
    ["hello", "ring", "wake", "came", "withdraw", "began", "ended", "armed", "arrived", "follows", "planner"];

/// True if the first line of a connection is a message to the planner, correct or not.
pub(crate) fn is_for_planner(sent: &[u8]) -> bool {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Message {
        Word(String),
        Table(BTreeMap<String, serde::de::IgnoredAny>),
    }
    let Some(end) = sent.iter().position(|&byte| byte == b'\n') else { return false };
    match serde_json::from_slice(&sent[..end]) {
        Ok(Message::Word(name)) => MESSAGES.contains(&name.as_str()),
        Ok(Message::Table(table)) => table.keys().any(|name| MESSAGES.contains(&name.as_str())),
        Err(_) => false,
    }
}

pub(super) fn line(answer: &WakeAnswer) -> Vec<u8> {
    let mut bytes = serde_json::to_vec(answer).expect("plain data");
    bytes.push(b'\n');
    bytes
}

/// Accepts a name that a terminal shows as it is.
pub(super) fn plain_name(name: &str) -> Result<String, String> {
    if name.is_empty() || name.len() > 80 || name.contains(char::is_control) {
        return Err("a name has 1 to 80 letters".to_owned());
    }
    Ok(name.to_owned())
}

/// Translates a message at the time `now` under the name `id`; `None` for a message that is not
/// about CPUs. `default`: the CPUs where none are named.
pub fn said(ask: &WakeAsk, now: Instant, id: u64, default: &CpuList) -> Result<Option<Said>, String> {
    let cpus = |cpus: &Option<String>| -> Result<Cpus, String> {
        let list = match cpus {
            // The loop itself parses this, and a long list of long ranges takes seconds.
            Some(text) if text.len() > LIST_MAX => {
                return Err(format!("a list of CPUs has up to {LIST_MAX} letters"));
            }
            Some(text) => text.parse::<CpuList>().map_err(|error| plain(&error))?,
            None => default.clone(),
        };
        match list.0.len() {
            0 => Err("no CPU is named: write \"cpus\":\"1\"".to_owned()),
            count if count > slots::wake::CPUS_MAX => Err(format!(
                "{count} CPUs are named; a request has up to {}: make several",
                slots::wake::CPUS_MAX
            )),
            count => {
                let named = Cpus::of(list.0);
                // The last number stands for an empty place.
                if named.iter().count() < count {
                    return Err(format!("there is no CPU {}", u16::MAX));
                }
                Ok(named)
            }
        }
    };
    let length = |text: &String| text.parse::<Duration>().map_err(|error| plain(&error));
    Ok(Some(match ask {
        WakeAsk::Wake { cpus: named, ahead, stay } => {
            Said::Wake { id, cpus: cpus(named)?, ready: now + length(ahead)?, stay: length(stay)? }
        }
        WakeAsk::Came { id } => Said::Came { id: *id },
        WakeAsk::Withdraw { id } => Said::Withdrawn { id: *id },
        WakeAsk::Began { key, cpus: named } => Said::Began { id, key: *key, cpus: cpus(named)?, at: now },
        WakeAsk::Ended { id } => Said::Ended { id: *id, at: now },
        WakeAsk::Armed { ahead, cpus: named } => {
            Said::Armed { id, expiry: now + length(ahead)?, cpus: cpus(named)?, at: now }
        }
        WakeAsk::Arrived { key, cpus: named } => Said::Arrived { key: *key, cpus: cpus(named)?, at: now },
        WakeAsk::Follows { key, ahead, cpus: named } => {
            Said::Follows { id, key: *key, due: now + length(ahead)?, cpus: cpus(named)?, at: now }
        }
        WakeAsk::Hello { .. } | WakeAsk::Ring { .. } | WakeAsk::Planner => return Ok(None),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::CpuId;

    fn ask(text: &str) -> Result<WakeAsk, String> {
        wake_ask(text.as_bytes())
    }

    #[test]
    fn a_line_becomes_a_request() {
        let now = Instant::from_nanos(1_000);
        let none = CpuList::default();
        let wake = ask(r#"{"wake":{"cpus":"1,3","in":"400us","stay":"1ms"}}"#).unwrap();
        let Ok(Some(Said::Wake { id: 5, cpus, ready, stay })) = said(&wake, now, 5, &none) else {
            panic!("{wake:?}")
        };
        assert_eq!(cpus.iter().collect::<Vec<_>>(), [CpuId(1), CpuId(3)]);
        assert_eq!((ready, stay), (Instant::from_nanos(401_000), Duration::from_millis(1)));
        let bare = ask(r#"{"follows":{"in":"400us"}}"#).unwrap();
        assert!(said(&bare, now, 1, &none).unwrap_err().contains("no CPU"));
        assert!(said(&bare, now, 1, &"2".parse().unwrap()).is_ok());
    }

    #[test]
    fn a_connection_is_the_planners_by_its_first_line() {
        let one_of_each = [
            r#"{"hello":{"name":"db"}}"#,
            r#"{"ring":{"name":"db","entries":256}}"#,
            r#"{"wake":{"cpus":"1","in":"400us","stay":"100us"}}"#,
            r#"{"came":{"id":1}}"#,
            r#"{"withdraw":{"id":1}}"#,
            r#"{"began":{"key":7,"cpus":"1"}}"#,
            r#"{"ended":{"id":2}}"#,
            r#"{"armed":{"in":"10ms","cpus":"1"}}"#,
            r#"{"arrived":{"key":7,"cpus":"1"}}"#,
            r#"{"follows":{"key":7,"in":"400us","cpus":"1"}}"#,
            r#""planner""#,
        ];
        assert_eq!(one_of_each.len(), MESSAGES.len());
        for message in one_of_each {
            assert!(ask(message).is_ok(), "{message}");
            assert!(is_for_planner(format!("{message}\nmore").as_bytes()), "{message}");
            assert!(!is_for_planner(message.as_bytes()), "{message} has not ended");
            assert!(crate::control::question(message).is_err(), "{message} is no question to the daemon");
        }
        assert!(is_for_planner(b"{\"wake\":{\"cpu\":1}}\n"), "the planner says how to write it");
        for other in
            ["", "GET / HTTP/1.1", "\"status\"", r#"{"set":{"service":"a","set":"pause"}}"#, "7", "{}"]
        {
            assert!(!is_for_planner(format!("{other}\n").as_bytes()), "{other}");
        }
    }

    #[test]
    fn nonsense_is_told_with_an_example() {
        for wrong in [
            "",
            "GET / HTTP/1.1",
            r#"{"wake":{"cpus":"1","in":"400us"}}"#,
            r#"{"wake":{"cpus":"1","in":"400us","stay":"1ms","also":1}}"#,
            r#"{"came":{"id":-1}}"#,
            r#""everything""#,
        ] {
            assert!(ask(wrong).unwrap_err().contains("for example"), "{wrong}");
        }
        // Quoted, the text would span several lines and move a terminal's cursor.
        let quoted = ask(r#""a\nb\u001b[2J""#).unwrap_err();
        assert!(quoted.contains("a?b?[2J") && !quoted.contains(char::is_control), "{quoted}");
        let now = Instant::ZERO;
        for wrong in [
            r#"{"wake":{"cpus":"1","in":"soon","stay":"1ms"}}"#,
            r#"{"wake":{"cpus":"-","in":"1ms","stay":"1ms"}}"#,
            r#"{"wake":{"cpus":"0-4","in":"1ms","stay":"1ms"}}"#,
            r#"{"wake":{"cpus":"1,65535","in":"1ms","stay":"1ms"}}"#,
        ] {
            assert!(said(&ask(wrong).unwrap(), now, 1, &CpuList::default()).is_err(), "{wrong}");
        }
        let all = ["0-65535"; 500].join(",");
        let long = ask(&format!(r#"{{"wake":{{"cpus":"{all}","in":"1ms","stay":"1ms"}}}}"#)).unwrap();
        assert!(said(&long, now, 1, &CpuList::default()).unwrap_err().contains("up to 32 letters"));
        assert!(wake_ask(&vec![b' '; LINE_MAX + 1]).is_err());
    }
}
