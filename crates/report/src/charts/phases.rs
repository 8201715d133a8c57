//! The input of the charts: the run sorted by phase, its frames thinned to a sheet's resolution.

use crate::drawing::canvas::Ink;
use crate::run::{Frame, Phase, StateShare, Summary, WorkerFrame};
use machine::{Duration, EnergyReading, Rate, Ratio};

/// One phase with its frames and, once it has ended, its summary.
#[derive(Clone, Debug)]
pub struct Track {
    pub name: String,
    /// Its ink, by its place in the run.
    pub ink: Ink,
    pub frames: Vec<Frame>,
    /// The results; `None` while it runs, or if the run was cut short.
    pub summary: Option<Phase>,
}

/// Sorts a run by phase: those with a summary in its order, then those that only have frames, as
/// they began.
pub fn tracks(frames: &[Frame], summary: &Summary) -> Vec<Track> {
    let mut names: Vec<&str> = Vec::new();
    let named = summary.phases.iter().map(|phase| phase.name.as_str());
    for name in named.chain(frames.iter().map(|frame| frame.phase.as_str())) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let track = |(place, name): (usize, &&str)| Track {
        name: (*name).to_owned(),
        ink: Ink::Phase(place),
        frames: thinned(frames.iter().filter(|frame| frame.phase == *name).collect()),
        summary: summary.phases.iter().find(|phase| phase.name == *name).cloned(),
    };
    names.iter().enumerate().map(track).collect()
}

/// True if two lengths differ by no more than the last reading's place does.
pub fn equally_long(one: Duration, other: Duration) -> bool {
    let (short, long) = (one.min(other), one.max(other));
    (long - short).as_secs_f64() <= LENGTHS_APART * long.as_secs_f64()
}

/// Of the longer: phases end with the tick that sees their end.
const LENGTHS_APART: f64 = 0.02;

impl Track {
    /// When its last frame was taken.
    pub fn end(&self) -> Duration {
        self.frames.iter().map(|frame| frame.at).max().unwrap_or_default()
    }

    /// How long it ran, or has run so far.
    pub fn length(&self) -> Duration {
        self.summary.as_ref().and_then(|phase| phase.length).unwrap_or_else(|| self.end())
    }

    /// True if sums over both may be compared: one that still runs has had less time for
    /// everything.
    pub fn is_as_long_as(&self, other: &Self) -> bool {
        equally_long(self.length(), other.length())
    }

    /// Worker-time awake, to the end or so far.
    pub fn awake(&self) -> Option<Duration> {
        self.settled(|phase| phase.awake, |frame| frame.awake)
    }

    /// Energy, to the end or so far.
    pub fn energy(&self) -> Option<EnergyReading> {
        self.settled(|phase| phase.energy.clone(), |frame| frame.energy.clone())
    }

    /// Idle residency over the whole phase; from the frames while there is no summary.
    pub fn residency(&self) -> Option<Vec<StateShare>> {
        if let Some(phase) = &self.summary {
            return phase.residency.clone();
        }
        let seen: Vec<&Vec<StateShare>> = self
            .frames
            .iter()
            .flat_map(|frame| &frame.cpus)
            .filter_map(|cpu| cpu.residency.as_ref())
            .collect();
        let mut sums: Vec<(String, f64)> = Vec::new();
        for StateShare { state, share } in seen.iter().copied().flatten() {
            match sums.iter_mut().find(|(name, _)| name == state) {
                Some((_, sum)) => *sum += share.as_f64(),
                None => sums.push((state.clone(), share.as_f64())),
            }
        }
        let mean = |(state, sum)| StateShare { state, share: Ratio::new(sum / seen.len() as f64) };
        (!sums.is_empty()).then(|| sums.into_iter().map(mean).collect())
    }

    fn settled<T>(
        &self,
        ended: impl Fn(&Phase) -> Option<T>,
        last: impl Fn(&Frame) -> Option<T>,
    ) -> Option<T> {
        match &self.summary {
            Some(phase) => ended(phase),
            None => self.frames.iter().rev().find_map(last),
        }
    }
}

/// More frames than this in a phase would be closer together than a third of a panel has pixels.
pub const FRAMES_MAX: usize = 300;

