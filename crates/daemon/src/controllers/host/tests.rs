use super::*;
use crate::control::Callers;
use linux::Root;
use linux::arbiter::{Arbiter, ClockMeans};
use std::sync::atomic::AtomicU32;
use std::sync::mpsc::{Receiver, channel};

/// A controller that counts the things that it holds, and panics on command.
struct Made {
    place: &'static str,
    held: Arc<AtomicU32>,
    told: Receiver<()>,
    sender: Sender<()>,
}

fn panic_at(place: &str, here: &str) {
    assert!(place != here, "told to panic in {here}");
}

impl Controller for Made {
    type Config = (&'static str, Arc<AtomicU32>);

    fn open(_: &Machine, (place, held): &Self::Config) -> Result<Self, Refusal> {
        panic_at(place, "open");
        if *place == "refused" {
            return Err(Refusal::usage("not today"));
        }
        held.fetch_add(1, Ordering::SeqCst);
        let (sender, told) = channel();
        Ok(Self { place, held: Arc::clone(held), told, sender })
    }

    fn ender(&self) -> Box<dyn Fn() + Send> {
        let sender = self.sender.clone();
        Box::new(move || {
            let _ = sender.send(());
        })
    }

    fn run(&mut self, _: &mut dyn FnMut(&mut Self)) -> Result<Option<String>, Refusal> {
        panic_at(self.place, "run");
        self.told.recv().map(|()| None).map_err(Refusal::failed)
    }

    fn status(&self, _: Instant) -> ControllerStatus {
        unreachable!("nothing is shown")
    }

    fn drain_notices(&mut self) -> Vec<String> {
        Vec::new()
    }

    fn release(&mut self) -> Vec<String> {
        panic_at(self.place, "release");
        vec!["put back".to_owned()]
    }

    fn seen(&self) -> Seen<'_> {
        unreachable!("nothing observes it")
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        self.held.fetch_sub(1, Ordering::SeqCst);
    }
}

fn host(shared: &Arc<Mutex<Shared>>, events: &Sender<Event>) -> Host {
    Host {
        name: "made".to_owned(),
        run: 1,
        machine: Machine {
            root: Root::system(),
            dry_run: true,
            record: None,
            audit: None,
            frequency: ClockMeans::default(),
            ends: Arc::default(),
            arbiter: Arbiter::new(&Root::system(), "a test"),
            callers: Callers::at("roost.sock".as_ref()),
        },
        shared: Arc::clone(shared),
        events: events.clone(),
        observer: None,
        realtime: false,
    }
}

fn happened(place: &'static str) -> (Vec<Happened>, u32) {
    let (events, told) = channel();
    let (shared, held) = (Arc::default(), Arc::new(AtomicU32::new(0)));
    let thread = host(&shared, &events).start::<Made>(&(place, Arc::clone(&held))).unwrap();
    if !matches!(place, "open" | "run" | "refused") {
        while lock(&shared).ender.is_none() {
            std::thread::yield_now();
        }
        lock(&shared).ender.as_ref().unwrap()();
    }
    thread.join().expect("its panics are caught");
    drop(events);
    let told = told.iter().map(|event| match event {
        Event::Controller(_, happened) => happened,
        other => panic!("{other:?}"),
    });
    (told.collect(), held.load(Ordering::SeqCst))
}

#[test]
fn one_that_is_told_to_end_puts_back_and_says_so() {
    let (told, held) = happened("nowhere");
    assert_eq!(held, 0);
    let [Happened::Opened, Happened::Ended { outcome: Ok(None), lines, is_final: false }] = &told[..] else {
        panic!("{told:?}");
    };
    assert_eq!(lines, &["put back"]);
}

#[test]
fn a_refusal_leaves_nothing_behind() {
    let (told, held) = happened("refused");
    assert!(matches!(&told[..], [Happened::Refused(refusal)] if refusal.message == "not today"), "{told:?}");
    assert_eq!(held, 0);
}

#[test]
fn a_panic_anywhere_puts_back_and_withdraws_it_for_good() {
    for place in ["open", "run", "release"] {
        let (told, held) = happened(place);
        assert_eq!(held, 0, "{place}: dropped, so put back");
        let Some(Happened::Ended { outcome, lines, is_final }) = told.last() else { panic!("{told:?}") };
        assert_eq!(*is_final, place != "release", "{place}");
        assert_eq!(lines.len(), usize::from(place == "run"), "{place}: {lines:?}");
        assert!(place == "release" || outcome.is_err(), "{place}");
    }
}

#[test]
fn one_that_is_told_before_it_has_taken_hold_never_runs() {
    let (events, told) = channel();
    let shared: Arc<Mutex<Shared>> = Arc::default();
    lock(&shared).is_told.store(true, Ordering::Release);
    let held = Arc::new(AtomicU32::new(0));
    host(&shared, &events).start::<Made>(&("run", Arc::clone(&held))).unwrap().join().unwrap();
    drop(events);
    assert!(matches!(
        told.iter().collect::<Vec<_>>()[..],
        [Event::Controller(_, Happened::Ended { outcome: Ok(None), is_final: false, .. })]
    ));
    assert_eq!(held.load(Ordering::SeqCst), 0);
}
