//! The journal's lines: their meaning, how to recognise a torn one, and their sum.
//!
//! A line is a checksum, a space and one JSON record. The process may be killed in the middle of a
//! line, so a line counts only if its checksum is right. A last line without an end is passed over:
//! the step that it announces was not taken. A line that has an end and is not understood is
//! counted: another version wrote it, or it was damaged, and the journal must not be taken for
//! settled. Four records:
//!
//! - `run`: the writer of this journal, its version, the boot of the machine and the namespaces.
//! - `intent`: `path`, which would read `before` without us, is about to be set to `after`.
//! - `settled`: it was written and reads `after` now. If that is `before`, we hold it no longer.
//!   Threads are the exception: every thread of a service is held while we confine it, changed or
//!   not, for one that is not in the journal counts as born since.
//! - `forgotten`: it is gone, or put back for good.
//!
//! Whatever prefix of the lines survives, [`Held::ours`] contains every value of ours that the file
//! can have, and `before` the text that belongs there. An intent adds a value to `ours`; a settled
//! record leaves only its own.

use crate::processes::threads::AFFINITY;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Record {
    Run {
        holder: String,
        process: u32,
        boot: String,
        /// Of these lines. The first did not say it.
        #[serde(default = "first_version")]
        version: u32,
        #[serde(default)]
        program: String,
        /// The meaning of process numbers and start times; see [`namespaces`].
        #[serde(default)]
        namespaces: String,
    },
    Intent {
        path: String,
        before: String,
        after: String,
    },
    Settled {
        path: String,
        before: String,
        after: String,
    },
    Forgotten {
        path: String,
    },
}

pub(super) const VERSION: u32 = 2;

fn first_version() -> u32 {
    1
}

/// The namespaces in which a process number, a start time and a network device's name were true: the
/// first two together identify a thread.
pub(super) fn namespaces() -> String {
    let of = |name: &str| {
        let link = std::fs::read_link(format!("/proc/thread-self/ns/{name}"));
        link.map_or_else(|_| format!("{name}:?"), |link| link.display().to_string())
    };
    ["pid", "time", "net"].map(of).join(" ")
}

/// That of one kind among [`namespaces`]; earlier journals name no `net`.
pub(super) fn namespace_of<'a>(all: &'a str, kind: &str) -> Option<&'a str> {
    all.split(' ').find(|one| one.strip_prefix(kind).is_some_and(|rest| rest.starts_with(':')))
}

/// A file that does not read as it would without us.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// The text that belongs there, verbatim.
    pub before: String,
    /// The texts that we may have left there.
    pub ours: Vec<String>,
}

/// Among our texts: the file goes away with its CPU, and its text after that is the kernel's doing.
/// No kernel file reads so.
pub(crate) const LOST: &str = "<gone with its CPU>";

/// It could not be read, and its CPU is being brought back: any text is the kernel's doing.
pub(crate) const FRESH: &str = "<back with its CPU>";

/// Before one of our texts: the kernel may set it so because of another change of ours.
const BY_KERNEL: &str = "<by the kernel> ";

/// The form in `ours` of a text that the kernel may set.
pub(super) fn by_kernel(text: &str) -> String {
    format!("{BY_KERNEL}{text}")
}

impl Held {
    /// Every text that it can have because of us, the kernel's doing included.
    pub(super) fn texts(&self) -> impl Iterator<Item = &str> {
        self.ours.iter().map(|ours| ours.strip_prefix(BY_KERNEL).unwrap_or(ours))
    }

    /// True if `text` is the only one that we have written.
    pub(super) fn is_written(&self, text: &str) -> bool {
        self.ours.iter().filter(|ours| !ours.starts_with(BY_KERNEL)).eq([text])
    }

    /// True if we have written only the text that was there.
    pub(super) fn is_unwritten(&self) -> bool {
        self.ours.iter().all(|ours| *ours == self.before || ours.starts_with(BY_KERNEL))
    }

    /// True for a file that may go away with its CPU.
    pub(crate) fn may_be_lost(&self) -> bool {
        self.ours.iter().any(|ours| ours == LOST)
    }

    /// True for a lost one.
    pub(super) fn is_fresh(&self) -> bool {
        self.ours.iter().any(|ours| ours == FRESH)
    }

