//! What is said between a process that asks and one that holds: a line of JSON each way (`docs/formats.md`).
//!
//! ```text
//! {"v":1,"asker":"roost serve","ask":{"idle":{"cpu":3,"limit":{"exit_latency":2000}}}}     ns; "none" withdraws
//! {"v":1,"asker":"roost govern","ask":{"clock":{"cpu":3,"limit":{"at_most":1400000}}}}     kHz; "none" wants all, null withdraws
//! {"v":1,"asker":"roost serve","ask":{"active":{"active":"0-1"}}}                          empty withdraws
//! {"v":1,"asker":"roost govern","ask":"needed"}                                            changes nothing
//! ```
//!
//! What always holds: a key that is not known is refused, and so is another version; nothing here reads a clock, a file or a
//! socket, so that any bytes may be tried (`fuzz/src/holder.rs`).

use super::laws::Claim;
use crate::cpufreq::control::FrequencyState;
use crate::cpuidle::control::LimitState;
use machine::{CpuId, CpuList, FrequencyLimit, IdleLimit};
use serde::{Deserialize, Serialize};

/// A request to a holder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// The version of this format, [`VERSION`].
    pub v: u32,
    /// For people; which process it is, the kernel says.
    pub asker: String,
    /// What.
    pub ask: Ask,
}

/// What is asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Ask {
    /// How deeply a CPU may sleep; [`IdleLimit::None`] withdraws.
    Idle {
        /// Which.
        cpu: CpuId,
        /// So.
        limit: IdleLimit,
    },
    /// How fast a CPU may run. [`FrequencyLimit::None`] wants all that it can do, `None` has no say any more.
    Clock {
        /// Which.
        cpu: CpuId,
        /// So.
        limit: Option<FrequencyLimit>,
    },
    /// Which CPUs the asker needs, and which it has left.
    Active(Claim),
    /// Which CPUs are needed, and by others than the asker.
    Needed,
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Answer {
    /// What holds on that CPU now.
    Idle(LimitState),
    /// What holds in that CPU's domain now.
    Clock(FrequencyState),
    /// To `Active` and `Needed`.
    Needed(Needed),
    /// Nothing was changed; the text says why.
    Refused(String),
}

/// CPUs that must be awake, online and not shut off from anybody.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Needed {
    /// By anybody: the union of all active sets.
    #[serde(with = "list")]
    pub by_all: CpuList,
    /// By others than the asker.
    #[serde(with = "list")]
    pub by_others: CpuList,
    /// Not needed, and offline by whoever keeps the register: without us they were there.
    #[serde(with = "list")]
    pub offline: CpuList,
}

/// Of this format.
pub const VERSION: u32 = 1;

/// A line is no longer than this, either way: some thousand CPUs, or a hundred cgroups.
pub(super) const LINE_MAX: usize = 16 << 10;

/// What a line asks for.
pub fn request(line: &[u8]) -> Result<Request, String> {
    let request: Request = serde_json::from_slice(line).map_err(|error| {
        format!("not understood ({}); write {{\"v\":{VERSION},\"asker\":\"NAME\",\"ask\":{{\"idle\":{{\"cpu\":0,\"limit\":\"none\"}}}}}}", plain(&error))
    })?;
    if request.v != VERSION {
        return Err(format!("version {} is not spoken here, version {VERSION} is", request.v));
    }
    // It is shown to people, in terminals too.
    if request.asker.len() > 80 || request.asker.contains(char::is_control) {
        return Err("an asker's name has up to 80 letters".to_owned());
    }
    Ok(request)
}

/// What a line answers.
pub fn answer(line: &[u8]) -> Result<Answer, String> {
    serde_json::from_slice(line).map_err(|error| format!("no answer of a holder ({})", plain(&error)))
}

/// An error quotes what it does not understand: a stranger's text, which may hold line ends and what moves a terminal's cursor.
pub fn plain(error: &impl std::fmt::Display) -> String {
    error.to_string().replace(char::is_control, "?")
}

/// As a line.
pub(super) fn line(said: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(said).expect("plain data");
    line.push(b'\n');
    line
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
    use machine::{Duration, Kilohertz};
    use proptest::prelude::*;

    #[test]
    fn the_documented_lines_are_understood() {
        let ask = |text: &str| {
            request(format!("{{\"v\":1,\"asker\":\"x\",\"ask\":{text}}}").as_bytes())
                .map(|request| request.ask)
        };
        let cpu = CpuId(3);
        let limit = IdleLimit::ExitLatency(Duration::from_micros(2));
        assert_eq!(ask(r#"{"idle":{"cpu":3,"limit":{"exit_latency":2000}}}"#), Ok(Ask::Idle { cpu, limit }));
        let limit = Some(FrequencyLimit::AtMost(Kilohertz(1_400_000)));
        assert_eq!(ask(r#"{"clock":{"cpu":3,"limit":{"at_most":1400000}}}"#), Ok(Ask::Clock { cpu, limit }));
        assert_eq!(ask(r#"{"clock":{"cpu":3,"limit":null}}"#), Ok(Ask::Clock { cpu, limit: None }));
        assert_eq!(ask("\"needed\""), Ok(Ask::Needed));
        let Ok(Ask::Active(claim)) = ask(r#"{"active":{"active":"0-1"}}"#) else { panic!("a claim") };
        assert_eq!((claim.active.to_string(), claim.could.0.len()), ("0-1".to_owned(), 0));
        let whole = r#"{"active":{"active":"","could":"0-3","scope":{"everybody":true,"interrupts":false},"places":["a"]}}"#;
        let Ok(Ask::Active(claim)) = ask(whole) else { panic!("a claim") };
        assert!(claim.scope.everybody && claim.active.0.is_empty() && claim.places.contains("a"));
    }

    #[test]
    fn nonsense_is_refused_with_an_example_and_another_version_by_name() {
        let old = r#"{"asker":"x","cpu":1,"limit":"none"}"#;
        for wrong in ["", "GET / HTTP/1.1", "{}", old, "[1,2]"] {
            assert!(request(wrong.as_bytes()).unwrap_err().contains("\"limit\":\"none\""), "{wrong}");
        }
        // What is quoted of it stays one line, and moves no cursor.
        for said in [request(br#"{"a\n\u001b[2Jb":1}"#).unwrap_err(), answer(br#"{"a\nb":1}"#).unwrap_err()] {
            assert!(said.contains("a?") && !said.contains(char::is_control), "{said:?}");
        }
        let named = |v: u32, asker: &str| {
            let line = Request { v, asker: asker.to_owned(), ask: Ask::Needed };
            request(&super::line(&line))
        };
        assert!(named(2, "x").unwrap_err().contains("version 1"));
        assert!(named(1, &"x".repeat(81)).is_err());
        assert!(named(1, "\x1b[2J").is_err());
        assert!(named(1, "x").is_ok());
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(line in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = request(&line);
            let _ = answer(&line);
        }
    }
}
