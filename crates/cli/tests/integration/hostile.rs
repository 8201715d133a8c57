//! Clients that misbehave. Each may lose its own connection; no other client may notice.

use crate::fixture::{Client, ConfigFile, Server, is_installed, signal, skipped};
use crate::putting_back::{machine, start};
use linux::EndsWithParent as _;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

/// A well-behaved client still gets what it stored.
fn assert_serves(server: &Server) {
    let mut client = server.connect();
    assert_eq!(client.set("witness", "alive"), "STORED");
    assert_eq!(client.value("witness").as_deref(), Some("alive"));
}

#[test]
fn garbage_costs_its_own_connection_at_most() {
    let server = Server::start(&["--memory-limit", "64m"]);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for round in 0..200 {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
        let bytes: Vec<u8> = (0..(round * 37 % 5000))
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                // Every other round with the bytes that commands are made of.
                if round % 2 == 0 {
                    state as u8
                } else {
                    b"get set mg ms 0123456789\r\n"[state as usize % 26]
                }
            })
            .collect();
        // The server may close before all is written.
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(Shutdown::Write);
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
    }
    assert_serves(&server);
}

#[test]
fn the_binary_protocol_is_refused() {
    let server = Server::start(&["--memory-limit", "64m"]);
    let mut client = server.connect();
    let mut request = [0_u8; 24];
    request[0] = 0x80;
    client.send(request);
    let answer = client.rest();
    assert_eq!((answer[0], answer[7]), (0x81, 0x81), "its own status: an unknown command");
    assert!(answer.ends_with(b"use the text or the meta protocol"), "{answer:?}");
    assert_serves(&server);
}

#[test]
fn a_client_that_half_closes_gets_all_its_answers() {
    let server = Server::start(&["--memory-limit", "64m"]);
    let mut client = server.connect();
    assert_eq!(client.set("k", &"v".repeat(1000)), "STORED");
    client.send("get k\r\n".repeat(2000));
    client.stream.shutdown(Shutdown::Write).unwrap();
    let answers = client.rest();
    assert_eq!(answers.len(), 2000 * ("VALUE k 0 1000\r\n".len() + 1000 + "\r\nEND\r\n".len()));
}

#[test]
fn a_reset_in_the_middle_of_a_value_harms_nobody() {
    let server = Server::start(&["--memory-limit", "64m"]);
    for _ in 0..100 {
        let mut client = server.connect();
        client.send("set half 0 0 100000\r\nabc");
        rustix::net::sockopt::set_socket_linger(&client.stream, Some(Duration::ZERO)).unwrap();
    }
    assert_serves(&server);
    let mut client = server.connect();
    assert_eq!(client.value("half"), None);
}

#[test]
fn a_client_that_stalls_in_the_middle_of_a_request_is_waited_for() {
    let server = Server::start(&["--memory-limit", "64m"]);
    let mut slow = server.connect();
    for piece in ["set sl", "ow 0 0", " 5\r", "\nhe", "llo", "\r", "\n"] {
        slow.send(piece);
        assert_serves(&server);
    }
    assert_eq!(slow.line(), "STORED");
    assert_eq!(slow.value("slow").as_deref(), Some("hello"));
}

