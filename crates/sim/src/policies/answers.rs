//! From a word's parameters to what the engine runs.
//!
//! The engine calls each of these policies in its own way, so it knows them by name. A policy that
//! is called in a way that the engine has already needs no line here.

use super::{
    Anticipation, AnticipationSource, Clairvoyance, ClockPolicy, CoresPolicy, DelayPolicy, IdlePolicy,
};
use crate::Goal;
use literature::frequency::Fixed;
use literature::frequency::fixed::UserspaceParams;
use literature::idle::GovernorParams;
use machine::Duration;
use policy::registry::Entry;
use policy::wake_plan::{DeviceAnticipation, KernelAnticipation};
use policy::{quiescence, staging};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// What a word decides.
pub(super) enum Answer {
    Cores(CoresPolicy),
    Idle(IdlePolicy),
    Clock(ClockPolicy),
    Delay(DelayPolicy),
    Anticipation(Anticipation),
    Staging(staging::Params, Duration),
    Quiescence(quiescence::Params),
}

/// A word of the line, its policy, and its parameters, checked.
pub(super) struct Chosen<'a> {
    pub word: &'a str,
    pub entry: &'static Entry,
    pub settings: Value,
    /// There is one if the policy needs one.
    pub goal: Option<Goal>,
}

impl Chosen<'_> {
    fn params<P: DeserializeOwned>(&self) -> P {
        serde_json::from_value(self.settings.clone()).expect("parameters were checked")
    }

    fn goal(&self) -> Goal {
        self.goal.expect("a policy that needs a goal has one")
    }

    /// What the engine runs.
    pub fn answer(&self) -> Answer {
        match self.entry.name() {
            "all-awake" => Answer::Cores(CoresPolicy::AllAwake),
            "carb" => Answer::Cores(CoresPolicy::Carb(self.params())),
            "carb-goal" => Answer::Cores(CoresPolicy::CarbGoal(self.params(), self.goal())),
            "peafowl" => Answer::Cores(CoresPolicy::Peafowl(self.params())),
            "autoscale" => Answer::Cores(CoresPolicy::AutoScale(self.params())),
            "powernap" => Answer::Cores(CoresPolicy::PowerNap),
            "dreamweaver" => Answer::Cores(CoresPolicy::DreamWeaver(self.params())),
            "joint" => Answer::Cores(CoresPolicy::Joint(self.params())),
            "shallow" => Answer::Idle(IdlePolicy::Governor(match self.word {
                "shallow" => GovernorParams::Shallow,
                "deep" => GovernorParams::Deep,
                _ => GovernorParams::Poll,
            })),
            "menu" => Answer::Idle(IdlePolicy::Governor(GovernorParams::Menu(self.params()))),
            "teo" => Answer::Idle(IdlePolicy::Governor(GovernorParams::Teo(self.params()))),
            "menu-feedback" => {
                Answer::Idle(IdlePolicy::Governor(GovernorParams::MenuFeedback(self.params())))
            }
            "teo-feedback" => Answer::Idle(IdlePolicy::Governor(GovernorParams::TeoFeedback(self.params()))),
            "clairvoyant" => Answer::Idle(IdlePolicy::Clairvoyant(match self.word {
                "clairvoyant-energy" => Clairvoyance::LeastEnergy,
                "clairvoyant-prewake" => Clairvoyance::Prewake,
                _ => Clairvoyance::Fits,
            })),
            "performance" => Answer::Clock(ClockPolicy::Fixed(match self.word {
                "powersave" => Fixed::Powersave,
                _ => Fixed::Performance,
            })),
            "fixed" => {
                let UserspaceParams { khz } = self.params();
                Answer::Clock(ClockPolicy::Fixed(Fixed::Userspace(khz)))
            }
            "ondemand" => Answer::Clock(ClockPolicy::Ondemand(self.params())),
            "schedutil" => Answer::Clock(ClockPolicy::Schedutil(self.params())),
            "sensitivity" => Answer::Clock(ClockPolicy::Sensitivity(self.params())),
            "pegasus" => Answer::Clock(ClockPolicy::Pegasus(self.params(), self.goal().quantile)),
            "rubik" => Answer::Clock(ClockPolicy::Rubik(self.params())),
            "crescendo" => Answer::Clock(ClockPolicy::Crescendo(self.params())),
            "hurry-up" => Answer::Clock(ClockPolicy::HurryUp(self.params())),
            "adrenaline" => Answer::Clock(ClockPolicy::Adrenaline(self.params())),
            "sleepscale" => Answer::Clock(ClockPolicy::SleepScale(self.params())),
            "dynsleep" => Answer::Delay(DelayPolicy::DynSleep(self.params())),
            "udpm" => Answer::Delay(DelayPolicy::UDpm(self.params())),
            "anticipate" => {
                let DeviceAnticipation { planner, exit_latency, device } = self.params();
                let source = AnticipationSource::Device(device);
                Answer::Anticipation(Anticipation { planner, exit_latency, source })
            }
            "anticipate-kernels" => {
                let KernelAnticipation { planner, exit_latency, kernels } = self.params();
                let source = AnticipationSource::Kernels(kernels);
                Answer::Anticipation(Anticipation { planner, exit_latency, source })
            }
            "quiesce" => Answer::Quiescence(self.params()),
            "staged" => Answer::Staging(self.params(), self.goal().latency),
            other => unreachable!("the engine does not know how to call `{other}`"),
        }
    }
}
