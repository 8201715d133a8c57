//! How fast the CPUs of a governed service may run.
//!
//! The kernel's own governor sees how busy a CPU is, and not whether that matters. Two policies
//! know better, one by the work that a core gets done and one by the latency that the service's
//! clients see: [`Sensitivity`] for each core, [`Pegasus`] for all of them; they are the
//! simulator's very own. Their answer is asked for as a *cap*: below it the kernel still chooses,
//! so nothing here makes a machine faster, or hotter, than it was.
//!
//! Terms. A *seat* is a physical core with all its threads: they share a clock, so their
//! instructions are added, and the seat was busy while any of them was. That share is not seen;
//! threads that come and go by chance are assumed, 1 - (1 - a)(1 - b). *Free* is no cap: the
//! fastest gear, and turbo above it. A seat is *dark* when it worked and nothing was counted of it.
//!
//! Invariants:
//! - A cap is asked for when it changes and not otherwise, and is a gear of the table or the value
//!   that a person wrote.
//! - A parked CPU has the freest cap of the active ones: other work there is no worse off than the
//!   service, and where CPUs share a clock, parked ones do not keep it fast.
//! - A seat that is dark for `lost_after` epochs is free, and learns anew when it is seen again.
//! - At most one seat at a time makes its first trial in the slowest gear: they begin two epochs
//!   apart.
//!
//! Where it fails: a step is an epoch here, not the paper's millisecond. A trial costs a core an
//! epoch in its slowest gear out of every hundred, and at epochs of a second some client meets it;
//! short epochs make it cheap.

use super::Place;
use crate::frequency::sensitivity::Progress;
use crate::frequency::{GearIndex, GearTable, Pegasus, Sensitivity, pegasus, sensitivity};
use machine::{
    Command, CpuId, CpuReading, Duration, FrequencyLimit, Goal, Instant, Kilohertz, Rate, Ratio, Reading,
    ServiceReading,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// How fast a service's CPUs run, as a person writes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FrequencyMode {
    /// The kernel's own governor decides on the clock.
    #[default]
    Stock,
    /// Each core as slow as costs no more than `slack` of its own progress.
    Sensitivity,
    /// All of them as slow as keeps the goal.
    Pegasus,
    Cap(Kilohertz),
}

impl FromStr for FrequencyMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim() {
            "stock" => Ok(Self::Stock),
            "sensitivity" => Ok(Self::Sensitivity),
            "pegasus" => Ok(Self::Pegasus),
            other => other.parse().map(Self::Cap).map_err(|_| {
                format!(
                    "`{text}` is no frequency: write stock, sensitivity, pegasus or the highest clock, \
                     such as 1700MHz"
                )
            }),
        }
    }
}

impl fmt::Display for FrequencyMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stock => f.write_str("stock"),
            Self::Sensitivity => f.write_str("sensitivity"),
            Self::Pegasus => f.write_str("pegasus"),
            Self::Cap(clock) => clock.fmt(f),
        }
    }
}

impl Serialize for FrequencyMode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for FrequencyMode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// The same with all that it takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Frequency {
    /// No cap of ours.
    #[default]
    Stock,
    Cap(Kilohertz),
    /// By each core's sensitivity; `step` is the epoch.
    Sensitivity(sensitivity::Params),
    /// By the service's latency; `target` is the goal's.
    Pegasus(Goal, pegasus::Params),
}

/// Why a clock was capped or freed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClockWhy {
    Configured,
    /// The speed that the core loses to a slower clock; unknown until it was tried.
    Sensitivity(Option<Ratio>),
    /// Nothing is counted any more.
    Dark,
    /// The share of full power that keeps the latency inside its goal.
    Power(Ratio),
    /// It is parked, and has the cap of the active ones.
    Parked,
}

impl fmt::Display for ClockWhy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Configured => f.write_str("configured"),
            Self::Sensitivity(None) => f.write_str("to see what the core loses to a slower clock"),
            Self::Sensitivity(Some(of)) => {
                write!(f, "the core follows its clock by {:.0} %", of.as_f64() * 100.0)
            }
            Self::Dark => f.write_str("its instructions are not counted any more"),
            Self::Power(cap) => write!(f, "{:.0} % of full power keep the goal", cap.as_f64() * 100.0),
            Self::Parked => f.write_str("parked: as the active ones"),
        }
    }
}

