//! The inputs of a driver that looks now and then instead of being called at every event, and how
//! they are recorded and replayed (`crate::log`).
//!
//! Between two looks much may have happened: threads entered, left, moved, ended. One look is one
//! input, and its effect is one decision: a call that is late already when it is first seen goes to
//! f_max at once, not by way of f_mid.
//!
//! Invariants: an enter that lies in the future (a file that another user writes may say anything)
//! is now; threads beyond [`THREADS_MAX`] are left out; events of a thread that was never placed
//! are ignored.

use super::levels::Work;
use super::{HurryUp, Shift, Thread, ThreadId};
use crate::log::Recorded;
use machine::{CpuId, Duration, Instant};
use serde::{Deserialize, Serialize};

/// One thing that a look has shown.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Happened {
    /// A thread entered the hot function.
    Entered { thread: ThreadId, at: Instant },
    Left {
        thread: ThreadId,
        /// How long the call took, if that is known: by when the look was made says little.
        length: Option<Duration>,
    },
    /// A call that came and went between two looks.
    Passed { length: Duration },
    /// A thread, now known, is there.
    Placed {
        thread: ThreadId,
        /// On which CPU it runs or ran last; `None`: unknown.
        cpu: Option<CpuId>,
        /// It runs or waits for its turn to.
        runs: bool,
    },
    /// A thread has ended, wherever it was.
    Gone { thread: ThreadId },
    /// The CPU does this from now on.
    Works { cpu: CpuId, work: Work },
}

/// As many as a slot file can hold (`slots::SLOTS_MAX`).
pub(super) const THREADS_MAX: usize = 16_384;

impl HurryUp {
    pub(super) fn happen(&mut self, now: Instant, happened: Happened) {
        match happened {
            Happened::Entered { thread, at } => self.handle_enter(at.min(now), thread),
            Happened::Left { thread, length } => self.exit(now, thread, |_| length),
            Happened::Passed { length } => self.record(now, length),
            Happened::Placed { thread, cpu, runs } => {
                let core = cpu.and_then(|cpu| self.cores.place(cpu));
                match self.place(thread) {
                    Some(place) => self.move_thread(now, place, core, runs),
                    None if self.threads.len() < THREADS_MAX => {
                        let place = self.threads.partition_point(|other| other.id < thread);
                        self.threads.insert(place, Thread::new(thread, core, runs));
                    }
                    None => {}
                }
            }
            Happened::Gone { thread } => {
                if let Some(place) = self.place(thread) {
                    self.threads.remove(place);
                    // The paper's thread sees it at its next look.
                    if self.params.sleep.is_none() {
                        self.settle();
                    } else if self.look_at.is_none() {
                        self.look_at = self.next_look(now);
                    }
                }
            }
            Happened::Works { cpu, work } => {
                if self.params.follows_work {
                    self.cores.set_work(cpu, work, now + self.params.grace);
                    self.after_pauses(now);
                }
            }
        }
    }

    fn move_thread(&mut self, now: Instant, place: usize, core: Option<usize>, runs: bool) {
        let waits_from = now + self.params.grace;
        let thread = &mut self.threads[place];
        let is_new = (thread.core, thread.runs, thread.waits_from.is_none()) != (core, runs, true);
        thread.core = core;
        match (thread.runs, runs) {
            (true, false) if thread.call.is_some() => {
                thread.waits_from = thread.waits_from.or(Some(waits_from))
            }
            _ => (thread.runs, thread.waits_from) = (runs, None),
        }
        if is_new {
            self.note(now, place);
            self.after_pauses(now);
        }
    }

    /// Where there is no grace, a thread that pauses has paused.
    fn after_pauses(&mut self, now: Instant) {
        if self.params.sleep.is_none() {
            self.pause(now);
            self.settle();
        }
    }
}

impl Recorded for HurryUp {
    type Input = Vec<Happened>;
    type Output = Vec<Shift>;

