//! When the stages of one proxy go: one timer for all of them, so that their bursts are kept apart
//! (`policy::staging::timetable`).
//!
//! After each input a stage reports the time of its next burst; the stage whose place in the
//! timetable has come is told to release.
//!
//! Invariants: while a request is held, the timer is set no later than the earliest place in the
//! timetable.

use crate::stage::Stage;
use machine::Instant;
use policy::staging::{Coming, timetable};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

#[derive(Debug)]
pub(crate) struct Timetable {
    table: Mutex<Table>,
    /// The timer must be set anew.
    earlier: Notify,
}

#[derive(Debug)]
struct Table {
    /// By the number of the stage.
    coming: Vec<Option<Coming>>,
    /// When the timer is set to.
    armed: Option<Instant>,
}

/// One stage's line in the timetable.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    timetable: Arc<Timetable>,
    number: usize,
}

impl Timetable {
    pub(crate) fn new(stages: usize) -> Arc<Self> {
        let table = Table { coming: vec![None; stages], armed: None };
        Arc::new(Self { table: Mutex::new(table), earlier: Notify::new() })
    }

    /// The line of stage `number`.
    pub(crate) fn line(self: &Arc<Self>, number: usize) -> Line {
        Line { timetable: self.clone(), number }
    }

    /// Lets bursts go when their time has come; never ends. `stages` are in the order of their
    /// numbers.
    pub(crate) async fn keep(&self, stages: &[Arc<Stage>]) {
        loop {
            let changed = self.earlier.notified();
            let now = linux::now();
            let due = self.arm(now);
            due.iter().for_each(|&number| stages[number].go(now));
            if !due.is_empty() {
                // With them gone the others' places are later.
                continue;
            }
            let armed = self.table().armed;
            match armed {
                None => changed.await,
                Some(armed) => {
                    let wait: std::time::Duration = armed.since(linux::now()).into();
                    tokio::select! {
                        () = tokio::time::sleep(wait) => {}
                        () = changed => {}
                    }
                }
            }
        }
    }

    /// Sets the timer; the numbers of those whose time has come.
    fn arm(&self, now: Instant) -> Vec<usize> {
        let mut table = self.table();
        let starts = timetable(&table.coming);
        table.armed = starts.iter().flatten().min().copied();
        (0..starts.len()).filter(|&number| starts[number].is_some_and(|start| start <= now)).collect()
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Line {
    /// The stage's next burst is this one now.
    pub(crate) fn tell(&self, coming: Option<Coming>) {
        let mut table = self.timetable.table();
        if table.coming[self.number] == coming {
            return;
        }
        table.coming[self.number] = coming;
        let first = match &table.coming[..] {
            [one] => one.map(|one| one.due),
            all => timetable(all).into_iter().flatten().min(),
        };
        // A timer that is too early does no harm, and one that need not ring at all neither.
        if first.is_some_and(|first| table.armed.is_none_or(|armed| first < armed)) {
            table.armed = first;
            self.timetable.earlier.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::{Ticket, Why};
    use machine::Duration;
    use policy::staging::{Mode, Params};

    /// Stages that know after one completion how long a burst lasts.
    fn stages<const COUNT: usize>(mode: Mode) -> (Arc<Timetable>, [Arc<Stage>; COUNT]) {
        let params = Params { mode, first: 1, ..Params::default() };
        let timetable = Timetable::new(COUNT);
        let stages = std::array::from_fn(|number| Stage::new(params, None, timetable.line(number)).unwrap());
        (timetable, stages)
    }

    fn run<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(work)
    }

    fn after_ms(ms: u64) -> Instant {
        linux::now() + Duration::from_millis(ms)
    }

    /// Lets one request go at once, that is complete after a while.
    async fn teach(stage: &Arc<Stage>) {
        let mut ticket = stage.arrive(linux::now());
        ticket.released().await;
        tokio::time::sleep(std::time::Duration::from_millis(150)).await;
        ticket.completed();
    }

    #[test]
    fn of_two_bursts_that_would_meet_one_gives_way() {
        let (timetable, stages) = stages::<2>(Mode::Deadline);
        run(async {
            teach(&stages[0]).await;
            teach(&stages[1]).await;
            let asked = async {
                let mut tickets: Vec<Ticket> =
                    [0, 1].map(|number: usize| stages[number].arrive(after_ms(1_000 + number as u64))).into();
                for ticket in &mut tickets {
                    ticket.released().await;
                }
            };
            tokio::select! {
                () = timetable.keep(&stages) => unreachable!("the timer never ends"),
                () = asked => {}
            }
        });
        let of = |number: usize| stages[number].look().record;
        assert_eq!((of(0).by_giving_way, of(0).by_deadline), (1, 1), "the first of them was the lesson");
        assert_eq!((of(1).by_giving_way, of(1).by_deadline), (0, 2));
        let went = stages.each_ref().map(|stage| *stage.take_bursts().back().unwrap());
        assert!(went[0].at < went[1].at && went[0].why == Why::Way, "{went:?}");
    }

    #[test]
    fn an_earlier_deadline_sets_the_timer_earlier() {
        let (timetable, stages) = stages::<2>(Mode::Deadline);
        run(async {
            let mut late = stages[0].arrive(after_ms(3_600_000));
            let ask = async {
                // The timer sleeps for half an hour when the second and the third come.
                tokio::task::yield_now().await;
                let mut soon = stages[1].arrive(after_ms(20));
                soon.released().await;
                let mut urgent = stages[0].arrive(after_ms(20));
                urgent.released().await;
                late.released().await;
            };
            tokio::select! {
                () = timetable.keep(&stages) => unreachable!("the timer never ends"),
                () = ask => {}
            }
        });
        assert_eq!(stages.each_ref().map(|stage| stage.look().record.by_deadline), [1, 1]);
    }
}
