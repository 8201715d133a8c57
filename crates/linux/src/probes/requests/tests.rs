use super::*;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::RecvTimeoutError;

#[test]
fn buckets_of_times_follow_each_other_within_a_sixtieth() {
    for bucket in 0..RequestTimes::BUCKETS - 1 {
        let (from, to) = RequestTimes::bounds(bucket);
        assert!(from < to && to == RequestTimes::bounds(bucket + 1).0);
        if bucket > 0 {
            assert!((to - from).as_nanos() * 64 <= from.as_nanos());
        }
    }
    assert_eq!(RequestTimes::bounds(1).0, Duration::from_nanos(256));
}

/// The program; prints why if this kernel has none.
fn told(way: RequestWay, program: Result<RequestProgram, BpfError>) -> Option<RequestProgram> {
    program.inspect_err(|error| eprintln!("skipped: {way}: {error}")).ok()
}

fn watching(way: RequestWay, watched: &Watched) -> Option<RequestProgram> {
    told(way, RequestProgram::load_way(&Root::system(), way, watched))
}

/// A client and its server's end, in one thread.
fn connected(listener: &TcpListener) -> (TcpStream, TcpStream) {
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    client.set_nodelay(true).unwrap();
    (client, listener.accept().unwrap().0)
}

/// A server of one connection that answers each byte after a while, `rounds` times; and a
/// client.
fn converse(listener: &TcpListener, rounds: usize, service: std::time::Duration) {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_nodelay(true).unwrap();
            let mut byte = [0];
            while stream.read(&mut byte).unwrap() > 0 {
                let began = std::time::Instant::now();
                while began.elapsed() < service {
                    std::hint::spin_loop();
                }
                stream.write_all(&byte).unwrap();
            }
        });
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.set_nodelay(true).unwrap();
        for _ in 0..rounds {
            client.write_all(b"x").unwrap();
            client.read_exact(&mut [0]).unwrap();
        }
    });
}

fn median(times: &[&RequestTimes]) -> Duration {
    let total: u64 = times.iter().flat_map(|times| &times.counts).map(|&count| u64::from(count)).sum();
    let mut below = 0;
    let bucket = (0..RequestTimes::BUCKETS)
        .find(|&bucket| {
            below += times.iter().map(|times| u64::from(times.counts[bucket])).sum::<u64>();
            below * 2 > total
        })
        .unwrap();
    RequestTimes::bounds(bucket).0
}

#[test]
fn each_way_counts_every_request_and_sees_what_it_says() {
    let service = std::time::Duration::from_micros(300);
    for way in RequestWay::ALL {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let watched = Watched {
            ports: vec![listener.local_addr().unwrap().port()],
            processes: vec![std::process::id()],
        };
        let Some(program) = watching(way, &watched) else { continue };
        converse(&listener, 50, service);
        let seen = program.read();
        let requests: u64 = seen.iter().map(|seen| seen.requests).sum();
        // The client is of this process too, and its reads and writes look like a server's to
        // the last way.
        if way == RequestWay::Calls {
            assert!(requests >= 50, "{way}: {seen:?}");
            continue;
        }
        assert_eq!(requests, 50, "{way}");
        assert_eq!(seen.iter().map(|seen| seen.merged).sum::<u64>(), 0, "{way}");
        let median_of = |which: fn(&RequestCounts) -> Option<&RequestTimes>| {
            median(&seen.iter().filter_map(which).collect::<Vec<_>>())
        };
        let response = median_of(|seen| seen.response.as_ref());
        assert!(response >= Duration::from_micros(295), "{way}: {response}");
        if way == RequestWay::Sockets {
            let taken = median_of(|seen| seen.service.as_ref());
            let waited = median_of(|seen| seen.waiting.as_ref());
            assert!(taken >= Duration::from_micros(295) && taken <= response, "{taken} of {response}");
            assert!(waited < response, "{waited} of {response}");
        } else {
            assert!(seen.iter().all(|seen| seen.service.is_none() && seen.waiting.is_none()));
        }
    }
}

