//! Turns a scenario into its runs.

use super::{Document, Machine, Scenario, ScenarioError, Turbo};
use crate::Goal;
use crate::engine::{Dispatch, MAX_CPUS, Nic, Setup};
use crate::policies::{Policies, registries, table_of, takes_parameters, words_of};
use crate::statistics::Horizon;
use machine::{CstateTable, Duration, Kilohertz, Microwatts, PackageState, Platform, PowerCap, TurboBin};
use workload::{Distribution, Jobs, Sampler};

/// One contestant: a name and the scenario that it runs in.
#[derive(Clone, Debug)]
pub struct Contestant {
    /// As tables and plots call it.
    pub name: String,
    pub policies: String,
    /// The scenario with its changes applied.
    pub document: Document,
}

impl Document {
    /// All that run: the variants, or else one for each policy.
    pub fn contestants(&self) -> Result<Vec<Contestant>, ScenarioError> {
        let scenario = self.scenario()?;
        let plain = |policies: &String| Contestant {
            name: policies.clone(),
            policies: policies.clone(),
            document: self.clone(),
        };
        if scenario.variant.is_empty() {
            let policies =
                if scenario.policies.is_empty() { vec!["menu".to_owned()] } else { scenario.policies };
            return Ok(policies.iter().map(plain).collect());
        }
        // A variant without policies of its own is tried with each of the scenario's.
        let mut contestants = Vec::new();
        for variant in &scenario.variant {
            let mut document = self.clone();
            for (key, value) in &variant.set {
                document = document.with(key, value)?;
            }
            if !variant.policies.is_empty() || scenario.policies.is_empty() {
                let name = variant.name.clone();
                let policies =
                    if variant.policies.is_empty() { "menu".into() } else { variant.policies.clone() };
                contestants.push(Contestant { name, policies, document });
            } else {
                contestants.extend(scenario.policies.iter().map(|policies| Contestant {
                    name: format!("{}: {policies}", variant.name),
                    policies: policies.clone(),
                    document: document.clone(),
                }));
            }
        }
        Ok(contestants)
    }

    pub(super) fn wrong(&self, key: &str, problem: impl Into<String>, fix: &str) -> ScenarioError {
        let (problem, fix) = (problem.into(), fix.to_owned());
        ScenarioError::Wrong { path: self.path().to_owned(), key: key.to_owned(), problem, fix }
    }

    /// An error of the load, with this document's name.
    pub(crate) fn wrong_load(&self, error: &workload::SpecError) -> ScenarioError {
        self.wrong("workload", error.to_string(), "see docs/scenarios.md for what a workload can be")
    }

    pub(super) fn sampler(&self, key: &str, distribution: &Distribution) -> Result<Sampler, ScenarioError> {
        distribution.sampler().map_err(|error| {
            self.wrong(key, error.to_string(), "see docs/scenarios.md for the distributions")
        })
    }

