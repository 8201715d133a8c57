//! A native program: its profile by `perf`, and its calls counted by uprobes.

use super::counted::{Counted, CountedState};
use super::stacks::{Frame, StackError, Stacks, read_perf_script};
use crate::functions::{FunctionError, FunctionName, FunctionWatch};
use linux::probes::FUNCTIONS_MAX;
use linux::{EndsWithParent as _, Root};
use machine::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read as _};
use std::path::Path;
use std::process::{Command, Stdio};
use thiserror::Error;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unwinding {
    /// By the tables that every program has for its exceptions.
    Dwarf,
    /// By frame pointers: cheaper, for programs built with them.
    FramePointers,
}

/// Why a native program was not looked into.
#[derive(Debug, Error)]
pub enum NativeError {
    #[error("`perf` cannot be run: {0}\nhint: apt-get install linux-perf")]
    NoPerf(io::Error),
    #[error(
        "perf may not sample process {pid}: {said}\nhint: run as root, or set \
         /proc/sys/kernel/perf_event_paranoid to 1 or less for one's own processes"
    )]
    NotPermitted { pid: u32, said: String },
    #[error("perf: {0}")]
    Perf(String),
    #[error("a file for perf: {0}")]
    Io(#[from] io::Error),
    #[error(transparent)]
    Stacks(#[from] StackError),
}

/// Stacks of all threads of process `pid`, for `length`. `perf` writes meanwhile to `scratch`, a
/// folder that no other user may write in.
pub fn profile_native(
    pid: u32,
    length: Duration,
    unwinding: Unwinding,
    scratch: &Path,
) -> Result<Stacks, NativeError> {
    let data = scratch.join("perf.data");
    let graph = match unwinding {
        // Of each sample so much of the stack is kept, as far as it has been touched: more does not
        // help a frame with a large array that is never filled (memcached's `transmit`), whose
        // pages are not there to be kept.
        Unwinding::Dwarf => "dwarf,16384",
        Unwinding::FramePointers => "fp",
    };
    // A clock of the kernel's, because virtual machines have no counters; a prime, so that no timer
    // of the service's is met.
    let mut record = Command::new("perf");
    record
        .args(["record", "-q", "-e", "cpu-clock", "-F", "499", "--call-graph", graph, "-p"])
        .arg(pid.to_string());
    record.arg("-o").arg(&data).args(["--", "sleep"]).arg(length.as_secs_f64().to_string());
    let done = record.stdin(Stdio::null()).ends_with_parent().output().map_err(NativeError::NoPerf)?;
    if !done.status.success() {
        return Err(refusal(pid, &String::from_utf8_lossy(&done.stderr)));
    }
    let mut script = Command::new("perf");
    script.args(["script", "-F", "comm,tid,ip,sym,dso", "--no-demangle", "--no-inline", "-i"]).arg(&data);
    let mut running = script
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .ends_with_parent()
        .spawn()
        .map_err(NativeError::NoPerf)?;
    let mut bytes = Vec::new();
    let mut output = running.stdout.take().expect("it is piped").take(MOST);
    let read = output.read_to_end(&mut bytes);
    // Closed, so that one that has more to say ends.
    drop(output);
    let status = running.wait()?;
    read?;
    if !status.success() && (bytes.len() as u64) < MOST {
        return Err(NativeError::Perf(format!("perf script ended with {status}")));
    }
    Ok(read_perf_script(&String::from_utf8_lossy(&bytes))?)
}

/// The calls of `functions`, counted for `length` with at most [`FUNCTIONS_MAX`] at a time, and
/// fewer where together they are called more often than the service bears; those that cannot be
/// watched say why. `counting` is called when a round begins and when it ends, and then tells how
/// many requests were answered meanwhile, if it can.
pub fn count_functions(
    root: &Root,
    pid: u32,
    functions: &[Frame],
    length: Duration,
    mut counting: impl FnMut(bool) -> Option<u64>,
) -> Result<BTreeMap<Frame, Result<Counted, String>>, FunctionError> {
    let mut found = BTreeMap::new();
    let mut fit = Vec::new();
    for frame in functions {
        let (Some(file), Some(symbol)) = (&frame.file, &frame.symbol) else { continue };
        let name = FunctionName { binary: file.clone(), symbol: symbol.clone() };
        // One that cannot be found must not cost the others their count.
        match FunctionWatch::find(root, pid, &name) {
            Ok(()) => fit.push((frame.clone(), name)),
            Err(why) => drop(found.insert(frame.clone(), Err(why.to_string()))),
        }
    }
    let mut groups: VecDeque<Vec<(Frame, FunctionName)>> =
        fit.chunks(FUNCTIONS_MAX).map(<[_]>::to_vec).collect();
    while let Some(group) = groups.pop_front() {
        let names: Vec<FunctionName> = group.iter().map(|(_, name)| name.clone()).collect();
        let watch = FunctionWatch::attach(root, pid, &names, true)?;
        counting(true);
        let began = linux::now();
        let over = began + length;
        let mut is_borne = true;
        while linux::now() < over && is_borne {
            std::thread::sleep(LOOK.min(over.since(linux::now())).into());
            let [enters, ..] = watch.probed();
            is_borne = (enters as f64) < bearable(linux::now().since(began));
        }
        let (elapsed, tallies) = (linux::now().since(began), watch.tallies());
        let requests = counting(false);
        drop(watch);
        let calls: Vec<u64> = tallies.iter().map(|tally| tally.calls).collect();
        let turns = if is_borne { Turns::default() } else { Turns::of(&calls, bearable(elapsed)) };
        for (at, (function, tally)) in group.iter().zip(&tallies).enumerate() {
            let state =
                if turns.too_often.contains(&at) { CountedState::TooOften } else { CountedState::Counted };
            if is_borne || state == CountedState::TooOften {
                found.insert(
                    function.0.clone(),
                    Ok(Counted { state, requests, ..Counted::of_tally(tally, began, elapsed) }),
                );
            }
        }
        groups.extend(turns.again.iter().map(|turn| turn.iter().map(|&at| group[at].clone()).collect()));
    }
    Ok(found)
}

/// Enters that a service bears in this time.
fn bearable(elapsed: Duration) -> f64 {
    ENTERS_PER_S * elapsed.as_secs_f64().max(0.1)
}

/// The treatment of functions that together cost a service more than it bears. Places in the
/// counts.
#[derive(Debug, Default, PartialEq, Eq)]
struct Turns {
    /// Each of these does so alone, and that is its answer.
    too_often: Vec<usize>,
    /// The others, in groups that are counted one after the other.
    again: Vec<Vec<usize>>,
}

impl Turns {
    /// By the `calls` seen until it was too much, of which `bearable` are borne. Each turn has
    /// fewer functions than there were, or one that was called too often is gone: so this ends.
    fn of(calls: &[u64], bearable: f64) -> Self {
        // One that was counted alone is the reason, also where its calls nest and are fewer than
        // its enters.
        let is_too_often = |&at: &usize| calls[at] as f64 >= bearable || calls.len() == 1;
        let (too_often, mut left): (Vec<usize>, Vec<usize>) = (0..calls.len()).partition(is_too_often);
        left.sort_by_key(|&at| std::cmp::Reverse(calls[at]));
        let room = bearable * FULL;
        let mut again: Vec<Vec<usize>> = Vec::new();
        let sum = |turn: &[usize]| turn.iter().map(|&at| calls[at] as f64).sum::<f64>();
        for at in left {
            match again.iter_mut().find(|turn| sum(turn) + calls[at] as f64 <= room) {
                Some(turn) => turn.push(at),
                None => again.push(vec![at]),
            }
        }
        if let ([], [all]) = (too_often.as_slice(), again.as_mut_slice()) {
            let rest = all.split_off(all.len() / 2);
            again.push(rest);
        }
        Self { too_often, again }
    }
}

fn refusal(pid: u32, said: &str) -> NativeError {
    let text =
        said.lines().map(str::trim).filter(|line| !line.is_empty()).take(3).collect::<Vec<_>>().join("; ");
    let lower = said.to_lowercase();
    if ["permi", "paranoid", "access", "not allowed"].iter().any(|word| lower.contains(word)) {
        NativeError::NotPermitted { pid, said: text }
    } else {
        NativeError::Perf(text)
    }
}

const MOST: u64 = 1 << 30;
/// A watched call takes some 22 us longer (`roost-bench uprobe`, release build, on a virtual
/// machine with an AMD EPYC; half of that on one with an Intel Xeon). So this is a fifth of a core.
/// A function that is called more often has its answer in the first 20 ms.
const ENTERS_PER_S: f64 = 10_000.0;
/// So full is a turn planned: calls come as they come.
const FULL: f64 = 0.8;
const LOOK: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn several_that_are_called_equally_often_are_counted_in_turns() {
        // Together more than is borne, each alone less.
        let turns = Turns::of(&[400, 400, 400, 10], 1_000.0);
        assert_eq!(turns, Turns { too_often: vec![], again: vec![vec![0, 1], vec![2, 3]] });
        // One is the reason: it alone has its answer.
        assert_eq!(Turns::of(&[5, 2_000, 7], 1_000.0), Turns { too_often: vec![1], again: vec![vec![2, 0]] });
        // Calls that nest: none is seen to be the reason, so they are parted.
        assert_eq!(
            Turns::of(&[3, 2, 1], 1_000.0),
            Turns { too_often: vec![], again: vec![vec![0], vec![1, 2]] }
        );
        assert_eq!(Turns::of(&[3], 1_000.0), Turns { too_often: vec![0], again: vec![] });
    }

    proptest! {
        #[test]
        fn every_function_has_an_answer_or_another_turn_and_it_ends(
            calls in prop::collection::vec(0u64..2_000, 1..16),
        ) {
            let turns = Turns::of(&calls, 1_000.0);
            let mut all: Vec<usize> = turns.too_often.iter().chain(turns.again.iter().flatten()).copied().collect();
            all.sort_unstable();
            prop_assert_eq!(all, (0..calls.len()).collect::<Vec<_>>());
            prop_assert!(turns.again.iter().all(|turn| !turn.is_empty() && turn.len() < calls.len()));
        }
    }

    #[test]
    fn a_refusal_is_told_from_a_failure() {
        let paranoid = "Error:\nAccess to performance monitoring and observability operations is limited.\n";
        assert!(matches!(refusal(7, paranoid), NativeError::NotPermitted { pid: 7, .. }));
        assert!(matches!(
            refusal(7, "Couldn't create thread/CPU maps: No such process"),
            NativeError::Perf(_)
        ));
    }
}
