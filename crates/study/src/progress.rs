//! How far it is, on standard error: a bar on a terminal, now and then a line elsewhere, nothing at
//! all beside JSON.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal as _;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Progress through a number of runs. Told from any thread.
pub struct Progress {
    view: View,
}

enum View {
    Silent,
    Bar(ProgressBar),
    Lines(Mutex<Lines>),
}

struct Lines {
    total: usize,
    done: usize,
    began: Instant,
    /// When a line was last written.
    told: Instant,
}

/// Between two lines of a log at least.
const LINE_EVERY: Duration = Duration::from_secs(2);

impl Progress {
    /// Of `total` runs.
    pub fn new(total: usize, is_silent: bool) -> Self {
        let view = if is_silent {
            View::Silent
        } else if std::io::stderr().is_terminal() {
            let bar = ProgressBar::with_draw_target(Some(total as u64), ProgressDrawTarget::stderr());
            let style =
                ProgressStyle::with_template("{bar:30} {pos}/{len}  {elapsed} gone, {eta} to go  {wide_msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            // A single run can take minutes: without a tick nothing would move.
            bar.enable_steady_tick(Duration::from_millis(200));
            View::Bar(bar)
        } else {
            let now = Instant::now();
            View::Lines(Mutex::new(Lines { total, done: 0, began: now, told: now }))
        };
        Self { view }
    }

    pub fn done(&self, what: &str) {
        match &self.view {
            View::Silent => {}
            View::Bar(bar) => {
                bar.set_message(what.to_owned());
                bar.inc(1);
            }
            View::Lines(lines) => {
                let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
                lines.done += 1;
                if lines.told.elapsed() >= LINE_EVERY && lines.done < lines.total {
                    lines.told = Instant::now();
                    eprintln!("roost sim: {}", lines.text(what));
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
}

impl Lines {
    fn text(&self, what: &str) -> String {
        let gone = self.began.elapsed();
        let left = gone.mul_f64((self.total - self.done) as f64 / self.done as f64);
        let (done, total) = (self.done, self.total);
        format!(
            "{done} of {total} runs, {} s gone, about {} s to go ({what})",
            gone.as_secs(),
            left.as_secs()
        )
    }
}
