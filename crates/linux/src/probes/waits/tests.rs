use super::*;
use crate::EndsWithParent as _;
use machine::LengthHistogram;
use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::mpsc;
use std::thread;

const ROLE: WaitRole = WaitRole { group: 7, is_critical: true, is_background: false, is_asked: false };

fn program(is_causal: bool) -> Option<WaitProgram> {
    let cpus = crate::online_cpus(&crate::Root::system()).unwrap();
    crate::probes::unless_lacking(WaitProgram::load(&cpus, is_causal))
}

/// The number of a thread's sleeps that are looked at.
const SLEEPS: usize = 8;

fn own_number() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().try_into().unwrap()
}

/// Events in a failure's message.
const SHOWN: usize = 64;

/// Events that were read and not asked for yet.
struct Ears<'a> {
    program: &'a WaitProgram,
    heard: VecDeque<WaitEvent>,
    /// The last ones that were passed over, to find out why an event was not reported.
    passed: VecDeque<WaitEvent>,
}

impl<'a> Ears<'a> {
    fn of(program: &'a WaitProgram) -> Self {
        Self { program, heard: VecDeque::new(), passed: VecDeque::new() }
    }

    /// The next event of this thread that satisfies the condition; those before are passed over.
    fn find<T>(&mut self, thread: u32, what: &str, found: impl Fn(WaitHappened) -> Option<T>) -> T {
        let patience = std::time::Instant::now() + std::time::Duration::from_secs(20);
        loop {
            while let Some(event) = self.heard.pop_front() {
                self.passed.push_front(event);
                self.passed.truncate(SHOWN);
                if event.task.id == thread
                    && let Some(found) = found(event.happened)
                {
                    return found;
                }
            }
            let lost = self.program.lost();
            assert!(std::time::Instant::now() < patience, "{what}, {lost} lost: {:?}", self.passed);
            thread::sleep(std::time::Duration::from_millis(1));
            self.heard.extend(self.program.take());
        }
    }
}

