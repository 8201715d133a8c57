//! Any bytes are a policy's module or are refused; a policy decides within the machine or is at fault.

use machine::{Duration, Goal, Instant, Kilohertz};
use policy::kind::Responses;
use policy::own::{Decide as _, Reading};
use wasm::{Decides, Deciding, Knobs, Module};

pub fn run(bytes: &[u8]) {
    let Ok(module) = Module::new("fuzz.wasm", bytes) else { return };
    if module.decides() == Decides::Idle {
        return;
    }
    let micros = Duration::from_micros;
    let knobs = Knobs {
        workers: 4,
        cpus: 8,
        idle_states: vec![(micros(2), micros(2)), (micros(133), micros(600))],
        clocks: vec![Kilohertz(1_000_000), Kilohertz(2_100_000)],
        goal: Some(Goal { latency: micros(500), quantile: 0.99 }),
    };
    let Ok(mut deciding) = Deciding::new(&module, knobs) else { return };
    for second in 1..4 {
        let reading = Reading {
            now: Instant::from_nanos(second * 1_000_000_000),
            span: Duration::from_secs(1),
            responses: Responses { count: second, tail: Some(micros(400)), mean: None },
            active: 4,
            working: &[0.5; 8],
            core_watts: f64::NAN,
        };
        let Ok(orders) = deciding.on_epoch(&reading) else { return };
        assert!(orders.cores.is_none_or(|cores| (1..=4).contains(&cores)));
        assert!(orders.clock.is_none_or(|clock| clock.0 > 0));
        let _ = deciding.on_arrival(reading.now, 3);
    }
}
