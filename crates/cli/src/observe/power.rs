//! Power as the user's own meter says it, by a command that prints it.

use super::Args;
use crate::exit::usage;
use anyhow::Result;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

/// A command, run again and again beside; slow meters take seconds.
pub struct Source {
    line: String,
    readings: Receiver<Option<f64>>,
    last: Option<f64>,
}

impl Source {
    /// The meter that was named, tried once.
    pub fn of(args: &Args) -> Result<Option<Self>> {
        let Some(line) = &args.power_command else { return Ok(None) };
        let first = ask(line);
        if first.is_none() {
            return Err(usage(format!(
                "--power-command: `{line}` printed no number of watts\nhint: try it: sh -c '{line}'"
            )));
        }
        let (sender, readings) = channel();
        let asked = line.clone();
        std::thread::Builder::new().name("power".to_owned()).spawn(move || {
            // Ends with its first answer that has no receiver any more.
            while sender.send(ask(&asked)).is_ok() {
                std::thread::sleep(std::time::Duration::from_secs(1));
            }
        })?;
        Ok(Some(Self { line: line.clone(), readings, last: first }))
    }

    /// Watts now; `None` while the meter does not answer.
    pub fn watts(&mut self) -> Option<f64> {
        while let Ok(reading) = self.readings.try_recv() {
            self.last = reading;
        }
        self.last
    }

    pub fn name(&self) -> String {
        format!("measured: `{}`", self.line)
    }
}

fn ask(line: &str) -> Option<f64> {
    let output =
        Command::new("sh").args(["-c", line]).stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| parse(&String::from_utf8_lossy(&output.stdout)))?
}

/// The first word, as a number of watts.
fn parse(text: &str) -> Option<f64> {
    let word = text.split_whitespace().next()?;
    let watts: f64 = word.trim_end_matches(['W', 'w']).parse().ok()?;
    (watts.is_finite() && watts >= 0.0).then_some(watts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_meters_answer_is_its_first_number() {
        assert_eq!(parse("187.5\n"), Some(187.5));
        assert_eq!(parse("  42W ok"), Some(42.0));
        for nonsense in ["", "watts 3", "-1", "NaN", "inf"] {
            assert_eq!(parse(nonsense), None, "{nonsense}");
        }
        assert_eq!(ask("echo 12"), Some(12.0));
        assert_eq!(ask("exit 1"), None);
    }
}