    /// The machine of the scenario, checked.
    pub fn platform(&self, scenario: &Scenario) -> Result<Platform, ScenarioError> {
        let table = &scenario.machine;
        let mut platform = Platform::by_name(&table.preset).ok_or_else(|| {
            let known: Vec<String> = Platform::presets().into_iter().map(|preset| preset.name).collect();
            let problem = format!("no machine is called `{}`", table.preset);
            self.wrong("machine.preset", problem, &format!("one of: {}", known.join(", ")))
        })?;
        self.check_watts(table)?;
        platform.sockets = table.sockets.unwrap_or(platform.sockets);
        platform.cores_per_socket = table.cores.unwrap_or(platform.cores_per_socket);
        platform.threads_per_core = table.threads.unwrap_or(platform.threads_per_core);
        platform.turbo.clear();
        match &table.turbo {
            Turbo::Preset(false) => {}
            Turbo::Preset(true) => platform = platform.with_turbo(),
            Turbo::Bins(bins) => {
                platform.turbo.extend(bins.iter().map(|bin| TurboBin {
                    cores: bin.cores,
                    frequency: Kilohertz(bin.khz),
                    power: Microwatts::from_watts(bin.watts),
                }));
            }
        }
        platform.poll_share = table.poll_share.unwrap_or(platform.poll_share);
        platform.waking = table.waking.unwrap_or(platform.waking);
        if table.package == Some(false) {
            platform.package = None;
        }
        for (watts, place) in
            [(table.uncore_watts, &mut platform.uncore), (table.rest_watts, &mut platform.rest)]
        {
            if let Some(watts) = watts {
                *place = Microwatts::from_watts(watts);
            }
        }
        if let Some(clock) = &table.uncore_clock {
            platform = self.with_uncore_at(platform, clock)?;
        }
        if let Some(cstates) = &table.cstates {
            platform.cstates = CstateTable(cstates.clone());
        }
        for (name, changes) in &table.cstate {
            let Some(state) = platform.cstates.0.iter_mut().find(|state| state.name == *name) else {
                let names: Vec<&str> = platform.cstates.0.iter().map(|state| state.name.as_str()).collect();
                let (key, problem) = (format!("machine.cstate.{name}"), "the machine has no such idle state");
                return Err(self.wrong(&key, problem, &format!("one of: {}", names.join(", "))));
            };
            state.exit_latency = changes.exit_latency.map_or(state.exit_latency, |time| time.0);
            state.true_exit_latency =
                changes.true_exit_latency.map(|time| time.0).or(state.true_exit_latency);
            state.target_residency = changes.target_residency.map_or(state.target_residency, |time| time.0);
            state.power = changes.watts.map(Microwatts::from_watts).or(state.power);
        }
        if let Some(watts) = table.package_watts {
            let deepest = platform.cstates.0.len().saturating_sub(1) as u8;
            let package = platform.package.get_or_insert(PackageState {
                from_state: deepest,
                power: Microwatts(0),
                exit_latency: Duration::ZERO,
            });
            package.power = Microwatts::from_watts(watts);
        }
        if let Some(cap) = &table.cap {
            platform.cap = Some(PowerCap { power: Microwatts::from_watts(cap.watts), window: cap.window.0 });
        }
        platform.warming = table.warming.unwrap_or(platform.warming);
        if let Some(frequencies) = &table.frequencies {
            platform.frequencies = frequencies.clone();
        }
        if let Some(package) = &platform.package
            && usize::from(package.from_state) >= platform.cstates.0.len()
        {
            let (needs, has) = (package.from_state + 1, platform.cstates.0.len());
            let problem = format!(
                "the preset's sockets sleep once all cores are in state {needs}, and there are {has}"
            );
            let fix = "set machine.package = false, or list as many states as the preset has";
            return Err(self.wrong("machine.cstates", problem, fix));
        }
        platform
            .check()
            .map_err(|error| self.wrong(&format!("machine.{}", error.key), error.problem, &error.fix))?;
        if platform.cpus() > MAX_CPUS {
            let problem = format!("{} CPUs", platform.cpus());
            return Err(self.wrong(
                "machine",
                problem,
                &format!("at most {MAX_CPUS}: take fewer sockets or threads"),
            ));
        }
        if !(1..=2).contains(&platform.threads_per_core) {
            let problem = format!("{} threads per core", platform.threads_per_core);
            return Err(self.wrong("machine.threads", problem, "1 or 2"));
        }
        Ok(platform)
    }

    /// The machine with its uncore at the clock that `text` names.
    fn with_uncore_at(&self, platform: Platform, text: &str) -> Result<Platform, ScenarioError> {
        let key = "machine.uncore_clock";
        let clock: Kilohertz =
            text.parse().map_err(|problem| self.wrong(key, problem, "such as \"1.6GHz\""))?;
        let Some(of) = platform.uncore_clock else {
            let problem = format!("the uncore of {} has one clock", platform.name);
            return Err(self.wrong(
                key,
                problem,
                "leave it out, or take a preset of Intel's from Skylake-SP on",
            ));
        };
        platform.with_uncore_at(clock).ok_or_else(|| {
            let fix = format!("{} to {}", of.slowest, of.fastest);
            self.wrong(key, format!("{clock} is beyond what the uncore can do"), &fix)
        })
    }

