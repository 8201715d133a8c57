//! Simulations beside Python: its other threads go on, Ctrl-C ends them, a bar shows how far they are.
//!
//! ```text
//!   the caller's thread      waits, looks for signals and for calls of Python that last too long, and
//!                            tells how far it is, 20 times a second
//!     a thread of its own    sends the name of each run that is over
//!       threads of the runs  read the flag that ends them
//! ```

use crate::errors::{panicked, raised};
use crate::own::Names;
use anyhow::Result;
use pyo3::prelude::*;
use sim::Stop;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// Between two looks for signals. The interpreter's lock is taken for each.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Tells the caller's thread that a run is over, by the run's name.
pub type Done = Arc<dyn Fn(&str) + Send + Sync>;

/// Does `work`, which is `total` runs, on a thread of its own and without the interpreter's lock.
/// `progress` is called with the number of runs that are over, all, and the name of the last. If it
/// raises, or a signal's handler does, all runs end and the exception is passed on. `names` are the
/// policies in Python that the runs may call.
pub fn supervised<T: Send>(
    py: Python<'_>,
    progress: Option<Py<PyAny>>,
    names: &Names,
    total: usize,
    work: impl FnOnce(&Stop, Done) -> Result<T> + Send,
) -> PyResult<T> {
    let stop = Stop::default();
    let (sender, receiver) = mpsc::channel::<String>();
    let told = move |done: usize, last: &str| {
        Python::attach(|py| {
            py.check_signals()?;
            names.end_calls(py, false)?;
            progress.as_ref().map_or(Ok(()), |progress| progress.call1(py, (done, total, last)).map(drop))
        })
    };
    py.detach(move || {
        thread::scope(|scope| {
            let stop = &stop;
            let worker = scope.spawn(move || {
                // A caller that has given up hears no more.
                work(stop, Arc::new(move |name: &str| drop(sender.send(name.to_owned()))))
            });
            let (mut done, mut last) = (0, String::new());
            let mut failed = None;
            let mut look_at = Instant::now() + LOOK_EVERY;
            loop {
                match receiver.recv_timeout(look_at.saturating_duration_since(Instant::now())) {
                    Ok(name) => (done, last) = (done + 1, name),
                    Err(RecvTimeoutError::Disconnected) => break,
                    Err(RecvTimeoutError::Timeout) => {}
                }
                if Instant::now() >= look_at {
                    if let Err(error) = told(done, &last) {
                        failed = Some(error);
                        stop.set();
                        break;
                    }
                    look_at = Instant::now() + LOOK_EVERY;
                }
            }
            while failed.is_some() && !names.is_empty() && !worker.is_finished() {
                // An exception that the policy catches is raised again.
                Python::attach(|py| names.end_calls(py, true))?;
                thread::sleep(LOOK_EVERY);
            }
            let result = worker.join().map_err(|panic| panicked(panic.as_ref()))?;
            match failed {
                Some(error) => Err(error),
                None => {
                    let result = result.map_err(raised)?;
                    told(done, &last)?;
                    Ok(result)
                }
            }
        })
    })
}

/// Fails as a check inside the simulator does: for the test that Python gets an exception of it.
#[pyfunction]
pub fn _fail_a_check(py: Python<'_>) -> PyResult<()> {
    supervised(py, None, &Names::none(), 1, |_, _| -> Result<()> { panic!("a test of this package") })
}
