//! The policies of a run, one for each question, from a line such as `peafowl + teo + pegasus`.
//!
//! The questions are how many cores stay awake, which idle state a core takes, at which frequency
//! it runs, and when to be awake at all. A line answers each at most once; a question that it
//! leaves open is answered as stock Linux does on a server: all cores, the menu governor, the
//! fastest frequency, at once.
//!
//! Nothing here knows a policy by its name but for the words that stand for others (`JOINT`) and
//! the clairvoyant, which is this crate's own.

mod clairvoyant;
mod parameters;

pub use clairvoyant::Clairvoyance;

use crate::Goal;
use crate::engine::{Dispatch, Setup};
use machine::{CpuId, Duration, Platform, WorkerId};
use parameters::Reader;
pub(crate) use parameters::table_of;
use policy::kind::idle::IdleTable;
use policy::kind::{
    Anticipation, CorePolicy, FrequencyPolicy, IdlePolicy, Make, Making, NapPolicy, Placed, Placement,
    Policy, WakeDelayPolicy,
};
use policy::registry::{self, Entry, Question, Queues, Registry};
use policy::{quiescence, staging};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};
use toml::Table;

/// Every policy of this workspace that a line may name.
pub static REGISTRIES: &[&Registry] = &[policy::POLICIES, literature::POLICIES, &[&clairvoyant::ENTRY]];

/// Registries of the program around this crate.
static JOINED: RwLock<Vec<&'static Registry>> = RwLock::new(Vec::new());

/// Lines may name these policies too, from now on.
///
/// # Panics
/// If a word of them is a policy's already.
pub fn join(registry: &'static Registry) {
    let mut joined = JOINED.write().unwrap_or_else(PoisonError::into_inner);
    let known: Vec<_> = REGISTRIES.iter().chain(&*joined).copied().collect();
    for (_, word) in registry::all(&[registry]) {
        assert!(registry::find(&known, word.word).is_none(), "a policy is called `{}` already", word.word);
    }
    joined.push(registry);
}

/// [`REGISTRIES`], and the others that [joined](join) until now.
pub fn registries() -> Vec<&'static Registry> {
    let joined = JOINED.read().unwrap_or_else(PoisonError::into_inner);
    REGISTRIES.iter().chain(&*joined).copied().collect()
}

/// A word of the line with its parameters, checked.
#[derive(Clone, Debug)]
pub struct Chosen {
    pub word: String,
    pub entry: &'static Entry,
    pub settings: Value,
}

/// All of one contestant's policies.
#[derive(Clone, Debug)]
pub struct Policies {
    /// The line as it was given.
    pub line: String,
    /// One for each question that is answered.
    chosen: Vec<Chosen>,
    goal: Option<Goal>,
}

/// Why a line of policies cannot be.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyError {
    pub key: String,
    pub problem: String,
    pub fix: String,
}

/// Every word that a line may have, for messages.
pub fn words() -> impl Iterator<Item = &'static str> {
    let words: Vec<&'static str> = registry::all(&registries()).map(|(_, word)| word.word).collect();
    words.into_iter()
}

/// The word is one, and its policy has parameters.
pub fn takes_parameters(word: &str) -> bool {
    registry::find(&registries(), word).is_some_and(|(entry, _)| !entry.shape.parameters.is_empty())
}

/// The words whose parameters a line may look at: its own, and those that it stands for.
pub fn words_of(line: &str) -> Vec<&str> {
    let mut words: Vec<&str> = line.split('+').map(str::trim).collect();
    let registries = registries();
    let decides_idle = |word: &&str| {
        registry::find(&registries, word)
            .is_some_and(|(entry, _)| entry.questions().any(|question| question == Question::Idle))
    };
    let idle_is_decided = words.iter().any(|word| *word != JOINT && decides_idle(word));
    if words.contains(&JOINT) {
        // Where the line leaves the frequency open, see `Policies::parse`.
        words.push(PACING);
    }
    if !idle_is_decided {
        words.push(STOCK_IDLE);
    }
    words
}

/// The word that stands for [`PACING`] as well, where the line names no frequency policy and no connections
/// are packed.
const JOINT: &str = "joint";
const PACING: &str = "crescendo";

/// Stock Linux, for the questions that a line leaves open.
const STOCK_IDLE: &str = "menu";
const STOCK: [&str; 3] = [STOCK_IDLE, "all-awake", "performance"];