/// Waits until it is in the expected wait, as seen from outside. A wait of any other kind, such as
/// that for a page of its program, is over first, and then no thread need wake it.
fn wait_for_reading(process: u32) {
    let patience = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !reads_standard_input(process) {
        assert!(std::time::Instant::now() < patience, "it waits");
        thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// The kernel shows a call and its arguments only of a blocked thread: the first one is the
/// descriptor.
fn reads_standard_input(process: u32) -> bool {
    let text = std::fs::read_to_string(format!("/proc/{process}/syscall")).unwrap_or_default();
    let mut words = text.split_ascii_whitespace();
    let number = words.next().and_then(|word| word.parse().ok());
    number.is_some_and(|number| calls::class_of(number) == calls::ON_DESCRIPTOR)
        && words.next() == Some("0x0")
}

/// It blocks on this.
fn on(kind: WaitKind) -> impl Fn(WaitHappened) -> Option<()> {
    move |happened| (blocked(happened) == Some(kind)).then_some(())
}

fn blocked(happened: WaitHappened) -> Option<WaitKind> {
    match happened {
        WaitHappened::Blocked { on, .. } => Some(on),
        _ => None,
    }
}

#[test]
fn what_a_thread_waits_for_and_who_wakes_it_is_told() {
    let Some(program) = program(false) else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut far, _) = listener.accept().unwrap();
    let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = datagrams.local_addr().unwrap();
    let (pipe_out, pipe_in) = rustix::pipe::pipe().unwrap();
    let (polled_out, polled_in) = rustix::pipe::pipe().unwrap();
    let (numbers, number) = mpsc::channel();
    let (go, goes) = mpsc::channel::<()>();
    let (stop, enough) = mpsc::channel::<()>();
    let sleeper = thread::spawn(move || {
        numbers.send(own_number()).unwrap();
        goes.recv().unwrap();
        far.read_exact(&mut [0]).unwrap();
        datagrams.recv(&mut [0]).unwrap();
        rustix::io::read(&pipe_out, &mut [0]).unwrap();
        let mut polled = [rustix::event::PollFd::new(&polled_out, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut polled, None).unwrap();
        listener.accept().unwrap();
        // Not this many times: a timer that fires before its thread has gone to sleep blocks no
        // thread.
        while enough.try_recv() == Err(mpsc::TryRecvError::Empty) {
            thread::sleep(std::time::Duration::from_millis(1));
        }
    });
    let thread = number.recv().unwrap();
    // It waits already, or will: `/proc` says so, or the first event.
    let mut ears = Ears::of(&program);
    let first = program.assign(std::process::id(), ROLE).unwrap();
    let at_first = first.iter().find(|event| event.task.id == thread);
    assert!(at_first.is_none_or(|event| event.task.role == ROLE));
    match at_first
        .map(|event| event.happened)
        .filter(|happened| *happened != WaitHappened::Unblocked { by: None })
    {
        Some(happened) => assert_eq!(blocked(happened), Some(WaitKind::Within)),
        // It ran, or an event came before the look.
        None => ears.find(thread, "it waits for this thread", on(WaitKind::Within)),
    }
    let me = own_number();
    let woken = |happened| match happened {
        WaitHappened::Unblocked { by } => Some(by),
        _ => None,
    };
    // Others may wake it in between, from a missing page or a lock; that is no matter of this test.
    let by_me = |happened| woken(happened).flatten().filter(|by| by.id == me);
    let woken_by_me = |ears: &mut Ears<'_>, what: &str| {
        assert_eq!(ears.find(thread, what, by_me).role, ROLE, "{what}");
    };
    // On a busy machine the kernel hands packets to a thread of its own (ksoftirqd), and then no
    // waker is reported; never a wrong one.
    let mut told = 0;
    let mut by_me_or_nobody = |ears: &mut Ears<'_>, what: &str| {
        if let Some(by) = ears.find(thread, what, woken) {
            assert_eq!((by.id, by.role), (me, ROLE), "{what}");
            told += 1;
        }
    };
    go.send(()).unwrap();
    woken_by_me(&mut ears, "by a futex");
    ears.find(thread, "a peer on this machine", on(WaitKind::Local));
    near.write_all(&[1]).unwrap();
    by_me_or_nobody(&mut ears, "through a socket");
    ears.find(thread, "a peer anywhere", on(WaitKind::Network));
    UdpSocket::bind("127.0.0.1:0").unwrap().send_to(&[1], to).unwrap();
    by_me_or_nobody(&mut ears, "by a datagram");
    ears.find(thread, "a pipe", on(WaitKind::Other));
    rustix::io::write(&pipe_in, &[1]).unwrap();
    woken_by_me(&mut ears, "through a pipe");
    ears.find(thread, "anything", on(WaitKind::Many));
    rustix::io::write(&polled_in, &[1]).unwrap();
    woken_by_me(&mut ears, "through what it polled");
    ears.find(thread, "a client", on(WaitKind::Network));
    let _client = TcpStream::connect(near.peer_addr().unwrap()).unwrap();
    by_me_or_nobody(&mut ears, "by connecting");
    // A wake-up that comes during another task's call that can wake others passes for that task's;
    // on a busy machine some do.
    let by_nobody = (0..SLEEPS).filter(|_| {
        ears.find(thread, "a time", on(WaitKind::Within));
        ears.find(thread, "the timer", woken).is_none()
    });
    let by_nobody = by_nobody.count();
    stop.send(()).unwrap();
    assert!(by_nobody > SLEEPS / 2, "an interrupt is no thread: {by_nobody} of {SLEEPS}");
    assert!(told > 0, "a sender is told, unless the machine is so busy all the time");
    ears.find(thread, "it ends", |happened| (happened == WaitHappened::Ended).then_some(()));
    sleeper.join().unwrap();
    assert_eq!(program.lost(), 0);
    program.dismiss(std::process::id());
}

#[test]
fn children_have_their_parents_role_and_others_are_not_told_of() {
    let Some(program) = program(false) else { return };
    let mut parent = std::process::Command::new("sh")
        .args(["-c", "read line; sleep 600 & read line; kill $!"])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut stranger = std::process::Command::new("sh")
        .args(["-c", "sleep 0.01; exec sleep 600"])
        .ends_with_parent()
        .spawn()
        .unwrap();
    let role = WaitRole { group: 3, ..ROLE };
    program.assign(parent.id(), role).unwrap();
    let mut ears = Ears::of(&program);
    parent.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    let child = ears.find(parent.id(), "it forks", |happened| match happened {
        WaitHappened::Forked { child } => Some(child),
        _ => None,
    });
    assert_eq!(child.role, role);
    // It may have waited for the disk with its program before.
    ears.find(child.id, "the child sleeps", on(WaitKind::Within));
    parent.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    let patience = std::time::Instant::now() + std::time::Duration::from_secs(20);
    let mut ended = BTreeSet::new();
    while ended.len() < 2 {
        for event in ears.heard.drain(..).chain(program.take()) {
            assert_ne!(event.task.id, stranger.id(), "{event:?}");
            if event.happened == WaitHappened::Ended {
                ended.insert(event.task.id);
            }
        }
        assert!(std::time::Instant::now() < patience, "both end: {ended:?}");
        thread::sleep(std::time::Duration::from_millis(1));
    }
    assert_eq!(ended, BTreeSet::from([parent.id(), child.id]));
    parent.wait().unwrap();
    // A thread that comes and goes between two looks leaves no room taken.
    for process in [parent.id(), child.id] {
        assert_eq!(program.roles.lookup(&process.to_ne_bytes(), MapFlags::ANY).unwrap(), None);
    }
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}

