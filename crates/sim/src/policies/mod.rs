//! Who decides what in a run: one policy for each question, from a line such as `peafowl + teo +
//! pegasus`.
//!
//! The questions are how many cores stay awake, which idle state a core takes, which gear it runs
//! in, and when to be awake at all. A line answers each at most once; what it leaves open is
//! answered as stock Linux does on a server: all cores, the menu governor, the fastest gear, at
//! once.

mod answers;
mod clairvoyant;

pub use clairvoyant::Clairvoyance;

use crate::Goal;
use crate::engine::{Dispatch, Setup};
use answers::{Answer, Chosen};
use literature::cores::{auto_scale, dream_weaver};
use literature::frequency::{Fixed, adrenaline, crescendo, ondemand, rubik, schedutil};
use literature::idle::GovernorParams;
use literature::timing::{dyn_sleep, sleep_scale, udpm};
use machine::{Duration, Platform};
use policy::active_idle::Mode;
use policy::check::Wrong;
use policy::frequency::{hurry_up, pegasus, sensitivity};
use policy::registry::{self, Entry, Question, Queues, Refused, Registry, Surroundings, Word};
use policy::{carb, joint, peafowl, quiescence, staging, wake_plan};
use serde_json::Value;
use std::collections::BTreeMap;
use toml::Table;

/// Every policy that a line may name.
pub static REGISTRIES: &[&Registry] = &[policy::POLICIES, literature::POLICIES, &[&clairvoyant::ENTRY]];

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
    /// Cores, frequency and idle states together, towards a goal.
    Joint(joint::Params),
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
    pub fix: String,
}

/// Every word that a line may have, for messages.
pub fn words() -> impl Iterator<Item = &'static str> {
    registry::all(REGISTRIES).map(|(_, word)| word.word)
}

/// The word is one, and its policy has parameters.
pub fn takes_parameters(word: &str) -> bool {
    registry::find(REGISTRIES, word).is_some_and(|(entry, _)| !entry.shape.parameters.is_empty())
}

/// The words whose parameters a line may look at: its own, and those that it stands for.
pub fn words_of(line: &str) -> Vec<&str> {
    let mut words: Vec<&str> = line.split('+').map(str::trim).collect();
    let decides_idle = |word: &&str| {
        registry::find(REGISTRIES, word)
            .is_some_and(|(entry, _)| entry.questions().any(|question| question == Question::Idle))
    };
    let idle_is_decided = words.iter().any(|word| *word != JOINT && decides_idle(word));
    if words.contains(&JOINT) {
        // By dispatch and by what the line leaves open, see `Policies::parse`.
        words.extend([PACING, PACKING]);
    }
    if !idle_is_decided {
        words.push(STOCK_IDLE);
    }
    words
}

/// The word that stands for others: for [`PACKING`] where connections are packed, and with
/// [`PACING`] where the line names no frequency policy.
const JOINT: &str = "joint";
const PACKING: &str = "peafowl";
const PACING: &str = "crescendo";
const STOCK_IDLE: &str = "menu";

