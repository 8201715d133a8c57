//! Who decides what in a run: one policy for each question, from a line such as `peafowl + teo + pegasus`.
//!
//! The questions are how many cores stay awake, which idle state a core takes, which gear it runs in, and when to be
//! awake at all. A line answers each at most once; what it leaves open is answered as stock Linux does on a server: all
//! cores, the menu governor, the fastest gear, at once.

use crate::Goal;
use crate::engine::{Dispatch, Setup};
use literature::cores::{auto_scale, dream_weaver};
use literature::frequency::{Fixed, adrenaline, crescendo, ondemand, rubik, schedutil};
use literature::idle::GovernorParams;
use literature::timing::{Form, dyn_sleep, sleep_scale, tails, udpm};
use machine::{Duration, Kilohertz, Microwatts, Platform, Ratio};
use policy::active_idle::Mode;
use policy::check::{Check, Wrong};
use policy::frequency::{hurry_up, pegasus, sensitivity};
use policy::registry::{Parameter, clock, table, time};
use policy::{carb, peafowl, quiescence, roost, staging, wake_plan};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use toml::Table;

/// What a clairvoyant does with its knowledge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clairvoyance {
    /// The deepest state whose target residency fits (the Peafowl paper's CISG, section 4.3).
    Fits,
    /// The state of least energy, the wake-up included.
    LeastEnergy,
    /// As `Fits`, and awake again when the event comes: the bound for anticipatory wake-ups.
    Prewake,
}

/// Who chooses idle states.
#[derive(Clone, Debug, PartialEq)]
pub enum IdlePolicy {
    /// A governor per CPU.
    Governor(GovernorParams),
    /// Somebody who knows the future.
    Clairvoyant(Clairvoyance),
}

/// Who decides how many cores are awake.
#[derive(Clone, Debug, PartialEq)]
pub enum CoresPolicy {
    /// Nobody: all are.
    AllAwake,
    /// A search on the response time.
    Carb(carb::Params),
    /// The fewest that keep the goal.
    CarbGoal(carb::GoalParams, Goal),
    /// By the number of requests in the system.
    AutoScale(auto_scale::Params),
    /// The whole machine sleeps when there is nothing to do.
    PowerNap,
    /// The whole machine sleeps when some cores have nothing to do.
    DreamWeaver(dream_weaver::Params),
    /// Cores, gear and idle states together, towards a goal: ours.
    Roost(roost::Params),
    /// Learned limits, connection by connection.
    Peafowl(peafowl::Params),
}

/// Who chooses gears.
#[derive(Clone, Debug, PartialEq)]
pub enum ClockPolicy {
    /// Nobody.
    Fixed(Fixed),
    /// By how busy each core was.
    Ondemand(ondemand::Params),
    /// By the scheduler's average.
    Schedutil(schedutil::Params),
    /// By how much each core's work depends on the clock.
    Sensitivity(sensitivity::Params),
    /// By the measured tail, for all cores alike; and its quantile.
    Pegasus(pegasus::Params, f64),
    /// By the queue, at every request.
    Rubik(rubik::Params),
    /// The same, and each request faster the longer it stays.
    Crescendo(crescendo::Params),
    /// By how long each thread is in the hot function.
    HurryUp(hurry_up::Params),
    /// By class and age.
    Adrenaline(adrenaline::Params),
    /// By playing back the last epoch; idle states as well.
    SleepScale(sleep_scale::Params),
}

/// Who decides when a sleeping core wakes for what waits at it.
#[derive(Clone, Debug, PartialEq)]
pub enum DelayPolicy {
    /// As late as the goal allows, at one speed.
    DynSleep(dyn_sleep::Params),
    /// The same, with the speed that costs least.
    UDpm(udpm::Params),
}

/// Waking CPUs before a device answers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Anticipation {
    /// The planner's constants.
    pub planner: wake_plan::Params,
    /// What is subtracted; the deepest state's true exit latency if absent.
    pub exit_latency: Option<Duration>,
    /// Who says when.
    pub source: AnticipationSource,
}

