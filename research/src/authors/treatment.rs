//! How the authors ran their server in each treatment: clocks, sleep states, the policy's parameters.
//!
//! Everything in here stands in the paper or in the authors' published code (raijenki/elastic-hurryup,
//! `sched/src/hurryup.cpp` and its history), or in the name of a run. None of it was read off a run
//! that is held out.
//!
//! - `2601000`, which the code writes for a late thread, is the clock that `cpufreq` names so: turbo.
//! - `governors/hurryup` is the code before it knew a middle clock: 1.0 GHz until a thread is late.
//!   `governors/hurryup-mod` is the modified code, with 2.0 GHz in between (Figure 5). Both with the
//!   paper's first parameters: 350 ms and 10 ms (V-C).
//! - `final` and `final-3xload` are calibrated: 450 ms and 50 ms (V-F). The load is 4 clients, and 12
//!   at three times the load (V-C, V-G).
//! - `c-states` (V-E) comes before the calibration: 350 ms and 10 ms. "Only C0" leaves a core without
//!   work in the kernel's polling loop.
//! - `sleep-sensitivity` has a threshold of 300 ms, `threshold-sensitivity` a sleep of 10 ms (V-F).
//! - `two-states` is the code with one clock for threads inside: 2.0 GHz, or the late thread's.
//! - `overhead` is a fixed clock and the agent without its scheduler (V-D).
//! - An agent costs each query 10 % more time: the paper prints that of 1.0 GHz (V-D). Its 40 % at 2.6
//!   GHz compares with turbo and is of no use.

use super::constants::{BASE_KHZ, TURBO_KHZ};
use super::{Measured, Role, Run};
use anyhow::{Context as _, Result, bail};

/// A treatment, as a scenario needs it.
#[derive(Clone, Debug, PartialEq)]
pub struct Treatment {
    pub policies: String,
    /// The table of their parameters, in TOML; empty for none.
    pub params: String,
    /// Queries outstanding at most: one a client.
    pub clients: u32,
    /// The factor that the agent makes on the work of each query.
    pub agent: f64,
}

/// By Figure 10 at 1.0 GHz: "about 10 %".
const AGENT: f64 = 1.10;
const CLIENTS: u32 = 4;
const CLIENTS_3X: u32 = 12;
const MIN_KHZ: u64 = 1_000_000;
const MID_KHZ: u64 = 2_000_000;

impl Treatment {
    /// That of a run, by its name; of a baseline at a fixed clock the counters of clocks decide.
    pub fn of(run: &Run) -> Result<Self> {
        match run.role() {
            Role::Baseline => Ok(Self { clients: run.users, ..Self::fixed(clock(&run.measured)?) }),
            Role::HeldOut => Self::by_name(&run.name),
        }
    }

    fn by_name(name: &str) -> Result<Self> {
        let parts: Vec<&str> = name.split('/').collect();
        let unknown = || format!("{name}: no treatment is called so; treatments are folders of the authors");
        let millis = || {
            let text = parts.last().and_then(|text| text.strip_suffix("ms"));
            text.and_then(|text| text.parse().ok()).with_context(unknown)
        };
        let is = |text: &str| parts.get(1).is_some_and(|part| part.contains(text));
        let treatment = match parts[0] {
            "governors" if parts.get(1) == Some(&"ondemand") => Self::ondemand(),
            "governors" if parts.get(1) == Some(&"hurryup") => Self::hurry_up(MIN_KHZ, TURBO_KHZ, 350, 10),
            "governors" if parts.get(1) == Some(&"hurryup-mod") => {
                Self::hurry_up(MID_KHZ, TURBO_KHZ, 350, 10)
            }
            "final" if is("hup-mod") => Self::hurry_up(MID_KHZ, TURBO_KHZ, 450, 50),
            "final" if is("ondemand") => Self::ondemand(),
            "final-3xload" if is("hurryup") => {
                Self { clients: CLIENTS_3X, ..Self::hurry_up(MID_KHZ, TURBO_KHZ, 450, 50) }
            }
            "final-3xload" if is("ondemand") => Self { clients: CLIENTS_3X, ..Self::ondemand() },
            "c-states" => {
                let all = if is("hurryup") {
                    Self::hurry_up(MID_KHZ, TURBO_KHZ, 350, 10)
                } else if is("ondemand") {
                    Self::ondemand()
                } else {
                    bail!(unknown())
                };
                if is("onlyC0") { all.awake() } else { all }
            }
            "sleep-sensitivity" => Self::hurry_up(MID_KHZ, TURBO_KHZ, 300, millis()?),
            "threshold-sensitivity" => Self::hurry_up(MID_KHZ, TURBO_KHZ, millis()?, 10),
            "two-states" if is("2.0") => Self::hurry_up(MID_KHZ, MID_KHZ, 350, 10),
            "two-states" if is("2.6") => Self::hurry_up(TURBO_KHZ, TURBO_KHZ, 350, 10),
            "overhead" if is("1.0") => Self { agent: AGENT, ..Self::fixed(MIN_KHZ) },
            "overhead" if is("2.6") => Self { agent: AGENT, ..Self::fixed(BASE_KHZ) },
            _ => bail!(unknown()),
        };
        Ok(treatment)
    }