impl Policies {
    /// Reads a line such as `peafowl + teo + pegasus`; parameters stand in tables of the words'
    /// names.
    pub fn parse(
        line: &str,
        params: &BTreeMap<String, Table>,
        goal: Option<Goal>,
        platform: &Platform,
        tick: Option<Duration>,
        dispatch: Dispatch,
    ) -> Result<Self, PolicyError> {
        let reader = Reader { registries: REGISTRIES, params, goal, platform, tick, dispatch };
        reader.check_tables()?;
        let mut policies = Self {
            line: line.to_owned(),
            idle: IdlePolicy::Governor(GovernorParams::Menu(Default::default())),
            cores: CoresPolicy::AllAwake,
            clock: ClockPolicy::Fixed(Fixed::Performance),
            delay: None,
            active_idle: Mode::Halt,
            anticipation: None,
            quiescence: None,
            staging: None,
        };
        policies.take(&reader.word(STOCK_IDLE)?);
        let mut answered: Vec<(&'static Entry, &str)> = Vec::new();
        for word in line.split('+').map(str::trim) {
            let chosen = reader.word(word)?;
            let question = chosen.entry.question;
            if let Some((_, other)) = answered.iter().find(|(entry, _)| entry.question == question) {
                return Err(PolicyError {
                    key: "policies".into(),
                    problem: format!("`{line}`: both {other} and {word} decide {question}"),
                    fix: "name one of them".into(),
                });
            }
            policies.take(&chosen);
            answered.push((chosen.entry, word));
        }
        // Cores and idle states by plan; frequencies request by request, unless the line names a
        // policy for them.
        let by_request = answered.iter().any(|(_, word)| *word == JOINT);
        let is_open = !answered.iter().any(|(entry, _)| entry.question == Question::Frequency);
        if by_request && is_open {
            policies.take(&reader.word(PACING)?);
        }
        let also: Vec<Question> = answered.iter().flat_map(|(entry, _)| entry.also).copied().collect();
        match answered.iter().find(|(entry, _)| also.contains(&entry.question)) {
            None => Ok(policies),
            Some((entry, word)) => Err(PolicyError {
                key: "policies".into(),
                problem: format!("`{line}`: {} is decided already, without {word}", entry.question),
                fix: format!("leave {word} out"),
            }),
        }
    }

    fn take(&mut self, chosen: &Chosen<'_>) {
        match chosen.answer() {
            Answer::Cores(cores) => self.cores = cores,
            Answer::Idle(idle) => self.idle = idle,
            Answer::Clock(clock) => self.clock = clock,
            Answer::Delay(delay) => self.delay = Some(delay),
            Answer::Anticipation(anticipation) => self.anticipation = Some(anticipation),
            Answer::Quiescence(params) => self.quiescence = Some(params),
            Answer::Staging(params, goal) => self.staging = Some((params, goal)),
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

/// What a word's parameters are made of.
struct Reader<'a> {
    registries: &'a [&'a Registry],
    params: &'a BTreeMap<String, Table>,
    goal: Option<Goal>,
    platform: &'a Platform,
    tick: Option<Duration>,
    dispatch: Dispatch,
}

impl Reader<'_> {
    /// Each table of parameters is one of a policy that takes some.
    fn check_tables(&self) -> Result<(), PolicyError> {
        for name in self.params.keys() {
            let key = format!("params.{name}");
            let (entry, _) = self.find(name, &key)?;
            if entry.shape.parameters.is_empty() {
                return Err(PolicyError {
                    key,
                    problem: format!("`{name}` takes no parameters"),
                    fix: format!("leave the table [params.{name}] out"),
                });
            }
        }
        Ok(())
    }

    fn find(&self, word: &str, key: &str) -> Result<(&'static Entry, &'static Word), PolicyError> {
        registry::find(self.registries, word).ok_or_else(|| {
            let words: Vec<&str> = registry::all(self.registries).map(|(_, word)| word.word).collect();
            PolicyError {
                key: key.to_owned(),
                problem: format!("no policy is called `{word}`"),
                fix: format!("one of: {}", words.join(", ")),
            }
        })
    }

    fn word<'w>(&self, word: &'w str) -> Result<Chosen<'w>, PolicyError> {
        let (entry, known) = self.find(word, "policies")?;
        let packs = self.dispatch == Dispatch::Connections;
        if packs && word == "carb-goal" {
            return Err(PolicyError {
                key: "policies".into(),
                problem: "`carb-goal` counts cores for work that any of them can take, and connections have workers"
                    .into(),
                fix: "write carb, or peafowl with a goal; or set another server.dispatch".into(),
            });
        }
        // On a store connections are what can be packed, and Peafowl does that; the goal is then
        // the frequencies'.
        if packs && word == JOINT {
            if self.params.contains_key(word) {
                return Err(PolicyError {
                    key: format!("params.{JOINT}"),
                    problem: format!(
                        "`{JOINT}` takes no parameters where connections are packed: it does that as `{PACKING}`"
                    ),
                    fix: format!("write them below [params.{PACKING}], or set another server.dispatch"),
                });
            }
            return self.word(PACKING);
        }
        if entry.needs_goal && self.goal.is_none() {
            return Err(PolicyError {
                key: "goal".into(),
                problem: format!("{word} works towards a latency goal, and there is none"),
                fix: "add one, such as goal = \"300us@p99\"".into(),
            });
        }
        let queues = match self.dispatch {
            Dispatch::Shared => Queues::Shared,
            Dispatch::Connections => Queues::Connections,
            Dispatch::Random | Dispatch::RoundRobin | Dispatch::ForkJoin => Queues::PerCore,
        };
        let around = Surroundings { goal: self.goal, platform: Some(self.platform), tick: self.tick, queues };
        let settings = self.with(word, entry, (known.settings)(&around))?;
        Ok(Chosen { word, entry, settings, goal: self.goal })
    }

    /// `settings` with the keys that the scenario gives for them; a key within a key replaces only
    /// that.
    fn with(&self, word: &str, entry: &Entry, mut settings: Value) -> Result<Value, PolicyError> {
        let Some(overrides) = self.params.get(word) else { return Ok(settings) };
        if let Some(key) = not_finite(overrides) {
            return Err(PolicyError {
                key: format!("params.{word}.{key}"),
                problem: "is not finite".into(),
                fix: "write a number".into(),
            });
        }
        let overrides = serde_json::to_value(overrides).expect("a table of TOML is plain data");
        drop_other_forms(&mut settings, &overrides, entry);
        merge(&mut settings, overrides);
        entry.shape.check(&settings).map_err(|refused| match refused {
            Refused::Wrong(Wrong { key, problem, fix }) => {
                PolicyError { key: format!("params.{word}.{key}"), problem, fix }
            }
            Refused::Unreadable(problem) => PolicyError {
                key: format!("params.{word}"),
                problem,
                fix: "see the parameters of the policy in docs/scenarios.md".into(),
            },
        })?;
        Ok(settings)
    }
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

/// A parameter that is written in one of several forms (`threshold.fixed`) keeps none of another.
fn drop_other_forms(base: &mut Value, overrides: &Value, entry: &Entry) {
    let forms = entry.shape.parameters.iter().filter_map(|row| row.name.split_once('.'));
    for (name, form) in forms {
        if overrides.get(name).is_some_and(|given| given.get(form).is_none())
            && let Some(Value::Object(forms)) = base.get_mut(name)
        {
            forms.remove(form);
        }
    }
}

fn merge(base: &mut Value, overrides: Value) {
    match (base, overrides) {
        (Value::Object(base), Value::Object(overrides)) => {
            for (key, value) in overrides {
                merge(base.entry(key).or_insert(Value::Null), value);
            }
        }
        (base, value) => *base = value,
    }
}
