//! A module that counts cores: called once an epoch, and in a simulation at each request as well.

use crate::host::ns;
use crate::{Decides, EPOCH_FUEL, EVENT_FUEL, Guest, Knobs, Module};
use machine::{Duration, Goal, Instant};
use policy::own::{Decide, Orders, Reading};
use wasmi::{TypedFunc, WasmParams};

/// The exported calls about epochs and requests.
pub(crate) struct Calls {
    epoch_ns: Option<TypedFunc<(), i64>>,
    tail_quantile: Option<TypedFunc<(), f64>>,
    on_epoch: Option<TypedFunc<(), ()>>,
    on_arrival: Option<TypedFunc<(i64, i32), ()>>,
    on_completion: Option<TypedFunc<(i64, i64, i32), ()>>,
}

impl Calls {
    pub fn of(guest: &Guest) -> Result<Self, String> {
        Ok(Self {
            epoch_ns: guest.call_of("epoch_ns")?,
            tail_quantile: guest.call_of("tail_quantile")?,
            on_epoch: guest.call_of("on_epoch")?,
            on_arrival: guest.call_of("on_arrival")?,
            on_completion: guest.call_of("on_completion")?,
        })
    }
}

/// A module at work for one machine or service.
pub struct Deciding {
    name: String,
    guest: Guest,
    calls: Calls,
    epoch: Duration,
    quantile: f64,
}

impl Deciding {
    /// An instance that has begun; or its fault.
    ///
    /// # Panics
    /// If the module chooses idle states.
    pub fn new(module: &Module, knobs: Knobs) -> Result<Self, String> {
        assert!(module.decides != Decides::Idle, "it counts no cores");
        let goal = knobs.goal;
        let guest = module.begun(knobs)?;
        Self::of(&module.name, guest, goal).map_err(|problem| format!("{}: {problem}", module.name))
    }

    fn of(name: &str, mut guest: Guest, goal: Option<Goal>) -> Result<Self, String> {
        let calls = Calls::of(&guest)?;
        let epoch = calls.epoch_ns.map(|call| guest.call(call, EPOCH_FUEL, ())).transpose()?;
        let epoch = epoch.map_or(EPOCH, |ns| Duration::from_nanos(u64::try_from(ns).unwrap_or(0)));
        if epoch < SHORTEST {
            return Err(format!("epoch_ns() is {}: give {} and more", epoch.as_nanos(), SHORTEST.as_nanos()));
        }
        let quantile = calls.tail_quantile.map(|call| guest.call(call, EPOCH_FUEL, ())).transpose()?;
        let quantile = quantile.or(goal.map(|goal| goal.quantile)).unwrap_or(QUANTILE);
        if !(0.0 < quantile && quantile < 1.0) {
            return Err(format!("tail_quantile() is {quantile}: such as 0.99"));
        }
        Ok(Self { name: name.to_owned(), guest, calls, epoch, quantile })
    }

    /// The time between two calls of `on_epoch`, as it asked for it.
    pub fn epoch(&self) -> Duration {
        self.epoch
    }

    /// The quantile whose response time it sees as the tail.
    pub fn quantile(&self) -> f64 {
        self.quantile
    }

    /// It reads another goal from now on, and sees its tail unless it has named a quantile itself.
    pub fn set_goal(&mut self, goal: Goal) {
        if self.calls.tail_quantile.is_none() {
            self.quantile = goal.quantile;
        }
        self.guest.store.data_mut().knobs.goal = Some(goal);
    }

    fn ordered<P: WasmParams>(
        &mut self,
        call: TypedFunc<P, ()>,
        fuel: u64,
        given: P,
        now: Instant,
    ) -> Result<Orders, String> {
        self.guest.store.data_mut().orders = Orders::default();
        match self.guest.call(call, fuel, given) {
            Ok(()) => Ok(self.guest.store.data().orders),
            Err(problem) => Err(format!("{} at {}: {problem}", self.name, now.since(Instant::ZERO))),
        }
    }
}

impl Decide for Deciding {
    fn on_epoch(&mut self, reading: &Reading<'_>) -> Result<Orders, String> {
        self.guest.store.data_mut().see(reading);
        let Some(call) = self.calls.on_epoch else { return Ok(Orders::default()) };
        self.ordered(call, EPOCH_FUEL, (), reading.now)
    }

    fn watches_requests(&self) -> bool {
        self.calls.on_arrival.is_some() || self.calls.on_completion.is_some()
    }

    fn on_arrival(&mut self, now: Instant, in_system: u32) -> Result<Orders, String> {
        let Some(call) = self.calls.on_arrival else { return Ok(Orders::default()) };
        self.ordered(call, EVENT_FUEL, (ns(now.since(Instant::ZERO)), in_system as i32), now)
    }

    fn on_completion(&mut self, now: Instant, response: Duration, in_system: u32) -> Result<Orders, String> {
        let Some(call) = self.calls.on_completion else { return Ok(Orders::default()) };
        let given = (ns(now.since(Instant::ZERO)), ns(response), in_system as i32);
        self.ordered(call, EVENT_FUEL, given, now)
    }
}

const EPOCH: Duration = Duration::from_secs(1);

/// Below it, a reading is a handful of requests.
const SHORTEST: Duration = Duration::from_micros(10);

const QUANTILE: f64 = 0.99;