    /// True if the kernel may have set it because of another change of ours.
    pub(super) fn may_be_forgotten(&self) -> bool {
        self.ours.iter().any(|ours| ours.starts_with(BY_KERNEL))
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    pub holder: Option<String>,
    pub process: Option<u32>,
    pub boot: Option<String>,
    /// By path below the root.
    pub held: BTreeMap<String, Held>,
    /// Complete lines that are not understood.
    pub unreadable: usize,
    /// True if the last line has no end.
    pub is_torn: bool,
    /// The version that wrote it, in words, as far as known.
    pub version: Option<String>,
    /// The namespace in which its process numbers are true; nothing if it does not say.
    pub namespaces: String,
}

impl Record {
    pub(crate) fn line(&self) -> String {
        let json = serde_json::to_string(self).expect("a record of plain strings is always JSON");
        format!("{:016x} {json}\n", checksum(json.as_bytes()))
    }

    /// A line's facts about the run that wrote it; other contents do not matter.
    fn version_in(line: &[u8]) -> Option<String> {
        let json: serde_json::Value = serde_json::from_slice(line.get(17..)?).ok()?;
        let text = |key: &str| json.get(key).and_then(serde_json::Value::as_str).unwrap_or_default();
        let number = json.get("version").and_then(serde_json::Value::as_u64).unwrap_or(1);
        (json.get("record")? == "run").then(|| described(number, text("program")))
    }

    fn from_line(line: &[u8]) -> Option<Self> {
        serde_json::from_slice(Self::json_of(line)?).ok()
    }

    /// The text behind a right checksum.
    fn json_of(line: &[u8]) -> Option<&[u8]> {
        let (sum, json) = (line.get(..16)?, line.get(17..)?);
        let sum = u64::from_str_radix(std::str::from_utf8(sum).ok()?, 16).ok()?;
        (line[16] == b' ' && sum == checksum(json)).then_some(json)
    }
}

impl Account {
    /// The records of any bytes.
    pub fn read(bytes: &[u8]) -> Self {
        let mut account = Self::default();
        for line in bytes.split_inclusive(|&byte| byte == b'\n') {
            // Complete without its line feed, too, if the checksum says so.
            let (line, has_end) = line.strip_suffix(b"\n").map_or((line, false), |line| (line, true));
            if !has_end && Record::json_of(line).is_none() {
                account.is_torn = true;
                continue;
            }
            account.version = account.version.take().or_else(|| Record::version_in(line));
            match Record::from_line(line) {
                Some(record) => account.add(record),
                None if line.is_empty() => {}
                None => account.unreadable += 1,
            }
        }
        account
    }

    pub(crate) fn add(&mut self, record: Record) {
        match record {
            Record::Run { holder, process, boot, namespaces, .. } => {
                self.namespaces = namespaces;
                self.holder = Some(holder);
                self.process = Some(process);
                self.boot = Some(boot);
            }
            Record::Intent { path, before, after } => {
                let held = self.held.entry(path).or_default();
                held.before = before;
                held.ours.push(after);
            }
            Record::Settled { path, before, after } => settle(&mut self.held, path, before, after),
            Record::Forgotten { path } => {
                self.held.remove(&path);
            }
        }
    }
}

fn described(version: u64, program: &str) -> String {
    let by = if program.is_empty() { "an earlier Roost" } else { program };
    format!("version {version} of the journal, by {by}")
}

/// Notes that `path` reads `after`, where `before` belongs. The kernel's possible texts stay true.
pub(super) fn settle(held: &mut BTreeMap<String, Held>, path: String, before: String, after: String) {
    if before == after && !path.starts_with(AFFINITY) {
        held.remove(&path);
    } else {
        let known = held.remove(&path).unwrap_or_default();
        let by_kernel = known.ours.into_iter().filter(|ours| ours.starts_with(BY_KERNEL));
        held.insert(path, Held { before, ours: std::iter::once(after).chain(by_kernel).collect() });
    }
}

/// FNV-1a, 64 bits. It guards against a torn line, not against a forger: only files of this user or
/// of root are read.
pub(super) fn checksum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn intent(path: &str, before: &str, after: &str) -> Record {
        Record::Intent { path: path.into(), before: before.into(), after: after.into() }
    }

    fn settled(path: &str, before: &str, after: &str) -> Record {
        Record::Settled { path: path.into(), before: before.into(), after: after.into() }
    }

    fn account(records: &[Record]) -> Account {
        Account::read(records.iter().map(Record::line).collect::<String>().as_bytes())
    }

