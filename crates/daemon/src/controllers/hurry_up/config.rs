//! A `[[hurry_up]]` table of the configuration.

use super::{ClocksAsked, HurryOptions, Preset, SlotSource};
use crate::controllers::{Machine, Refusal};
use linux::arbiter::ClockMeans;
use linux::{FrequencyActuator, FrequencyError};
use machine::{CpuList, Duration, Kilohertz};
use policy::frequency::hurry_up::{Learned, Threshold};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A service whose CPUs get speed while a thread is in its hot function.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HurryUpConfig {
    /// Its name in `status` and metrics; the process or the slot file where it is left out.
    pub name: Option<String>,
    /// The slot file that the agent, or a native server, writes.
    pub slots: Option<PathBuf>,
    /// Functions of a native program, `BINARY:FUNCTION`, in place of a slot file; needs `pid`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub uprobe: Vec<String>,
    /// The service's process; the slot file's writer where it is left out.
    pub pid: Option<u32>,
    pub preset: Preset,
    /// When a call is heavy: a time such as `450ms`, or a share of the calls seen, such as `p75`.
    pub threshold: Option<String>,
    /// Frequency of an idle core, such as `1000MHz`; the lowest where it is left out.
    pub min: Option<String>,
    /// Frequency of a core that works; 10/13 of the highest where it is left out.
    pub mid: Option<String>,
    /// Frequency of heavy calls; the highest without turbo where it is left out.
    pub max: Option<String>,
    /// Only these of the service's CPUs, such as `0-3,8`.
    pub cpus: Option<String>,
    /// Run at real-time priority 1.
    pub realtime: bool,
}

impl HurryUpConfig {
    /// Its name in `status` and metrics.
    pub fn name(&self) -> String {
        let file =
            || self.slots.as_ref().and_then(|path| path.file_name()).map(|name| name.to_string_lossy());
        let named = self.name.clone().or_else(|| self.pid.map(|pid| pid.to_string()));
        format!("hurry-up:{}", named.or_else(|| file().map(Into::into)).unwrap_or_default())
    }

    /// Refuses values that can mean nothing.
    pub fn check(&self) -> Result<(), Refusal> {
        self.source()?;
        self.frequencies()?;
        self.parsed_cpus()?;
        self.parsed_threshold().map(drop)
    }

    pub(super) fn options(&self, machine: &Machine) -> Result<HurryOptions, Refusal> {
        let ClockMeans { actuator, allow_msr } = machine.frequency;
        if actuator == Some(FrequencyActuator::DutyCycle) && !allow_msr && !machine.dry_run {
            return Err(Refusal::usage(FrequencyError::MsrNotAllowed));
        }
        Ok(HurryOptions {
            root: machine.root.clone(),
            slots: self.source()?,
            cpus: self.parsed_cpus()?,
            preset: self.preset,
            threshold: self.parsed_threshold()?,
            clocks: self.frequencies()?,
            means: machine.frequency,
            dry_run: machine.dry_run,
            record: machine.record.clone(),
            audit: machine.audit.clone(),
            arbiter: machine.arbiter.clone(),
        })
    }

    fn parsed_cpus(&self) -> Result<Option<CpuList>, Refusal> {
        let parse = |text: &String| text.parse::<CpuList>().map_err(Refusal::usage);
        self.cpus.as_ref().map(parse).transpose()
    }

    fn frequencies(&self) -> Result<ClocksAsked, Refusal> {
        let parse = |text: &Option<String>| -> Result<Option<Kilohertz>, Refusal> {
            text.as_ref().map(|text| text.parse().map_err(Refusal::usage)).transpose()
        };
        Ok(ClocksAsked { min: parse(&self.min)?, mid: parse(&self.mid)?, max: parse(&self.max)? })
    }

    fn parsed_threshold(&self) -> Result<Option<Threshold>, Refusal> {
        self.threshold.as_deref().map(|text| threshold(text).map_err(Refusal::usage)).transpose()
    }

    fn source(&self) -> Result<SlotSource, Refusal> {
        match (&self.slots, self.pid) {
            (Some(path), process) => Ok(SlotSource::File { path: path.clone(), process }),
            (None, _) if self.uprobe.is_empty() => Err(Refusal::usage(
                "name what tells of the hot function: --slots FILE, which the service's agent writes, or \
                 --uprobe BINARY:FUNCTION with --pid for a program that cannot be changed\nhint: `roost hot \
                 --pid PID` finds the function",
            )),
            (None, Some(process)) => {
                let names = self.uprobe.iter().map(|name| name.parse().map_err(Refusal::usage));
                Ok(SlotSource::Functions { process, names: names.collect::<Result<_, _>>()? })
            }
            (None, None) => Err(Refusal::usage("--uprobe needs the program's process: name it with --pid")),
        }
    }
}

/// A threshold from a time such as `450ms`, or from a share of the calls seen, such as `p75`.
pub fn threshold(text: &str) -> Result<Threshold, String> {
    let Some(percent) = text.strip_prefix('p') else {
        let wrong = |_| {
            format!("`{text}` is no threshold: write a time such as 450ms, or a share of calls such as p75")
        };
        return text.parse::<Duration>().map(Threshold::Fixed).map_err(wrong);
    };
    let percent: f64 = percent
        .parse()
        .map_err(|_| format!("`{text}` is no share of calls: write one such as p75 or p99.9"))?;
    if !(0.0..=100.0).contains(&percent) {
        return Err(format!("`{text}` is no share of calls: write p0 to p100"));
    }
    // To the nearest decimal fraction: 99.9 / 100 is not quite 0.999.
    let quantile = (percent * 1e7).round() / 1e9;
    Ok(Threshold::Learned(Learned { quantile, ..Learned::default() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threshold_is_a_time_or_a_share_of_calls() {
        assert_eq!(threshold("450ms"), Ok(Threshold::Fixed(Duration::from_millis(450))));
        let learned = |quantile| Ok(Threshold::Learned(Learned { quantile, ..Learned::default() }));
        assert_eq!((threshold("p75"), threshold("p99.9")), (learned(0.75), learned(0.999)));
        for wrong in ["450", "p", "p101", "p-1", "pNaN", "soon", ""] {
            assert!(threshold(wrong).unwrap_err().contains("write"), "{wrong}");
        }
    }
}
