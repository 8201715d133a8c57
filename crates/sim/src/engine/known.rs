//! The policies that the engine calls without a vtable.
//!
//! A policy comes from its registry entry as a trait object of its kind. On the path of a request
//! an indirect call would cost more than some policies do, so those that are listed here are
//! unpacked when a run begins, and called by a match. A policy that is not listed runs as well.

use literature::{cores, frequency, idle, timing};
use policy::kind::idle::{IdleEntry, IdleTable, Sleep, Woken};
use policy::kind::{CorePolicy, FrequencyPolicy, IdlePolicy, NapPolicy, WakeDelayPolicy};
use policy::{carb, joint};
use std::any::Any;

/// A type that holds any policy of a kind, and a macro of the name `call` that calls it.
macro_rules! known {
    ($d:tt $call:ident, $name:ident: $kind:ident { $($variant:ident($policy:ty),)* }) => {
        pub(super) enum $name {
            $($variant(Box<$policy>),)*
            Other(Box<dyn $kind>),
        }

        impl From<Box<dyn $kind>> for $name {
            fn from(policy: Box<dyn $kind>) -> Self {
                $(
                    let any: &dyn Any = &*policy;
                    if any.is::<$policy>() {
                        let any: Box<dyn Any> = policy;
                        return Self::$variant(any.downcast().expect("it is of this type"));
                    }
                )*
                Self::Other(policy)
            }
        }

        macro_rules! $call {
            ($d held:expr, $d policy:ident => $d answer:expr) => {
                match $d held {
                    $($crate::engine::known::$name::$variant($d policy) => $d answer,)*
                    $crate::engine::known::$name::Other($d policy) => $d answer,
                }
            };
        }
        pub(super) use $call;
    };
}

known! {$ frequency_policy, Frequencies: FrequencyPolicy {
    Schedutil(frequency::schedutil::PerCpu),
    Rubik(frequency::rubik::Server),
    Crescendo(frequency::crescendo::Server),
    HurryUp(policy::frequency::hurry_up::Bound),
    Adrenaline(frequency::adrenaline::Boosts),
    SleepScale(timing::sleep_scale::Server),
}}

known! {$ core_policy, Cores: CorePolicy {
    Carb(carb::Server<carb::Controller>),
    CarbGoal(carb::Server<carb::GoalSearch>),
    AutoScale(cores::auto_scale::Server),
    Joint(joint::Server),
}}

known! {$ nap_policy, Naps: NapPolicy {
    PowerNap(cores::power_nap::PowerNap),
    DreamWeaver(cores::dream_weaver::DreamWeaver),
}}

known! {$ wake_delay_policy, WakeDelays: WakeDelayPolicy {
    DynSleep(timing::dyn_sleep::DynSleep),
    UDpm(timing::udpm::UDpm),
}}

/// One CPU's idle policy. Those of Linux lie side by side in memory.
pub(super) enum Idle {
    Linux(idle::Governor),
    Other(Box<dyn IdlePolicy>),
}

impl From<Box<dyn IdlePolicy>> for Idle {
    fn from(policy: Box<dyn IdlePolicy>) -> Self {
        let any: &dyn Any = &*policy;
        match any.downcast_ref::<idle::Governor>() {
            Some(governor) => Self::Linux(governor.clone()),
            None => Self::Other(policy),
        }
    }
}

impl Idle {
    #[inline]
    pub fn select(&mut self, table: &IdleTable, entry: &IdleEntry) -> Sleep {
        match self {
            Self::Linux(governor) => governor.select(table, entry),
            Self::Other(policy) => policy.select(table, entry),
        }
    }

    #[inline]
    pub fn reflect(&mut self, table: &IdleTable, woken: &Woken) {
        match self {
            Self::Linux(governor) => governor.reflect(table, woken),
            Self::Other(policy) => policy.reflect(table, woken),
        }
    }

    pub fn fault(&self) -> Option<&str> {
        match self {
            Self::Linux(_) => None,
            Self::Other(policy) => policy.fault(),
        }
    }
}