    #[test]
    fn a_withdrawn_change_is_held_no_longer() {
        let records =
            [intent("a", "0", "2"), settled("a", "0", "2"), intent("a", "0", "0"), settled("a", "0", "0")];
        assert_eq!(account(&records[..2]).held["a"], Held { before: "0".into(), ours: vec!["2".into()] });
        // Killed in the middle of withdrawing: the file may have either text.
        assert_eq!(account(&records[..3]).held["a"].ours, ["2", "0"]);
        assert!(account(&records).held.is_empty());
    }

    #[test]
    fn a_thread_is_held_until_it_is_forgotten() {
        let path = "affinity/1:2/1:2";
        let records = [intent(path, "0-1", "1"), settled(path, "0-1", "0-1")];
        assert_eq!(account(&records).held[path], Held { before: "0-1".into(), ours: vec!["0-1".into()] });
        let gone = [records.as_slice(), &[Record::Forgotten { path: path.into() }]].concat();
        assert!(account(&gone).held.is_empty());
    }

    #[test]
    fn what_the_kernel_may_do_is_ours_whatever_is_written_meanwhile() {
        let path = "affinity/1:2/1:2";
        let expected = intent(path, "3", &by_kernel("0-7"));
        let mut records = vec![settled(path, "3", "3"), expected];
        assert!(account(&records).held[path].is_unwritten());
        records.extend([intent(path, "3", "0-2"), settled(path, "3", "0-2")]);
        let held = &account(&records).held[path];
        assert_eq!(held.texts().collect::<Vec<_>>(), ["0-2", "0-7"]);
        assert!(held.is_written("0-2") && !held.is_unwritten() && !held.may_be_lost());
    }

    #[test]
    fn someone_elses_value_becomes_the_one_that_belongs_there() {
        let records = [intent("a", "0", "2"), settled("a", "0", "2"), intent("a", "50", "2")];
        assert_eq!(account(&records).held["a"].before, "50");
    }

    #[test]
    fn a_line_of_another_journal_format_is_counted() {
        let json = r#"{"record":"erase","path":"a"}"#;
        let foreign = format!("{:016x} {json}\n", checksum(json.as_bytes()));
        let account = Account::read((foreign + &intent("a", "0", "2").line()).as_bytes());
        assert_eq!((account.unreadable, account.held.len()), (1, 1));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            prop_assert!(Account::read(&bytes).held.is_empty());
        }

        /// Records of any text, cut anywhere: the whole lines before the cut count, and nothing
        /// else does.
        #[test]
        fn a_torn_tail_loses_only_itself(
            texts in proptest::collection::vec((".{0,12}", "\\PC{0,8}", "\\PC{0,8}", any::<bool>()), 1..8),
            cut in any::<proptest::sample::Index>(),
        ) {
            let records: Vec<Record> = texts
                .iter()
                .map(|(path, before, after, done)| match done {
                    true => settled(path, before, after),
                    false => intent(path, before, after),
                })
                .collect();
            let lines: Vec<String> = records.iter().map(Record::line).collect();
            let bytes = lines.concat().into_bytes();
            let cut = cut.index(bytes.len() + 1);
            let mut whole = 0;
            let mut end = 0;
            // A line without its line feed is complete already: the checksum says so.
            while whole < lines.len() && end + lines[whole].len() - 1 <= cut {
                end += lines[whole].len();
                whole += 1;
            }
            let mut expected = Account::default();
            for record in &records[..whole] {
                expected.add(record.clone());
            }
            let read = Account::read(&bytes[..cut]);
            prop_assert_eq!(read.held, expected.held);
            prop_assert!(read.unreadable <= 1);
        }

        /// One flipped byte can lose a line or split it in two, never invent a change.
        #[test]
        fn a_damaged_line_is_not_believed(at in any::<proptest::sample::Index>(), flip in 1u8..) {
            let line = intent("sys/a", "0", "2").line();
            let mut bytes = line.clone().into_bytes();
            let at = at.index(bytes.len() - 1);
            bytes[at] ^= flip;
            let held = Account::read(&bytes).held;
            // The case of the checksum's hexadecimal letters carries no meaning.
            let same = bytes.eq_ignore_ascii_case(line.as_bytes()) && at < 16;
            prop_assert!(held.is_empty() || same, "{held:?}");
        }
    }
}
