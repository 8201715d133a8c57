//! Servers are killed and come back, clients come and leave, for ten seconds: every request is
//! answered once or with a clean error, and nothing that may not be repeated is done twice.

use crate::fixture::{Act, Client, Upstream, proxy, say, until};
use machine::Duration;
use proxy::Period;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

const LENGTH: std::time::Duration = std::time::Duration::from_secs(10);
const SEED: u64 = 20_261_122;

fn below(state: &mut u64, bound: u64) -> u64 {
    *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    (*state >> 33) % bound
}

#[test]
fn every_request_is_answered_once_or_with_a_clean_error() {
    eprintln!("seed {SEED}");
    let done: Arc<Mutex<BTreeMap<String, u32>>> = Arc::default();
    let act: Arc<Act> = {
        let done = done.clone();
        Arc::new(move |got, stream| {
            *done.lock().unwrap().entry(got.line.clone()).or_default() += 1;
            let mut state = got.body.len() as u64 ^ got.path().len() as u64 ^ SEED;
            std::thread::sleep(std::time::Duration::from_micros(below(&mut state, 3_000)));
            say(stream, 200, got.path().as_bytes())
        })
    };
    let mut servers: Vec<Upstream> =
        (0..2).map(|_| Upstream::start_at("127.0.0.1:0".parse().unwrap(), act.clone())).collect();
    let proxy = proxy(&[&servers[0], &servers[1]], |config| {
        config.goal = "200ms@p99".parse().unwrap();
        config.period = Some(Period(Duration::from_millis(30)));
        config.health.every = Duration::from_millis(20);
        config.health.pause = Duration::from_millis(2);
    });
    let is_over = AtomicBool::new(false);
    let (answered, errors, left) = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..8_u64)
            .map(|number| {
                let (proxy, is_over) = (&proxy, &is_over);
                scope.spawn(move || client(proxy, number, is_over))
            })
            .collect();
        let began = Instant::now();
        let mut state = SEED;
        while began.elapsed() < LENGTH {
            let which = below(&mut state, 2) as usize;
            let address = servers[which].address;
            servers[which].kill();
            std::thread::sleep(std::time::Duration::from_millis(below(&mut state, 60)));
            servers[which] = Upstream::start_at(address, act.clone());
            std::thread::sleep(std::time::Duration::from_millis(below(&mut state, 200)));
        }
        is_over.store(true, Ordering::SeqCst);
        let sums = clients.into_iter().map(|client| client.join().unwrap());
        sums.fold((0, 0, 0), |all, one| (all.0 + one.0, all.1 + one.1, all.2 + one.2))
    });
    eprintln!("{answered} answered, {errors} clean errors, {left} left by their client");
    let status =
        until(&proxy, "all are counted", |status| status.counts().ended() == status.counts().arrived);
    let counts = status.counts();
    assert!(answered > 500 && left > 20, "{status:?}");
    // A client that left may have been answered in the same moment.
    assert!(counts.answered >= answered && counts.failed + counts.timed_out >= errors, "{counts:?}");
    // Of the clients that left, some had gone before their request was looked at.
    assert!((answered + errors..=answered + errors + left).contains(&counts.arrived), "{counts:?}");
    assert_eq!((counts.broke_off, counts.refused, counts.no_memory), (0, 0, 0));
    assert_eq!((status.servers[0].held, status.servers[0].in_service, status.memory), (0, 0, 0));
    let twice: Vec<_> = done
        .lock()
        .unwrap()
        .iter()
        .filter(|(line, times)| line.starts_with("POST") && **times > 1)
        .map(|(line, _)| line.clone())
        .collect();
    assert!(twice.is_empty(), "done twice: {twice:?}");
}

/// Asks, one after the other, and counts: answered, clean errors, left.
fn client(proxy: &proxy::Proxy, number: u64, is_over: &AtomicBool) -> (u64, u64, u64) {
    let (mut answered, mut errors, mut left) = (0, 0, 0);
    let mut state = SEED ^ number;
    let mut connection = Client::to(proxy);
    for count in 0.. {
        if is_over.load(Ordering::SeqCst) {
            break;
        }
        let path = format!("/{number}/{count}");
        let is_post = below(&mut state, 3) == 0;
        if is_post {
            connection.write(format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody"));
        } else {
            connection.ask(&path);
        }
        if below(&mut state, 20) == 0 {
            leave(&mut connection);
            connection = Client::to(proxy);
            left += 1;
            continue;
        }
        let answer = connection.read().unwrap_or_else(|| panic!("{path}: no answer"));
        assert!(answer.is_whole, "{path}: {answer:?}");
        match answer.status {
            200 => {
                assert_eq!(answer.text(), path, "another's answer");
                answered += 1;
            }
            502 | 504 => errors += 1,
            _ => panic!("{path}: {answer:?}"),
        }
    }
    (answered, errors, left)
}

/// Ends our half and waits until the proxy has ended its own.
fn leave(connection: &mut Client) {
    let _ = connection.reader.get_ref().shutdown(std::net::Shutdown::Write);
    let _ = std::io::Read::read_to_end(&mut connection.reader, &mut Vec::new());
}
