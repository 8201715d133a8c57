//! Any bytes are something said to the planner or are refused in one line; what is understood can be said again, and names no more
//! CPUs than a request may.

#![no_main]

use governor::wake::wire::wake_ask;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    match wake_ask(bytes) {
        Ok(ask) => {
            let again = serde_json::to_vec(&ask).expect("plain data");
            assert_eq!(wake_ask(&again).as_ref(), Ok(&ask));
        }
        Err(said) => assert!(!said.contains('\n'), "{said}"),
    }
});
