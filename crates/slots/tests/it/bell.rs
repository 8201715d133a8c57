//! The doorbell: rung once per sleep, by the first enter; never missed; a sleep that nothing ends
//! costs one look.

use crate::memory_folder;
use machine::Duration;
use slots::{Memory, Reader, Slot, Woken, Writer, WriterOptions};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration as StdDuration, Instant as Clock};

#[test]
fn an_enter_ends_the_sleep_at_once_and_a_sleep_ends_by_itself() {
    let folder = memory_folder();
    let path = folder.path().join("slots");
    let writer = Writer::create(&path, &["m"], WriterOptions::default()).unwrap();
    let mut reader = Reader::open(&path).unwrap();
    assert_eq!(reader.sleep(Some(Duration::from_millis(20))).unwrap(), Woken::TimedOut);
    let began = Clock::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(StdDuration::from_millis(50));
            let slot = writer.register();
            let _inside = slot.enter(writer.method(0).unwrap());
            thread::sleep(StdDuration::from_millis(200));
        });
        assert_eq!(reader.sleep(Some(Duration::from_secs(10))).unwrap(), Woken::Entered);
        assert!(began.elapsed() < StdDuration::from_millis(245), "woken by the enter, not by the exit");
        // A thread is inside: no sleep at all.
        assert_eq!(reader.sleep(None).unwrap(), Woken::Entered);
    });
}

#[test]
fn a_call_from_another_thread_ends_the_sleep() {
    let folder = memory_folder();
    let path = folder.path().join("slots");
    let _writer = Writer::create(&path, &["m"], WriterOptions::default()).unwrap();
    let mut reader = Reader::open(&path).unwrap();
    let bell = reader.bell();
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(StdDuration::from_millis(30));
            bell.ring().unwrap();
        });
        assert_eq!(reader.sleep(None).unwrap(), Woken::Called);
    });
}

/// A call to end between two sleeps is seen in the next one, also if two come at once.
#[test]
fn no_call_is_slept_through() {
    let folder = memory_folder();
    let path = folder.path().join("slots");
    let _writer = Writer::create(&path, &["m"], WriterOptions::default()).unwrap();
    let mut reader = Reader::open(&path).unwrap();
    let bell = reader.bell();
    let soon = Some(machine::Duration::from_secs(20));
    bell.ring().unwrap();
    assert_eq!(reader.sleep(soon).unwrap(), Woken::Called, "before it slept");
    bell.ring().unwrap();
    bell.ring().unwrap();
    assert_eq!(reader.sleep(soon).unwrap(), Woken::Called, "twice before it slept");
    // Once is heard once.
    assert_eq!(reader.sleep(Some(machine::Duration::from_millis(1))).unwrap(), Woken::TimedOut);
    for _ in 0..200 {
        thread::scope(|scope| {
            let both = [bell.clone(), bell.clone()].map(|bell| scope.spawn(move || bell.ring().unwrap()));
            assert_eq!(reader.sleep(soon).unwrap(), Woken::Called);
            both.into_iter().for_each(|ring| ring.join().unwrap());
        });
        // The slower of the two may have come after that.
        while reader.sleep(Some(machine::Duration::from_millis(1))).unwrap() != Woken::TimedOut {}
    }
}

/// Calls that begin in the very moment at which the reader falls asleep: none may be slept through.
/// A call that is missed would hold the test until the sleep's own end.
#[test]
fn no_enter_is_slept_through() {
    const SLEEPS: usize = 400;
    let folder = memory_folder();
    let path = folder.path().join("slots");
    let writer = Writer::create(&path, &["m"], WriterOptions::default()).unwrap();
    let mut reader = Reader::open(&path).unwrap();
    let (is_awake, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            let slot = writer.register();
            let mut turn = 0u32;
            while !is_over.load(Ordering::Acquire) {
                // A little later each time, so that every moment of falling asleep is met.
                turn = turn.wrapping_add(1);
                for _ in 0..(turn % 200) * 50 {
                    std::hint::spin_loop();
                }
                let inside = slot.enter(writer.method(0).unwrap());
                while !is_awake.swap(false, Ordering::AcqRel) && !is_over.load(Ordering::Acquire) {
                    thread::yield_now();
                }
                drop(inside);
            }
        });
        for _ in 0..SLEEPS {
            assert_eq!(reader.sleep(Some(Duration::from_secs(5))).unwrap(), Woken::Entered);
            is_awake.store(true, Ordering::Release);
            thread::yield_now();
        }
        is_over.store(true, Ordering::Release);
    });
}

