//! A native program: its profile by `perf`, and its calls counted by uprobes.

use super::counted::{Counted, CountedState};
use super::stacks::{Frame, StackError, Stacks, read_perf_script};
use crate::functions::{FunctionError, FunctionName, FunctionWatch};
use host::Root;
use host::bpf::FUNCTIONS_MAX;
use machine::Duration;
use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::process::{Command, Stdio};
use thiserror::Error;

/// How stacks are unwound.
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
    /// No perf.
    #[error("`perf` cannot be run: {0}\nhint: apt-get install linux-perf")]
    NoPerf(io::Error),
    /// This user may not.
    #[error(
        "perf may not sample process {pid}: {said}\nhint: run as root, or set /proc/sys/kernel/perf_event_paranoid to 1 or less for one's own processes"
    )]
    NotPermitted {
        /// Which process.
        pid: u32,
        /// What it said.
        said: String,
    },
    /// It failed.
    #[error("perf: {0}")]
    Perf(String),
    /// A file of ours.
    #[error("a file for perf: {0}")]
    Io(#[from] io::Error),
    /// What it wrote.
    #[error(transparent)]
    Stacks(#[from] StackError),
}

/// Stacks of all threads of process `pid`, for `length`.
pub fn profile_native(pid: u32, length: Duration, unwinding: Unwinding) -> Result<Stacks, NativeError> {
    let folder = tempfile::tempdir()?;
    let data = folder.path().join("perf.data");
    let graph = match unwinding {
        Unwinding::Dwarf => "dwarf,16384",
        Unwinding::FramePointers => "fp",
    };
    // A clock of the kernel's, because virtual machines have no counters; a prime, so that no timer of the service's is met.
    let mut record = Command::new("perf");
    record
        .args(["record", "-q", "-e", "cpu-clock", "-F", "499", "--call-graph", graph, "-p"])
        .arg(pid.to_string());
    record.arg("-o").arg(&data).args(["--", "sleep"]).arg(length.as_secs_f64().to_string());
    let done = record.stdin(Stdio::null()).output().map_err(NativeError::NoPerf)?;
    if !done.status.success() {
        return Err(refusal(pid, &String::from_utf8_lossy(&done.stderr)));
    }
    let mut script = Command::new("perf");
    script.args(["script", "-F", "comm,tid,ip,sym,dso", "--no-demangle", "--no-inline", "-i"]).arg(&data);
    let mut running = script
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
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

/// The calls of `functions`, counted for `length` with [`FUNCTIONS_MAX`] at a time; those that cannot be watched say why. `counting` is
/// called when a round begins and when it ends.
pub fn count_functions(
    root: &Root,
    pid: u32,
    functions: &[Frame],
    length: Duration,
    mut counting: impl FnMut(bool),
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
    for round in fit.chunks(FUNCTIONS_MAX) {
        let mut left: Vec<(Frame, FunctionName)> = round.to_vec();
        while !left.is_empty() {
            let names: Vec<FunctionName> = left.iter().map(|(_, name)| name.clone()).collect();
            let watch = FunctionWatch::attach(root, pid, &names, true)?;
            counting(true);
            let began = host::now();
            let over = began + length;
            let mut heavy = Vec::new();
            while host::now() < over && heavy.is_empty() {
                std::thread::sleep(LOOK.min(over.since(host::now())).into());
                heavy = too_often(&watch, host::now().since(began));
            }
            let (elapsed, tallies) = (host::now().since(began), watch.tallies());
            counting(false);
            drop(watch);
            // Either all have had their time, or those that are called too often have their answer, and the others another try.
            let is_over = heavy.is_empty();
            let mut again = Vec::new();
            for (at, (function, tally)) in left.into_iter().zip(&tallies).enumerate() {
                if !is_over && !heavy.contains(&at) {
                    again.push(function);
                    continue;
                }
                let state = if is_over { CountedState::Counted } else { CountedState::TooOften };
                found.insert(function.0, Ok(Counted { state, ..Counted::of_tally(tally, elapsed) }));
            }
            left = again;
        }
    }
    Ok(found)
}

/// Which functions cost the service more than is to be borne, if together they do.
fn too_often(watch: &FunctionWatch, elapsed: Duration) -> Vec<usize> {
    let bearable = TRAPS_PER_S * elapsed.as_secs_f64().max(0.1);
    let [enters, ..] = watch.probed();
    if (enters as f64) < bearable {
        return Vec::new();
    }
    let calls: Vec<f64> = watch.tallies().iter().map(|tally| tally.calls as f64).collect();
    let most = calls.iter().copied().fold(0.0, f64::max);
    // The one that is called most is always among them, so this ends.
    let share = (bearable / calls.len().max(1) as f64).min(most);
    (0..calls.len()).filter(|&at| calls[at] >= share).collect()
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
/// Three microseconds each: a sixth of a core.
const TRAPS_PER_S: f64 = 50_000.0;
const LOOK: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

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