    fn fixed(khz: u64) -> Self {
        let params = format!("[params.fixed]\nkhz = {khz}\n");
        Self { policies: "deep + fixed".to_owned(), params, clients: CLIENTS, agent: 1.0 }
    }

    fn ondemand() -> Self {
        let policies = "deep + ondemand".to_owned();
        Self { policies, params: String::new(), clients: CLIENTS, agent: 1.0 }
    }

    fn hurry_up(mid_khz: u64, late_khz: u64, threshold_ms: u64, sleep_ms: u64) -> Self {
        let params = format!(
            "[params.hurry-up-paper]\nf_min = {MIN_KHZ}\nf_mid = {mid_khz}\nf_max = {late_khz}\n\
             threshold = {{ fixed = \"{threshold_ms}ms\" }}\nsleep = \"{sleep_ms}ms\"\n"
        );
        Self { policies: "deep + hurry-up-paper".to_owned(), params, clients: CLIENTS, agent: AGENT }
    }

    fn awake(self) -> Self {
        Self { policies: self.policies.replace("deep", "poll"), ..self }
    }
}

/// The clock of a run at one fixed clock, in kHz: that which had nearly all of the time.
pub(super) fn clock(measured: &Measured) -> Result<u64> {
    let all = measured.seconds();
    let most = measured.seconds_at_khz.iter().max_by(|one, other| one.1.total_cmp(other.1));
    match most {
        Some((khz, seconds)) if seconds / all > 0.9 => Ok(u64::from(*khz)),
        _ => bail!("no clock had nine tenths of the time"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policies(name: &str) -> (String, String, u32, f64) {
        let treatment = Treatment::by_name(name).unwrap();
        (treatment.policies, treatment.params, treatment.clients, treatment.agent)
    }

    #[test]
    fn each_treatment_has_the_papers_parameters() {
        for (name, line, part, clients, agent) in [
            ("governors/ondemand/high/1", "deep + ondemand", "", 4, 1.0),
            ("governors/hurryup/low/2", "deep + hurry-up-paper", "f_mid = 1000000", 4, 1.1),
            ("governors/hurryup-mod/low/2", "deep + hurry-up-paper", "f_mid = 2000000", 4, 1.1),
            ("governors/hurryup-mod/low/2", "deep + hurry-up-paper", "350ms", 4, 1.1),
            ("final/hup-mod-calibrated-high-2", "deep + hurry-up-paper", "450ms", 4, 1.1),
            ("final-3xload/hurryup-calib-midload-mix", "deep + hurry-up-paper", "\"50ms\"", 12, 1.1),
            ("final-3xload/ondemand-calib-midload-high-3", "deep + ondemand", "", 12, 1.0),
            ("c-states/ondemand-onlyC0/low/442", "poll + ondemand", "", 4, 1.0),
            ("c-states/hurryup-onlyC0/low-2", "poll + hurry-up-paper", "\"10ms\"", 4, 1.1),
            ("c-states/hurryup-allstates/low-2", "deep + hurry-up-paper", "350ms", 4, 1.1),
            ("sleep-sensitivity/high/5ms", "deep + hurry-up-paper", "\"5ms\"", 4, 1.1),
            ("sleep-sensitivity/high/5ms", "deep + hurry-up-paper", "300ms", 4, 1.1),
            ("threshold-sensitivity/low/600ms", "deep + hurry-up-paper", "600ms", 4, 1.1),
            ("two-states/2.0ghz/high/1", "deep + hurry-up-paper", "f_max = 2000000", 4, 1.1),
            ("two-states/2.6ghz/high/1", "deep + hurry-up-paper", "f_mid = 2601000", 4, 1.1),
            ("overhead/2.6-hup/1", "deep + fixed", "khz = 2600000", 4, 1.1),
        ] {
            let found = policies(name);
            assert_eq!((found.0.as_str(), found.2, found.3), (line, clients, agent), "{name}");
            assert!(found.1.contains(part), "{name}: {}", found.1);
        }
    }

    #[test]
    fn an_unknown_treatment_is_told() {
        for name in ["nothing", "governors/schedutil/low/1", "c-states/x/low", "sleep-sensitivity/low/many"] {
            let told = Treatment::by_name(name).unwrap_err().to_string();
            assert!(told.contains(name), "{told}");
        }
    }
}