/// Who says when a device will answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AnticipationSource {
    /// A model of the device's latency.
    Device(wake_plan::DeviceParams),
    /// The history of a repeated computation.
    Kernels(wake_plan::KernelParams),
}

/// All of one contestant's policies.
#[derive(Clone, Debug)]
pub struct Policies {
    /// As given.
    pub line: String,
    /// Idle states.
    pub idle: IdlePolicy,
    /// How many cores.
    pub cores: CoresPolicy,
    /// Gears.
    pub clock: ClockPolicy,
    /// When to wake; at once if nobody says.
    pub delay: Option<DelayPolicy>,
    /// How the CPUs of active workers idle, where connections are placed.
    pub active_idle: Mode,
    /// Wake-ups ahead of a device's answer.
    pub anticipation: Option<Anticipation>,
    /// Other people's work held back; `None` if nobody does.
    pub quiescence: Option<quiescence::Params>,
    /// Bursts, and the time in which a request shall be answered.
    pub staging: Option<(staging::Params, Duration)>,
}

/// Why a line of policies cannot be.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyError {
    /// The key at fault.
    pub key: String,
    /// What is wrong.
    pub problem: String,
    /// What to do.
    pub fix: String,
}

/// One word of a line, and the question that it answers.
enum Answer {
    Cores(CoresPolicy),
    Idle(IdlePolicy),
    Clock(ClockPolicy),
    Delay(DelayPolicy),
    Anticipation(Anticipation),
    Staging(staging::Params, Duration),
    Quiescence(quiescence::Params),
}

/// Every word that a line may have, for messages.
pub const WORDS: &[&str] = &[
    "all-awake",
    "carb",
    "carb-paper",
    "carb-goal",
    "peafowl",
    "peafowl-paper",
    "autoscale",
    "powernap",
    "dreamweaver",
    "roost",
    "roost-plan",
    "poll",
    "shallow",
    "deep",
    "menu",
    "teo",
    "menu-feedback",
    "teo-feedback",
    "clairvoyant",
    "clairvoyant-energy",
    "clairvoyant-prewake",
    "performance",
    "powersave",
    "fixed",
    "ondemand",
    "schedutil",
    "sensitivity",
    "sensitivity-paper",
    "pegasus",
    "rubik",
    "crescendo",
    "hurry-up",
    "hurry-up-paper",
    "adrenaline",
    "sleepscale",
    "dynsleep",
    "dynsleep-published",
    "udpm",
    "udpm-published",
    "anticipate",
    "anticipate-paper",
    "anticipate-kernels",
    "quiesce",
    "staged",
    "staged-paper",
];

/// Those of [`WORDS`] that take no parameters.
pub const WITHOUT_PARAMETERS: &[&str] = &[
    "all-awake",
    "powernap",
    "poll",
    "shallow",
    "deep",
    "clairvoyant",
    "clairvoyant-energy",
    "clairvoyant-prewake",
    "performance",
    "powersave",
];

/// Those of them that decide which idle state a core takes: a line without one takes `menu`.
const DECIDE_IDLE: &[&str] = &[
    "poll",
    "shallow",
    "deep",
    "teo",
    "menu-feedback",
    "teo-feedback",
    "clairvoyant",
    "clairvoyant-energy",
    "clairvoyant-prewake",
    "roost-plan",
    "sleepscale",
    "dynsleep",
    "dynsleep-published",
    "udpm",
    "udpm-published",
];

/// The words whose parameters a line may look at: its own, and those that it stands for.
pub fn words_of(line: &str) -> Vec<&str> {
    let mut words: Vec<&str> = line.split('+').map(str::trim).collect();
    if words.contains(&"roost") {
        // By dispatch and by what the line leaves open, see `Policies::parse`.
        words.extend(["crescendo", "peafowl"]);
    }
    if !words.iter().any(|word| DECIDE_IDLE.contains(word)) {
        words.push("menu");
    }
    words
}