    fn apply(&mut self, now: Instant, input: &Vec<Happened>) -> Vec<Shift> {
        self.handle_look(now, input);
        std::iter::from_fn(|| self.poll_command()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{MAX, MID, MIN, ms};
    use super::super::{Learned, Level, Params, Threshold};
    use super::*;
    use crate::frequency::points::tests::nine_points;
    use crate::log;
    use proptest::prelude::*;

    const THREADS: u32 = 5;
    const CPUS: u16 = 6;
    const LATE: Duration = Duration::from_millis(50);

    fn params() -> Params {
        Params { threshold: Threshold::Fixed(LATE), grace: Duration::ZERO, ..Params::default() }
    }

    /// cpu0 alone, cpu1 with cpu2, cpu3 with cpu4; cpu5 is not ours.
    fn service(params: Params) -> HurryUp {
        let domains = [vec![CpuId(0)], vec![CpuId(1), CpuId(2)], vec![CpuId(3), CpuId(4)]];
        HurryUp::of_service(params, &nine_points(), domains)
    }

    fn placed(thread: u32, cpu: u16, runs: bool) -> Happened {
        Happened::Placed { thread: ThreadId(thread), cpu: Some(CpuId(cpu)), runs }
    }

    fn entered(thread: u32, at: u64) -> Happened {
        Happened::Entered { thread: ThreadId(thread), at: ms(at) }
    }

    fn works(cpu: u16, work: Work) -> Happened {
        Happened::Works { cpu: CpuId(cpu), work }
    }

    /// CPU and clock of each command.
    fn look(policy: &mut HurryUp, at: u64, happened: &[Happened]) -> Vec<(u16, u64)> {
        let shifts = policy.apply(ms(at), &happened.to_vec());
        shifts.iter().map(|shift| (shift.cpu.0, shift.frequency.0)).collect()
    }

    #[test]
    fn a_thread_takes_its_level_along_and_leaves_none_behind() {
        let mut policy = service(params());
        assert_eq!(look(&mut policy, 0, &[]), [(0, MIN), (1, MIN), (2, MIN), (3, MIN), (4, MIN)]);
        let events = [placed(7, 0, true), entered(7, 1)];
        assert_eq!(look(&mut policy, 1, &events), [(0, MID)]);
        assert_eq!(policy.poll_timeout(), Some(ms(51)));
        assert_eq!(look(&mut policy, 51, &[]), [(0, MAX)]);
        assert_eq!(look(&mut policy, 60, &[placed(7, 2, true)]), [(0, MIN), (1, MAX), (2, MAX)]);
        // On a CPU that is none of ours nothing is done for it.
        assert_eq!(look(&mut policy, 70, &[placed(7, 5, true)]), [(1, MIN), (2, MIN)]);
        assert_eq!(look(&mut policy, 80, &[placed(7, 0, true)]), [(0, MAX)]);
        assert_eq!(look(&mut policy, 90, &[Happened::Gone { thread: ThreadId(7) }]), [(0, MIN)]);
        assert_eq!((policy.poll_timeout(), policy.hot().count()), (None, 0));
    }

    #[test]
    fn only_idle_cpus_go_to_the_minimum_and_a_thread_that_waits_needs_no_clock() {
        let mut policy = service(params());
        look(&mut policy, 0, &[works(0, Work::Other), works(2, Work::Other)]);
        let levels: Vec<Level> = policy.levels().map(|(_, level)| level).collect();
        assert_eq!(levels, [Level::Mid, Level::Mid, Level::Mid, Level::Min, Level::Min]);
        look(&mut policy, 1, &[placed(7, 3, true), entered(7, 1)]);
        look(&mut policy, 60, &[]);
        assert_eq!(look(&mut policy, 61, &[placed(7, 3, false)]), [(3, MIN), (4, MIN)]);
        assert_eq!(look(&mut policy, 62, &[placed(7, 3, true)]), [(3, MAX), (4, MAX)]);
    }

    #[test]
    fn the_runtime_is_as_urgent_as_who_waits_for_it() {
        let mut policy = service(params());
        assert_eq!(
            look(&mut policy, 0, &[works(3, Work::Runtime)]),
            [(0, MIN), (1, MIN), (2, MIN), (3, MID), (4, MID)]
        );
        look(&mut policy, 1, &[placed(7, 0, true), entered(7, 1)]);
        // A stop of the whole runtime: the thread that is inside cannot run.
        assert_eq!(look(&mut policy, 2, &[placed(7, 0, false)]), [(0, MIN), (3, MAX), (4, MAX)]);
        assert_eq!(look(&mut policy, 3, &[placed(7, 0, true)]), [(0, MID), (3, MID), (4, MID)]);
    }

    #[test]
    fn who_pauses_for_a_moment_changes_no_clock() {
        let grace = Duration::from_millis(10);
        let mut policy = service(Params { grace, ..params() });
        look(&mut policy, 0, &[works(0, Work::Other), placed(7, 1, true), entered(7, 0)]);
        assert_eq!(look(&mut policy, 1, &[works(0, Work::Idle), placed(7, 1, false)]), []);
        assert_eq!(policy.poll_timeout(), Some(ms(11)));
        assert_eq!(look(&mut policy, 9, &[works(0, Work::Other), placed(7, 1, true)]), []);
        assert_eq!(look(&mut policy, 11, &[]), [], "both went on");
        assert_eq!(look(&mut policy, 20, &[works(0, Work::Idle), placed(7, 1, false)]), []);
        // Told again, it is idle since the first time.
        assert_eq!(look(&mut policy, 25, &[works(0, Work::Idle), placed(7, 1, false)]), []);
        assert_eq!(look(&mut policy, 30, &[]), [(0, MIN), (1, MIN), (2, MIN)]);
        assert_eq!(policy.poll_timeout(), Some(ms(50)), "it is late then, whether it waits or not");
        assert_eq!(look(&mut policy, 50, &[Happened::Gone { thread: ThreadId(7) }]), []);
        assert_eq!(policy.poll_timeout(), None);
    }

    #[test]
    fn a_call_that_is_late_when_first_seen_goes_to_the_maximum_at_once() {
        let mut policy = service(params());
        look(&mut policy, 0, &[]);
        assert_eq!(look(&mut policy, 100, &[placed(7, 0, true), entered(7, 1)]), [(0, MAX)]);
        // One that claims to have begun in the future began now.
        look(&mut policy, 110, &[placed(8, 3, true), entered(8, u64::MAX / 2_000_000)]);
        assert_eq!(policy.poll_timeout(), Some(ms(160)));
    }

    #[test]
    fn lengths_that_are_known_teach_the_threshold() {
        let learned = Learned { quantile: 0.75, calls: 4, ..Learned::default() };
        let mut policy = service(Params { threshold: Threshold::Learned(learned), ..params() });
        let passed = |ms| Happened::Passed { length: Duration::from_millis(ms) };
        look(&mut policy, 1, &[passed(10), passed(20), placed(7, 0, true), entered(7, 0)]);
        let length = Some(Duration::from_millis(30));
        look(&mut policy, 900, &[Happened::Left { thread: ThreadId(7), length }, passed(40)]);
        // The length of this one is not known.
        look(&mut policy, 950, &[entered(7, 901), Happened::Left { thread: ThreadId(7), length: None }]);
        let threshold = policy.threshold().as_millis();
        assert!((29..=31).contains(&threshold), "{threshold} ms, not the 900 that the look came late");
    }

    #[test]
    fn the_flowchart_knows_threads_and_nothing_else() {
        let mut policy = service(Params::tuned());
        look(&mut policy, 0, &[]);
        let all = [placed(7, 0, false), entered(7, 1), works(3, Work::Other)];
        assert_eq!(look(&mut policy, 1, &all), []);
        assert_eq!(look(&mut policy, 50, &[]), [(0, MID)], "it waits, and counts all the same");
        assert_eq!(look(&mut policy, 500, &[]), [(0, MAX)]);
        let gone = [Happened::Gone { thread: ThreadId(7) }];
        assert_eq!((look(&mut policy, 501, &gone), look(&mut policy, 550, &[])), (vec![], vec![(0, MIN)]));
        assert_eq!(policy.poll_timeout(), None);
    }

    #[test]
    fn more_threads_than_any_file_holds_are_left_out() {
        let mut policy = service(params());
        let many: Vec<Happened> =
            (0..THREADS_MAX as u32 + 10).map(|thread| placed(thread, 0, true)).collect();
        policy.handle_look(ms(1), &many);
        assert_eq!(policy.threads.len(), THREADS_MAX);
    }

    fn happened() -> impl Strategy<Value = Happened> {
        let thread = || (0..THREADS).prop_map(ThreadId);
        let cpu = || (0..CPUS).prop_map(CpuId);
        let length = || (0_u64..100).prop_map(Duration::from_millis);
        let work = prop_oneof![Just(Work::Idle), Just(Work::Other), Just(Work::Runtime)];
        prop_oneof![
            (thread(), 0_u64..2_000).prop_map(|(thread, at)| Happened::Entered { thread, at: ms(at) }),
            (thread(), prop::option::of(length()))
                .prop_map(|(thread, length)| Happened::Left { thread, length }),
            length().prop_map(|length| Happened::Passed { length }),
            (thread(), prop::option::of(cpu()), any::<bool>())
                .prop_map(|(thread, cpu, runs)| Happened::Placed { thread, cpu, runs }),
            thread().prop_map(|thread| Happened::Gone { thread }),
            (cpu(), work).prop_map(|(cpu, work)| Happened::Works { cpu, work }),
        ]
    }

    fn looks() -> impl Strategy<Value = Vec<Vec<Happened>>> {
        prop::collection::vec(prop::collection::vec(happened(), 0..5), 0..40)
    }

    /// The level that the header's table says for each CPU, counted from scratch.
    fn by_the_table(policy: &HurryUp, work: &[Work]) -> Vec<Level> {
        let waits = policy.hot().any(|hot| !hot.runs);
        let needs = |cpu: u16| {
            let of_work = match work[usize::from(cpu)] {
                Work::Idle => Level::Min,
                Work::Runtime if waits => Level::Max,
                _ => Level::Mid,
            };
            let hot = policy.hot().filter(|hot| hot.runs && hot.cpu == Some(CpuId(cpu)));
            hot.map(|hot| hot.level).chain([of_work]).max().expect("one at least")
        };
        let domains: [&[u16]; 3] = [&[0], &[1, 2], &[3, 4]];
        let level = |cpus: &&[u16]| cpus.iter().map(|&cpu| needs(cpu)).max().expect("a CPU");
        domains.iter().flat_map(|cpus| std::iter::repeat_n(level(cpus), cpus.len())).collect()
    }

    proptest! {
        #[test]
        fn a_domain_has_the_level_of_its_most_urgent(looks in looks()) {
            let mut policy = service(params());
            let mut work = [Work::Idle; CPUS as usize];
            for (at, happened) in (0..).step_by(20).zip(&looks) {
                policy.handle_look(ms(at), happened);
                for happened in happened {
                    if let Happened::Works { cpu, work: new } = *happened {
                        work[cpu.index()] = new;
                    }
                }
                let levels: Vec<Level> = policy.levels().map(|(_, level)| level).collect();
                prop_assert_eq!(&levels, &by_the_table(&policy, &work));
                for hot in policy.hot() {
                    let is_late = ms(at).since(hot.entered) >= LATE;
                    prop_assert_eq!(hot.level, if is_late { Level::Max } else { Level::Mid });
                }
                if policy.hot().count() == 0 {
                    prop_assert!(levels.iter().all(|&level| level < Level::Max), "{:?}", levels);
                    prop_assert_eq!(policy.poll_timeout(), None);
                }
                if let Some(due) = policy.poll_timeout() {
                    prop_assert!(due > ms(at), "who comes back at {:?} would come back at once", due);
                }
            }
            // All threads end, whatever their slots say: no core stays fast.
            let gone: Vec<Happened> =
                (0..THREADS).map(|thread| Happened::Gone { thread: ThreadId(thread) }).collect();
            policy.handle_look(ms(10_000), &gone);
            prop_assert!(policy.levels().all(|(_, level)| level < Level::Max));
            prop_assert_eq!((policy.poll_timeout(), policy.hot().count()), (None, 0));
        }

        #[test]
        fn a_recorded_run_replays(looks in looks(), polled in any::<bool>()) {
            let mut policy = service(if polled { Params::tuned() } else { params() });
            let mut text = log::state_line(&policy) + "\n";
            for (at, happened) in (0..).step_by(20).zip(&looks) {
                let output = policy.apply(ms(at), happened);
                text += &log::step_line::<HurryUp>(ms(at), happened, &output);
                text.push('\n');
            }
            let replayed = log::replay::<HurryUp>(&text).expect("the same again");
            prop_assert_eq!((replayed.steps, replayed.state), (looks.len(), policy));
        }

        #[test]
        fn commands_tell_every_change_of_a_level_and_nothing_else(looks in looks()) {
            let mut policy = service(params());
            let mut clocks = [0_u64; 5];
            for (at, happened) in (0..).step_by(20).zip(&looks) {
                for (cpu, clock) in look(&mut policy, at, happened) {
                    prop_assert_ne!(std::mem::replace(&mut clocks[usize::from(cpu)], clock), clock);
                }
                let wanted: Vec<u64> = policy.levels().map(|(_, level)| policy.clock(level).0).collect();
                prop_assert_eq!(&clocks[..], &wanted[..]);
            }
        }
    }
}
