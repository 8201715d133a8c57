//! A recorded run again: the same inputs must give the same commands; other parameters tell where
//! they would have differed.
//!
//! The recording of a service is a row of segments (`service-NAME.000042.jsonl`;
//! `hurry-up-PROCESS.000042.jsonl`), each a state and the steps after it, as `policy::log` writes
//! them. Nothing but inputs is read for an answer: readings, questions of `set`, reloads, and
//! whether commands could be carried out. A run that was killed leaves a last line that is cut off;
//! it is passed over, and said.

use machine::{Command, CpuList, Instant};
use policy::frequency::HurryUp;
use policy::governing::{Decision, Input, Params, ServiceController};
use policy::log::{self, Recorded};
use serde::Serialize;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The result of one service's recording.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Replay {
    pub service: String,
    pub segments: usize,
    pub steps: usize,
    pub commands: usize,
    /// The last line is cut off, as a run that was killed leaves it.
    pub torn: bool,
    /// Where other parameters would have decided otherwise, in order; empty in a plain replay.
    pub differences: Vec<Divergence>,
}

/// A moment at which the service would have had other CPUs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Divergence {
    pub at: Instant,
    pub had: CpuList,
    /// The CPUs that it would have had.
    pub would: CpuList,
    pub why: String,
}

#[derive(Debug, Error)]
pub enum ReplayError {
    /// A folder or file cannot be read.
    #[error("cannot read {path}: {cause}", path = path.display())]
    Unreadable { path: PathBuf, cause: io::Error },
    #[error("{0} holds no recording of a service\nhint: `record = \"DIR\"` in its configuration makes one")]
    Empty(PathBuf),
    /// The replay says something else than the run, or a file is no recording.
    #[error("{path}: {cause}", path = path.display())]
    Diverged { path: PathBuf, cause: log::Divergence },
}

impl Replay {
    /// Every service recorded in `folder`, again.
    pub fn of(folder: &Path) -> Result<Vec<Self>, ReplayError> {
        let governed = each(folder, SERVICE, Self::again::<ServiceController, _>);
        let hurried = each(folder, HURRY_UP, |process, files| {
            Self::again::<HurryUp, _>(&format!("hurry-up of process {process}"), files)
        });
        match (governed, hurried) {
            (Err(ReplayError::Empty(_)), other) | (other, Err(ReplayError::Empty(_))) => other,
            (governed, hurried) => Ok([governed?, hurried?].concat()),
        }
    }

    /// One instance, whose segments these are.
    fn again<P, C>(name: &str, files: &[PathBuf]) -> Result<Self, ReplayError>
    where
        P: Recorded<Output = Vec<C>>,
    {
        let mut done = Self::nothing(name);
        // RotatingLog follow each other seamlessly, so that they are one text; a mistake is told by
        // its file's line.
        let mut reached: Option<P> = None;
        for (at, path) in files.iter().enumerate() {
            let (text, torn) = whole_lines(path, at + 1 == files.len())?;
            done.torn |= torn;
            let diverged = |cause| ReplayError::Diverged { path: path.clone(), cause };
            let seam = reached.as_ref().map(log::state_line).map(|state| state + "\n").unwrap_or_default();
            let replayed = log::replay::<P>(&(seam + &text)).map_err(diverged)?;
            done.steps += replayed.steps;
            done.segments += 1;
            done.commands += commands_in::<P, C>(&text);
            reached = Some(replayed.state);
        }
        Ok(done)
    }