#[test]
fn a_request_is_followed_to_whom_it_reaches_and_back() {
    let Some(program) = program(true) else { return };
    if !program.sees_requests() {
        println!("SKIPPED: this kernel has no event of a read from a socket (Linux 6.3)");
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    program.follow_ports(&BTreeSet::from([port])).unwrap();
    let role = WaitRole { group: 2, is_asked: true, ..WaitRole::default() };
    assert!(program.assign(std::process::id(), role).unwrap().is_empty(), "no thread is critical yet");
    let mut worker = std::process::Command::new("head")
        .args(["-c", "1"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let (mut asks, mut answers) = (worker.stdin.take().unwrap(), worker.stdout.take().unwrap());
    wait_for_reading(worker.id());
    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let (mut connection, _) = listener.accept().unwrap();
    client.write_all(&[1]).unwrap();
    connection.read_exact(&mut [0]).unwrap();
    asks.write_all(&[1]).unwrap();
    answers.read_exact(&mut [0]).unwrap();
    connection.write_all(&[2]).unwrap();
    worker.wait().unwrap();
    let (me, events) = (own_number(), program.take());
    let of = |thread: u32| -> Vec<WaitHappened> {
        events.iter().filter(|event| event.task.id == thread).map(|event| event.happened).collect()
    };
    let triggered = of(me).into_iter().find_map(|happened| match happened {
        WaitHappened::Triggered { request, port } => Some((request, port)),
        _ => None,
    });
    let (request, to) = triggered.expect("this thread read it");
    assert_eq!(to, port);
    let by_me = |happened: &WaitHappened| matches!(happened, WaitHappened::Marked { by } if by.id == me);
    assert!(of(worker.id()).iter().any(by_me), "this thread woke the worker: {:?}", of(worker.id()));
    let is_from_worker = |happened: &WaitHappened| matches!(happened, WaitHappened::Received { .. });
    assert!(of(me).iter().any(is_from_worker), "through a pipe: {:?}", of(me));
    assert!(of(me).contains(&WaitHappened::Responded { request }), "{:?}", of(me));
}

#[test]
fn what_goes_through_a_pipe_is_followed_though_nobody_was_woken() {
    let Some(program) = program(true) else { return };
    if !program.sees_requests() {
        println!("SKIPPED: this kernel has no event of a read from a socket (Linux 6.3)");
        return;
    }
    let (out, into) = rustix::pipe::pipe().unwrap();
    let inode = rustix::fs::fstat(&into).unwrap().st_ino;
    // Its threads are followed as they are; a marked one is reported in the same way.
    program.assign(std::process::id(), ROLE).unwrap();
    let (me, mut ears) = (own_number(), Ears::of(&program));
    rustix::io::write(&into, &[1]).unwrap();
    let channel = ears.find(me, "it writes", |happened| match happened {
        WaitHappened::Sent { channel } => Some(channel),
        _ => None,
    });
    assert_eq!(channel, WaitChannel::Pipe(inode));
    program.dismiss(std::process::id());
    // Another process, of no group, which never waits for it.
    let reader = std::process::Command::new("head")
        .args(["-c", "1"])
        .stdin(out)
        .stdout(std::process::Stdio::null())
        .spawn();
    let mut reader = reader.unwrap();
    let received = |happened| match happened {
        WaitHappened::Received { channel } => Some(channel),
        _ => None,
    };
    assert_eq!(ears.find(reader.id(), "it reads", received), channel);
    reader.wait().unwrap();
}

/// The reader never sleeps, so nothing wakes it, and it has each byte before the writer's own call
/// has returned.
#[test]
fn what_is_read_while_the_writer_still_writes_is_followed() {
    let Some(program) = program(true) else { return };
    if !program.sees_requests() {
        println!("SKIPPED: this kernel has no event of a read from a socket (Linux 6.3)");
        return;
    }
    const BYTES: usize = 500;
    let (out, into) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::NONBLOCK).unwrap();
    let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
    far.set_nonblocking(true).unwrap();
    program.assign(std::process::id(), ROLE).unwrap();
    for (written, read) in [(into, out), (near.into(), far.into())] {
        let (numbers, number) = mpsc::channel();
        let (acknowledged, next) = mpsc::channel();
        let reader = thread::spawn(move || {
            numbers.send(own_number()).unwrap();
            for _ in 0..BYTES {
                while rustix::io::read(&read, &mut [0]) != Ok(1) {}
                acknowledged.send(()).unwrap();
            }
        });
        let (reads, mut ears) = (number.recv().unwrap(), Ears::of(&program));
        let mut received = 0;
        for _ in 0..BYTES {
            rustix::io::write(&written, &[1]).unwrap();
            next.recv().unwrap();
            ears.heard.extend(program.take());
            received += ears.heard.drain(..).filter(|event| is_receipt(event, reads)).count();
        }
        reader.join().unwrap();
        received += program.take().iter().filter(|event| is_receipt(event, reads)).count();
        assert_eq!(received, BYTES);
    }
    program.dismiss(std::process::id());
}

fn is_receipt(event: &WaitEvent, thread: u32) -> bool {
    event.task.id == thread && matches!(event.happened, WaitHappened::Received { .. })
}

#[test]
fn it_rings_when_all_wait_and_once_armed_as_soon_as_one_goes_on() {
    let Some(program) = program(false) else { return };
    // Not a shell: some wait for any of several things before they read.
    let mut child = std::process::Command::new("head")
        .args(["-c", "2"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .ends_with_parent()
        .spawn()
        .unwrap();
    // A process of its own, which blocks on a pipe: that is not to be slept through. Before, it may
    // wait for pages of its program, and it would never stop for data that is there when it comes
    // to read.
    program.assign(child.id(), ROLE).unwrap();
    wait_for_reading(child.id());
    let rings = || {
        let notifier = program.notifier();
        let mut ends = [rustix::event::PollFd::new(&notifier, rustix::event::PollFlags::IN)];
        let timeout = rustix::event::Timespec { tv_sec: 20, tv_nsec: 0 };
        rustix::event::poll(&mut ends, Some(&timeout)).unwrap() > 0
    };
    program.take();
    program.arm(true);
    child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    assert!(rings(), "one goes on");
    Ears::of(&program).find(child.id(), "it goes on", |happened| {
        matches!(happened, WaitHappened::Unblocked { .. }).then_some(())
    });
    program.arm(false);
    child.kill().unwrap();
    assert!(rings(), "no critical thread works");
    child.wait().unwrap();
    assert!(program.rings() >= 2);
}

#[test]
fn all_idle_is_counted_as_time_that_is_less_than_what_passed() {
    let Some(program) = program(false) else { return };
    let (before, began) = (program.all_idle(), crate::now());
    let patience = std::time::Instant::now() + std::time::Duration::from_secs(20);
    loop {
        let after = program.all_idle();
        let (slept, passed) = (after.time - before.time, crate::now().since(began));
        assert!(slept <= passed, "{slept} of {passed}");
        assert_eq!(after.lengths.count(), after.times);
        if after.times > before.times {
            assert!(!slept.is_zero());
            return;
        }
        if std::time::Instant::now() > patience {
            println!("SKIPPED: other work kept a CPU busy all the time");
            return;
        }
        thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// All CPUs wake at the same moments, and one of them reads. In an emulator, where a timer takes
/// the CPU away from any task, that is often between two words of another's count, or on another's
/// way to sleep.
#[test]
fn all_idle_is_whole_while_others_count_it() {
    // In a thread of its own, for it stays on its CPU.
    thread::spawn(read_while_others_count).join().unwrap();
}

fn read_while_others_count() {
    const ROUNDS: u32 = 8_000;
    let Some(program) = program(false) else { return };
    let cpus = crate::online_cpus(&crate::Root::system()).unwrap();
    let began = std::time::Instant::now();
    let sleep_until = move |round: u32| {
        let moment = began + std::time::Duration::from_micros(500) * round;
        thread::sleep(moment.saturating_duration_since(std::time::Instant::now()));
    };
    let mut cpus = cpus.0.into_iter();
    crate::pin_current_thread(cpus.next().unwrap()).unwrap();
    let others = cpus.map(|cpu| {
        thread::spawn(move || {
            crate::pin_current_thread(cpu).unwrap();
            (0..ROUNDS).for_each(sleep_until);
        })
    });
    let others: Vec<_> = others.collect();
    // A CPU that the hypervisor holds up adds a length late: the bound is on all since the first
    // look, not on each round.
    let looked = crate::now();
    let before = program.all_idle();
    let mut after = before.clone();
    for round in 0..ROUNDS {
        sleep_until(round);
        after = program.all_idle();
        let (slept, passed) = (after.time - before.time, crate::now().since(looked));
        assert!(slept <= passed, "{slept} of {passed}");
        // Each counted one has its time, too.
        for (bucket, (&count, &time)) in after.lengths.counts.iter().zip(&after.lengths.times).enumerate() {
            let (from, to) = LengthHistogram::bounds(bucket);
            let is_within = time >= from * count && (time < to * count || count == 0 && time.is_zero());
            assert!(is_within, "{count} between {from} and {to} in {time}");
        }
    }
    others.into_iter().for_each(|other| other.join().unwrap());
    println!("all idle {} times in {ROUNDS} rounds", after.times);
}
