//! What a peer may do, out of malice or by mistake.

use super::*;
use crate::cpuidle::control::LimitState;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::time::Instant as Moment;

#[test]
fn an_answer_that_comes_too_late_is_not_taken_for_the_next_one() {
    let machine = FakeMachine::intel_server(1);
    // A holder that has the lock and dawdles.
    let _locks = crate::CpuLocks::take(machine.root(), &cpus("0"), "slow").unwrap();
    let path = machine.path("run/roost/holder-slow.sock");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let lock = machine.path("run/roost/cpu0.lock");
    let text = std::fs::read_to_string(&lock).unwrap() + "asked at holder-slow.sock\n";
    std::fs::write(&lock, text).unwrap();
    let mut asker = open(&machine, "0", "roost serve");
    let (mut stream, _) = listener.accept().unwrap();
    drop(listener);
    let dawdler = std::thread::spawn(move || {
        let _ = stream.read(&mut [0; 256]);
        std::thread::sleep(std::time::Duration::from_millis(2500));
        stream.write_all(
            b"{\"idle\":{\"in_force\":{\"limit\":\"none\",\"kept_stricter\":false,\"has_effect\":true}}}\n",
        )
    });
    assert!(
        matches!(asker.limit("serve", CpuId(0), us(10)), LimitState::Refused { .. }),
        "it does not answer"
    );
    let _ = dawdler.join();
    assert!(matches!(asker.limit("serve", CpuId(0), us(20)), LimitState::Refused { .. }), "the first answer");
}

#[test]
fn sockets_of_the_dead_are_cleared_away_and_those_of_the_living_stay() {
    let machine = FakeMachine::intel_server(2);
    let _first = open(&machine, "0", "first");
    let dead = machine.path("run/roost/holder-4194305-0.sock");
    std::fs::write(&dead, "").unwrap();
    let _second = open(&machine, "1", "second");
    assert!(
        !dead.exists() && socket(&machine).exists(),
        "no process has a number beyond the kernel's greatest"
    );
}

#[test]
fn strangers_bytes_change_nothing_and_end_their_own_connection_only() {
    let machine = FakeMachine::intel_server(2);
    let mut holder = open(&machine, "0-1", "roost govern");
    let path = socket(&machine);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let mut good = UnixStream::connect(&path).unwrap();
    good.write_all(&asks("good", 1, us(9))).unwrap();
    soon("heard", || limit_of(&machine, 1) == "9");
    let long = vec![b'x'; 1 << 20];
    for bytes in [&b"\n"[..], b"\xff\xfe\n", b"{\"asker\":1}\n", &long] {
        let mut bad = UnixStream::connect(&path).unwrap();
        // It may have hung up before all was said.
        let _ = bad.write_all(bytes);
        let _ = bad.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = bad.read_to_end(&mut answer);
        assert!(answer.len() < 2048 && !String::from_utf8_lossy(&answer).contains("in_force"), "{answer:?}");
    }
    // A CPU that is not held here is refused, and the connection goes on.
    good.write_all(&asks("good", 77, IdleLimit::None)).unwrap();
    good.write_all(&asks("good", 0, us(8))).unwrap();
    soon("heard", || limit_of(&machine, 0) == "8");
    assert_eq!(limit_of(&machine, 1), "9");
    drop(good);
    soon("withdrawn", || limit_of(&machine, 0) == "0" && limit_of(&machine, 1) == "0");
    holder.limit("shop", CpuId(0), us(4));
    assert_eq!(limit_of(&machine, 0), "4");
}

#[test]
fn more_askers_than_a_machine_has_are_hung_up_on() {
    let machine = FakeMachine::intel_server(1);
    let _holder = open(&machine, "0", "roost govern");
    let path = socket(&machine);
    let many: Vec<UnixStream> = (0..80).map(|_| UnixStream::connect(&path).unwrap()).collect();
    let mut answered = 0;
    for (number, mut stream) in (1u64..).zip(many.iter()) {
        let mut byte = [0; 1];
        let said = stream.write_all(&asks("a", 0, us(number + 5))).and_then(|()| stream.read(&mut byte));
        answered += usize::from(said.is_ok_and(|length| length == 1));
    }
    assert_eq!((answered, limit_of(&machine, 0).as_str()), (64, "6"));
    drop(many);
    soon("all withdrawn", || limit_of(&machine, 0) == "0");
    open(&machine, "0", "a later one").limit("x", CpuId(0), us(3));
}

