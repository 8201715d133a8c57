//! The signals that end a command which holds a part of the machine or serves clients: it is told
//! to stop, and puts things back.
//!
//! A signal whose default is to end the process skips the destructors, and its changes stay. So
//! every command that changes the machine or holds data watches all of them before it holds
//! anything. SIGKILL cannot be watched: after it `roost restore` puts back. SIGSEGV and its like
//! are faults of ours, and leave the machine as a SIGKILL does. SIGPIPE is ignored by Rust's
//! runtime.
//!
//! Four ways to learn of one: a thread that calls back ([`EndSignals::call`]), waiting
//! ([`EndSignals::wait`]), a flag ([`end_flag`]), and for commands that never poll, such as
//! benches, [`put_back_at_end`].

use signal_hook::consts::{
    SIGALRM, SIGHUP, SIGINT, SIGPROF, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGVTALRM, SIGXCPU, SIGXFSZ,
};
use signal_hook::iterator::{Handle, Signals};
use std::io::{self, Result, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The signals that end a process by default, except for faults and for SIGHUP, which `nohup` takes
/// away.
const ENDING: [i32; 10] =
    [SIGINT, SIGTERM, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF, SIGXCPU, SIGXFSZ];

/// Signals that are watched for, and not answered yet.
pub struct EndSignals(Signals);

impl EndSignals {
    /// From now on none of them ends this process by itself. To be called before anything is held.
    pub fn watch() -> Result<Self> {
        Self::of(ending())
    }

    /// The same, with SIGHUP apart from them: it tells a daemon to read its configuration again.
    pub fn watch_and_reload() -> Result<Self> {
        Self::of(ENDING).and_then(|watched| watched.0.add_signal(SIGHUP).map(|()| watched).map_err(unwatched))
    }

    fn of(ending: impl IntoIterator<Item = i32> + Clone) -> Result<Self> {
        for signal in ending.clone() {
            // A command that waits for another process's lock has not begun, and watches nothing
            // else.
            signal_hook::flag::register(signal, crate::end_of_waiting()).map_err(unwatched)?;
        }
        Signals::new(ending).map(Self).map_err(unwatched)
    }

    /// Ends the wait for a signal.
    pub fn handle(&self) -> Handle {
        self.0.handle()
    }

    /// Waits for the first one; nothing if the wait was ended.
    pub fn wait(&mut self) -> Option<i32> {
        let signal = self.0.forever().next();
        signal.inspect(|&signal| say(signal))
    }

    /// Calls `stop` at each, those included that came meanwhile. SIGXCPU comes if a real-time
    /// thread computes without an end ([`crate::schedule_fifo_bounded`]).
    pub fn call(self, stop: impl Fn() + Send + 'static) -> Result<()> {
        self.call_with(move |signal| {
            say(signal);
            stop();
        })
    }

    /// The same, with the signal's number.
    pub fn call_with(mut self, heard: impl Fn(i32) + Send + 'static) -> Result<()> {
        let listen = move || self.0.forever().for_each(heard);
        let thread = std::thread::Builder::new().name("signals".to_owned()).spawn(listen);
        thread.map(drop).map_err(unwatched)
    }
}

/// True once one of them came, for a loop that polls now and then.
pub fn end_flag() -> Result<Arc<AtomicBool>> {
    let ended = Arc::new(AtomicBool::new(false));
    for signal in ending() {
        signal_hook::flag::register(signal, crate::end_of_waiting()).map_err(unwatched)?;
        signal_hook::flag::register(signal, Arc::clone(&ended)).map_err(unwatched)?;
    }
    Ok(ended)
}

/// For a command that never polls: at a signal this process becomes `roost restore`, in one step
/// and with no earlier descriptor, so nothing of ours is left in between; and then it ends by that
/// signal. Children that end with their parent end. `roost` is the program's file.
pub fn put_back_at_end(roost: &Path) -> Result<()> {
    let roost = roost.to_owned();
    EndSignals::watch()?.call_with(move |signal| {
        let ended_by = signal.to_string();
        let error = Command::new(&roost).args(["restore", "--ended-by", &ended_by]).exec();
        tell(format_args!("roost: cannot put back: {error}\nhint: roost restore\n"));
        std::process::exit(128 + signal);
    })
}

/// Ends this process as `signal` does if it is not watched.
pub fn end_by(signal: i32) -> ! {
    let _ = signal_hook::low_level::emulate_default_handler(signal);
    std::process::exit(128 + signal)
}

fn say(signal: i32) {
    if signal == SIGXCPU {
        tell(format_args!("it computed for 100 ms without a pause, and ends\n"));
    }
}

/// On the standard error stream. Its reader may be gone, which ends nothing.
fn tell(text: std::fmt::Arguments<'_>) {
    let _ = io::stderr().write_all(text.to_string().as_bytes());
}

fn unwatched(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot watch for signals: {error}"))
}

/// With SIGHUP, unless it is ignored already: `nohup` lets a command outlive its terminal.
fn ending() -> impl Iterator<Item = i32> + Clone {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    let is_ignored = ignored & (1 << (SIGHUP - 1)) != 0;
    ENDING.into_iter().chain((!is_ignored).then_some(SIGHUP))
}