/// One seat under [`Frequency::Sensitivity`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Core {
    policy: Sensitivity,
    gear: GearIndex,
    /// Epochs until it may make its first trial.
    begins_in: u32,
    /// Epochs in a row in which it worked and nothing was counted.
    dark: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Choice {
    #[default]
    Constant,
    Each(Vec<Core>),
    All(Box<Pegasus>, GearIndex),
}

/// The clocks of the CPUs of one service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServiceFrequency {
    mode: Frequency,
    choice: Choice,
    /// By CPU; a CPU that is not here is free.
    in_force: BTreeMap<CpuId, FrequencyLimit>,
}

impl ServiceFrequency {
    /// No cap yet. Without gears nothing but a person's cap can be asked for.
    pub fn new(mode: Frequency, place: &Place) -> Self {
        Self { mode, choice: choice(mode, place), in_force: BTreeMap::new() }
    }

    /// The goal; none where latency does not decide.
    pub fn goal(&self) -> Option<Goal> {
        match self.mode {
            Frequency::Pegasus(goal, _) => Some(goal),
            Frequency::Stock | Frequency::Cap(_) | Frequency::Sensitivity(_) => None,
        }
    }

    /// Another goal, where latency decides; the findings stay.
    pub fn set_goal(&mut self, goal: Goal) {
        if let Frequency::Pegasus(own, _) = &mut self.mode {
            *own = goal;
        }
        if let Choice::All(pegasus, _) = &mut self.choice {
            pegasus.set_target(goal.latency);
        }
    }

    /// Another mode from now on; the same again changes nothing.
    pub fn set_mode(&mut self, mode: Frequency, place: &Place) {
        match (self.mode, mode) {
            (old, new) if old == new => {}
            (Frequency::Pegasus(_, old), Frequency::Pegasus(goal, new)) if old == new => self.set_goal(goal),
            _ => {
                self.mode = mode;
                self.forget(place);
            }
        }
    }

    /// The learned state belongs to the conditions that it was learned in.
    pub fn forget(&mut self, place: &Place) {
        self.choice = choice(self.mode, place);
    }

    /// The caps in force, by CPU.
    pub fn in_force(&self) -> &BTreeMap<CpuId, FrequencyLimit> {
        &self.in_force
    }

    /// An epoch is over, in which so many seats were active. Dark for `lost_after` of them means
    /// free.
    pub fn handle_epoch(
        &mut self,
        now: Instant,
        place: &Place,
        active: u16,
        reading: &Reading,
        lost_after: u32,
    ) {
        let Some(gears) = &place.gears else { return };
        match &mut self.choice {
            Choice::Constant => {}
            Choice::All(pegasus, gear) => *gear = pegasus.handle_epoch(now, gears, latency(&reading.service)),
            Choice::Each(cores) => {
                let Frequency::Sensitivity(params) = self.mode else { return };
                for (core, seat) in cores.iter_mut().zip(&place.seats).take(active.into()) {
                    if core.begins_in > 0 {
                        core.begins_in -= 1;
                        continue;
                    }
                    match progress(gears, params.step, params.min_busy, seat, &reading.cpus) {
                        Some(progress) => {
                            core.dark = 0;
                            core.gear = core.policy.handle_step(gears, &progress);
                        }
                        None => {
                            core.dark = core.dark.saturating_add(1);
                            if core.dark >= lost_after {
                                core.policy = Sensitivity::new(params);
                                core.gear = gears.fastest();
                            }
                        }
                    }
                }
            }
        }
    }

    /// Full speed is needed at once. The next epoch decides again.
    pub fn handle_alarm(&mut self, now: Instant, place: &Place) {
        let Some(gears) = &place.gears else { return };
        match &mut self.choice {
            Choice::Constant => {}
            Choice::All(pegasus, gear) => *gear = pegasus.handle_epoch(now, gears, pegasus::Latency::Unknown),
            Choice::Each(cores) => cores.iter_mut().for_each(|core| core.gear = gears.fastest()),
        }
    }

