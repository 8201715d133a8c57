//! The signals that end a command which holds something of the machine's: it is told to stop, and puts things back.

use anyhow::{Context as _, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXCPU};
use signal_hook::iterator::Signals;

/// Signals that are watched for, and not answered yet.
pub struct EndSignals(Signals);

impl EndSignals {
    /// From now on none of them ends this process by itself. To be called before anything is held.
    pub fn watch() -> Result<Self> {
        let signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGXCPU]).context("cannot watch for signals")?;
        Ok(Self(signals))
    }

    /// Calls `stop` at each, those included that came meanwhile. SIGXCPU comes if a real-time thread computes without an end
    /// ([`host::run_at_once`]).
    pub fn call(mut self, stop: impl Fn() + Send + 'static) -> Result<()> {
        let listen = move || {
            for signal in self.0.forever() {
                if signal == SIGXCPU {
                    eprintln!("it computed for 100 ms without a pause, and ends");
                }
                stop();
            }
        };
        let thread = std::thread::Builder::new().name("signals".to_owned()).spawn(listen);
        thread.map(drop).context("cannot watch for signals")
    }
}
