//! Power as the user's own meter says it, by a command that prints it.

use super::Args;
use crate::command_meter::CommandMeter;
use anyhow::Result;
use std::sync::mpsc::{Receiver, channel};

/// A command, run again and again beside; slow meters take seconds.
pub struct Source {
    name: String,
    readings: Receiver<Option<f64>>,
    last: Option<f64>,
}

impl Source {
    /// The meter that was named, tried once.
    pub fn of(args: &Args) -> Result<Option<Self>> {
        let Some(line) = &args.meter else { return Ok(None) };
        let (meter, remark) = CommandMeter::open(line)?;
        remark.iter().for_each(|remark| eprintln!("{remark}"));
        let (name, last) = (format!("measured: `{line}`"), meter.read().ok());
        let (sender, readings) = channel();
        std::thread::Builder::new().name("power".to_owned()).spawn(move || {
            // Ends with its first answer that has no receiver any more.
            while sender.send(meter.read().ok()).is_ok() {
                std::thread::sleep(std::time::Duration::from_secs(1));
            }
        })?;
        Ok(Some(Self { name, readings, last }))
    }

    /// Watts now; `None` while the meter does not answer.
    pub fn watts(&mut self) -> Option<f64> {
        while let Ok(reading) = self.readings.try_recv() {
            self.last = reading;
        }
        self.last
    }

    pub fn name(&self) -> String {
        self.name.clone()
    }
}
