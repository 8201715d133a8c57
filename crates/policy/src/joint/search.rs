//! The plan of least power among those that keep the goal.
//!
//! Three numbers make a plan: how many cores are active, in which idle state they spend their gaps,
//! and how fast they run. Work costs least in one operating point, the *frugal* one: slower, it
//! takes so long that the core's leakage and the sleep that it misses cost more than voltage saves.
//! So for given cores and state nothing is better than the frugal operating point if it keeps the
//! goal; if it does not, the slowest steady operating point that does, or a pace that is graded
//! from the frugal operating point upwards, with the most patience that does. A package that sleeps
//! while all of its cores do may be worth a faster steady one, so all of those are tried where there
//! is such a package; where one is, less patience as well. More cores never need a faster operating
//! point, so the search for the slowest descends the operating points once while it ascends the cores;
//! patience is found by halving.
//!
//! For a given state, power falls with the number of cores, because they may run slower, and then rises,
//! because more of them idle; so for steady plans and for graded ones. Where it has risen twice in a row,
//! other numbers of cores of the package with the same goal are left out; another correction is another
//! goal. The search ends where nothing could beat the best so far.

use super::chain::{Chain, Links};
use super::correction::{Goal, Kind};
use super::model::{Model, Running};
use super::pace::Pace;
use crate::frequency::PointIndex;
use machine::CstateIndex;
use serde::{Deserialize, Serialize};

/// How operating points follow the queue.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Speed {
    /// One operating point at every queue length.
    Steady(PointIndex),
    /// From this operating point upwards, so that everything is done within the patience, in
    /// nanoseconds.
    Graded(PointIndex, f64),
}

impl Speed {
    /// The model that predicts its effect.
    pub fn kind(self) -> Kind {
        match self {
            Self::Steady(_) => Kind::Steady,
            Self::Graded(..) => Kind::Graded,
        }
    }

    /// The operating point while there is little to do.
    pub fn lowest(self) -> PointIndex {
        match self {
            Self::Steady(point) | Self::Graded(point, _) => point,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Base {
    pub active: u16,
    pub speed: Speed,
    pub idle: CstateIndex,
}

/// A plan and its effect.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rated {
    pub base: Base,
    pub power: f64,
    /// The predicted tail, exit latency and change of clock included.
    pub tail_ns: f64,
    pub running: Running,
}

/// A search; it remembers its questions.
pub(super) struct Search<'a> {
    model: Model<'a>,
    /// From asking for an operating point until it works.
    dvfs_ns: f64,
    /// Of so many cores in one operating point; not stable, or their work and their tail.
    steady: Vec<Option<Option<(Running, f64)>>>,
}

/// Of plans with fewer cores and the same goals, of steady plans and of graded ones.
struct Fewer {
    goals_ns: [f64; 2],
    /// The slowest operating point that kept the goal.
    point: Option<PointIndex>,
    least: [f64; 2],
    rises: [u8; 2],
}

impl Fewer {
    const UNRISEN: ([f64; 2], [u8; 2]) = ([f64::INFINITY; 2], [0; 2]);

    fn none(goals_ns: [f64; 2]) -> Self {
        let (least, rises) = Self::UNRISEN;
        Self { goals_ns, point: None, least, rises }
    }
}

#[derive(Clone, Copy, Debug)]
struct Candidate {
    base: Base,
    power: f64,
}

/// The patience that is tried, in goals: from 1 down to a fifteenth in steps of an eighth of an
/// octave, [`PATIENCES`] of them \[D\].
const PATIENCE_STEP: f64 = 0.917_004_043_204_671_2;
const PATIENCES: i32 = 31;
/// Where less patience may be worth it, each so-manieth is tried, and those around the best \[D\].
const HASTE: i32 = 3;
/// A pace is followed if its patience is so many times as long as the clock takes to change \[D\].
const QUICK_CLOCK: f64 = 4.0;

/// A state with a longer exit latency is taken if it saves so much of the power for each share of
/// the goal that it takes longer \[D\]: the room that it leaves is the room for mistakes.
const WORTH_OF_GOAL: f64 = 0.1;

impl<'a> Search<'a> {
    pub fn new(model: Model<'a>, dvfs_ns: f64) -> Self {
        Self { model, dvfs_ns, steady: vec![None; usize::from(model.cores) * model.points.count()] }
    }

