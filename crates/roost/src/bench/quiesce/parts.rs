//! The shipped example's programs: a server that answers after a while, a client that fetches from it and computes, an updater.
//!
//! Each ends with the bench, whichever way that ends ([`host::Offspring`]). Nobody waits for a pipe to close, which would be a wait for
//! something else than the network.

use anyhow::{Context as _, Result};
use clap::Subcommand;
use machine::Duration;
use rustix::time::{ClockId, clock_gettime};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use std::thread;
use workload::Random;

/// Be a program of `roost bench quiesce`
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    part: Part,
}

#[derive(Subcommand, Debug)]
enum Part {
    /// Answer each byte after a while; the port is told first
    Server {
        /// How long each answer takes
        #[arg(long)]
        wait: Duration,
    },
    /// Fetch and compute, again and again; when each began and ended is told, in nanoseconds of the monotonic clock
    Client {
        /// The server's
        #[arg(long)]
        port: u16,
        /// CPU time of what follows each answer
        #[arg(long)]
        compute: Duration,
    },
    /// Compute for 1 to 5 ms, then sleep, again and again
    Updater {
        /// Share of one CPU that it uses if nobody is in its way
        #[arg(long)]
        load: f64,
        /// Of the lengths
        #[arg(long)]
        seed: u64,
    },
}

/// Shortest and longest burst, in microseconds.
const BURST_US: (u64, u64) = (1_000, 5_000);

/// Does it until it is killed.
pub fn run(args: &Args) -> Result<ExitCode> {
    match args.part {
        Part::Server { wait } => server(wait),
        Part::Client { port, compute } => client(port, compute),
        Part::Updater { load, seed } => updater(load, seed),
    }
}

fn server(wait: Duration) -> Result<ExitCode> {
    let listener = TcpListener::bind("127.0.0.1:0").context("a port")?;
    println!("{}", listener.local_addr()?.port());
    loop {
        let (mut connection, _) = listener.accept()?;
        thread::spawn(move || {
            let mut asked = [0];
            while connection.read_exact(&mut asked).is_ok() {
                thread::sleep(wait.into());
                if connection.write_all(&asked).is_err() {
                    return;
                }
            }
        });
    }
}

fn client(port: u16, compute: Duration) -> Result<ExitCode> {
    let mut connection = TcpStream::connect(("127.0.0.1", port)).context("no server")?;
    connection.set_nodelay(true)?;
    let mut out = std::io::stdout().lock();
    loop {
        let began = host::now();
        connection.write_all(&[1])?;
        connection.read_exact(&mut [0])?;
        work(compute);
        writeln!(out, "{} {}", began.as_nanos(), host::now().as_nanos())?;
        out.flush()?;
    }
}

fn updater(load: f64, seed: u64) -> Result<ExitCode> {
    host::want_exact_timers();
    let mut random = Random::new(seed, 0);
    println!("ready");
    loop {
        let (shortest, longest) = BURST_US;
        let burst = Duration::from_micros(shortest + random.below(longest - shortest));
        work(burst);
        thread::sleep(burst.scale((1.0 - load) / load).into());
    }
}

/// Uses so much CPU time of the calling thread.
fn work(time: Duration) {
    let used = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        Duration::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
    };
    let end = used() + time;
    while used() < end {
        std::hint::spin_loop();
    }
}