    /// Powers are zero or more, wherever the machine has one.
    fn check_watts(&self, table: &Machine) -> Result<(), ScenarioError> {
        let mut all = vec![
            ("machine.uncore_watts".to_owned(), table.uncore_watts),
            ("machine.rest_watts".to_owned(), table.rest_watts),
            ("machine.package_watts".to_owned(), table.package_watts),
            ("machine.cap.watts".to_owned(), table.cap.map(|cap| cap.watts)),
        ];
        let states = table.cstate.iter();
        all.extend(states.map(|(name, state)| (format!("machine.cstate.{name}.watts"), state.watts)));
        if let Turbo::Bins(bins) = &table.turbo {
            let bins = bins.iter().enumerate();
            all.extend(bins.map(|(place, bin)| (format!("machine.turbo.{place}.watts"), Some(bin.watts))));
        }
        match all
            .into_iter()
            .find(|(_, watts)| watts.is_some_and(|watts| !(watts >= 0.0 && watts.is_finite())))
        {
            Some((key, Some(watts))) => Err(self.wrong(&key, format!("{watts} W"), "give zero or more")),
            _ => Ok(()),
        }
    }

    /// Every parameter that the file gives is one of a policy that some contestant has.
    pub fn check_params(&self) -> Result<(), ScenarioError> {
        let scenario = self.scenario()?;
        let params = scenario.params.keys().map(|word| format!("params.{word}"));
        let set = scenario.variant.iter().flat_map(|variant| variant.set.keys().cloned());
        self.check_used(params.chain(set).chain(scenario.sweep.keys().cloned()))
    }

    /// Those of these dotted keys that are parameters hold for some contestant. Unknown
    /// policies are reported elsewhere.
    pub fn check_used(&self, keys: impl Iterator<Item = String>) -> Result<(), ScenarioError> {
        let scenario = self.scenario()?;
        let contestants = self.contestants()?;
        let fleet = scenario.fleet.iter().flat_map(|fleet| &fleet.policies);
        let lines: Vec<&String> =
            contestants.iter().map(|contestant| &contestant.policies).chain(fleet).collect();
        let is_used =
            |word: &str| lines.iter().any(|line| words_of(line).into_iter().any(|own| table_of(own) == word));
        for key in keys {
            let Some(word) = key.strip_prefix("params.").and_then(|rest| rest.split('.').next()) else {
                continue;
            };
            // Those that take none are told of elsewhere too.
            if takes_parameters(word) && !is_used(word) {
                let has: Vec<String> = lines.iter().map(|line| format!("`{line}`")).collect();
                let problem = format!("no contestant has the policy `{word}`: there are {}", has.join(", "));
                let fix = format!("leave it out, or add `{word}` to a line of policies");
                return Err(self.wrong(&format!("params.{word}"), problem, &fix));
            }
        }
        Ok(())
    }