/// Merges neighbours until at most [`FRAMES_MAX`] are left. A merged frame has the mean rates and
/// loads, the worst percentiles (a spike must not vanish from a chart of the tail), and the
/// counters and states of its last frame.
fn thinned(frames: Vec<&Frame>) -> Vec<Frame> {
    let stride = frames.len().div_ceil(FRAMES_MAX).max(1);
    frames.chunks(stride).map(merged).collect()
}

fn merged(group: &[&Frame]) -> Frame {
    let last = group[group.len() - 1];
    if group.len() == 1 {
        return last.clone();
    }
    let mean = |pick: fn(&Frame) -> Option<Rate>| {
        let rates: Vec<f64> = group.iter().filter_map(|frame| pick(frame)).map(Rate::as_per_second).collect();
        (!rates.is_empty()).then(|| Rate::per_second(rates.iter().sum::<f64>() / rates.len() as f64))
    };
    let worst = |pick: fn(&Frame) -> Option<Duration>| group.iter().filter_map(|frame| pick(frame)).max();
    let workers = last.workers.iter().map(|worker| {
        let same: Vec<&WorkerFrame> = group
            .iter()
            .flat_map(|frame| &frame.workers)
            .filter(|other| other.worker == worker.worker)
            .collect();
        let load = same.iter().map(|other| other.load.as_per_second()).sum::<f64>() / same.len() as f64;
        WorkerFrame { load: Rate::per_second(load), ..worker.clone() }
    });
    Frame {
        offered: mean(|frame| frame.offered),
        achieved: mean(|frame| frame.achieved),
        p50: worst(|frame| frame.p50),
        p99: worst(|frame| frame.p99),
        p999: worst(|frame| frame.p999),
        workers: workers.collect(),
        ..last.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_that_still_runs_is_not_as_long_as_one_that_has_ended() {
        let seconds = |tenths: u64| Duration::from_millis(100 * tenths);
        assert!(equally_long(seconds(180), seconds(181)) && equally_long(seconds(0), seconds(0)));
        assert!(!equally_long(seconds(149), seconds(180)) && !equally_long(seconds(180), seconds(0)));
    }

    fn frame(phase: &str, at: u64, p99: u64) -> Frame {
        Frame {
            phase: phase.to_owned(),
            at: Duration::from_millis(at),
            p99: Some(Duration::from_micros(p99)),
            ..Frame::default()
        }
    }

    #[test]
    fn a_spike_survives_thinning() {
        let frames: Vec<Frame> =
            (0..5_000).map(|n| frame("a", n, if n == 2_345 { 9_999 } else { 10 })).collect();
        let tracks = tracks(&frames, &Summary::default());
        assert!(tracks[0].frames.len() <= FRAMES_MAX);
        assert_eq!(tracks[0].frames.iter().filter_map(|f| f.p99).max(), Some(Duration::from_micros(9_999)));
        assert_eq!(tracks[0].end(), Duration::from_millis(4_999));
    }

    #[test]
    fn a_phase_keeps_its_place_when_it_ends() {
        let frames = [frame("a", 0, 1), frame("b", 0, 1), frame("c", 0, 1)];
        let ended = |name: &str| Phase { name: name.to_owned(), ..Phase::default() };
        for phases in [vec![], vec![ended("a")], vec![ended("a"), ended("b")]] {
            let tracks = tracks(&frames, &Summary { phases, ..Summary::default() });
            let names: Vec<&str> = tracks.iter().map(|track| track.name.as_str()).collect();
            assert_eq!(names, ["a", "b", "c"]);
        }
    }

    #[test]
    fn a_summary_that_lacks_a_figure_does_not_fall_back_on_a_guess() {
        let frames = [Frame { awake: Some(Duration::from_secs(7)), ..frame("a", 0, 1) }];
        let running = tracks(&frames, &Summary::default());
        assert_eq!(running[0].awake(), Some(Duration::from_secs(7)));
        let phases = vec![Phase { name: "a".to_owned(), ..Phase::default() }];
        let ended = tracks(&frames, &Summary { phases, ..Summary::default() });
        assert_eq!(ended[0].awake(), None);
    }
}