    /// The effect of `base`; `None` beyond the stability bound.
    pub fn rate(&mut self, base: Base) -> Option<Rated> {
        let Base { active, speed, idle } = base;
        let exit_ns = self.exit_ns(idle.index());
        let (running, tail_ns) = match speed {
            Speed::Steady(point) => self.steady(active, point)?,
            Speed::Graded(lowest, patience_ns) => {
                let links = Links::new(&self.model, active)?;
                let chain = self.chain(&links, active, lowest, patience_ns);
                (chain.running(), chain.tail_ns() * self.model.sibling_stretch(active, lowest) + self.dvfs_ns)
            }
        };
        let power = self.model.power(active, idle.index(), &running);
        Some(Rated { base, power, tail_ns: tail_ns + exit_ns, running })
    }

    /// The plan of least power with a predicted tail that keeps the goal, if there is one.
    pub fn best(&mut self, goal: &Goal<'_>) -> Option<Rated> {
        let mut best: Option<Candidate> = None;
        for idle in 0..self.model.states.len() {
            let mut fewer = Fewer::none([f64::NAN; 2]);
            for active in 1..=self.model.cores {
                // It rises with the number of cores.
                if best.is_some_and(|best| self.model.least_power(active, idle) >= best.power) {
                    break;
                }
                let goals_ns = [Kind::Steady, Kind::Graded].map(|kind| goal.of(kind, active));
                if goals_ns != fewer.goals_ns {
                    fewer = Fewer::none(goals_ns);
                }
                if self.model.package.is_some_and(|package| package.begins_with(active)) {
                    (fewer.least, fewer.rises) = Fewer::UNRISEN;
                }
                for (kind, candidate) in self.best_of(active, idle, &mut fewer).into_iter().enumerate() {
                    let Some(mut candidate) = candidate else { continue };
                    candidate.power += self.model.surge_power(goal.surges(candidate.base));
                    let (least, rises) = (&mut fewer.least[kind], &mut fewer.rises[kind]);
                    *rises = if candidate.power < *least { 0 } else { *rises + 1 };
                    *least = least.min(candidate.power);
                    let worth = |best: Candidate| {
                        let longer_ns = self.exit_ns(idle) - self.exit_ns(best.base.idle.index());
                        candidate.power < best.power * (1.0 - WORTH_OF_GOAL * longer_ns / goals_ns[0])
                    };
                    if best.is_none_or(worth) {
                        best = Some(candidate);
                    }
                }
            }
        }
        self.rate(best?.base)
    }

    /// The best steady and the best graded speed for so many cores, none slower than was found with fewer.
    fn best_of(&mut self, active: u16, idle: usize, fewer: &mut Fewer) -> [Option<Candidate>; 2] {
        let frugal = self.model.frugal_point(idle);
        let [steady_ns, graded_ns] = fewer.goals_ns;
        let room_ns = steady_ns - self.exit_ns(idle);
        let mut next = fewer.point.map_or(Some(self.model.points.fastest()), below);
        while let Some(slower) = next
            && slower >= frugal
            && self.steady(active, slower).is_some_and(|(_, tail_ns)| tail_ns <= room_ns)
        {
            fewer.point = Some(slower);
            next = below(slower);
        }
        let model = self.model;
        let candidate = |speed: Speed, running: Running| {
            let power = model.power(active, idle, &running);
            Candidate { base: Base { active, speed, idle: CstateIndex(idle as u8) }, power }
        };
        let slowest = fewer.point.filter(|_| fewer.rises[0] < 2);
        let steady = slowest.and_then(|slowest| {
            // Work costs more above it; only a package sleeps longer for it.
            let points = model
                .points
                .iter()
                .filter(|&point| point == slowest || (point > slowest && model.package.is_some()));
            points
                .filter_map(|point| Some(candidate(Speed::Steady(point), self.steady(active, point)?.0)))
                .min_by(|a, b| a.power.total_cmp(&b.power))
        });
        if fewer.point == Some(frugal) || fewer.rises[1] == 2 {
            return [steady, None];
        }
        let room_ns = graded_ns - self.exit_ns(idle) - self.dvfs_ns;
        let lowest = self.lowest_point(frugal, room_ns);
        let graded =
            |(patience_ns, running): (f64, Running)| candidate(Speed::Graded(lowest, patience_ns), running);
        let patient = self.most_patient(active, lowest, room_ns);
        // As where a faster steady one is worth it, or none is known.
        let is_hasty = model.package.is_some()
            && steady.is_none_or(|steady| Some(steady.base.speed.lowest()) != slowest);
        let hasty = patient
            .filter(|_| is_hasty)
            .and_then(|most| self.less_patient(active, lowest, room_ns, most, graded));
        let patient = patient.map(graded);
        [steady, hasty.or(patient)]
    }

