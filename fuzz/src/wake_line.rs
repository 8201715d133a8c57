//! Any bytes are a message to the planner, over its socket or from elsewhere, or are refused in one
//! line; an understood message can be said again, and names no more CPUs than a request may.

use daemon::wake::wire::{Envelope, WakeAsk, said, wake_ask};
use machine::Instant;
use slots::wake::{CPUS_MAX, Said};

pub fn run(bytes: &[u8]) {
    match wake_ask(bytes) {
        Ok(ask) => {
            let again = serde_json::to_vec(&ask).expect("plain data");
            assert_eq!(wake_ask(&again).as_ref(), Ok(&ask));
            means_something(&ask);
        }
        Err(said) => assert!(!said.contains(char::is_control), "{said}"),
    }
    if let Ok(Envelope { say, .. }) = serde_json::from_slice(bytes) {
        means_something(&say);
    }
}

fn means_something(ask: &WakeAsk) {
    let default = "0-1".parse().expect("a list");
    for now in [Instant::ZERO, Instant::from_nanos(u64::MAX / 2)] {
        match said(ask, now, 7, &default) {
            Ok(Some(
                Said::Wake { cpus, .. }
                | Said::Began { cpus, .. }
                | Said::Armed { cpus, .. }
                | Said::Arrived { cpus, .. }
                | Said::Follows { cpus, .. },
            )) => assert!((1..=CPUS_MAX).contains(&cpus.iter().count())),
            Ok(_) => {}
            Err(why) => assert!(!why.contains(char::is_control), "{why}"),
        }
    }
}
