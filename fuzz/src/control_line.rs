//! Any line is a question to the daemon or is refused in one line; an understood line can be asked
//! again.

use daemon::question;

pub fn run(bytes: &[u8]) {
    let Ok(line) = std::str::from_utf8(bytes) else { return };
    match question(line) {
        Ok(ask) => {
            let again = serde_json::to_string(&ask).expect("plain data");
            assert_eq!(question(&again).as_ref(), Ok(&ask));
        }
        Err(said) => assert!(!said.contains(char::is_control), "{said}"),
    }
}
