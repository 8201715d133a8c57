//! Policies of one's own: code outside the workspace decides once an epoch.

use super::{document, task};
use machine::{Duration, Kilohertz, Rate};
use policy::carb::{Controller, Epoch, Params};
use policy::kind::{CorePolicy, Make, Making};
use policy::own::{Decide, Orders, Own, Reading};
use policy::registry::{Entry, Registry, Word};
use sim::outcome::Outcome;
use sim::policies;
use sim::runner::run_all;
use std::sync::Once;

struct By<F>(F);

impl<F: FnMut(&Reading<'_>) -> Result<Orders, String> + 'static> Decide for By<F> {
    fn on_epoch(&mut self, reading: &Reading<'_>) -> Result<Orders, String> {
        (self.0)(reading)
    }
}

fn every(
    epoch: Duration,
    making: &Making<'_>,
    decide: impl FnMut(&Reading<'_>) -> Result<Orders, String> + 'static,
) -> Box<dyn CorePolicy> {
    Box::new(Own::new(Box::new(By(decide)), making, epoch, 0.95))
}

fn once(making: &Making<'_>, orders: Orders) -> Box<dyn CorePolicy> {
    every(Duration::from_millis(10), making, move |_| Ok(orders))
}

/// The built-in search, called from outside.
fn carb(making: &Making<'_>) -> Box<dyn CorePolicy> {
    let params = Params::default();
    let mut search = Controller::new(params, making.workers);
    every(params.epoch, making, move |reading| {
        let responses = reading.responses;
        let rate = Some(Rate::of(responses.count, reading.span));
        let epoch = Epoch { rate, tail: responses.tail, mean: responses.mean, busy: None };
        Ok(Orders { cores: Some(search.handle_epoch(&epoch)), ..Orders::default() })
    })
}

const fn entry(words: &'static [Word], make: fn(&Making<'_>) -> Box<dyn CorePolicy>) -> Entry {
    Entry { words, make: Make::Cores(make), ..Entry::PLAIN }
}

static CARB: Entry = entry(&[Word::bare("own-carb", "")], carb);
static POLLING: Entry = entry(&[Word::bare("own-polling", "")], |making| {
    let (cores, idle_limit) = (Some(4), Some(Duration::ZERO));
    once(making, Orders { cores, idle_limit, clock: None })
});
static SLOW: Entry = entry(&[Word::bare("own-slow", "")], |making| {
    once(making, Orders { clock: Some(Kilohertz(1)), ..Orders::default() })
});
static WILD: Entry = entry(&[Word::bare("own-wild", "")], |making| {
    once(making, Orders { cores: Some(making.workers + 1), ..Orders::default() })
});
static LATE: Entry = entry(&[Word::bare("own-late", "")], |making| {
    every(Duration::from_millis(10), making, |reading| match reading.now.as_nanos() {
        0..30_000_000 => Ok(Orders::default()),
        _ => Err("no more".to_owned()),
    })
});
static BROKEN: Entry =
    entry(&[Word::bare("own-broken", "")], |making| Box::new(Own::failed("never".to_owned(), making)));
static OWN: &Registry = &[&CARB, &POLLING, &SLOW, &WILD, &LATE, &BROKEN];

fn join() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| policies::join(OWN));
}

/// At a load of three cores of ten.
fn run(line: &str) -> Result<Outcome, String> {
    join();
    let set = [("run.utilisation", toml::Value::Float(0.3))];
    task(document(&set), line, 1).run().map_err(|error| error.to_string())
}

#[test]
fn a_search_that_is_called_from_outside_decides_as_the_built_in_one() {
    let length = [("run.requests", toml::Value::Integer(2_000_000))];
    join();
    let outcome = |line: &str| {
        let mut outcome = task(document(&length), line, 3).run().expect("a scenario");
        (outcome.contestant, outcome.policies) = Default::default();
        serde_json::to_string(&outcome).expect("plain data")
    };
    let own = outcome("own-carb");
    assert!(own == outcome("carb") && own != outcome("menu"));
}

#[test]
fn active_cores_are_limited_and_parked_ones_are_not() {
    let outcome = run("own-polling + deep").unwrap();
    // Ten in the first of twenty epochs, then four.
    assert!((outcome.active - 4.3).abs() < 0.05, "{}", outcome.active);
    let deepest = outcome.states.last().unwrap().share;
    // Six of ten are parked, but for the first epoch; one works for three, the fourth polls.
    assert!((0.5..0.61).contains(&deepest), "{deepest}");
    let polling = outcome.polling;
    assert!((0.05..0.15).contains(&polling), "{polling}");
}

#[test]
fn a_clock_is_that_of_all_cores_unless_another_word_decides_it() {
    let power = |line: &str| run(line).unwrap().power.cores_watts;
    let (slow, fast) = (power("own-slow"), power("menu"));
    assert!(slow < fast, "{slow} {fast}");
    assert!(power("own-slow + rubik") > slow);
}

#[test]
fn a_fault_ends_its_own_run_and_says_why() {
    for (line, problem) in [
        ("own-late", "policies: `own-late`: no more"),
        ("own-broken", "policies: `own-broken`: never"),
        ("own-wild + teo", "policies: `own-wild + teo`: 11 cores are none of the machine's: order 1 to 10"),
    ] {
        assert_eq!(run(line).unwrap_err(), problem);
    }
    let tasks = ["own-late", "menu"].map(|line| task(document(&[]), line, 1));
    let results = run_all(&tasks, 1, &Default::default(), |_, _| {});
    assert!(results[0].is_err() && results[1].is_ok());
}

#[test]
#[should_panic(expected = "a policy is called `menu` already")]
fn a_word_is_one_policys() {
    static MENU: Entry = entry(&[Word::bare("menu", "")], carb);
    static AGAIN: &Registry = &[&MENU];
    policies::join(AGAIN);
}