impl Policies {
    /// Reads a line such as `peafowl + teo + pegasus`; parameters stand in tables of the words' names.
    pub fn parse(
        line: &str,
        params: &BTreeMap<String, Table>,
        goal: Option<Goal>,
        platform: &Platform,
        tick: Option<Duration>,
        dispatch: Dispatch,
    ) -> Result<Self, PolicyError> {
        if let Some(unknown) = params.keys().find(|name| !WORDS.contains(&name.as_str())) {
            return Err(unknown_word(unknown, &format!("params.{unknown}")));
        }
        if let Some(word) = params.keys().find(|name| WITHOUT_PARAMETERS.contains(&name.as_str())) {
            return Err(PolicyError {
                key: format!("params.{word}"),
                problem: format!("`{word}` takes no parameters"),
                fix: format!("leave the table [params.{word}] out"),
            });
        }
        let reader = Reader { params, goal, platform, tick, dispatch };
        let mut policies = Self {
            line: line.to_owned(),
            idle: IdlePolicy::Governor(reader.governor("menu")?),
            cores: CoresPolicy::AllAwake,
            clock: ClockPolicy::Fixed(Fixed::Performance),
            delay: None,
            active_idle: Mode::Halt,
            anticipation: None,
            quiescence: None,
            staging: None,
        };
        let mut answered: Vec<(&str, &str)> = Vec::new();
        for word in line.split('+').map(str::trim) {
            let question = match reader.word(word)? {
                Answer::Cores(cores) => {
                    policies.cores = cores;
                    "how many cores"
                }
                Answer::Idle(idle) => {
                    policies.idle = idle;
                    "which idle state"
                }
                Answer::Clock(clock) => {
                    policies.clock = clock;
                    "which gear"
                }
                Answer::Delay(delay) => {
                    policies.delay = Some(delay);
                    "when to wake"
                }
                Answer::Anticipation(anticipation) => {
                    policies.anticipation = Some(anticipation);
                    "when a device answers"
                }
                Answer::Quiescence(params) => {
                    policies.quiescence = Some(params);
                    "what is held back"
                }
                Answer::Staging(params, goal) => {
                    policies.staging = Some((params, goal));
                    "when requests are let in"
                }
            };
            if let Some((_, other)) = answered.iter().find(|(answer, _)| *answer == question) {
                return Err(PolicyError {
                    key: "policies".into(),
                    problem: format!("`{line}`: both {other} and {word} decide {question}"),
                    fix: "name one of them".into(),
                });
            }
            answered.push((question, word));
        }
        // Ours chooses cores and idle states by plan, and gears request by request unless told otherwise.
        let by_request = answered.iter().any(|(_, word)| *word == "roost");
        let gears_open = !answered.iter().any(|(question, _)| *question == "which gear");
        if by_request
            && gears_open
            && let Answer::Clock(clock) = reader.word("crescendo")?
        {
            policies.clock = clock;
        }
        policies.settle(&answered)?;
        Ok(policies)
    }

    /// Some policies answer a second question as well.
    fn settle(&self, answered: &[(&str, &str)]) -> Result<(), PolicyError> {
        let taken: &[&str] = match (&self.delay, &self.clock, &self.cores) {
            (Some(DelayPolicy::UDpm(_)), ..) => &["which idle state", "which gear"],
            (Some(DelayPolicy::DynSleep(_)), ..) => &["which idle state"],
            (None, _, CoresPolicy::Roost(_)) => &["which idle state"],
            (None, ClockPolicy::SleepScale(_), _) => &["which idle state"],
            _ => &[],
        };
        match answered.iter().find(|(question, _)| taken.contains(question)) {
            None => Ok(()),
            Some((question, word)) => Err(PolicyError {
                key: "policies".into(),
                problem: format!("`{}`: {question} is decided already, without {word}", self.line),
                fix: format!("leave {word} out"),
            }),
        }
    }