    /// The cheapest with less patience than the most, if any costs less.
    fn less_patient(
        &self,
        active: u16,
        lowest: PointIndex,
        room_ns: f64,
        most: (f64, Running),
        graded: impl Fn((f64, Running)) -> Candidate,
    ) -> Option<Candidate> {
        let links = Links::new(&self.model, active)?;
        let quick_ns = QUICK_CLOCK * self.dvfs_ns;
        let at = |step: i32| {
            let patience_ns = room_ns * PATIENCE_STEP.powi(step);
            if patience_ns >= most.0 || patience_ns < quick_ns {
                return None;
            }
            let chain = self.chain(&links, active, lowest, patience_ns);
            let keeps = self.keeps(&chain, active, lowest, room_ns);
            keeps.then(|| (step, graded((patience_ns, chain.running()))))
        };
        let cheapest = |steps: &mut dyn Iterator<Item = i32>| {
            steps.filter_map(at).min_by(|a, b| a.1.power.total_cmp(&b.1.power))
        };
        let (step, coarse) = cheapest(&mut (0..PATIENCES).step_by(HASTE as usize))?;
        let fine = cheapest(&mut (step + 1 - HASTE..step + HASTE));
        let best = fine.map_or(coarse, |(_, fine)| fine);
        (best.power < graded(most).power).then_some(best)
    }

    /// The slowest operating point, but not slower than `frugal`, that takes half of the misses at
    /// most for requests that never waited.
    fn lowest_point(&self, frugal: PointIndex, room_ns: f64) -> PointIndex {
        let Model { shape, points, quantile, .. } = self.model;
        let long_ns = shape.quantile_ns(1.0 - (1.0 - quantile) / 2.0);
        let quick =
            |point: &PointIndex| *point >= frugal && long_ns * shape.stretch(points.speed(*point)) <= room_ns;
        points.iter().find(quick).unwrap_or(points.fastest())
    }

    /// The most patience with which responses stay within `room_ns`, and the work of the cores then.
    fn most_patient(&self, active: u16, lowest: PointIndex, room_ns: f64) -> Option<(f64, Running)> {
        let quick_ns = QUICK_CLOCK * self.dvfs_ns;
        if room_ns <= 0.0 || room_ns < quick_ns {
            return None;
        }
        let links = Links::new(&self.model, active)?;
        let keeping_at = |step| {
            let patience_ns = room_ns * PATIENCE_STEP.powi(step);
            let chain = self.chain(&links, active, lowest, patience_ns);
            self.keeps(&chain, active, lowest, room_ns).then(|| (patience_ns, chain.running()))
        };
        // First of all: where the fastest operating point is left alone, patience changes only how finely
        // the chain tells lengths apart, and halving would follow that.
        let most = keeping_at(0);
        if most.is_some() {
            return most;
        }
        let (mut too_patient, mut keeping, mut found) = (0, PATIENCES, None);
        while keeping - too_patient > 1 {
            let middle = (keeping + too_patient) / 2;
            if room_ns * PATIENCE_STEP.powi(middle) < quick_ns {
                keeping = middle;
                continue;
            }
            match keeping_at(middle) {
                None => too_patient = middle,
                some => (keeping, found) = (middle, some),
            }
        }
        found
    }

    fn keeps(&self, chain: &Chain<'_>, active: u16, lowest: PointIndex, room_ns: f64) -> bool {
        chain.beyond(room_ns / self.model.sibling_stretch(active, lowest)) <= 1.0 - self.model.quantile
    }

    fn chain(&self, links: &Links, active: u16, lowest: PointIndex, patience_ns: f64) -> Chain<'a> {
        let servers = self.model.queue(active).servers;
        let service_ns = |point| self.model.service_ns(point);
        Chain::new(
            self.model,
            links,
            &Pace::graded(lowest, servers, patience_ns, self.model.points, service_ns),
        )
    }

    fn place(&self, active: u16, point: PointIndex) -> usize {
        usize::from(active - 1) * self.model.points.count() + point.index()
    }

    fn steady(&mut self, active: u16, point: PointIndex) -> Option<(Running, f64)> {
        let place = self.place(active, point);
        *self.steady[place].get_or_insert_with(|| self.model.steady(active, point))
    }

    fn exit_ns(&self, idle: usize) -> f64 {
        self.model.states[idle].exit_latency.as_nanos() as f64
    }
}

fn below(point: PointIndex) -> Option<PointIndex> {
    point.0.checked_sub(1).map(PointIndex)
}

#[cfg(test)]
mod tests;