#[test]
fn a_peer_that_begins_a_line_or_reads_no_answer_is_hung_up_on_and_nobody_waits_for_it() {
    let machine = FakeMachine::intel_server(1);
    let mut holder = open(&machine, "0", "roost govern");
    let path = socket(&machine);
    // One has half a line, a byte more now and then; one asks and asks, and never reads.
    let mut half = UnixStream::connect(&path).unwrap();
    half.write_all(b"{\"v\":1,\"asker\":\"half\",").unwrap();
    let mut deaf = UnixStream::connect(&path).unwrap();
    deaf.set_write_timeout(Some(std::time::Duration::from_millis(100))).unwrap();
    let flood = asks("deaf", 0, us(7)).repeat(2000);
    let _ = deaf.write_all(&flood);
    let began = Moment::now();
    for round in 0..200 {
        holder.limit("shop", CpuId(0), us(3 + round % 2));
        assert_eq!(limit_of(&machine, 0), (3 + round % 2).to_string());
        let _ = half.write_all(b" ");
    }
    assert!(began.elapsed() < std::time::Duration::from_secs(2), "{:?}", began.elapsed());
    half.set_read_timeout(Some(std::time::Duration::from_secs(5))).unwrap();
    assert_eq!(half.read(&mut [0; 8]).unwrap(), 0, "hung up on");
    holder.withdraw("shop");
    soon("the deaf one is withdrawn", || limit_of(&machine, 0) == "0");
}

#[test]
fn one_that_asks_without_a_pause_is_answered_a_thousand_times_a_second() {
    let machine = FakeMachine::intel_server(1);
    let _holder = open(&machine, "0", "roost govern");
    let mut eager = UnixStream::connect(socket(&machine)).unwrap();
    let mut answers = std::io::BufReader::new(eager.try_clone().unwrap());
    let began = Moment::now();
    let mut line = String::new();
    for number in 0..512 {
        eager.write_all(&asks("eager", 0, us(5 + number % 2))).unwrap();
        line.clear();
        assert!(std::io::BufRead::read_line(&mut answers, &mut line).unwrap() > 0);
    }
    // 256 at once, and then one in a millisecond; what it earned on the way is taken off.
    assert!(began.elapsed() >= std::time::Duration::from_millis(120), "{:?}", began.elapsed());
}

#[test]
fn what_cannot_be_had_stands_in_nobodys_way() {
    let machine = clock::machine("0 1");
    let mut holder = clock::open(&machine, "0-1", "roost govern");
    for cpu in [0, 1] {
        holder.limit("shop", CpuId(cpu), clock::at_most(1_400));
    }
    let mut asker = UnixStream::connect(socket(&machine)).unwrap();
    let mut answers = std::io::BufReader::new(asker.try_clone().unwrap());
    let mut ask = |limit| {
        let ask = wire::Ask::Clock { cpu: CpuId(0), limit };
        let request = wire::Request { v: wire::VERSION, asker: "x".to_owned(), ask };
        asker.write_all(&wire::line(&request)).unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(&mut answers, &mut line).unwrap();
        wire::answer(line.as_bytes()).unwrap()
    };
    let refused = ask(Some(clock::at_most(9_000)));
    assert!(
        matches!(&refused, wire::Answer::Clock(crate::FrequencyState::Refused { reason }) if reason.contains("beyond")),
        "{refused:?}"
    );
    assert_eq!(clock::cap(&machine), "1400000");
    // The others' wishes are followed as before.
    for cpu in [0, 1] {
        holder.limit("shop", CpuId(cpu), clock::at_most(1_000));
    }
    assert_eq!(clock::cap(&machine), "1000000");
    let other_knob = ask_idle(&machine);
    assert!(other_knob.contains("this socket is for clocks"), "{other_knob}");
}

/// What the clocks' holder says to who asks for an idle limit.
fn ask_idle(machine: &FakeMachine) -> String {
    let mut stream = UnixStream::connect(socket(machine)).unwrap();
    stream.write_all(&asks("x", 0, us(5))).unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stream), &mut line).unwrap();
    line
}