    /// The commands that are due when so many seats are active.
    pub fn limits(&mut self, place: &Place, active: u16) -> Vec<(Command, ClockWhy)> {
        let caps: Vec<(FrequencyLimit, ClockWhy)> =
            (0..place.seats.len()).map(|seat| self.cap(place, seat)).collect();
        let of_active = &caps[..usize::from(active).min(caps.len())];
        let freest = of_active.iter().map(|(cap, _)| *cap).max_by_key(|cap| freedom(*cap));
        let mut changed = Vec::new();
        for (at, (seat, (cap, why))) in place.seats.iter().zip(&caps).enumerate() {
            let (cap, why) = if at < usize::from(active) {
                (*cap, why.clone())
            } else {
                (freest.unwrap_or(FrequencyLimit::None), ClockWhy::Parked)
            };
            for &cpu in seat {
                changed.extend(self.change(cpu, cap, why.clone()));
            }
        }
        // A CPU that may run faster is told first: on a clock that is shared, no step between is
        // slower than both ends.
        changed.sort_by_key(|(command, _)| match command {
            Command::SetFrequency { limit, .. } => std::cmp::Reverse(freedom(*limit)),
            _ => std::cmp::Reverse(u64::MAX),
        });
        changed
    }

    /// The commands that withdraw every cap in force.
    pub fn withdraw(&mut self) -> Vec<Command> {
        let free = |(cpu, _)| Command::SetFrequency { cpu, limit: FrequencyLimit::None };
        std::mem::take(&mut self.in_force).into_iter().map(free).collect()
    }

    fn change(&mut self, cpu: CpuId, limit: FrequencyLimit, why: ClockWhy) -> Option<(Command, ClockWhy)> {
        let before = match limit {
            FrequencyLimit::None => self.in_force.remove(&cpu),
            cap => self.in_force.insert(cpu, cap),
        };
        (before.unwrap_or(FrequencyLimit::None) != limit)
            .then_some((Command::SetFrequency { cpu, limit }, why))
    }

    /// The cap of one seat while it is active.
    fn cap(&self, place: &Place, seat: usize) -> (FrequencyLimit, ClockWhy) {
        let of = |gear: GearIndex| match &place.gears {
            Some(gears) if gear < gears.fastest() => FrequencyLimit::AtMost(gears.khz(gear)),
            _ => FrequencyLimit::None,
        };
        match (&self.choice, self.mode) {
            (Choice::Constant, Frequency::Cap(clock)) => {
                (FrequencyLimit::AtMost(clock), ClockWhy::Configured)
            }
            (Choice::Constant, _) => (FrequencyLimit::None, ClockWhy::Configured),
            (Choice::All(pegasus, gear), _) => (of(*gear), ClockWhy::Power(pegasus.cap())),
            (Choice::Each(cores), _) => {
                cores.get(seat).map_or((FrequencyLimit::None, ClockWhy::Configured), |core| {
                    let sensitivity = core.policy.sensitivity().map(Ratio::new);
                    let why = if core.dark > 0 { ClockWhy::Dark } else { ClockWhy::Sensitivity(sensitivity) };
                    (of(core.gear), why)
                })
            }
        }
    }
}

fn choice(mode: Frequency, place: &Place) -> Choice {
    let Some(gears) = &place.gears else { return Choice::Constant };
    match mode {
        Frequency::Stock | Frequency::Cap(_) => Choice::Constant,
        Frequency::Pegasus(goal, params) => {
            let pegasus = Pegasus::new(pegasus::Params { target: goal.latency, ..params });
            Choice::All(Box::new(pegasus), gears.fastest())
        }
        Frequency::Sensitivity(params) => {
            let core = |seat: usize| Core {
                policy: Sensitivity::new(params),
                gear: gears.fastest(),
                begins_in: 2 * seat as u32,
                dark: 0,
            };
            Choice::Each((0..place.seats.len()).map(core).collect())
        }
    }
}

/// The controller's input after an epoch.
fn latency(service: &ServiceReading) -> pegasus::Latency {
    match (service.rate, service.tail) {
        (None, _) => pegasus::Latency::Unknown,
        (Some(Rate::ZERO), _) => pegasus::Latency::NoRequests,
        (Some(_), Some(tail)) => pegasus::Latency::Measured(tail),
        // Too few to tell a percentile by: as little is learned as from none.
        (Some(_), None) => pegasus::Latency::NoRequests,
    }
}