    /// The inputs of every service recorded in `folder`, under other parameters. The observations
    /// depended on the CPUs that the service had. So from the first difference on this is the
    /// policy's *answer to the recorded inputs*, not a forecast.
    pub fn under(folder: &Path, params: Params) -> Result<Vec<Self>, ReplayError> {
        let run = |service: &str, files: &[PathBuf]| {
            let mut done = Self::nothing(service);
            let mut other: Option<ServiceController> = None;
            let mut had = CpuList::default();
            let mut agreed = true;
            for (at, path) in files.iter().enumerate() {
                let (text, torn) = whole_lines(path, at + 1 == files.len())?;
                done.torn |= torn;
                done.segments += 1;
                let diverged = |cause| ReplayError::Diverged { path: path.clone(), cause };
                let steps = log::steps::<ServiceController>(&text).map_err(diverged)?;
                if other.is_none() {
                    had = steps.state.active();
                    other = Some(ServiceController::new(params.clone(), steps.state.topology().clone()));
                }
                let policy = other.as_mut().expect("set just now");
                for (at, input, output) in steps.steps {
                    done.steps += 1;
                    done.commands += output.len();
                    had = cpus_of(&output).unwrap_or(had);
                    let said = match input {
                        // The question is about its own configuration.
                        Input::Reload(_) | Input::Goal(_) => Vec::new(),
                        input => policy.apply(at, &input),
                    };
                    let would = policy.active();
                    let agrees = had == would;
                    if !agrees && (agreed || !said.is_empty()) {
                        let why =
                            said.last().map_or_else(|| "it stays".to_owned(), |said| said.why.to_string());
                        done.differences.push(Divergence { at, had: had.clone(), would, why });
                    }
                    agreed = agrees;
                }
            }
            Ok(done)
        };
        each(folder, SERVICE, run)
    }

    fn nothing(service: &str) -> Self {
        let service = service.to_owned();
        Self { service, segments: 0, steps: 0, commands: 0, torn: false, differences: Vec::new() }
    }
}

/// How files of a service's recording begin, and those of hurry-up.
const SERVICE: &str = "service-";
const HURRY_UP: &str = "hurry-up-";

fn each<T>(
    folder: &Path,
    kind: &str,
    run: impl Fn(&str, &[PathBuf]) -> Result<T, ReplayError>,
) -> Result<Vec<T>, ReplayError> {
    let unreadable = |cause| ReplayError::Unreadable { path: folder.to_owned(), cause };
    let mut files: Vec<(String, PathBuf)> = Vec::new();
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let service = name.strip_prefix(kind).and_then(|name| name.strip_suffix(".jsonl"));
        if let Some((service, _)) = service.and_then(|name| name.rsplit_once('.')) {
            files.push((service.to_owned(), path));
        }
    }
    files.sort();
    if files.is_empty() {
        return Err(ReplayError::Empty(folder.to_owned()));
    }
    let same = files.chunk_by(|one, other| one.0 == other.0);
    same.map(|files| {
        let paths: Vec<PathBuf> = files.iter().map(|(_, path)| path.clone()).collect();
        run(&files[0].0, &paths)
    })
    .collect()
}

/// The text up to its last line feed; true if more followed. Only the last segment may be cut off.
fn whole_lines(path: &Path, is_last: bool) -> Result<(String, bool), ReplayError> {
    let mut text =
        fs::read_to_string(path).map_err(|cause| ReplayError::Unreadable { path: path.to_owned(), cause })?;
    let whole = text.rfind('\n').map_or(0, |at| at + 1);
    let torn = is_last && whole < text.len();
    if torn {
        text.truncate(whole);
    }
    Ok((text, torn))
}

fn commands_in<P: Recorded<Output = Vec<C>>, C>(text: &str) -> usize {
    log::steps::<P>(text).map_or(0, |steps| steps.steps.iter().map(|(_, _, output)| output.len()).sum())
}