#[test]
fn clients_that_never_read_are_held_back_then_closed_and_memory_stays_bounded() {
    let server =
        Server::start(&["--memory-limit", "64m", "--config", &ConfigFile::new("[limits]\nstall = \"2s\"")]);
    let mut writer = server.connect();
    assert_eq!(writer.set("big", &"x".repeat(1_000_000)), "STORED");
    let mut greedy: Vec<Client> = (0..200).map(|_| server.connect()).collect();
    for client in &mut greedy {
        client.stream.set_nonblocking(true).unwrap();
        // What the server does not read stays in the socket.
        let _ = client.stream.write(&b"get big\r\n".repeat(1000));
    }
    let bound = (64 << 20) + (64 << 20);
    let until = Instant::now() + Duration::from_secs(60);
    let mut peak = 0;
    loop {
        peak = peak.max(server.rss());
        assert!(peak <= bound, "resident memory {peak} above the limit + 64 MiB");
        let open: u32 = writer.stat("", "curr_connections").expect("a statistic").parse().unwrap();
        if open <= 2 {
            break;
        }
        assert!(Instant::now() < until, "{open} connections still open; the stall limit is 2 s");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_serves(&server);
    println!("peak resident memory with 200 clients that never read: {} MiB", peak >> 20);
}

#[test]
fn half_sent_values_of_many_clients_stay_within_the_memory_limit() {
    let server = Server::start(&["--memory-limit", "64m"]);
    let mut clients: Vec<Client> = (0..300).map(|_| server.connect()).collect();
    let half = "y".repeat(900_000);
    for (n, client) in clients.iter_mut().enumerate() {
        client.send(format!("set half{n} 0 0 1000000\r\n{half}"));
    }
    assert!(server.rss() <= 128 << 20, "{} MiB resident", server.rss() >> 20);
    // A client that was refused memory is told so, and its value is swallowed, not taken for
    // commands.
    let rest = "y".repeat(100_000);
    let mut stored = 0;
    for client in &mut clients {
        // One that has waited for long with much in the server's memory has given way: its
        // connection is closed.
        let sent = client.stream.write_all(format!("{rest}\r\n").as_bytes());
        let Ok(Some(answer)) = sent.and_then(|()| client.try_line()) else { continue };
        assert!(answer == "STORED" || answer.starts_with("SERVER_ERROR out of memory"), "{answer}");
        stored += u32::from(answer == "STORED");
        assert!(client.ask("version").starts_with("VERSION"));
    }
    assert!(stored > 0, "some fit");
    assert!(server.rss() <= 128 << 20, "{} MiB resident", server.rss() >> 20);
}

/// The store and memcached, with the same limit and the same items, while a thousand clients each
/// have sent half a value: how many items a server keeps is what its users feel.
#[test]
fn beside_a_thousand_half_sent_values_as_many_items_stay_as_in_memcached() {
    if !is_installed("memcached") {
        return skipped("items beside memcached", "no memcached (apt-get install memcached)");
    }
    if let Err(reason) = raise_descriptor_limit(4_000) {
        return skipped("items beside memcached", &reason);
    }
    for (item, value) in [(1_000, 1_000_000), (1_000, 100_000), (1_000, 2_000), (100, 100_000)] {
        let peer = Memcached::start();
        let theirs = kept_beside_half_sent(peer.port, item, value, true);
        drop(peer);
        let server = Server::start(&[
            "--memory-limit",
            "64m",
            "--config",
            &ConfigFile::new("[limits]\nconnections = 2000"),
        ]);
        let ours = kept_beside_half_sent(server.port, item, value, false);
        println!("values of {item} bytes beside half-sent ones of {value}: {ours} kept, memcached {theirs}");
        assert!(ours * 10 >= theirs * 9, "{ours} items are kept, and {theirs} by memcached");
    }
}

/// Fills a server of 64 MiB with more values of `item` bytes than it holds, has a thousand clients
/// send half of a value each, stores some more, and counts the items. `may_refuse`: memcached refuses
/// a value while its own thread has not yet moved items to where they can be evicted, as on a busy
/// host; such a value is sent again.
fn kept_beside_half_sent(port: u16, item: usize, value: usize, may_refuse: bool) -> usize {
    let mut client = Client::connect(port);
    let (before, items) = ((66 << 20) / item, (67 << 20) / item);
    let text = "v".repeat(item);
    for batch in (0..before).step_by(500) {
        let keys = batch..before.min(batch + 500);
        let sets: String = keys.map(|n| format!("ms k{n} {item} q\r\n{text}\r\n")).collect();
        let mut refused = Vec::new();
        loop {
            client.send(format!("{sets}mn\r\n"));
            let before = refused.len();
            loop {
                match client.line() {
                    end if end == "MN" => break,
                    other => refused.push(other),
                }
            }
            if refused.len() == before {
                break;
            }
            assert!(may_refuse && refused.len() < 100_000, "all are stored: {}", refused[0]);
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    let half = "h".repeat(value / 2);
    let mut silent: Vec<Client> = (0..1_000).map(|_| Client::connect(port)).collect();
    for (n, client) in silent.iter_mut().enumerate() {
        // A server may close a connection that it has no memory for.
        let _ = client.stream.write_all(format!("set half{n} 0 0 {value}\r\n{half}").as_bytes());
    }
    for n in before..items {
        // It may fail; the items that are there in the end are counted.
        client.set(&format!("k{n}"), &text);
    }
    let mut kept = 0;
    for batch in (0..items).step_by(500) {
        let keys = batch..items.min(batch + 500);
        client.send(keys.map(|n| format!("mg k{n}\r\n")).collect::<String>() + "mn\r\n");
        loop {
            match client.line().as_str() {
                "MN" => break,
                "HD" => kept += 1,
                other => assert_eq!(other, "EN"),
            }
        }
    }
    kept
}

/// A memcached that is told to end when this goes.
struct Memcached {
    process: std::process::Child,
    port: u16,
    _folder: tempfile::TempDir,
}

impl Memcached {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let told = folder.path().join("port");
        let mut command = std::process::Command::new("memcached");
        // Port -1: the kernel chooses one, and memcached tells it in the file.
        command.args(["-l", "127.0.0.1", "-p", "-1", "-U", "0", "-m", "64", "-c", "2000", "-t", "2"]);
        command.env("MEMCACHED_PORT_FILENAME", &told);
        if rustix::process::getuid().is_root() {
            command.args(["-u", "root"]);
        }
        let mut process = command.ends_with_parent().spawn().expect("memcached starts");
        let until = Instant::now() + Duration::from_secs(60);
        let port = loop {
            let text = std::fs::read_to_string(&told).unwrap_or_default();
            let port = text.lines().find_map(|line| line.strip_prefix("TCP INET: ")?.trim().parse().ok());
            if let Some(port) = port {
                break port;
            }
            assert!(process.try_wait().unwrap().is_none(), "memcached ended");
            assert!(Instant::now() < until, "memcached does not listen");
            std::thread::sleep(Duration::from_millis(10));
        };
        Self { process, port, _folder: folder }
    }
}

impl Drop for Memcached {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_half_sent_value_gives_way_when_connections_have_no_memory_left() {
    let server =
        Server::start(&["--memory-limit", "64m", "--config", &ConfigFile::new("[limits]\nstall = \"24h\"")]);
    let half = "y".repeat(400_000);
    let mut silent: Vec<Client> = (0..40).map(|_| server.connect()).collect();
    for (n, client) in silent.iter_mut().enumerate() {
        client.send(format!("set half{n} 0 0 1000000\r\n{half}"));
    }
    // A value that comes in two parts needs memory between them.
    let until = Instant::now() + Duration::from_secs(300);
    let mut client = server.connect();
    let stored = |client: &mut Client| {
        client.send(format!("set later 0 0 800000\r\n{half}"));
        std::thread::sleep(Duration::from_millis(20));
        client.send(format!("{half}\r\n"));
        client.line() == "STORED"
    };
    while !stored(&mut client) {
        assert!(Instant::now() < until, "no memory for a client that goes on: the silent ones keep it");
    }
    assert_serves(&server);
}

#[test]
fn statistics_of_the_machine_keep_no_client_waiting() {
    let machine = machine();
    let server = start(machine.path(), &[]);
    let (mut curious, mut other) = (server.connect(), server.connect());
    for client in [&mut curious, &mut other] {
        assert!(client.ask("version").starts_with("VERSION"));
    }
    // A file that takes for ever to open: what a reading of a large machine takes is a matter of
    // milliseconds. The one that is open has died, as when a driver registers again.
    let cpu = linux::allowed_cpus().unwrap().0.first().unwrap().0;
    let file = machine.path().join(format!("sys/devices/system/cpu/cpu{cpu}/cpuidle/state1/time"));
    let (pipe, plain) = (file.with_file_name("pipe"), file.with_file_name("plain"));
    std::fs::write(&file, "dead\n").unwrap();
    std::fs::write(&plain, "0\n").unwrap();
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    std::fs::hard_link(&pipe, file.with_file_name("held")).unwrap();
    std::fs::rename(&pipe, &file).unwrap();
    for _ in 0..3 {
        assert!(curious.stat("roost", &format!("cpu{cpu}:residency_C1_us")).is_some());
        assert!(other.ask("version").starts_with("VERSION"));
    }
    // The reading ends, and with it the server can.
    std::fs::rename(&plain, &file).unwrap();
    let held = std::fs::OpenOptions::new().read(true).write(true).open(file.with_file_name("held"));
    assert_eq!(server.terminate().0, Some(0));
    drop(held);
}

#[test]
fn ten_thousand_connections_are_served() {
    if let Err(reason) = raise_descriptor_limit(12_000) {
        return skipped("ten thousand connections", &reason);
    }
    let server = Server::start(&[
        "--memory-limit",
        "64m",
        "--config",
        &ConfigFile::new("[limits]\nconnections = 10100"),
    ]);
    let mut streams: Vec<TcpStream> = Vec::with_capacity(10_000);
    for _ in 0..10_000 {
        streams.push(TcpStream::connect(("127.0.0.1", server.port)).unwrap());
    }
    for round in 0..2 {
        for stream in &mut streams {
            stream.write_all(b"mn\r\n").unwrap();
        }
        for (n, stream) in streams.iter_mut().enumerate() {
            let mut answer = [0_u8; 4];
            stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            stream.read_exact(&mut answer).unwrap_or_else(|e| panic!("connection {n}, round {round}: {e}"));
            assert_eq!(&answer, b"MN\r\n");
        }
    }
    println!("resident memory with 10,000 connections: {} MiB", server.rss() >> 20);
    assert!(server.rss() <= 128 << 20);
}

#[test]
fn beyond_the_connection_limit_clients_are_refused_at_once() {
    let server =
        Server::start(&["--memory-limit", "64m", "--config", &ConfigFile::new("[limits]\nconnections = 3")]);
    let mut clients: Vec<Client> = (0..3).map(|_| server.connect()).collect();
    for client in &mut clients {
        assert_eq!(client.ask("mn"), "MN");
    }
    let mut fourth = server.connect();
    assert_eq!(fourth.line(), "ERROR Too many open connections");
    assert!(fourth.rest().is_empty(), "and closed");
    assert_eq!(clients[0].stat("", "rejected_connections").as_deref(), Some("1"));
    clients.pop();
    let served = (0..3_000).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        // A refused one may be reset, with its request unread.
        let mut next = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
        let mut text = String::new();
        let _ = next.write_all(b"mn\r\nquit\r\n").and_then(|()| next.read_to_string(&mut text));
        text == "MN\r\n"
    });
    assert!(served, "served as soon as another left");
}

#[test]
fn running_out_of_descriptors_neither_spins_nor_ends_the_server() {
    let mut command = std::process::Command::new("sh");
    command.args([
        "-c",
        &format!("ulimit -n 64; exec {} serve --port 0 --idle-actuator none", crate::fixture::ROOST),
    ]);
    let server = Server::start_command(&mut command);
    let mut clients: Vec<Client> = (0..80).map(|_| server.connect()).collect();
    assert_eq!(clients[0].ask("mn"), "MN");
    let used = cpu_ticks(server.pid());
    std::thread::sleep(Duration::from_secs(2));
    let spent = cpu_ticks(server.pid()) - used;
    assert!(spent < 50, "{spent} of 200 ticks in 2 s: the acceptor spins");
    clients.drain(..40);
    assert_eq!(clients.last_mut().unwrap().ask("mn"), "MN", "accepted once descriptors are free");
}

#[test]
fn sigterm_answers_what_was_sent_and_exits_cleanly() {
    let server = Server::start(&["--memory-limit", "64m"]);
    let mut client = server.connect();
    assert_eq!(client.set("k", "v"), "STORED");
    client.send("get k\r\n".repeat(1000));
    // The answer to the last request proves that the others were read.
    let mut seen = 0;
    while seen < 10 {
        if client.line() == "END" {
            seen += 1;
        }
    }
    signal(server.pid(), "TERM");
    let rest = client.rest();
    let ends = rest.windows(5).filter(|window| window == b"END\r\n").count();
    assert_eq!(seen + ends, 1000, "every request that was in the socket is answered");
    let (code, _) = server.terminate();
    assert_eq!(code, Some(0));
}

#[test]
fn without_clients_the_server_hardly_wakes() {
    let server = Server::start(&["--memory-limit", "64m", "--workers", "4"]);
    drop(server.connect());
    std::thread::sleep(Duration::from_secs(1));
    let before = context_switches(server.pid());
    std::thread::sleep(Duration::from_secs(5));
    let switches = context_switches(server.pid()) - before;
    assert!(switches <= 15, "{switches} context switches in 5 s without clients; at most 3 per second");
    println!("context switches in 5 s without clients: {switches}");
}

fn raise_descriptor_limit(needed: u64) -> Result<(), String> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    let maximum = limit.maximum.map_or(needed, |maximum| maximum.max(needed));
    setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum: Some(maximum) })
        .map_err(|error| format!("the descriptor limit is {:?}: {error}", limit.current))
}

