//! The shipped example's programs: a server that answers after a while, a client that fetches from
//! it and computes, an updater; and, for the chain, the server's question to the updater before it
//! answers.
//!
//! Each ends with the bench, whichever way that ends ([`linux::EndsWithParent`]). None of them
//! waits for a pipe to close, which would be a wait for something else than the network.

use anyhow::{Context as _, Result};
use clap::Subcommand;
use machine::Duration;
use rustix::time::{ClockId, clock_gettime};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::process::ExitCode;
use std::thread;
use workload::Random;

/// Be a program of `roost-bench quiesce`
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
        /// Then ask the updater of this name before answering
        #[arg(long)]
        asks: Option<String>,
    },
    /// Fetch and compute, again and again; when each began and ended is told, in nanoseconds of the
    /// monotonic clock
    Client {
        /// The server's
        #[arg(long)]
        port: u16,
        /// CPU time of the work after each answer
        #[arg(long)]
        compute: Duration,
    },
    /// Compute for 1 to 5 ms, then sleep, again and again
    Updater {
        /// Share of one CPU that it uses if nothing is in its way
        #[arg(long)]
        load: f64,
        /// Of the lengths
        #[arg(long)]
        seed: u64,
        /// Besides, answer each byte after so much CPU time, at a Unix socket whose name is told
        #[arg(long)]
        answers: Option<Duration>,
    },
}

/// Shortest and longest burst, in microseconds.
const BURST_US: (u64, u64) = (1_000, 5_000);

/// Does it until it is killed.
pub fn run(args: &Args) -> Result<ExitCode> {
    match args.part {
        Part::Server { wait, ref asks } => server(wait, asks.as_deref()),
        Part::Client { port, compute } => client(port, compute),
        Part::Updater { load, seed, answers } => updater(load, seed, answers),
    }
}

fn server(wait: Duration, asks: Option<&str>) -> Result<ExitCode> {
    let listener = TcpListener::bind("127.0.0.1:0").context("a port")?;
    println!("{}", listener.local_addr()?.port());
    loop {
        let (mut connection, _) = listener.accept()?;
        let mut asked =
            asks.map(named).transpose()?.map(|name| UnixStream::connect_addr(&name)).transpose()?;
        thread::spawn(move || {
            let mut byte = [0];
            while connection.read_exact(&mut byte).is_ok() {
                thread::sleep(wait.into());
                let answered = asked.as_mut().map_or(Ok(()), |asked| {
                    asked.write_all(&byte)?;
                    asked.read_exact(&mut byte)
                });
                if answered.and_then(|()| connection.write_all(&byte)).is_err() {
                    return;
                }
            }
        });
    }
}

/// A socket in no folder, which goes with its listener.
fn named(name: &str) -> Result<SocketAddr> {
    SocketAddr::from_abstract_name(name).context("a socket's name")
}

fn client(port: u16, compute: Duration) -> Result<ExitCode> {
    let mut connection = TcpStream::connect(("127.0.0.1", port)).context("no server")?;
    connection.set_nodelay(true)?;
    let mut out = std::io::stdout().lock();
    loop {
        let began = linux::now();
        connection.write_all(&[1])?;
        connection.read_exact(&mut [0])?;
        work(compute);
        writeln!(out, "{} {}", began.as_nanos(), linux::now().as_nanos())?;
        out.flush()?;
    }
}

fn updater(load: f64, seed: u64, answers: Option<Duration>) -> Result<ExitCode> {
    linux::want_exact_timers();
    let mut random = Random::new(seed, 0);
    match answers {
        Some(compute) => {
            let name = format!("roost-bench-quiesce-{}", std::process::id());
            let listener = UnixListener::bind_addr(&named(&name)?)?;
            thread::spawn(move || answer(&listener, compute));
            println!("{name}");
        }
        None => println!("ready"),
    }
    loop {
        let (shortest, longest) = BURST_US;
        let burst = Duration::from_micros(shortest + random.below(longest - shortest));
        work(burst);
        thread::sleep(burst.scale((1.0 - load) / load).into());
    }
}

fn answer(listener: &UnixListener, compute: Duration) {
    for mut connection in listener.incoming().map_while(Result::ok) {
        thread::spawn(move || {
            let mut byte = [0];
            while connection.read_exact(&mut byte).is_ok() {
                work(compute);
                if connection.write_all(&byte).is_err() {
                    return;
                }
            }
        });
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