fn cpus_of(output: &[Decision]) -> Option<CpuList> {
    output.iter().rev().find_map(|decided| match &decided.command {
        Command::SetActiveCpus(cpus) => Some(cpus.clone()),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use linux::{RotatingLog, SegmentBounds};
    use machine::{CpuId, Duration, Rate, Reading, ServiceReading};
    use policy::carb::GoalParams;
    use policy::governing::{Cores, CpuTopology, IdleMode};

    fn params(goal: &str) -> Params {
        Params::new(Cores::Goal(goal.parse().unwrap(), GoalParams::default()), IdleMode::Stock)
    }

    fn seen(us: u64) -> Input {
        let service = ServiceReading {
            rate: Some(Rate::per_second(1e4)),
            tail: Some(Duration::from_micros(us)),
            ..ServiceReading::default()
        };
        Input::Reading(Reading { service, ..Reading::default() })
    }

    /// Readings, a refused write, lost telemetry, a new goal and a reload.
    fn inputs() -> Vec<Input> {
        let mut inputs = vec![seen(100); 30];
        inputs.push(Input::Refused { reason: "read-only".into() });
        inputs.push(Input::Applied);
        inputs.extend(vec![seen(900); 5]);
        inputs.extend(vec![Input::Reading(Reading::default()); 4]);
        inputs.extend(vec![seen(300); 30]);
        inputs.push(Input::Goal("1ms@p99".parse().unwrap()));
        inputs.extend(vec![seen(400); 10]);
        inputs.push(Input::Reload(params("250us@p99")));
        inputs.extend(vec![seen(400); 30]);
        inputs
    }

    fn recorded(folder: &Path) {
        let cores = (0..4).map(|cpu| vec![CpuId(cpu)]).collect();
        let topology = CpuTopology { cores, ..CpuTopology::default() };
        let mut policy = ServiceController::new(params("500us@p99"), topology);
        // Short segments, so that there are seams.
        let bounds = SegmentBounds { size: 4000, kept: 100 };
        let mut segments =
            RotatingLog::begin(folder, "service-cache", bounds, &log::state_line(&policy)).unwrap();
        for (second, input) in (1..).zip(inputs()) {
            let at = Instant::ZERO + Duration::from_secs(second);
            let output = policy.apply(at, &input);
            segments.write(&log::step_line::<ServiceController>(at, &input, &output)).unwrap();
            if segments.is_full() {
                segments.rotate(&log::state_line(&policy)).unwrap();
            }
        }
        segments.flush().unwrap();
    }

    #[test]
    fn a_run_gives_the_same_commands_again() {
        let folder = tempfile::tempdir().unwrap();
        recorded(folder.path());
        let replays = Replay::of(folder.path()).unwrap();
        let [replay] = replays.as_slice() else { panic!("{replays:?}") };
        assert_eq!((replay.service.as_str(), replay.steps, replay.torn), ("cache", inputs().len(), false));
        assert!(replay.segments > 3 && replay.commands > 5, "{replay:?}");
    }

    #[test]
    fn a_reading_that_was_altered_changes_the_commands() {
        let folder = tempfile::tempdir().unwrap();
        recorded(folder.path());
        let first = folder.path().join("service-cache.000000.jsonl");
        let text = fs::read_to_string(&first).unwrap();
        // The third reading had room for fewer cores; now it has none.
        let mut seen = 0;
        let altered: Vec<String> = text
            .lines()
            .map(|line| {
                seen += usize::from(line.contains("\"tail\":100000"));
                if seen == 3 { line.replace("\"tail\":100000", "\"tail\":499000") } else { line.to_owned() }
            })
            .collect();
        fs::write(&first, altered.join("\n") + "\n").unwrap();
        let error = Replay::of(folder.path()).unwrap_err();
        assert!(
            matches!(&error, ReplayError::Diverged { cause: log::Divergence::Output { .. }, .. }),
            "{error}"
        );
    }

    #[test]
    fn a_run_that_was_killed_replays_to_its_last_whole_line() {
        let folder = tempfile::tempdir().unwrap();
        recorded(folder.path());
        let last = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).max().unwrap();
        let text = fs::read_to_string(&last).unwrap();
        fs::write(&last, &text[..text.len() - 10]).unwrap();
        let replays = Replay::of(folder.path()).unwrap();
        assert!(replays[0].torn && replays[0].steps == inputs().len() - 1, "{replays:?}");
    }

    #[test]
    fn another_goal_tells_where_it_would_have_decided_otherwise() {
        let folder = tempfile::tempdir().unwrap();
        recorded(folder.path());
        let same = Replay::under(folder.path(), params("500us@p99")).unwrap();
        let stricter = Replay::under(folder.path(), params("110us@p99")).unwrap();
        let first = &stricter[0].differences[0];
        // With so little room it would not have parked.
        assert!(first.would.0.len() > first.had.0.len(), "{first:?}");
        let before_the_goal_was_set = |at: Instant| at < Instant::ZERO + Duration::from_secs(70);
        assert!(
            !same[0].differences.iter().any(|difference| before_the_goal_was_set(difference.at)),
            "{same:?}"
        );
    }

    #[test]
    fn what_is_no_recording_is_told() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Replay::of(folder.path()).unwrap_err().to_string().contains("record = "));
        fs::write(folder.path().join("service-x.000000.jsonl"), "{}\n").unwrap();
        assert!(Replay::of(folder.path()).unwrap_err().to_string().contains("line 1"));
        assert!(Replay::of(Path::new("/nowhere")).is_err());
    }
}
