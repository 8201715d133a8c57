//! A recorded run, replayed, says the same; with one reading changed it does not.

use crate::store::Store;
use machine::Duration;
use policy::log::{Divergence, Recorded, replay};
use policy::peafowl::{Params, Worker};
use policy::{Scheduling, Why};

/// A run with everything in it: packing, a burst, relief, closes, and segments that follow each
/// other.
fn recorded() -> Store {
    let mut store = Store::new(Params::default().scaled(30.0), 4, 11);
    store.teach(1_500.0);
    store.record();
    for client in 0..24 {
        store.connect_at(if client == 0 { 900.0 } else { 20.0 }, client % 3, client % 3);
    }
    store.run_for(Duration::from_millis(1500));
    store.set_rates(300.0);
    store.run_for(Duration::from_millis(500));
    store.record();
    for client in (0..24).step_by(3) {
        store.close(client);
    }
    store.set_rates(3.0);
    store.run_for(Duration::from_secs(3));
    assert!(store.moves_by(Why::Ordered) > 10 && store.moves_by(Why::Burst) > 3, "a lively run");
    store
}

fn segments<P: Recorded>(text: &str) -> usize {
    let replayed = replay::<P>(text).unwrap_or_else(|divergence| panic!("{divergence}"));
    assert_eq!(replayed.steps + replayed.segments, text.lines().count());
    replayed.segments
}

#[test]
fn every_instance_says_the_same_again() {
    let store = recorded();
    let (scheduler, workers) = store.logs.split_last().expect("one log at least");
    assert_eq!(segments::<Scheduling>(scheduler), 2);
    for (log, entry) in workers.iter().zip(&store.entries) {
        assert_eq!(segments::<Worker>(log), 2);
        assert_eq!(replay::<Worker>(log).unwrap().state, entry.policy, "and ends in the same state");
    }
    // The second segment by itself is as good.
    let second = scheduler.match_indices("{\"state\"").nth(1).unwrap().0;
    assert_eq!(segments::<Scheduling>(&scheduler[second..]), 1);
}

#[test]
fn one_changed_reading_changes_the_commands() {
    let store = recorded();
    let log = store.logs.last().unwrap();
    // The reading before the first order says that the load was too high to pack anything.
    let ordered = log.lines().position(|line| line.contains("move_connection")).expect("an order");
    let before = log.lines().take(ordered).collect::<Vec<_>>();
    let reading = before.iter().rposition(|line| line.contains("\"reading\"")).expect("a reading before it");
    let changed: Vec<String> = log
        .lines()
        .enumerate()
        .map(
            |(at, line)| {
                if at == reading { line.replace("\"load\":", "\"load\":1000") } else { line.to_owned() }
            },
        )
        .collect();
    match replay::<Scheduling>(&changed.join("\n")) {
        Err(Divergence::Output { line, .. }) => assert!(line > reading && line <= ordered + 1, "line {line}"),
        other => panic!("the replay noticed nothing: {other:?}"),
    }
}

#[test]
fn one_changed_sample_changes_what_a_worker_reports() {
    let store = recorded();
    let log = &store.logs[0];
    let changed = log.replacen("\"requests\":1}", "\"requests\":3}", 1);
    assert_ne!(*log, changed);
    // The request is counted in the books, so the state that the next segment begins with differs
    // if no output did.
    assert!(matches!(replay::<Worker>(&changed), Err(Divergence::Output { .. } | Divergence::State { .. })));
}
