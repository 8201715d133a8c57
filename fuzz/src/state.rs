//! Any bytes are a state file or are refused with the reason; by limits that are accepted workers
//! work.

use crate::peafowl::drive;
use policy::peafowl::{Load, Params};

pub fn run(bytes: &[u8]) {
    let Ok(limits) = store::learned_limits(bytes) else { return };
    for limit in limits.into_iter().take(4) {
        assert!(limit.is_sound());
        drive(Params::live(), Some(limit));
        drive(Params { load: Load::Requests, ..Params::default() }, Some(limit));
    }
}
