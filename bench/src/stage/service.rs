//! A stand-in for a search engine: each request computes for a service time that is drawn from a
//! law, on a thread of its connection.
//!
//! It is a stand-in and every figure that comes of it says so. It shares this with the real one:
//! measured service times, work that takes CPU time and nothing else, any number of requests side
//! by side. It lacks caches, locks, a garbage collector.
//!
//! The computing counts by the thread's own CPU time, so that a thread that shares a CPU takes
//! longer. It ends with its standard input, so that no load is left behind if the bench is killed.

use crate::exit::usage;
use anyhow::{Context as _, Result};
use linux::SafeFolder;
use rustix::time::{ClockId, clock_gettime};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use workload::{Distribution, Random};

/// Be the server of `roost-bench stage`
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Where it listens
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    listen: std::net::SocketAddr,
    /// The law of its service times, by the name of a preset; without one it answers at once
    #[arg(long, value_name = "NAME")]
    service: Option<String>,
    /// The factor on each time
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    scale: f64,
    /// Write down the path of each request before it is answered
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
}

struct Service {
    law: Option<workload::Sampler>,
    scale: f64,
    requests: AtomicU64,
    log: Option<Mutex<std::fs::File>>,
}

/// Serves until its standard input ends.
pub fn run(args: &Args) -> Result<ExitCode> {
    let law = args.service.as_deref().map(|name| law(name)?.sampler().map_err(usage)).transpose()?;
    let log = args.log.as_ref().map(|path| SafeFolder::keep(path, 0o666));
    let service = Arc::new(Service {
        law,
        scale: args.scale,
        requests: AtomicU64::new(0),
        log: log.transpose().context("the log")?.map(Mutex::new),
    });
    let listener = TcpListener::bind(args.listen).context("listening")?;
    println!("listening on {}", listener.local_addr()?);
    io::stdout().flush()?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let service = service.clone();
            // A client that leaves in the middle is no fault of ours.
            thread::spawn(move || {
                let _ = service.converse(stream);
            });
        }
    });
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(ExitCode::SUCCESS)
}

pub fn law(name: &str) -> Result<Distribution> {
    Distribution::by_name(name).ok_or_else(|| {
        let names: Vec<&str> = Distribution::presets().iter().map(|preset| preset.name).collect();
        usage(format!("--service {name}: no such law\nhint: one of {}", names.join(", ")))
    })
}

impl Service {
    fn converse(&self, mut stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut reader = BufReader::new(stream.try_clone()?);
        let mut line = String::new();
        loop {
            line.clear();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let path = line.split(' ').nth(1).unwrap_or("/").to_owned();
            let is_post = line.starts_with("POST");
            let mut length = 0;
            loop {
                line.clear();
                reader.read_line(&mut line)?;
                let Some((name, value)) = line.trim_end().split_once(':') else { break };
                if name.eq_ignore_ascii_case("content-length") {
                    length = value.trim().parse().unwrap_or(0);
                }
            }
            io::copy(&mut (&mut reader).take(length), &mut io::sink())?;
            let number = self.requests.fetch_add(1, Ordering::Relaxed);
            if let Some(log) = &self.log {
                let method = if is_post { "POST" } else { "GET" };
                let entry = format!("{method} {path}\n");
                log.lock().unwrap_or_else(std::sync::PoisonError::into_inner).write_all(entry.as_bytes())?;
            }
            let took = self.compute(number);
            let body = format!("{{\"took\":{},\"path\":\"{path}\"}}", took.as_millis());
            let answer = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
            stream.write_all(answer.as_bytes())?;
        }
    }

    fn compute(&self, number: u64) -> Duration {
        let Some(law) = &self.law else { return Duration::ZERO };
        let length = Duration::from(law.draw(&mut Random::new(SEED, number)).scale(self.scale));
        let began = cpu_time();
        while cpu_time() - began < length {
            // So long that asking for the time is a small part of it, so short that the end is met
            // well.
            (0..200).for_each(|_| std::hint::spin_loop());
        }
        length
    }
}

/// Of this thread.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Each request's time follows from this and its number.
const SEED: u64 = 1;
