//! A `[[quiesce]]` table of the configuration.

use super::{QuiesceOptions, Trigger};
use crate::controllers::{Machine, Refusal};
use linux::freezer::FreezerWay;
use machine::{Duration, Ratio};
use serde::{Deserialize, Serialize};

/// Which work matters, and which may be frozen while it waits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QuiesceConfig {
    /// Its name in `status` and metrics; the first critical unit where it is left out.
    pub name: Option<String>,
    /// Units, cgroups or processes that matter.
    pub critical: Vec<String>,
    /// Units, cgroups or processes that may be frozen.
    pub background: Vec<String>,
    /// The CPUs that are to sleep together: `all`, `socket:N`, `cluster:N` or a list.
    pub domain: String,
    #[serde(with = "machine::duration_text")]
    pub max_pause: Duration,
    /// The largest share of the time for which a group is frozen, 0.01 to 0.99.
    pub max_share: f64,
    /// The event from which causes are followed; whole units are critical where it is left out.
    pub trigger: Option<Trigger>,
    /// The only freezer to use; the best that works where it is left out.
    pub freezer: Option<FreezerWay>,
    /// Freeze without a trial of whether it pays.
    pub always: bool,
    /// Run at real-time priority 1.
    pub realtime: bool,
}

impl Default for QuiesceConfig {
    fn default() -> Self {
        Self {
            name: None,
            critical: Vec::new(),
            background: Vec::new(),
            domain: "all".to_owned(),
            max_pause: Duration::from_millis(250),
            max_share: 0.75,
            trigger: None,
            freezer: None,
            always: false,
            realtime: false,
        }
    }
}

impl QuiesceConfig {
    /// Its name in `status` and metrics.
    pub fn name(&self) -> String {
        let first = || self.critical.first().map_or("quiesce", String::as_str);
        format!("quiesce:{}", self.name.as_deref().unwrap_or_else(first))
    }

    /// Refuses values that can mean nothing.
    pub fn check(&self) -> Result<(), Refusal> {
        if self.critical.is_empty() || self.background.is_empty() {
            return Err(Refusal::usage(
                "quiesce needs critical and background units: write critical = [\"search.service\"] and \
                 background = [\"updater.service\"]",
            ));
        }
        if !(0.01..=0.99).contains(&self.max_share) {
            return Err(Refusal::usage(format!(
                "max_share = {}: write a share from 0.01 to 0.99",
                self.max_share
            )));
        }
        if self.max_pause.is_zero() {
            return Err(Refusal::usage(
                "max_pause = 0: nothing could be frozen at all; write a time such as 250ms",
            ));
        }
        Ok(())
    }

    pub(super) fn options(&self, machine: &Machine) -> QuiesceOptions {
        let ways = [FreezerWay::V2, FreezerWay::V1, FreezerWay::Signal];
        QuiesceOptions {
            root: machine.root.clone(),
            critical: self.critical.clone(),
            background: self.background.clone(),
            domain: self.domain.clone(),
            max_pause: self.max_pause,
            max_share: Ratio::new(self.max_share),
            trigger: self.trigger,
            always: self.always,
            dry_run: machine.dry_run,
            record: machine.record.clone(),
            without: ways.into_iter().filter(|way| self.freezer.is_some_and(|only| only != *way)).collect(),
            checkpoint: None,
        }
    }
}