    /// It may answer overload with more cores or more speed.
    pub fn adapts(&self) -> bool {
        !matches!(self.clock, ClockPolicy::Fixed(_))
            || self.delay.is_some()
            || self.staging.is_some()
            || self.cores != CoresPolicy::AllAwake
    }

    /// The service has what the policies need.
    pub fn check_fit(&self, setup: &Setup) -> Result<(), PolicyError> {
        let needs = |key: &str, problem: &str, fix: &str| {
            let (key, problem, fix) = (key.to_owned(), format!("`{}` {problem}", self.line), fix.to_owned());
            Err(PolicyError { key, problem, fix })
        };
        let own_queues =
            matches!(setup.dispatch, Dispatch::Random | Dispatch::RoundRobin | Dispatch::Connections);
        if matches!(self.idle, IdlePolicy::Clairvoyant(_)) {
            let foreseeable = own_queues && setup.closed.is_none() && setup.workers == setup.platform.cpus();
            let problem = "must know which core each request will go to";
            if !own_queues {
                return needs("server.dispatch", problem, OWN_QUEUES);
            }
            if !foreseeable {
                let (key, fix) = if setup.closed.is_some() {
                    (
                        "server.clients",
                        "leave the table [server.clients] out: replies decide when its requests come",
                    )
                } else {
                    ("server.workers", "leave server.workers out: every CPU has to serve")
                };
                return needs(key, problem, fix);
            }
            if self.cores != CoresPolicy::AllAwake {
                let fix = "leave out the word that decides how many cores are awake: all of them have to be";
                return needs("policies", problem, fix);
            }
        }
        if matches!(self.cores, CoresPolicy::Peafowl(_)) && setup.dispatch != Dispatch::Connections {
            let problem = "packs connections, and this service does not go by connection";
            let fix = "set server.dispatch = \"connections\", and workload.connections to how many there are";
            return needs("server.dispatch", problem, fix);
        }
        if self.anticipation.is_some() && setup.device.is_none() {
            return needs("server.device", "foresees the answers of a device, and there is none", ADD_DEVICE);
        }
        if self.quiescence.is_some() && setup.device.is_none() {
            let problem = "acts while requests wait for a device, and there is none";
            return needs("server.device", problem, ADD_DEVICE);
        }
        if self.delay.is_some() && !own_queues {
            let problem = "delays each core's own queue, and the cores have none";
            return needs("server.dispatch", problem, OWN_QUEUES);
        }
        Ok(())
    }
}

/// What to do for a policy that looks at one core's queue.
const OWN_QUEUES: &str = "set server.dispatch = \"random\", \"round-robin\" or \"connections\"";

/// What to do for a policy that looks at a device.
const ADD_DEVICE: &str = "add a table [server.device] with latency = \"ssd-read\" and interrupt = \"2us\", or what the device is like";

fn unknown_word(word: &str, key: &str) -> PolicyError {
    PolicyError {
        key: key.to_owned(),
        problem: format!("no policy is called `{word}`"),
        fix: format!("one of: {}", WORDS.join(", ")),
    }
}

/// What a word's parameters are made of.
struct Reader<'a> {
    params: &'a BTreeMap<String, Table>,
    goal: Option<Goal>,
    platform: &'a Platform,
    tick: Option<Duration>,
    dispatch: Dispatch,
}

