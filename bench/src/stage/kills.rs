//! Servers are killed and started again over and over, and every request is checked. It is answered
//! once, by the server that was asked for it, or with a clean error of the proxy. A request that
//! may not be repeated is done once at most.
//!
//! Each request has a path of its own, the stand-ins write down every path before they answer, and
//! say it in the answer.

use super::child::Running;
use crate::exit::{Exit, coded};
use crate::harness::figure::{Figure, Of};
use crate::harness::{Measured, Run};
use anyhow::{Context as _, Result};
use machine::Duration;
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use workload::Random;

#[derive(Clone, Copy, Debug, Default)]
struct Results {
    seconds: f64,
    kills: u64,
    requests: u64,
    /// With a server's answer, the right one.
    answered: u64,
    /// With 502, 503 or 504, whole.
    clean_errors: u64,
    /// With another request's answer, half an answer, or none.
    wrong: u64,
    /// POSTs that a server was asked twice.
    twice: u64,
}

const CLIENTS: u64 = 32;
const SERVERS: usize = 3;

pub fn measure(run: &mut Run, length: Duration) -> Result<()> {
    let folder = tempfile::tempdir().context("a folder")?;
    let log = folder.path().join("log");
    let log = log.to_str().context("a folder with a name in letters")?;
    let start = |listen: &str| Running::service(&["--service", "search1", "--log", log, "--listen", listen]);
    let mut servers = (0..SERVERS).map(|_| start("127.0.0.1:0")).collect::<Result<Vec<_>>>()?;
    let addresses: Vec<String> = servers.iter().map(|server| server.address.clone()).collect();
    let names: Vec<&str> = addresses.iter().map(String::as_str).collect();
    let proxy = Running::proxy(
        &names,
        &["--period", "50ms", "--goal", "500ms@p99.9", "--class", "live;path=/live;never"],
    )?;
    let is_over = AtomicBool::new(false);
    let looks_on = std::io::IsTerminal::is_terminal(&std::io::stderr());
    let began = Instant::now();
    let mut results = std::thread::scope(|scope| -> Result<Results> {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let (address, is_over) = (&proxy.address, &is_over);
                scope.spawn(move || client(address, number, is_over))
            })
            .collect();
        let mut chance = Random::new(1, CLIENTS);
        let mut kills = 0;
        let mut kill = || -> Result<()> {
            let which = chance.below(SERVERS as u64) as usize;
            servers[which].kill();
            std::thread::sleep(std::time::Duration::from_millis(chance.below(500)));
            servers[which] = start(&addresses[which])?;
            kills += 1;
            std::thread::sleep(std::time::Duration::from_millis(chance.below(1500)));
            Ok(())
        };
        let killed = loop {
            if began.elapsed() >= length.into() {
                break Ok(());
            }
            if let Err(error) = kill() {
                break Err(error);
            }
            if looks_on {
                let (gone, all) = (began.elapsed().as_secs_f64(), length.as_secs_f64());
                crate::print::over(std::io::stderr(), &format!("{gone:.0} of {all:.0} s"));
            }
        };
        if looks_on {
            eprintln!();
        }
        is_over.store(true, Ordering::Relaxed);
        let mut sum = Results { kills, ..Results::default() };
        for client in clients {
            let one = client.join().expect("a client does not panic");
            sum.requests += one.requests;
            sum.answered += one.answered;
            sum.clean_errors += one.clean_errors;
            sum.wrong += one.wrong;
        }
        killed.map(|()| sum)
    })?;
    results.seconds = began.elapsed().as_secs_f64();
    let text = std::fs::read_to_string(log).context("the servers' log")?;
    let mut done: BTreeMap<&str, u32> = BTreeMap::new();
    text.lines().filter(|line| line.starts_with("POST")).for_each(|line| *done.entry(line).or_default() += 1);
    results.twice = done.values().filter(|times| **times > 1).count() as u64;
    if results.answered == 0 {
        return Err(coded(Exit::Invalid, "no request was answered at all; see what the proxy said above"));
    }
    let count = |count: u64| count as f64;
    let Results { seconds, kills, requests, answered, clean_errors, wrong, twice } = results;
    let measured = [
        ("seconds", seconds),
        ("kills", count(kills)),
        ("requests", count(requests)),
        ("answered", count(answered)),
        ("clean_errors", count(clean_errors)),
        ("wrong", count(wrong)),
        ("lost", count(requests) - count(answered + clean_errors)),
        ("posts_done_twice", count(twice)),
    ];
    let case = format!("{CLIENTS} clients, {SERVERS} servers");
    run.block(&case, 0, KILLED, Measured::of(measured))
}

pub fn figures() -> Vec<Figure> {
    let of = |metric| Figure::new(metric, "", Of::One(KILLED));
    let mut figures = ["kills", "requests", "answered", "clean_errors"].map(of).to_vec();
    figures.extend(["wrong", "lost", "posts_done_twice"].map(|metric| of(metric).at_most(0.0)));
    figures
}

const KILLED: &str = "servers killed";

fn client(address: &str, number: u64, is_over: &AtomicBool) -> Results {
    let mut results = Results::default();
    let mut chance = Random::new(1, number);
    let mut connection: Option<BufReader<TcpStream>> = None;
    for count in 0.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let kind = if chance.below(8) == 0 { "live" } else { "held" };
        let path = format!("/{kind}/{number}/{count}");
        let request = if chance.below(3) == 0 {
            format!("POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Length: 4\r\n\r\nbody")
        } else {
            format!("GET {path} HTTP/1.1\r\nHost: bench\r\n\r\n")
        };
        results.requests += 1;
        match ask(&mut connection, address, &request) {
            Some((200, body)) if body.contains(&format!("\"{path}\"")) => results.answered += 1,
            Some((502..=504, _)) => results.clean_errors += 1,
            said => {
                eprintln!("{path}: {said:?}");
                results.wrong += 1;
                connection = None;
            }
        }
        std::thread::sleep(std::time::Duration::from_millis(chance.below(200)));
    }
    results
}

/// Status and body; `None` if there is no whole answer.
fn ask(connection: &mut Option<BufReader<TcpStream>>, address: &str, request: &str) -> Option<(u16, String)> {
    if connection.is_none() {
        *connection = Some(BufReader::new(TcpStream::connect(address).ok()?));
    }
    let reader = connection.as_mut()?;
    reader.get_mut().write_all(request.as_bytes()).ok()?;
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let status = line.split(' ').nth(1)?.parse().ok()?;
    let mut length = 0;
    loop {
        line.clear();
        reader.read_line(&mut line).ok()?;
        match line.trim_end().split_once(':') {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                length = value.trim().parse().ok()?
            }
            Some(_) => {}
            None => break,
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((status, String::from_utf8(body).ok()?))
}
