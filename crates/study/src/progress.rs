//! How far it is, on standard error: a bar on a terminal, now and then a line elsewhere, nothing at
//! all beside JSON.
//!
//! Where runs differ by a factor of a thousand in length, the time to the end is reckoned from their
//! costs and not from their number. A cost is known before the run, in any unit, such as requests.
//! The runs that are over say how long a thread takes for a unit; all units at that pace on all
//! threads, less the time that is gone, are left. It errs where later runs have another pace than
//! those before, and where threads have nothing to do beside the last run.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::collections::HashMap;
use std::io::IsTerminal as _;
use std::sync::{Mutex, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

/// Progress through a number of runs. Told from any thread.
pub struct Progress {
    view: View,
    state: Mutex<State>,
}

enum View {
    Silent,
    Bar(ProgressBar),
    Lines,
}

struct State {
    ledger: Ledger,
    began: Instant,
    /// When a line was last written.
    told: Instant,
    /// When each thread's last run ended.
    ended: HashMap<ThreadId, Instant>,
    part_began: Instant,
}

/// The cost of runs, and how long those took that are over.
#[derive(Clone, Copy, Debug)]
struct Ledger {
    total: usize,
    done: usize,
    cost: f64,
    done_cost: f64,
    /// Of those that are over, together.
    took: Duration,
    /// `None`: the time that is gone is divided by the cost that is done.
    threads: Option<usize>,
}

/// Between two lines of a log at least.
const LINE_EVERY: Duration = Duration::from_secs(2);

impl Progress {
    /// Of `total` runs that cost the same.
    pub fn new(total: usize, is_silent: bool) -> Self {
        Self::of(Ledger::new(total, total as f64, None), is_silent)
    }

    /// Of `total` runs that cost so much together, on so many threads.
    pub fn weighed(total: usize, cost: f64, threads: usize, is_silent: bool) -> Self {
        Self::of(Ledger::new(total, cost, Some(threads)), is_silent)
    }

    fn of(ledger: Ledger, is_silent: bool) -> Self {
        let view = if is_silent {
            View::Silent
        } else if std::io::stderr().is_terminal() {
            let bar = ProgressBar::with_draw_target(Some(ledger.total as u64), ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template("{bar:30} {pos}/{len}  {elapsed} gone{wide_msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            // A single run can take minutes: without a tick nothing would move.
            bar.enable_steady_tick(Duration::from_millis(200));
            View::Bar(bar)
        } else {
            View::Lines
        };
        let now = Instant::now();
        let state = State { ledger, began: now, told: now, ended: HashMap::new(), part_began: now };
        Self { view, state: Mutex::new(state) }
    }

    /// Threads begin their next runs now, and not where they ended their last ones.
    pub fn begin_part(&self) {
        let mut state = self.state();
        state.part_began = Instant::now();
        state.ended.clear();
    }

    /// A run of the common cost is over, on the thread that made it.
    pub fn done(&self, what: &str) {
        let Ledger { total, cost, .. } = self.state().ledger;
        self.done_of(cost / total.max(1) as f64, what);
    }

    /// A run of this cost is over, on the thread that made it.
    pub fn done_of(&self, cost: f64, what: &str) {
        let mut state = self.state();
        let now = Instant::now();
        let before = state.ended.insert(thread::current().id(), now).unwrap_or(state.part_began);
        state.ledger.end(cost, now - before);
        let (ledger, gone) = (state.ledger, now - state.began);
        match &self.view {
            View::Silent => {}
            View::Bar(bar) => {
                bar.set_message(format!(", {} to go  {what}", clock(ledger.left(gone))));
                bar.inc(1);
            }
            View::Lines => {
                if now - state.told >= LINE_EVERY && ledger.done < ledger.total {
                    state.told = now;
                    eprintln!("{}", ledger.text(gone, what));
                }
            }
        }
    }

    /// Leaves the terminal as it was.
    pub fn end(self) {
        if let View::Bar(bar) = self.view {
            bar.finish_and_clear();
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ledger {
    fn new(total: usize, cost: f64, threads: Option<usize>) -> Self {
        Self { total, done: 0, cost, done_cost: 0.0, took: Duration::ZERO, threads }
    }

    fn end(&mut self, cost: f64, took: Duration) {
        self.done += 1;
        self.done_cost += cost;
        self.took += took;
    }

    /// Time to the end, `gone` after the beginning.
    fn left(&self, gone: Duration) -> Duration {
        let so_far_s = match self.threads {
            Some(threads) => self.took.as_secs_f64() / threads.max(1) as f64,
            None => gone.as_secs_f64(),
        };
        let whole = Duration::try_from_secs_f64(so_far_s * self.cost / self.done_cost);
        whole.unwrap_or_default().saturating_sub(gone)
    }

    fn text(&self, gone: Duration, what: &str) -> String {
        let Self { done, total, .. } = self;
        let left = self.left(gone).as_secs();
        format!("{done} of {total} runs, {} s gone, about {left} s to go ({what})", gone.as_secs())
    }
}

/// Seconds up to a minute, then minutes.
fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    if seconds < 60 { format!("{seconds}s") } else { format!("{}m", seconds.div_ceil(60)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;

    #[test]
    fn the_time_left_follows_the_cost_and_not_the_number() {
        // Two threads, 100 units a second each: two long runs first, then a hundred short ones.
        let mut ledger = Ledger::new(102, 2.0 * 60_000.0 + 100.0 * 300.0, Some(2));
        ledger.end(60_000.0, S(600));
        ledger.end(60_000.0, S(600));
        assert_eq!(ledger.left(S(600)), S(150));
        // By number it would be 600 s for each two: more than eight hours.
        let mut by_number = Ledger::new(102, 102.0, None);
        by_number.end(1.0, S(600));
        by_number.end(1.0, S(600));
        assert_eq!(by_number.left(S(600)), S(30_000));
    }

    #[test]
    fn a_run_that_is_under_way_on_another_thread_is_counted() {
        // One of two equal runs has ended and the other is as far.
        let mut ledger = Ledger::new(4, 4.0, Some(2));
        ledger.end(1.0, S(100));
        assert_eq!(ledger.left(S(100)), S(100));
        // A run that takes longer than expected leaves no time below zero.
        assert_eq!(ledger.left(S(500)), Duration::ZERO);
    }

    #[test]
    fn a_part_of_other_runs_is_timed_from_its_own_beginning() {
        let progress = Progress::weighed(2, 2.0, 1, true);
        progress.done_of(1.0, "first");
        std::thread::sleep(Duration::from_millis(30));
        progress.begin_part();
        progress.done_of(1.0, "second");
        let ledger = progress.state().ledger;
        assert!(ledger.took < Duration::from_millis(30), "the pause is no run's: {:?}", ledger.took);
        assert_eq!((ledger.done, ledger.done_cost), (2, 2.0));
    }

    #[test]
    fn nothing_is_left_of_no_runs() {
        assert_eq!(Ledger::new(0, 0.0, Some(2)).left(S(1)), Duration::ZERO);
        assert_eq!([59, 60, 61].map(|seconds| clock(S(seconds))), ["59s", "1m", "2m"]);
    }
}