/// A thread that is known to be inside, alive or dead, does not keep the reader awake; another
/// one's enter still wakes it.
#[test]
fn a_call_that_is_known_disturbs_no_sleep() {
    let folder = memory_folder();
    let path = folder.path().join("slots");
    let writer = Writer::create(&path, &["f"], WriterOptions::default()).unwrap();
    let method = writer.method(0).unwrap();
    let dead = writer.register();
    let inside = dead.enter(method);
    let mut reader = Reader::open(&path).unwrap();
    let known = reader.look().unwrap()[0];
    let is_known = move |slot: &Slot| (slot.index, slot.sequence) == (known.index, known.sequence);
    let short = Some(Duration::from_millis(5));
    assert_eq!(reader.sleep(short).unwrap(), Woken::Entered, "a sleep that knows no thread does not begin");
    assert_eq!(reader.sleep_beside(is_known, short).unwrap(), Woken::TimedOut);
    assert_eq!(reader.sleep_beside(is_known, Some(Duration::from_millis(1))).unwrap(), Woken::TimedOut);
    let entered = thread::spawn(move || {
        let slot = writer.register();
        let inside = slot.enter(method);
        std::mem::forget(inside);
        std::mem::forget(slot);
    });
    assert_eq!(reader.sleep_beside(is_known, Some(Duration::from_secs(60))).unwrap(), Woken::Entered);
    entered.join().unwrap();
    drop(inside);
}

/// Memory whose waits all end early, as a futex's do when signals come.
#[derive(Debug)]
struct Restless {
    bytes: Mutex<Vec<u8>>,
    waits: Arc<AtomicU32>,
}

impl Memory for Restless {
    fn read(&self, bytes: &mut [u8], offset: usize) -> io::Result<()> {
        bytes.copy_from_slice(&self.bytes.lock().unwrap()[offset..offset + bytes.len()]);
        Ok(())
    }

    fn write32(&self, offset: usize, word: u32) -> io::Result<()> {
        self.bytes.lock().unwrap()[offset..offset + 4].copy_from_slice(&word.to_le_bytes());
        Ok(())
    }

    fn wait(&self, _: u32, timeout: Option<Duration>) -> io::Result<()> {
        self.waits.fetch_add(1, Ordering::Relaxed);
        let early = timeout.unwrap_or(Duration::from_secs(1)).scale(0.5).min(Duration::from_micros(500));
        thread::sleep(early.into());
        Ok(())
    }

    fn wake(&self) -> io::Result<()> {
        Ok(())
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.bytes.lock().unwrap().len() as u64)
    }
}

#[test]
fn waits_that_end_early_shorten_no_sleep() {
    let bytes = slots::image(&["m"], &WriterOptions::default());
    let (length, waits) = (bytes.len() as u64, Arc::new(AtomicU32::new(0)));
    let memory = Restless { bytes: Mutex::new(bytes), waits: waits.clone() };
    let mut reader = Reader::from_memory(Box::new(memory), length, Path::new("memory")).unwrap();
    let began = Clock::now();
    assert_eq!(reader.sleep(Some(Duration::from_millis(20))).unwrap(), Woken::TimedOut);
    assert!(began.elapsed() >= StdDuration::from_millis(20), "{:?}", began.elapsed());
    assert!(waits.load(Ordering::Relaxed) > 2);
}