    /// The setup of one run of `policies`, and its load.
    pub fn setup(&self, policies: &str, seed: u64) -> Result<(Setup, Jobs), ScenarioError> {
        let scenario = self.scenario()?;
        let platform = self.platform(&scenario)?;
        let (server, run) = (&scenario.server, &scenario.run);
        let workers = server.workers.map_or(platform.cpus(), usize::from);
        if workers == 0 || workers > platform.cpus() {
            let problem = format!("{workers} workers on {} CPUs", platform.cpus());
            return Err(self.wrong(
                "server.workers",
                problem,
                "at least one, and no more than there are CPUs",
            ));
        }
        if server.active_idle.is_some() && server.dispatch != Dispatch::Connections {
            let problem = "only a policy that places connections tells active workers from parked ones";
            let fix = "set server.dispatch = \"connections\", or leave it out and name an idle policy, \
                       such as `poll`";
            return Err(self.wrong("server.active_idle", problem, fix));
        }
        let nic = server.nic.as_ref().map(|table| Nic {
            receive: table.receive.0,
            transmit: table.transmit.0,
            on: table.on.clone(),
        });
        let (closed, depth) = match &server.clients {
            None => (None, None),
            Some(clients) => self.clients(clients)?,
        };
        let jobs = self.jobs(&scenario, workers, seed)?;
        let shards = self.shards(server, workers, &jobs)?;
        let mean_rate = closed.is_none().then(|| jobs.mean_rate().as_per_second());
        let noise = self.noises(server, mean_rate, platform.cpus())?;
        let timer = scenario.machine.timer.map_or(Duration::from_millis(200), |timer| timer.0);
        if timer.is_zero() {
            return Err(self.wrong("machine.timer", "0", "give a period, such as 200ms"));
        }
        let waking_spread = scenario.machine.waking_spread.unwrap_or(0.0);
        if !(0.0..=MOST_SPREAD).contains(&waking_spread) {
            let fix = "give 0 to 2: 0.5 puts the 90th percentile at 1.9 times the median";
            return Err(self.wrong("machine.waking_spread", waking_spread.to_string(), fix));
        }
        let tick = scenario.machine.tick.map_or(Some(Duration::from_millis(4)), |tick| tick.0);
        // The goal is the client's; the server has less, by the time outside it.
        let outside = server.outside.map_or(Duration::ZERO, |time| time.0);
        let goal = scenario.goal.map(|goal| Goal { latency: goal.latency - outside, ..goal });
        if goal.is_some_and(|goal| goal.latency == Duration::ZERO) {
            let problem = format!("no longer than the {} that lie outside the server", outside);
            return Err(self.wrong("goal", problem, "raise it, or lower server.outside"));
        }
        let policies = Policies::parse(
            &registries(),
            policies,
            &scenario.params,
            goal,
            &platform,
            tick,
            (server.dispatch, server.stealing.is_some()),
        )
        .map_err(|error| self.wrong(&error.key, error.problem, &error.fix))?;
        let horizon = run.horizon.unwrap_or_else(|| {
            // A rate that never changes is steady; a trace is a story.
            let mean = jobs.mean_rate().as_per_second();
            let steady =
                jobs.profile().is_some_and(|profile| profile.peak().as_per_second() <= mean * (1.0 + 1e-9));
            if steady || closed.is_some() { Horizon::Steady } else { Horizon::Whole }
        });
        let setup = Setup {
            tick,
            timer,
            waking_spread,
            tick_cost: scenario.machine.tick_cost.map_or(Duration::from_micros(2), |cost| cost.0),
            platform,
            dispatch: server.dispatch,
            pick: server.pick,
            workers,
            threads: self.threads(server)?,
            noise,
            nic,
            device: self.device(server)?,
            stealing: self.stealing(server)?,
            transfer: server.transfer.map_or(Duration::from_micros(20), |time| time.0),
            active_idle: server.active_idle.unwrap_or_default(),
            learned_limit: server.learned_limit,
            shards,
            closed,
            depth,
            policies,
            goal: scenario.goal,
            requests: run.requests,
            length: run.length.map(|length| length.0),
            outside,
            horizon,
            precision: run.precision,
            samples: run.samples,
            seed,
        };
        self.check_fit(&setup)?;
        Ok((setup, jobs))
    }

    /// Policies that need something of the service have it.
    fn check_fit(&self, setup: &Setup) -> Result<(), ScenarioError> {
        setup.policies.check_fit(setup).map_err(|error| self.wrong(&error.key, error.problem, &error.fix))
    }

    fn jobs(&self, scenario: &Scenario, workers: usize, seed: u64) -> Result<Jobs, ScenarioError> {
        let refused = |error: workload::SpecError| self.wrong_load(&error);
        let length = scenario.run.length.map_or(Duration::from_secs(60), |length| length.0);
        let mut demand = scenario.workload.clone();
        demand.seed = seed;
        if let Some(utilisation) = scenario.run.utilisation {
            if !(utilisation > 0.0 && utilisation.is_finite()) {
                let problem = utilisation.to_string();
                return Err(self.wrong("run.utilisation", problem, "a share above 0, such as 0.8"));
            }
            if demand.rate.is_some() {
                let problem = "both a rate and a utilisation";
                return Err(self.wrong("run.utilisation", problem, "give workload.rate or run.utilisation"));
            }
            demand.rate = Some(machine::Rate::per_second(1.0));
            let mean = demand.jobs(length).map_err(refused)?.mean_service().as_secs_f64();
            let requests = workers as f64 / scenario.server.pieces(workers);
            demand.rate = Some(machine::Rate::per_second(utilisation * requests / mean));
        }
        let is_closed = scenario.server.clients.as_ref().is_some_and(|clients| clients.count.is_some());
        if is_closed && demand.rate.is_none() {
            // A closed loop has no rate of its own; its jobs' times are not looked at.
            demand.rate = Some(machine::Rate::per_second(1.0));
        }
        demand.jobs(length).map_err(refused)
    }
}

/// The mean of a lognormal time with more is 7 medians.
const MOST_SPREAD: f64 = 2.0;
