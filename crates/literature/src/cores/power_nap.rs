//! PowerNap: the whole machine sleeps whenever it has nothing to do [R Meisner et al., ASPLOS 2009;
//! C].
//!
//! Between full speed and one deep sleep of everything there is nothing: no idle states of single
//! cores, no slower clocks. All then depends on how fast the transition is, and on idle periods of
//! the machine, which get rarer with the number of cores. The first request of a nap pays the way
//! out, and so does each that comes during it.
//!
//! Invariants: the machine naps if and only if nothing is in the system; every order changes
//! something.

use super::Order;
use machine::Instant;
use policy::kind::{Make, NapPolicy, StallMark};
use policy::registry::{Entry, Word};
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PowerNap {
    napping: bool,
}

pub static ENTRY: Entry = Entry {
    words: &[Word::bare("powernap", "the whole machine stops when it has nothing to do")],
    help: "Between full speed and one deep sleep of everything there is nothing: the machine naps if and \
           only if no request is in the system, and the first one after that wakes it.",
    origin: "PowerNap (Meisner et al., ASPLOS 2009), recalled",
    make: Make::Nap(|_| Box::new(PowerNap::new())),
    ..Entry::PLAIN
};

impl PowerNap {
    pub fn new() -> Self {
        Self::default()
    }

    /// A request came or is done, or the machine is up; `in_system` are there now. An order to wake
    /// stands until the machine naps again: for a request that comes meanwhile there is none.
    pub fn handle_change(&mut self, in_system: u32) -> Option<Order> {
        let nap = in_system == 0;
        let order = if nap { Order::Nap } else { Order::Wake };
        (std::mem::replace(&mut self.napping, nap) != nap).then_some(order)
    }
}

impl NapPolicy for PowerNap {
    fn handle_change(
        &mut self,
        _: Instant,
        _: bool,
        in_system: u32,
        _: u16,
        _: Option<StallMark>,
    ) -> Option<Order> {
        self.handle_change(in_system)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Order::{Nap, Wake};

    #[test]
    fn it_naps_when_nothing_is_left_and_wakes_for_the_first() {
        let mut policy = PowerNap::new();
        let orders = [0, 0, 1, 2, 1, 0, 3, 0].map(|in_system| policy.handle_change(in_system));
        assert_eq!(orders, [Some(Nap), None, Some(Wake), None, None, Some(Nap), Some(Wake), Some(Nap)]);
    }
}