impl Policies {
    /// Reads a line such as `peafowl + teo + pegasus` of the policies in `registries`; parameters
    /// stand in tables of the words' names. `steals`: idle workers take requests from others.
    pub fn parse(
        registries: &[&Registry],
        line: &str,
        params: &BTreeMap<String, Table>,
        goal: Option<Goal>,
        platform: &Platform,
        tick: Option<Duration>,
        (dispatch, steals): (Dispatch, bool),
    ) -> Result<Self, PolicyError> {
        let reader = Reader { registries, params, goal, platform, tick, dispatch, steals };
        reader.check_tables()?;
        let mut policies = Self { line: line.to_owned(), chosen: Vec::new(), goal };
        for word in STOCK {
            policies.take(reader.word(word)?);
        }
        let mut answered: Vec<(&'static Entry, &str)> = Vec::new();
        for word in line.split('+').map(str::trim) {
            let chosen = reader.word(word)?;
            let (entry, question) = (chosen.entry, chosen.entry.question);
            if let Some((_, other)) = answered.iter().find(|(entry, _)| entry.question == question) {
                return Err(PolicyError {
                    key: "policies".into(),
                    problem: format!("`{line}`: both {other} and {word} decide {question}"),
                    fix: "name one of them".into(),
                });
            }
            policies.take(chosen);
            answered.push((entry, word));
        }
        // Cores and idle states by plan; frequencies request by request, unless the line names a
        // policy for them. A store's requests are as short as a change of the clock takes: its plan's
        // own pace costs less.
        let by_request =
            answered.iter().any(|(_, word)| *word == JOINT) && !queues(dispatch, steals).are_of_connections();
        let is_open = !answered.iter().any(|(entry, _)| entry.question == Question::Frequency);
        if by_request && is_open {
            policies.take(reader.word(PACING)?);
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

    fn take(&mut self, chosen: Chosen) {
        self.chosen.retain(|other| other.entry.question != chosen.entry.question);
        self.chosen.push(chosen);
    }

    fn answer(&self, question: Question) -> Option<&Chosen> {
        self.chosen.iter().find(|chosen| chosen.entry.question == question)
    }

    fn answers(&self, question: Question) -> bool {
        self.answer(question).is_some()
    }

    fn is_constant(&self, question: Question) -> bool {
        self.answer(question).is_none_or(|chosen| chosen.entry.is_constant)
    }

    /// It may answer overload with more cores or more speed.
    pub fn adapts(&self) -> bool {
        use Question::{Admission, Cores, Frequency, Uncore, Waking};
        [Admission, Cores, Frequency, Uncore, Waking].into_iter().any(|question| !self.is_constant(question))
    }

    /// The policy that says how many cores are active has a goal.
    pub fn counts_for_a_goal(&self) -> bool {
        self.answer(Question::Cores).is_some_and(|chosen| chosen.entry.needs_goal)
    }

    pub fn frequency_is_constant(&self) -> bool {
        self.is_constant(Question::Frequency)
    }

    /// The policy that `pick` takes by its kind, made for this setup.
    fn made<T>(&self, setup: &Setup, pick: impl Fn(Make, &Making<'_>) -> Option<T>) -> Option<T> {
        self.chosen.iter().find_map(|chosen| {
            let making = Making {
                word: &chosen.word,
                settings: &chosen.settings,
                goal: self.goal,
                platform: &setup.platform,
                workers: setup.workers as u16,
                queues: queues(setup.dispatch, setup.stealing.is_some()),
            };
            pick(chosen.entry.make, &making)
        })
    }

    pub fn frequency(&self, setup: &Setup) -> Option<Box<dyn FrequencyPolicy>> {
        self.made(setup, |make, making| match make {
            Make::Frequency(make) => Some(make(making)),
            _ => None,
        })
    }

    /// Where connections are placed, the policy that places them mostly counts cores as well.
    pub fn cores(&self, setup: &Setup) -> Option<Box<dyn CorePolicy>> {
        let by_connection = setup.dispatch == Dispatch::Connections;
        self.made(setup, |make, making| match make {
            Make::Cores(make) => Some(make(making)),
            Make::Placement(Placement { cores: Some(make), is_counted, .. })
                if is_counted || !by_connection =>
            {
                Some(make(making))
            }
            _ => None,
        })
    }

    pub fn placement(&self, setup: &Setup, workers: &[(WorkerId, CpuId)]) -> Option<Placed> {
        self.made(setup, |make, making| match make {
            Make::Placement(placement) => Some((placement.place)(making, workers)),
            _ => None,
        })
    }

    pub fn nap(&self, setup: &Setup) -> Option<Box<dyn NapPolicy>> {
        self.made(setup, |make, making| match make {
            Make::Nap(make) => Some(make(making)),
            _ => None,
        })
    }

    pub fn idle(&self, setup: &Setup, table: &IdleTable, cpus: usize) -> Vec<Box<dyn IdlePolicy>> {
        let made = self.made(setup, |make, making| match make {
            Make::Idle(make) => Some((0..cpus).map(|_| make(making, table)).collect()),
            _ => None,
        });
        made.unwrap_or_default()
    }

    /// The clairvoyant, if the line names it.
    pub fn clairvoyance(&self) -> Option<Clairvoyance> {
        let chosen = self.answer(Question::Idle)?;
        std::ptr::eq(chosen.entry, &clairvoyant::ENTRY).then(|| Clairvoyance::of_word(&chosen.word))
    }

    pub fn uncore(&self, setup: &Setup) -> Option<Box<dyn Policy>> {
        self.made(setup, |make, making| match make {
            Make::Uncore(make) => Some(make(making)),
            _ => None,
        })
    }

    pub fn wake_delay(&self, setup: &Setup) -> Option<Box<dyn WakeDelayPolicy>> {
        self.made(setup, |make, making| match make {
            Make::WakeDelay(make) => make(making),
            _ => None,
        })
    }

    pub fn anticipation(&self, setup: &Setup) -> Option<Anticipation> {
        self.made(setup, |make, making| match make {
            Make::Anticipation(make) => Some(make(making)),
            _ => None,
        })
    }

    pub fn quiescence(&self, setup: &Setup) -> Option<quiescence::Params> {
        self.made(setup, |make, making| match make {
            Make::Quiescence(make) => Some(make(making)),
            _ => None,
        })
    }

    /// And the time in which a request is to be answered.
    pub fn staging(&self, setup: &Setup) -> Option<(staging::Params, Duration)> {
        self.made(setup, |make, making| match make {
            Make::Staging(make) => Some(make(making)),
            _ => None,
        })
    }

    /// The interrupts of parked CPUs go to active ones.
    pub fn steers(&self) -> bool {
        self.answers(Question::Interrupts)
    }

    /// The service has all that the policies need.
    pub fn check_fit(&self, setup: &Setup) -> Result<(), PolicyError> {
        let needs = |key: &str, problem: &str, fix: &str| {
            let (key, problem, fix) = (key.to_owned(), format!("`{}` {problem}", self.line), fix.to_owned());
            Err(PolicyError { key, problem, fix })
        };
        let own_queues =
            matches!(setup.dispatch, Dispatch::Random | Dispatch::RoundRobin | Dispatch::Connections);
        if self.clairvoyance().is_some() {
            let waits_for_replies = setup.closed.is_some() || setup.depth.is_some();
            let foreseeable = own_queues && !waits_for_replies && setup.workers == setup.platform.cpus();
            let problem = "must know which core each request will go to";
            if !own_queues {
                return needs("server.dispatch", problem, OWN_QUEUES);
            }
            if !foreseeable {
                let (key, fix) = if waits_for_replies {
                    (
                        "server.clients",
                        "leave the table [server.clients] out: replies decide when its requests come",
                    )
                } else {
                    ("server.workers", "leave server.workers out: every CPU has to serve")
                };
                return needs(key, problem, fix);
            }
            if !self.is_constant(Question::Cores) {
                let fix = "leave out the word that decides how many cores are awake: all of them have to be";
                return needs("policies", problem, fix);
            }
        }
        let needs_connections =
            |chosen: &Chosen| matches!(chosen.entry.make, Make::Placement(Placement { cores: None, .. }));
        if self.chosen.iter().any(needs_connections) && setup.dispatch != Dispatch::Connections {
            let problem = "packs connections, and this service does not go by connection";
            let fix = "set server.dispatch = \"connections\", and workload.connections to how many there are";
            return needs("server.dispatch", problem, fix);
        }
        if self.answers(Question::Uncore) {
            if setup.platform.uncore_clock.is_none() {
                let fix = "leave its word out, or take a preset of Intel's from Skylake-SP on";
                return needs("machine.preset", "sets the uncore's clock, and this machine's has one", fix);
            }
            if setup.platform.memory_slowness != 1.0 {
                let problem = "sets the uncore's clock, and the machine has one clock given";
                return needs("machine.uncore_clock", problem, "leave machine.uncore_clock out");
            }
        }
        if self.answers(Question::Device) && setup.device.is_none() {
            return needs("server.device", "foresees the answers of a device, and there is none", ADD_DEVICE);
        }
        let naps = self.chosen.iter().any(|chosen| matches!(chosen.entry.make, Make::Nap(_)));
        if naps && setup.closed.as_ref().is_some_and(|closed| closed.timer) {
            let problem = "stops the CPUs whose timers the clients wait for";
            return needs("server.clients.timer", problem, "leave server.clients.timer out");
        }
        if self.answers(Question::Background) && setup.device.is_none() {
            let problem = "acts while requests wait for a device, and there is none";
            return needs("server.device", problem, ADD_DEVICE);
        }
        if setup.stealing.is_some() && (self.clairvoyance().is_some() || self.answers(Question::Waking)) {
            let problem = "looks at each core's own queue, and others steal from it";
            return needs("server.stealing", problem, "leave the table [server.stealing] out");
        }
        if self.answers(Question::Waking) && !own_queues {
            let problem = "delays each core's own queue, and the cores have none";
            return needs("server.dispatch", problem, OWN_QUEUES);
        }
        Ok(())
    }
}

/// The remedy for a policy that looks at one core's queue.
const OWN_QUEUES: &str = "set server.dispatch = \"random\", \"round-robin\" or \"connections\"";

/// The remedy for a policy that looks at a device.
const ADD_DEVICE: &str = "add a table [server.device] with latency = \"ssd-read\" and \
                          interrupt = \"2us\", or the values of your device";

/// The queues as policies are to take them.
pub(crate) fn queues(dispatch: Dispatch, steals: bool) -> Queues {
    match dispatch {
        Dispatch::Shared => Queues::Shared,
        Dispatch::Connections if steals => Queues::Stolen,
        Dispatch::Connections => Queues::Connections,
        Dispatch::Random | Dispatch::RoundRobin | Dispatch::ForkJoin => Queues::PerCore,
    }
}