impl Reader<'_> {
    fn word(&self, word: &str) -> Result<Answer, PolicyError> {
        let goal = || {
            self.goal.ok_or_else(|| PolicyError {
                key: "goal".into(),
                problem: format!("{word} works towards a latency goal, and there is none"),
                fix: "add one, such as goal = \"300us@p99\"".into(),
            })
        };
        let tails = |goal: Goal| tails::Params { quantile: Ratio::new(goal.quantile), ..Default::default() };
        let table = &self.platform.frequencies;
        let switch = table.delay + table.stall;
        let by_queue = |goal: Goal| rubik::Params {
            target: goal.latency,
            quantile: goal.quantile,
            dvfs_delay: switch,
            ..Default::default()
        };
        Ok(match word {
            "all-awake" => Answer::Cores(CoresPolicy::AllAwake),
            "carb" => Answer::Cores(CoresPolicy::Carb(self.with(word, carb::Params::default())?)),
            "carb-paper" => Answer::Cores(CoresPolicy::Carb(self.with(word, carb::Params::paper())?)),
            "carb-goal" => {
                let params = self.with(word, carb::GoalParams::default())?;
                if self.dispatch == Dispatch::Connections {
                    return Err(PolicyError {
                        key: "policies".into(),
                        problem: "`carb-goal` counts cores for work that any of them can take, and connections have workers"
                            .into(),
                        fix: "write carb, or peafowl with a goal; or set another server.dispatch".into(),
                    });
                }
                Answer::Cores(CoresPolicy::CarbGoal(params, goal()?))
            }
            "peafowl" => {
                let params = peafowl::Params {
                    latency_goal: self.goal.map(|goal| goal.latency),
                    ..Default::default()
                };
                Answer::Cores(CoresPolicy::Peafowl(self.with(word, params)?))
            }
            "peafowl-paper" => {
                Answer::Cores(CoresPolicy::Peafowl(self.with(word, peafowl::Params::paper())?))
            }
            // On a store connections are what can be packed, and Peafowl does that; the goal is then the gears'.
            "roost" if self.dispatch == Dispatch::Connections => {
                if self.params.contains_key(word) {
                    return Err(PolicyError {
                        key: "params.roost".into(),
                        problem: "`roost` takes no parameters where connections are packed: it does that as `peafowl`"
                            .into(),
                        fix: "write them below [params.peafowl], or set another server.dispatch".into(),
                    });
                }
                self.word("peafowl")?
            }
            "roost" | "roost-plan" => {
                let goal = goal()?;
                let queueing = if self.dispatch == Dispatch::Shared {
                    roost::Queueing::Shared
                } else {
                    roost::Queueing::PerCore
                };
                let params = roost::Params {
                    target: goal.latency,
                    quantile: goal.quantile,
                    dvfs_delay: switch,
                    queueing,
                    paced_elsewhere: word == "roost",
                    ..Default::default()
                };
                Answer::Cores(CoresPolicy::Roost(self.with(word, params)?))
            }
            "autoscale" => Answer::Cores(CoresPolicy::AutoScale(self.with(word, Default::default())?)),
            "powernap" => Answer::Cores(CoresPolicy::PowerNap),
            "dreamweaver" => Answer::Cores(CoresPolicy::DreamWeaver(self.with(word, Default::default())?)),
            "clairvoyant" => Answer::Idle(IdlePolicy::Clairvoyant(Clairvoyance::Fits)),
            "clairvoyant-energy" => Answer::Idle(IdlePolicy::Clairvoyant(Clairvoyance::LeastEnergy)),
            "clairvoyant-prewake" => Answer::Idle(IdlePolicy::Clairvoyant(Clairvoyance::Prewake)),
            "performance" => Answer::Clock(ClockPolicy::Fixed(Fixed::Performance)),
            "powersave" => Answer::Clock(ClockPolicy::Fixed(Fixed::Powersave)),
            "fixed" => {
                let nominal = table.nominal();
                let FixedParams { khz } = self.with(word, FixedParams { khz: nominal })?;
                Answer::Clock(ClockPolicy::Fixed(Fixed::Userspace(khz)))
            }
            "ondemand" => Answer::Clock(ClockPolicy::Ondemand(self.with(word, Default::default())?)),
            "schedutil" => Answer::Clock(ClockPolicy::Schedutil(self.with(word, Default::default())?)),
            "sensitivity" => Answer::Clock(ClockPolicy::Sensitivity(self.with(word, Default::default())?)),
            "sensitivity-paper" => {
                Answer::Clock(ClockPolicy::Sensitivity(self.with(word, sensitivity::Params::paper())?))
            }
            "pegasus" => {
                let goal = goal()?;
                let params = pegasus::Params { target: goal.latency, ..Default::default() };
                Answer::Clock(ClockPolicy::Pegasus(self.with(word, params)?, goal.quantile))
            }
            "rubik" => Answer::Clock(ClockPolicy::Rubik(self.with(word, by_queue(goal()?))?)),
            "crescendo" => {
                let (uncore, package) = (self.platform.uncore, self.platform.package);
                // Where connections are packed, active cores wait in their shallowest state; others in their deepest.
                let states = &self.platform.cstates.0;
                let packed = self.dispatch == Dispatch::Connections;
                let waits = if packed { states.first() } else { states.last() };
                let params = crescendo::Params {
                    rubik: by_queue(goal()?),
                    asleep: waits.and_then(|state| state.power).unwrap_or_default(),
                    // Nothing is saved where the package never sleeps.
                    shared: package.map_or(Microwatts(0), |package| {
                        Microwatts(uncore.0.saturating_sub(package.power.0))
                    }),
                };
                Answer::Clock(ClockPolicy::Crescendo(self.with(word, params)?))
            }
            "hurry-up" => Answer::Clock(ClockPolicy::HurryUp(self.with(word, hurry_up::Params::default())?)),
            "hurry-up-paper" => {
                Answer::Clock(ClockPolicy::HurryUp(self.with(word, hurry_up::Params::paper())?))
            }
            "adrenaline" => Answer::Clock(ClockPolicy::Adrenaline(self.with(word, Default::default())?)),
            "anticipate" | "anticipate-paper" => {
                let mut base = AnticipateDevice::default();
                if word == "anticipate-paper" {
                    base.planner = wake_plan::Params::paper();
                    base.exit_latency = Some(PAPERS_LEAD);
                }
                let AnticipateDevice { planner, exit_latency, device } = self.with(word, base)?;
                let source = AnticipationSource::Device(device);
                Answer::Anticipation(Anticipation { planner, exit_latency, source })
            }
            "anticipate-kernels" => {
                let params = self.with(word, AnticipateKernels::default())?;
                let AnticipateKernels { planner, exit_latency, kernels } = params;
                let source = AnticipationSource::Kernels(kernels);
                Answer::Anticipation(Anticipation { planner, exit_latency, source })
            }
            "quiesce" => Answer::Quiescence(self.with(word, Default::default())?),
            "staged" => Answer::Staging(self.with(word, staging::Params::default())?, goal()?.latency),
            "staged-paper" => Answer::Staging(self.with(word, staging::Params::paper())?, goal()?.latency),
            "sleepscale" => {
                let goal = goal()?;
                let queueing = if self.dispatch == Dispatch::Shared {
                    sleep_scale::Queueing::Shared
                } else {
                    sleep_scale::Queueing::PerCore
                };
                let params = sleep_scale::Params {
                    goal: goal.latency,
                    quantile: Ratio::new(goal.quantile),
                    queueing,
                    ..Default::default()
                };
                Answer::Clock(ClockPolicy::SleepScale(self.with(word, params)?))
            }
            "dynsleep" | "dynsleep-published" => {
                let goal = goal()?;
                let form = if word == "dynsleep" { Form::Exact } else { Form::Published };
                let params = dyn_sleep::Params { goal: goal.latency, form, tails: tails(goal) };
                Answer::Delay(DelayPolicy::DynSleep(self.with(word, params)?))
            }
            "udpm" | "udpm-published" => {
                let goal = goal()?;
                let form = if word == "udpm" { Form::Exact } else { Form::Published };
                let params = udpm::Params {
                    goal: goal.latency,
                    form,
                    switch,
                    tails: tails(goal),
                    ..Default::default()
                };
                Answer::Delay(DelayPolicy::UDpm(self.with(word, params)?))
            }
            governor => Answer::Idle(IdlePolicy::Governor(self.governor(governor)?)),
        })
    }

    fn governor(&self, word: &str) -> Result<GovernorParams, PolicyError> {
        let params = GovernorParams::by_name(word).ok_or_else(|| unknown_word(word, "policies"))?;
        self.with(word, self.tick.map_or(params, |tick| params.with_tick(tick)))
    }

    /// `base` with the keys that the scenario gives for it; a key within a key replaces only that.
    fn with<T: Check + Serialize + DeserializeOwned>(&self, word: &str, base: T) -> Result<T, PolicyError> {
        let Some(overrides) = self.params.get(word) else { return Ok(base) };
        let wrong = |problem: String| PolicyError {
            key: format!("params.{word}"),
            problem,
            fix: "see the parameters of the policy in docs/scenarios.md".into(),
        };
        let mut table = Table::try_from(&base).map_err(|error| wrong(error.to_string()))?;
        merge(&mut table, overrides);
        if let Some(key) = not_finite(&table) {
            return Err(PolicyError {
                key: format!("params.{word}.{key}"),
                problem: "is not finite".into(),
                fix: "write a number".into(),
            });
        }
        let params: T =
            table.try_into().map_err(|error: toml::de::Error| wrong(error.message().to_owned()))?;
        params.check().map(|()| params).map_err(|Wrong { key, problem, fix }| PolicyError {
            key: format!("params.{word}.{key}"),
            problem,
            fix,
        })
    }
}

