//! Ours against memcached's, on random streams.

use crate::compare::difference;
use crate::endpoint::{Endpoint, InProcess, Memcached, Remote};
use crate::script::{Kind, Script};

const SCRIPT_LENGTH: usize = 150;

/// Scripts unless the environment says otherwise: some ten thousand requests, in a few seconds.
const SCRIPTS: u64 = 60;

fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

fn ours() -> Box<dyn Endpoint> {
    match std::env::var("ROOST_DIFFERENTIAL_ADDR") {
        Ok(address) => {
            let address = address.parse().unwrap_or_else(|_| {
                panic!("ROOST_DIFFERENTIAL_ADDR={address} is no address: give one such as 127.0.0.1:11211")
            });
            Box::new(Remote::new(address))
        }
        Err(_) => Box::new(InProcess::new()),
    }
}

/// Finds the request at which the two part, by sending the script request by request.
fn culprit(script: &Script, ours: &mut dyn Endpoint, theirs: &mut dyn Endpoint) -> String {
    for request in &script.requests {
        let (answer, reference) = (ours.answer(&[request]), theirs.answer(&[request]));
        if let Some(difference) = difference(&answer, &reference) {
            return format!(
                "{:?}: {difference}",
                String::from_utf8_lossy(&request[..request.len().min(400)])
            );
        }
    }
    "only when the requests are sent together".to_owned()
}

fn compare(kind: Kind) {
    let mut theirs = match Memcached::start() {
        Ok(peer) => peer,
        Err(reason) => {
            eprintln!("SKIPPED: no memcached to compare with ({reason}); install one or set ROOST_MEMCACHED");
            return;
        }
    };
    let count = setting("ROOST_DIFFERENTIAL_SCRIPTS").unwrap_or(SCRIPTS);
    if kind != Kind::Text && !theirs.is_reference() {
        assert!(count <= SCRIPTS, "memcached {:?} is no 1.6.45: a long run would skip this", theirs.version);
        eprintln!(
            "SKIPPED: memcached {:?} is older than the reference, 1.6.45: it lacks meta flags and answers \
             broken requests in other words; set ROOST_MEMCACHED to a newer one",
            theirs.version
        );
        return;
    }
    let (mut ours, mut deaths) = (self::ours(), 0);
    let first = setting("ROOST_DIFFERENTIAL_SEED").unwrap_or(1);
    let process = std::process::id();
    let mut differences = Vec::new();
    for seed in first..first + count {
        if count > SCRIPTS && (seed - first).is_multiple_of(1_000) {
            eprintln!(
                "{kind:?}: {} of {} commands, {} scripts answered differently",
                (seed - first) * SCRIPT_LENGTH as u64,
                count * SCRIPT_LENGTH as u64,
                differences.len()
            );
            // Neither is full, for then each drops items of its own choice.
            ours = self::ours();
            theirs = Memcached::start().expect("it starts again");
        }
        // Of some streams it dies by itself.
        if count > SCRIPTS && theirs.has_died() {
            deaths += 1;
            theirs = Memcached::start().expect("it starts again");
        }
        let name = |run| format!("{kind:?}-{process}-{seed}-{run}");
        let script = Script::random(seed, &name("together"), kind, SCRIPT_LENGTH);
        let stream = script.requests.concat();
        let pieces = Script::pieces(&stream, seed);
        let (answer, reference) = (ours.answer(&pieces), theirs.answer(&pieces));
        if let Some(difference) = difference(&answer, &reference) {
            if count > SCRIPTS && theirs.has_died() {
                eprintln!("{kind:?}: memcached died of seed {seed}");
                continue;
            }
            let alone = Script::random(seed, &name("alone"), kind, SCRIPT_LENGTH);
            let culprit = culprit(&alone, &mut *ours, &mut theirs);
            differences.push(format!("seed {seed}, {difference}\n  first alone: {culprit}\n"));
        }
    }
    // A script of which it dies is compared to nothing.
    assert!(deaths <= count / 1_000, "memcached died {deaths} times in {count} {kind:?} scripts");
    assert!(
        differences.is_empty(),
        "{} of {count} {kind:?} scripts were answered differently:\n{}",
        differences.len(),
        differences.join("\n")
    );
}

#[test]
fn a_text_client_cannot_tell_us_from_memcached() {
    compare(Kind::Text);
}

#[test]
fn a_correct_client_cannot_tell_us_from_memcached() {
    compare(Kind::WellFormed);
}

#[test]
fn a_broken_client_cannot_tell_us_from_memcached() {
    compare(Kind::Hostile);
}
