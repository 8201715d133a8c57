//! Any bytes are the daemon's word on a request for knobs, or are refused in one line; an understood
//! one reads the same when it is written again. The request itself is a question (`control_line`).

use linux::arbiter::request::told;

pub fn run(bytes: &[u8]) {
    match told(bytes) {
        Ok(combined) => {
            let again = serde_json::json!({ "combined": &combined }).to_string();
            assert_eq!(told(again.as_bytes()).as_ref(), Ok(&combined));
        }
        Err(reason) => assert!(!reason.contains('\u{1b}'), "{reason}"),
    }
}
