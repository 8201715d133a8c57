//! Goal: a value read under full speed is never a mixture of two calls, and the counts are right
//! afterwards. Method: each writer gives its Nth call a time and a method that follow from N, so
//! the reader can check them against the sequence alone.

use crate::memory_folder;
use machine::Duration;
use slots::{Activity, Reader, Writer, WriterOptions};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant as Clock;

const METHODS: [&str; 5] = ["a", "b", "c", "d", "e"];

/// When the call of that odd sequence began, and in which method.
fn call(sequence: u32) -> (u64, u16) {
    (u64::from(sequence).wrapping_mul(0x9e37_79b9_7f4a_7c15), (sequence % 5) as u16)
}

#[test]
fn a_racing_reader_never_sees_a_torn_slot_and_n_pairs_make_2n() {
    const PAIRS: u32 = 1_500_000;
    const THREADS: usize = 3;
    let folder = memory_folder();
    let path = folder.path().join("slots");
    let options = WriterOptions { slots: 8, ..WriterOptions::default() };
    let writer = Writer::create(&path, &METHODS, options).unwrap();
    let mut reader = Reader::open(&path).unwrap();
    let running = AtomicUsize::new(THREADS);
    let (mut looks, mut inside, mut moving) = (0u64, 0u64, 0u64);
    thread::scope(|scope| {
        for index in 0..THREADS {
            let (writer, running) = (&writer, &running);
            scope.spawn(move || {
                let slot = writer.register_as(100 + index as i32);
                for pair in 0..PAIRS {
                    let (at, method) = call(2 * pair + 1);
                    let method = writer.method(method.into()).unwrap();
                    let depth = slot.enter_at(method, at).unwrap();
                    if pair % 4 == 0 {
                        // From inside: a depth, no sequence.
                        let nested = slot.enter_at(method, at + 1).unwrap();
                        slot.exit_at(method, nested, || 0);
                    }
                    // Long enough, now and then, for a reader to meet it.
                    for _ in 0..pair % 64 {
                        std::hint::spin_loop();
                    }
                    slot.exit_at(method, depth, || 0);
                }
                std::mem::forget(slot);
                running.fetch_sub(1, Ordering::Release);
            });
        }
        let mut sequences = BTreeMap::new();
        while running.load(Ordering::Acquire) > 0 {
            for slot in reader.look().unwrap() {
                looks += 1;
                match slot.activity {
                    Activity::Inside { method, since, depth } => {
                        assert_eq!((since.as_nanos(), method), call(slot.sequence), "{slot:?}");
                        assert!((1..=2).contains(&depth), "{slot:?}");
                        inside += 1;
                    }
                    Activity::Outside { last } => assert_eq!((slot.sequence % 2, last), (0, None)),
                    Activity::Moving => moving += 1,
                }
                let before = sequences.insert(slot.index, slot.sequence).unwrap_or(0);
                assert!(before <= slot.sequence, "a sequence ran backwards");
            }
        }
    });
    println!("{looks} slots read, {inside} inside, {moving} moving");
    assert!(inside > 0, "the race was none");
    for slot in reader.look().unwrap() {
        assert_eq!((slot.sequence, slot.nested), (2 * PAIRS, u64::from(PAIRS.div_ceil(4))));
        assert_eq!(slot.activity, Activity::Outside { last: None });
    }
}

#[test]
fn events_of_many_threads_are_whole_and_in_order_or_counted_as_lost() {
    const CALLS: u64 = 200_000;
    const THREADS: i32 = 3;
    let folder = memory_folder();
    let path = folder.path().join("slots");
    let options = WriterOptions { slots: 8, events: 4096, ..WriterOptions::default() };
    let writer = Writer::create(&path, &METHODS, options).unwrap();
    let mut reader = Reader::open(&path).unwrap();
    let running = AtomicUsize::new(THREADS as usize);
    let (mut seen, mut lost) = (0, 0);
    thread::scope(|scope| {
        for index in 0..THREADS {
            let (writer, running) = (&writer, &running);
            scope.spawn(move || {
                let slot = writer.register_as(100 + index);
                for number in 0..CALLS {
                    let (at, method) = call(2 * number as u32 + 1);
                    let method = writer.method(method.into()).unwrap();
                    let depth = slot.enter_at(method, at).unwrap();
                    slot.exit_at(method, depth, || call(2 * number as u32 + 2).0);
                    // At times slow enough for the reader to keep up, at times not.
                    for _ in 0..number / 1000 % 64 * 20 {
                        std::hint::spin_loop();
                    }
                }
                running.fetch_sub(1, Ordering::Release);
            });
        }
        let mut last = BTreeMap::new();
        let mut is_last_round = false;
        loop {
            let found = reader.events().unwrap();
            lost += found.lost;
            for event in &found.events {
                assert_eq!(event.at.as_nanos(), call(event.sequence).0, "{event:?}");
                assert_eq!(event.depth, u16::from(event.sequence % 2 == 1));
                let before = last.insert(event.tid, event.sequence).unwrap_or(0);
                assert!(before < event.sequence, "{event:?} after {before}");
                seen += 1;
            }
            if is_last_round && found.events.is_empty() && found.lost == 0 {
                break;
            }
            is_last_round = running.load(Ordering::Acquire) == 0;
        }
    });
    println!("{seen} events read, {lost} lost");
    assert_eq!(seen + lost, 2 * CALLS * THREADS as u64);
}

#[test]
fn exit_times_tell_how_long_the_last_call_took() {
    let folder = memory_folder();
    let path = folder.path().join("slots");
    let writer = Writer::create(&path, &METHODS, WriterOptions::default()).unwrap();
    let mut reader = Reader::open(&path).unwrap();
    let (slot, method) = (writer.register(), writer.method(0).unwrap());
    drop(slot.enter(method));
    assert_eq!(reader.look().unwrap()[0].activity, Activity::Outside { last: None });
    reader.enable(slots::Enable::OnWithExitTimes).unwrap();
    let began = Clock::now();
    {
        let _inside = slot.enter(method);
        thread::sleep(std::time::Duration::from_millis(3));
    }
    let most = Duration::from_nanos(began.elapsed().as_nanos() as u64);
    match reader.look().unwrap()[0].activity {
        Activity::Outside { last: Some(last) } => assert!(last >= Duration::from_millis(3) && last <= most),
        other => panic!("{other:?}"),
    }
    reader.enable(slots::Enable::Off).unwrap();
    drop(slot.enter(method));
    assert_eq!(reader.look().unwrap()[0].sequence, 4, "what is off records nothing");
}
