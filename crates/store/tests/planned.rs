//! `--policy joint`: a whole server whose workers count, and its record.

use policy::log::{Recorded, replay};
use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};
use store::{Config, Policy, Server};

/// The instances of a policy whose logs begin so, and how many steps they have together.
fn replayed<P: Recorded>(folder: &Path, prefix: &str) -> (usize, usize) {
    let mut logs: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    logs.retain(|log| log.file_name().unwrap().to_string_lossy().starts_with(prefix));
    logs.sort();
    let instance =
        |log: &Path| log.file_stem().unwrap().to_string_lossy().split('.').next().map(str::to_owned);
    let steps = logs.chunk_by(|one, other| instance(one) == instance(other)).map(|segments| {
        let text: String = segments.iter().map(|log| std::fs::read_to_string(log).unwrap()).collect();
        replay::<P>(&text).unwrap().steps
    });
    let steps: Vec<usize> = steps.collect();
    (steps.len(), steps.iter().sum())
}

#[test]
fn few_requests_within_a_wide_goal_need_one_worker_and_the_record_replays() {
    let folder = tempfile::tempdir().unwrap();
    let cpus: BTreeSet<_> = linux::allowed_cpus().unwrap().0;
    let worker_cpus = cpus.iter().copied().cycle().take(4).collect();
    let params = policy::joint::Params { target: machine::Duration::from_secs(1), ..Default::default() };
    let config = Config {
        record: Some(folder.path().to_owned()),
        ..Config::on_loopback(worker_cpus, Policy::Joint(params))
    };
    let server = Server::start(config, || ()).unwrap();
    let mut clients: Vec<TcpStream> =
        (0..8).map(|_| TcpStream::connect(server.addresses()[0]).unwrap()).collect();
    let active = || server.status().workers.iter().filter(|worker| worker.active).count();
    assert_eq!(active(), 4, "all are awake until enough is known");
    let mut ask_all = || {
        for client in &mut clients {
            client.write_all(b"get key\r\n").unwrap();
            client.read_exact(&mut [0; 5]).unwrap();
        }
    };
    let began = Instant::now();
    while active() > 1 {
        assert!(began.elapsed() < Duration::from_secs(300), "{} workers are awake", active());
        (0..50).for_each(|_| ask_all());
    }
    ask_all();
    drop(clients);
    server.stop().unwrap();
    let (schedulers, steps) = replayed::<policy::Scheduling>(folder.path(), "scheduler");
    assert!(schedulers == 1 && steps > 20, "{steps} steps");
    let (workers, steps) = replayed::<policy::peafowl::Worker>(folder.path(), "worker-");
    assert!(workers == 4 && steps > 500, "{steps} steps of {workers} workers");
}