#[test]
fn a_program_that_is_detached_has_no_pulse_and_one_that_is_idle_has() {
    for way in RequestWay::ALL {
        // No process listens there: the heart alone beats.
        let watched = Watched { ports: vec![1], processes: vec![1] };
        let Some(mut program) = watching(way, &watched) else { continue };
        let pause = || std::thread::sleep(std::time::Duration::from_millis(20));
        for _ in 0..5 {
            pause();
            assert_eq!(program.pulse(), Pulse { is_alive: Some(true), peak: 0 }, "{way}");
            assert!(way == RequestWay::Calls || program.read().is_empty(), "no beat is a request: {way}");
        }
        program.sever();
        // The one that was under way.
        program.pulse();
        for _ in 0..3 {
            pause();
            assert_eq!(program.pulse().is_alive, Some(false), "{way}");
        }
    }
}

#[test]
fn an_alarm_is_rung_once_an_epoch_at_its_threshold_and_never_below() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    for way in RequestWay::ALL {
        let watched = Watched {
            ports: vec![listener.local_addr().unwrap().port()],
            processes: vec![std::process::id()],
        };
        let Some(mut program) = watching(way, &watched) else { continue };
        let (sender, heard) = std::sync::mpsc::channel();
        let notifier = program.notifier(move |alarm| sender.send(alarm).unwrap_or_default()).unwrap();
        // Before an expectation nothing is counted.
        converse(&listener, 200, std::time::Duration::ZERO);
        assert_eq!(program.pulse().peak, 0, "{way}");
        // So are windows, when they are asked for: two bursts, and an empty window between them.
        program.count_windows(1).unwrap();
        for _ in 0..2 {
            converse(&listener, 200, std::time::Duration::ZERO);
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let seen = program.windows();
        // Of the last way's requests, those of the client count too.
        assert!((400..=1600).contains(&seen.arrivals) && seen.squares > 0, "{way}: {seen:?}");
        // Peaks are counted without a threshold as well.
        program.expect(None, 1).unwrap();
        converse(&listener, 200, std::time::Duration::ZERO);
        let peak = program.pulse().peak;
        assert!((2..=1000).contains(&peak), "{way}: {peak}");
        program.expect(Some(100_000), 1).unwrap();
        converse(&listener, 200, std::time::Duration::ZERO);
        assert!(heard.recv_timeout(std::time::Duration::from_millis(50)).is_err(), "{way}");
        for _ in 0..2 {
            let before = crate::now();
            let epoch = program.expect(Some(2), 1).unwrap();
            converse(&listener, 400, std::time::Duration::ZERO);
            let alarm = heard.recv_timeout(std::time::Duration::from_secs(5)).unwrap();
            assert!(alarm.epoch == epoch && alarm.arrivals >= 2 && alarm.at > before, "{way}: {alarm:?}");
            // Several CPUs may see the threshold passed at the same moment.
            let more: Vec<RequestAlarm> = heard.try_iter().collect();
            assert!(more.len() <= 1 && more.iter().all(|alarm| alarm.epoch == epoch), "{way}: {more:?}");
        }
        // After its drop the notifier reports no more.
        program.expect(Some(2), 1).unwrap();
        drop(notifier);
        assert!(matches!(
            heard.recv_timeout(std::time::Duration::from_secs(5)),
            Err(RecvTimeoutError::Disconnected)
        ));
    }
}