/// `fixed`'s one parameter.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FixedParams {
    khz: Kilohertz,
}

impl Check for FixedParams {
    const PARAMETERS: &'static [Parameter] = &[clock("khz", "the frequency").given("nominal")];
}

/// The CPU sleeps paper (section 2) begins to wake 80 us after the submission of a read that takes 100.
const PAPERS_LEAD: Duration = Duration::from_micros(20);

/// `anticipate`'s parameters.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AnticipateDevice {
    planner: wake_plan::Params,
    #[serde(default, with = "machine::duration_text::optional")]
    exit_latency: Option<Duration>,
    device: wake_plan::DeviceParams,
}

impl Check for AnticipateDevice {
    const PARAMETERS: &'static [Parameter] = &[
        table("planner", "the planner's", wake_plan::Params::PARAMETERS),
        time("exit_latency", "what waking takes").absent("the deepest state's"),
        table("device", "who says when", wake_plan::DeviceParams::PARAMETERS),
    ];
}

/// `anticipate-kernels`'.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AnticipateKernels {
    planner: wake_plan::Params,
    #[serde(default, with = "machine::duration_text::optional")]
    exit_latency: Option<Duration>,
    kernels: wake_plan::KernelParams,
}

impl Check for AnticipateKernels {
    const PARAMETERS: &'static [Parameter] = &[
        table("planner", "the planner's", wake_plan::Params::PARAMETERS),
        time("exit_latency", "what waking takes").absent("the deepest state's"),
        table("kernels", "who says when", wake_plan::KernelParams::PARAMETERS),
    ];
}

/// The first number that is none, dotted; parameters are finite, whatever they mean.
fn not_finite(table: &Table) -> Option<String> {
    fn search(value: &toml::Value) -> Option<String> {
        match value {
            toml::Value::Float(number) => (!number.is_finite()).then(String::new),
            toml::Value::Table(table) => not_finite(table).map(|key| format!(".{key}")),
            toml::Value::Array(values) => {
                values.iter().enumerate().find_map(|(at, value)| Some(format!(".{at}{}", search(value)?)))
            }
            _ => None,
        }
    }
    table.iter().find_map(|(name, value)| Some(format!("{name}{}", search(value)?)))
}

fn merge(base: &mut Table, overrides: &Table) {
    for (key, value) in overrides {
        match (base.get_mut(key), value) {
            (Some(toml::Value::Table(inner)), toml::Value::Table(changes)) => merge(inner, changes),
            _ => {
                base.insert(key.clone(), value.clone());
            }
        }
    }
}