/// The work of a seat in an epoch; `None` if it worked and nothing was counted, or nothing is known
/// at all.
fn progress(
    gears: &GearTable,
    step: Duration,
    min_busy: Duration,
    seat: &[CpuId],
    cpus: &[CpuReading],
) -> Option<Progress> {
    let nominal = gears.khz(gears.fastest()).0 as f64;
    let (mut known, mut idle, mut instructions, mut busy_counted, mut cycles) = (false, 1.0, 0.0, 0.0, 0.0);
    for reading in cpus.iter().filter(|reading| seat.contains(&reading.cpu)) {
        let Some(busy) = reading.busy else { continue };
        known = true;
        let busy = busy.as_f64();
        idle *= 1.0 - busy;
        if let (Some(rate), Some(clock)) = (reading.instructions, reading.clock) {
            instructions += rate.as_per_second() * busy * step.as_secs_f64();
            cycles += clock.0 as f64 * busy;
            busy_counted += busy;
        }
    }
    let busy = step.scale(1.0 - idle);
    if !known {
        return None;
    }
    if busy < min_busy {
        return Some(Progress { instructions: 0.0, speed: 1.0, busy });
    }
    (busy_counted > 0.0).then(|| Progress { instructions, speed: cycles / busy_counted / nominal, busy })
}