/// Two kinds of request of one connection, the slow one in every ninth place: a gap in step
/// with them would see one kind only.
#[test]
fn timed_requests_stand_for_all_of_them() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let watched = Watched { ports: vec![listener.local_addr().unwrap().port()], processes: Vec::new() };
    let (rounds, slow) = (40_000_u64, std::time::Duration::from_micros(200));
    let Some(program) = watching(RequestWay::Sockets, &watched) else { return };
    let (mut client, mut server) = connected(&listener);
    let mut byte = [0];
    let began = std::time::Instant::now();
    // One thread is both ends, so requests follow each other as fast as one CPU can.
    for round in 0..rounds {
        client.write_all(b"x").unwrap();
        server.read_exact(&mut byte).unwrap();
        let began = std::time::Instant::now();
        while round % 9 == 0 && began.elapsed() < slow {
            std::hint::spin_loop();
        }
        server.write_all(&byte).unwrap();
        client.read_exact(&mut byte).unwrap();
    }
    if began.elapsed() > std::time::Duration::from_micros(80 * rounds) {
        return eprintln!("skipped: this machine is so slow that each may be timed");
    }
    let seen = program.read();
    let sum = |field: fn(&RequestCounts) -> u64| seen.iter().map(field).sum::<u64>();
    let (timed, held) = (
        sum(|seen| seen.timed),
        sum(|seen| seen.response.iter().flat_map(|times| &times.counts).map(|&count| u64::from(count)).sum()),
    );
    let long = sum(|seen| {
        let from = |bucket: &usize| RequestTimes::bounds(*bucket).0 >= Duration::from_micros(190);
        let service = seen.service.as_ref().unwrap();
        (0..RequestTimes::BUCKETS).filter(from).map(|bucket| u64::from(service.counts[bucket])).sum()
    });
    assert_eq!(sum(|seen| seen.requests), rounds);
    assert!(timed < rounds, "each was timed");
    // A deviation by chance is 3 to 5 %, of the slow ones too.
    let near = |held: u64, truth: u64| held.abs_diff(truth) * 4 < truth;
    assert!(near(held, rounds) && near(long, rounds / 9), "{timed} timed: {held}, slow {long}");
}

#[test]
fn a_kernel_without_ring_buffers_is_watched_without_alarms() {
    for way in RequestWay::ALL {
        let watched = Watched { ports: vec![1], processes: vec![1] };
        let Some(mut program) = told(way, RequestProgram::load_on(&Root::system(), way, &watched, false))
        else {
            continue;
        };
        assert!(program.notifier(|_| {}).unwrap_err().to_string().contains("5.8"), "{way}");
        program.expect(Some(1), 1).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert_eq!(program.pulse().is_alive, Some(true), "{way}");
    }
}

#[test]
fn other_ports_are_not_watched() {
    let (listener, other) =
        (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
    let watched = Watched { ports: vec![other.local_addr().unwrap().port()], processes: Vec::new() };
    for way in [RequestWay::Sockets, RequestWay::Packets] {
        let Some(program) = watching(way, &watched) else { continue };
        converse(&listener, 5, std::time::Duration::ZERO);
        assert_eq!(program.read(), []);
    }
}

#[test]
fn requests_that_do_not_wait_are_merged_and_the_rest_of_a_long_one_is_no_other() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let watched = Watched { ports: vec![listener.local_addr().unwrap().port()], processes: Vec::new() };
    let Some(program) = watching(RequestWay::Sockets, &watched) else { return };
    let (mut client, mut server) = connected(&listener);
    let mut bytes = [0; 8];
    // Two that arrive before the first is read.
    client.write_all(b"a").unwrap();
    client.write_all(b"b").unwrap();
    server.read_exact(&mut bytes[..2]).unwrap();
    server.write_all(b"AB").unwrap();
    // The second half arrives when the first was taken.
    client.write_all(b"c").unwrap();
    server.read_exact(&mut bytes[..1]).unwrap();
    client.write_all(b"d").unwrap();
    server.read_exact(&mut bytes[..1]).unwrap();
    server.write_all(b"CD").unwrap();
    // The next one arrives while this one is served, and is taken after its reply: two
    // requests.
    client.write_all(b"e").unwrap();
    server.read_exact(&mut bytes[..1]).unwrap();
    client.write_all(b"f").unwrap();
    server.write_all(b"E").unwrap();
    server.read_exact(&mut bytes[..1]).unwrap();
    server.write_all(b"F").unwrap();
    // A reply in two parts is one.
    server.write_all(b"!").unwrap();
    let seen = program.read();
    let sum = |field: fn(&RequestCounts) -> u64| seen.iter().map(field).sum::<u64>();
    assert_eq!((sum(|seen| seen.requests), sum(|seen| seen.merged)), (4, 2));
}

#[test]
fn too_many_or_no_ports_are_refused_with_the_number() {
    for ports in [vec![], (1..=17).collect()] {
        let watched = Watched { ports, processes: Vec::new() };
        let error = RequestProgram::load_way(&Root::system(), RequestWay::Packets, &watched).unwrap_err();
        assert!(error.to_string().contains("1 to 16 ports"), "{error}");
    }
}
