//! Any bytes are a request to a holder, or an answer of one, or are refused in one line; an
//! understood request reads the same when it is written again.

use linux::holder::wire::{answer, request};

/// One input.
pub fn run(bytes: &[u8]) {
    match request(bytes) {
        Ok(understood) => {
            assert!(understood.asker.len() <= 80 && !understood.asker.contains(char::is_control));
            let again = serde_json::to_vec(&understood).expect("plain data");
            assert_eq!(request(&again).as_ref(), Ok(&understood));
        }
        Err(reason) => assert!(!reason.contains('\n'), "{reason}"),
    }
    match answer(bytes) {
        Ok(understood) => {
            let again = serde_json::to_vec(&understood).expect("plain data");
            assert_eq!(answer(&again).as_ref(), Ok(&understood));
        }
        Err(reason) => assert!(!reason.contains('\n'), "{reason}"),
    }
}