/// User and system time of a process, in clock ticks of 10 ms.
fn cpu_ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("the server runs");
    let fields: Vec<&str> = stat.rsplit(')').next().expect("fields").split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

/// Voluntary switches of all threads: each is one wake-up.
fn context_switches(pid: u32) -> u64 {
    std::fs::read_dir(format!("/proc/{pid}/task"))
        .expect("the server runs")
        .map(|task| {
            let status = std::fs::read_to_string(task.unwrap().path().join("status")).unwrap_or_default();
            let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches")).unwrap_or("0");
            line.split_whitespace().last().unwrap().parse::<u64>().unwrap()
        })
        .sum()
}

#[test]
fn a_stop_answers_all_that_was_received() {
    const REQUESTS: usize = 15_000;
    let server = Server::start(&["--memory-limit", "64m"]);
    let mut clients: Vec<Client> = (0..20).map(|_| server.connect()).collect();
    for client in &mut clients {
        assert_eq!(client.ask("mn"), "MN");
    }
    // While the server stands, the requests reach its sockets; the end is what it sees first as it
    // goes on.
    signal(server.pid(), "STOP");
    for client in &mut clients {
        client.send("mn\r\n".repeat(REQUESTS));
    }
    signal(server.pid(), "TERM");
    signal(server.pid(), "CONT");
    for client in &mut clients {
        assert_eq!(client.rest().len(), "MN\r\n".len() * REQUESTS);
    }
}
