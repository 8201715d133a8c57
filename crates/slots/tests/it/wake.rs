//! Both ends of a ring of wake requests, in one process: every entry arrives once and in each
//! thread's order, no entry is slept over, and the reader is bounded for any contents of the
//! memory.

use machine::{CpuId, Duration, Instant};
use proptest::prelude::*;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags,
    SocketType, bind, connect, listen, sendmsg, socket_with,
};
use slots::Map;
use slots::wake::{CPUS_MAX, ConnectError, Outcome, Ring, Said, WakeClient};
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::Ordering::Release;

/// A ring whose other end is handed out as the planner does it.
fn pair(entries: u32) -> (Ring, OwnedFd, WakeClient, UnixStream) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sock");
    let listener = UnixListener::bind(&path).unwrap();
    let client = std::thread::spawn(move || WakeClient::connect(&path, "te\"st").unwrap());
    let (stream, _) = listener.accept().unwrap();
    let mut asked = String::new();
    BufReader::new(&stream).read_line(&mut asked).unwrap();
    assert!(asked.contains(r#""name":"test""#), "{asked}");
    let ring = Ring::create(entries).unwrap();
    let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors = [ring.descriptor(), bell.as_fd()];
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)));
    sendmsg(&stream, &[IoSlice::new(b"ok\n")], &mut ancillary, SendFlags::empty()).unwrap();
    (ring, bell, client.join().unwrap(), stream)
}

/// A planner that hangs, with a queue that others have filled.
#[test]
fn a_planner_that_takes_no_connection_keeps_no_caller_waiting_for_ever() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sock");
    let socket = |flags| socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
    let address = SocketAddrUnix::new(&path).unwrap();
    let listener = socket(SocketFlags::CLOEXEC);
    bind(&listener, &address).unwrap();
    listen(&listener, 1).unwrap();
    let mut queued = Vec::new();
    loop {
        let stream = socket(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK);
        if connect(&stream, &address).is_err() {
            break;
        }
        queued.push(stream);
    }
    let error = WakeClient::connect(&path, "late").unwrap_err();
    assert!(matches!(error, ConnectError::NoPlanner { .. }), "{error}");
}

#[test]
fn entries_of_many_threads_arrive_once_and_in_order_and_no_doorbell_is_missed() {
    const THREADS: u64 = 4;
    const EACH: u64 = 20_000;
    let (mut ring, bell, client, _stream) = pair(64);
    let mut last: BTreeMap<u64, u64> = BTreeMap::new();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let client = &client;
            scope.spawn(move || {
                for nth in 1..=EACH {
                    while client.arrived(thread << 32 | nth, &[CpuId(1)]) == Outcome::Full {
                        std::thread::yield_now();
                    }
                }
            });
        }
        let mut left = THREADS * EACH;
        while left > 0 {
            if !ring.sleep() {
                // Twenty seconds without a bell while something lies there is a bell that was
                // missed.
                let rung = poll(
                    &mut [PollFd::new(&bell, PollFlags::IN)],
                    Some(&rustix::time::Timespec { tv_sec: 20, tv_nsec: 0 }),
                );
                assert_eq!(rung, Ok(1), "{left} are left");
                let _ = rustix::io::read(&bell, &mut [0_u8; 8]);
            }
            ring.wake();
            let mut turn = 0;
            while let Some(said) = ring.take(&mut turn) {
                let Said::Arrived { key, .. } = said else { panic!("{said:?}") };
                let before = last.insert(key >> 32, key & 0xffff_ffff).unwrap_or(0);
                assert_eq!(key & 0xffff_ffff, before + 1);
                left -= 1;
            }
        }
    });
    let tally = ring.tally();
    assert_eq!((tally.taken, tally.nonsense), (THREADS * EACH, 0));
    assert!(tally.rung < THREADS * EACH, "not every entry rings: {tally:?}");
}

#[test]
fn what_is_said_is_what_is_heard() {
    let (mut ring, _bell, client, _stream) = pair(16);
    ring.set_lead(Duration::from_micros(300));
    let ready = client.now() + Duration::from_millis(5);
    let id = client.wake(&[CpuId(3), CpuId(3), CpuId(700)], ready, Duration::from_micros(7)).id().unwrap();
    assert_eq!(client.wake(&[CpuId(1)], client.now(), Duration::ZERO), Outcome::TooLate);
    assert_eq!(client.ended(id), Outcome::Sent(id));
    let mut turn = 0;
    let Some(Said::Wake { id: heard, cpus, ready: at, stay }) = ring.take(&mut turn) else { panic!() };
    assert_eq!((heard, at, stay), (id, ready, Duration::from_micros(7)));
    assert_eq!(cpus.iter().collect::<Vec<_>>(), [CpuId(3), CpuId(700)], "each once");
    assert!(
        matches!(ring.take(&mut turn), Some(Said::Ended { id: heard, at }) if heard == id && at > Instant::ZERO)
    );
    assert_eq!((ring.take(&mut turn), ring.tally().too_late), (None, 1));
    drop(ring);
    assert_eq!(client.came(id), Outcome::Closed);
}

#[test]
fn a_full_ring_is_told_and_has_room_again() {
    let (mut ring, _bell, client, _stream) = pair(4);
    for _ in 0..4 {
        assert!(client.arrived(1, &[]).id().is_some());
    }
    assert_eq!(client.arrived(1, &[]), Outcome::Full);
    let mut turn = 0;
    assert!(ring.take(&mut turn).is_some());
    assert!(client.arrived(1, &[]).id().is_some());
    // A visit ends with a ring's worth, however fast a client writes.
    while ring.take(&mut turn).is_some() {
        client.arrived(1, &[]);
    }
    assert_eq!(turn, 4);
}

proptest! {
    #[test]
    fn whatever_lies_in_the_memory_a_visit_is_bounded(
        words in prop::collection::vec((0_usize..4 * 8, any::<u64>(), any::<bool>()), 1..200),
    ) {
        let mut ring = Ring::create(4).unwrap();
        let memory = std::fs::File::from(ring.descriptor().try_clone_to_owned().unwrap());
        prop_assert!(memory.set_len(64).is_err(), "its length is sealed");
        let map = Map::new(&memory, 4096 + 4 * 64).unwrap();
        for (nth, (word, text, is_near)) in (0_u64..).zip(words) {
            map.word64(4096 + 8 * word).store(if is_near { nth / 4 + text % 8 } else { text }, Release);
            let mut turn = 0;
            let mut heard = 0;
            while let Some(said) = ring.take(&mut turn) {
                heard += 1;
                if let Said::Wake { cpus, .. } = said {
                    prop_assert!(cpus.iter().count() <= CPUS_MAX);
                }
            }
            prop_assert!(heard <= 4 && turn <= 4);
            ring.sleep();
            ring.tally();
        }
    }
}