/// Greater is faster.
fn freedom(limit: FrequencyLimit) -> u64 {
    match limit {
        FrequencyLimit::None => u64::MAX,
        FrequencyLimit::AtMost(clock) | FrequencyLimit::Exactly(clock) => clock.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::{Gear, GearKind, Microwatts};
    use proptest::prelude::*;

    const EPOCH: Duration = Duration::from_millis(100);

    fn gears() -> GearTable {
        let gear = |&mhz: &u64| Gear {
            frequency: Kilohertz(mhz * 1_000),
            power: Microwatts::from_watts(10.0 * (mhz as f64 / 2_600.0).powi(3)),
            kind: GearKind::Pstate,
        };
        [1_000, 1_400, 1_700, 2_000, 2_300, 2_600].iter().map(gear).collect::<Vec<_>>().try_into().unwrap()
    }

    /// Two threads a core.
    fn place(cores: u16) -> Place {
        let seats = (0..cores).map(|core| vec![CpuId(core), CpuId(core + cores)]).collect();
        Place { seats, gears: Some(gears()), ..Place::default() }
    }

    fn sensitivity(slack: f64) -> Frequency {
        Frequency::Sensitivity(sensitivity::Params {
            step: EPOCH,
            slack: Ratio::new(slack),
            ..sensitivity::Params::default()
        })
    }

    /// The reading of a core's first thread that computes for this share of its time, under the cap
    /// that is in force.
    fn works(frequency: &ServiceFrequency, cpu: CpuId, busy: f64, computing: f64) -> CpuReading {
        let clock = match frequency.in_force().get(&cpu) {
            Some(FrequencyLimit::AtMost(clock) | FrequencyLimit::Exactly(clock)) => *clock,
            _ => Kilohertz(2_600_000),
        };
        let slower = 2_600_000.0 / clock.0 as f64;
        CpuReading {
            cpu,
            busy: Some(Ratio::new(busy)),
            residency: None,
            premature: None,
            instructions: Some(Rate::per_second(1e9 / (computing * slower + 1.0 - computing))),
            clock: Some(clock),
        }
    }

    fn epochs(
        frequency: &mut ServiceFrequency,
        place: &Place,
        active: u16,
        count: u32,
        computing: &[f64],
    ) -> Vec<Command> {
        let mut all = Vec::new();
        for _ in 0..count {
            let work = |(seat, &computing): (&Vec<CpuId>, &f64)| works(frequency, seat[0], 0.5, computing);
            let cpus = place.seats.iter().zip(computing).map(work).collect();
            let reading = Reading { cpus, ..Reading::default() };
            frequency.handle_epoch(Instant::ZERO, place, active, &reading, 3);
            all.extend(frequency.limits(place, active).into_iter().map(|(command, _)| command));
        }
        all
    }

    fn cap(frequency: &ServiceFrequency, cpu: u16) -> u64 {
        freedom(frequency.in_force().get(&CpuId(cpu)).copied().unwrap_or(FrequencyLimit::None))
    }

    #[test]
    fn each_core_runs_as_slow_as_its_work_allows_and_its_threads_alike() {
        let place = place(2);
        let mut frequency = ServiceFrequency::new(sensitivity(0.05), &place);
        assert_eq!(frequency.limits(&place, 2), []);
        epochs(&mut frequency, &place, 2, 20, &[0.0, 1.0]);
        assert_eq!(
            (cap(&frequency, 0), cap(&frequency, 2)),
            (1_000_000, 1_000_000),
            "it only waits for memory"
        );
        assert_eq!(
            (cap(&frequency, 1), cap(&frequency, 3)),
            (u64::MAX, u64::MAX),
            "5 % is less than any step costs"
        );
        // Parked: as the active one.
        let changed = frequency.limits(&place, 1);
        assert_eq!((changed.len(), cap(&frequency, 1), cap(&frequency, 3)), (2, 1_000_000, 1_000_000));
        assert!(changed.iter().all(|(_, why)| *why == ClockWhy::Parked));
        assert_eq!(frequency.limits(&place, 1), []);
        assert_eq!(frequency.withdraw().len(), 4);
        assert_eq!(frequency.withdraw(), []);
    }

    #[test]
    fn first_trials_come_one_after_the_other() {
        let place = place(4);
        let mut frequency = ServiceFrequency::new(sensitivity(0.0), &place);
        let mut tried = [0; 4];
        for epoch in 0..12 {
            epochs(&mut frequency, &place, 4, 1, &[1.0; 4]);
            let slow: Vec<u16> = (0..4).filter(|&cpu| cap(&frequency, cpu) != u64::MAX).collect();
            assert!(slow.len() <= 1, "epoch {epoch}: {slow:?}");
            slow.iter().for_each(|&cpu| tried[usize::from(cpu)] += 1);
        }
        assert_eq!(tried, [1; 4]);
    }

    #[test]
    fn a_core_whose_counters_fall_silent_is_free_and_an_idle_one_is_not_dark() {
        let place = place(1);
        let mut frequency = ServiceFrequency::new(sensitivity(0.2), &place);
        epochs(&mut frequency, &place, 1, 20, &[0.0]);
        assert_eq!(cap(&frequency, 0), 1_000_000);
        let told = |frequency: &mut ServiceFrequency, busy: f64| {
            let silent =
                CpuReading { instructions: None, clock: None, ..works(frequency, CpuId(0), busy, 0.0) };
            let reading = Reading { cpus: vec![silent], ..Reading::default() };
            frequency.handle_epoch(Instant::ZERO, &place, 1, &reading, 3);
            frequency.limits(&place, 1)
        };
        for _ in 0..10 {
            assert_eq!(told(&mut frequency, 0.0), [], "the work of an idle CPU is not counted");
        }
        assert_eq!((told(&mut frequency, 0.5), told(&mut frequency, 0.5)), (vec![], vec![]));
        let changed = told(&mut frequency, 0.5);
        assert!(changed.iter().all(|(_, why)| *why == ClockWhy::Dark), "{changed:?}");
        assert_eq!((changed.len(), cap(&frequency, 0)), (2, u64::MAX));
    }

    #[test]
    fn pegasus_slows_all_while_there_is_room_and_an_alarm_frees_them() {
        let place = place(2);
        let goal: Goal = "500us@p99".parse().unwrap();
        let mut frequency =
            ServiceFrequency::new(Frequency::Pegasus(goal, pegasus::Params::default()), &place);
        let told = |frequency: &mut ServiceFrequency, second: u64, tail: Option<u64>, rate: f64| {
            let tail = tail.map(Duration::from_micros);
            let service =
                ServiceReading { rate: Some(Rate::per_second(rate)), tail, ..ServiceReading::default() };
            let now = Instant::ZERO + Duration::from_secs(second);
            frequency.handle_epoch(now, &place, 2, &Reading { service, ..Reading::default() }, 3);
            frequency.limits(&place, 2)
        };
        for second in 0..20 {
            told(&mut frequency, second, Some(100), 1e4);
        }
        let slow = cap(&frequency, 0);
        assert!(slow < 2_300_000 && (1..4).all(|cpu| cap(&frequency, cpu) == slow));
        // Too few requests, or none, are no reason for anything.
        assert_eq!(
            (told(&mut frequency, 20, None, 3.0), told(&mut frequency, 21, None, 0.0)),
            (vec![], vec![])
        );
        // A stricter goal is violated at once.
        frequency.set_goal("60us@p99".parse().unwrap());
        assert_eq!(told(&mut frequency, 22, Some(100), 1e4).len(), 4);
        assert_eq!(cap(&frequency, 0), u64::MAX);
        frequency.forget(&place);
        frequency.set_goal(goal);
        for second in 30..50 {
            told(&mut frequency, second, Some(100), 1e4);
        }
        assert_eq!(cap(&frequency, 3), slow);
        frequency.handle_alarm(Instant::ZERO + Duration::from_secs(51), &place);
        assert_eq!((frequency.limits(&place, 2).len(), cap(&frequency, 3)), (4, u64::MAX));
    }

    #[test]
    fn a_cap_of_a_person_needs_no_table_and_the_others_do_nothing_without() {
        let bare = Place { gears: None, ..place(1) };
        let mut frequency = ServiceFrequency::new(Frequency::Cap(Kilohertz(1_500_000)), &bare);
        assert_eq!((frequency.limits(&bare, 1).len(), cap(&frequency, 1)), (2, 1_500_000));
        let mut frequency = ServiceFrequency::new(sensitivity(0.2), &bare);
        assert_eq!(epochs(&mut frequency, &bare, 1, 20, &[0.0]), []);
    }

    #[test]
    fn modes_read_as_a_person_writes_them() {
        for mode in ["stock", "sensitivity", "pegasus", "1700MHz"] {
            assert_eq!(mode.parse::<FrequencyMode>().unwrap().to_string(), mode);
        }
        assert_eq!("1.7GHz".parse(), Ok(FrequencyMode::Cap(Kilohertz(1_700_000))));
        for wrong in ["fast", "1700", "", "-1GHz"] {
            assert!(wrong.parse::<FrequencyMode>().unwrap_err().contains("such as 1700MHz"), "{wrong}");
        }
    }

    proptest! {
        /// With any slack and any work: once learned, the cap is the lowest gear whose true loss is
        /// within the slack.
        #[test]
        fn what_is_settled_on_costs_no_more_than_the_slack(slack in 0.0..0.5_f64, computing in 0.0..1.0_f64) {
            let place = place(1);
            let mut frequency = ServiceFrequency::new(sensitivity(slack), &place);
            epochs(&mut frequency, &place, 1, 40, &[computing]);
            let clock = cap(&frequency, 0).min(2_600_000) as f64;
            let loss = |clock: f64| 1.0 - 1.0 / (computing * 2_600_000.0 / clock + 1.0 - computing);
            prop_assert!(loss(clock) <= slack + 1e-6, "{} at {}", loss(clock), clock);
            let slower = gears().iter().map(|gear| gears().khz(gear).0 as f64).rfind(|&khz| khz < clock);
            if let Some(slower) = slower {
                prop_assert!(loss(slower) >= slack - 1e-6, "{} at {}", loss(slower), slower);
            }
        }

        /// Nonsense in every field of a reading makes no cap that is not of the table, and none
        /// that is told twice.
        #[test]
        fn whatever_is_read_caps_are_gears(
            readings in prop::collection::vec(
                (
                    0u16..4,
                    prop::option::of(0.0..=1.0_f64),
                    prop::option::of(0.0..1e12_f64),
                    prop::option::of(any::<u64>()),
                    1u16..3,
                ),
                1..200,
            ),
        ) {
            let place = place(2);
            let mut frequency = ServiceFrequency::new(sensitivity(0.1), &place);
            for (cpu, busy, rate, clock, active) in readings {
                let reading = CpuReading {
                    cpu: CpuId(cpu),
                    busy: busy.map(Ratio::new),
                    residency: None,
                    premature: None,
                    instructions: rate.map(Rate::per_second),
                    clock: clock.map(Kilohertz),
                };
                let before = frequency.in_force().clone();
                let reading = Reading { cpus: vec![reading], ..Reading::default() };
                frequency.handle_epoch(Instant::ZERO, &place, active, &reading, 3);
                for (command, _) in frequency.limits(&place, active) {
                    let Command::SetFrequency { cpu, limit } = command else { panic!("{command:?}") };
                    prop_assert_ne!(before.get(&cpu).copied().unwrap_or(FrequencyLimit::None), limit);
                    if let FrequencyLimit::AtMost(clock) = limit {
                        prop_assert!(gears().iter().any(|gear| gears().khz(gear) == clock && gear < gears().fastest()));
                    }
                }
                for seat in &place.seats {
                    prop_assert_eq!(cap(&frequency, seat[0].0), cap(&frequency, seat[1].0), "threads share a clock");
                }
            }
        }
    }
}
