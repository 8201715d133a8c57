//! `roost top`: a live view of a running store, over its own protocol.
//!
//! The store answers `stats roost-json` with one line of JSON whose counters are cumulative. Two
//! answers give the rates between them, so nothing is asked of the store but one small request a
//! second, and a lost answer loses nothing.

use crate::exit::usage;
use crate::frames::{same_run, store_frame};
use anyhow::{Context as _, Result, anyhow, bail};
use machine::{Duration, EnergyReading, Microjoules, Microwatts};
use report::terminal::{Moved, Screen, TopView, Wish};
use std::io::{BufRead, BufReader, IsTerminal as _, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Instant;
use store::status::Status;

/// Watch a running store: its active workers, how near its limit each one is, and the tail
#[derive(clap::Args, Debug)]
#[command(after_help = include_str!("../help/top.txt"))]
pub struct Args {
    /// Where the store listens: HOST:PORT, or unix:PATH
    #[arg(value_name = "SERVER", default_value = "127.0.0.1:11211")]
    server: String,

    /// Print one reading as JSON and leave
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let mut store = Store::connect(&args.server)?;
    let first = store.status()?;
    if args.json {
        crate::json::print(1, &first)?;
    } else if !std::io::stdout().is_terminal() {
        std::thread::sleep(INTERVAL.into());
        let second = store.status()?;
        print!("{}", view(&args.server, Some(&first), &second).text());
    } else {
        watch(args, &mut store, first)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Draws until the reader leaves, a signal comes, or the store is gone.
fn watch(args: &Args, store: &mut Store, first: Status) -> Result<()> {
    let ended = crate::signals::end_flag()?;
    let mut shown = view(&args.server, None, &first);
    let mut before = first;
    // Dropped on every way out of here, so that an error is printed on the terminal as it was.
    let mut screen =
        Screen::open().context("cannot draw on this terminal; `roost top | cat` prints one table")?;
    loop {
        let due = Instant::now() + std::time::Duration::from(INTERVAL);
        loop {
            screen.draw(|frame| shown.draw(frame))?;
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            // A signal does not interrupt the wait for a key, so the wait is cut into short ones.
            match screen.wish(Duration::from(left).min(SIGNAL_PATIENCE))? {
                Wish::Quit => return Ok(()),
                Wish::Up => shown.first = shown.first.saturating_sub(1),
                Wish::Down => shown.first = (shown.first + 1).min(shown.now.workers.len().saturating_sub(1)),
                Wish::Nothing => {}
            }
            if ended.load(Ordering::Relaxed) {
                return Ok(());
            }
        }
        let now = store.status()?;
        let next = view(&args.server, Some(&before), &now);
        let mut history = std::mem::take(&mut shown.history);
        history.extend(next.now.achieved);
        let excess = history.len().saturating_sub(HISTORY_MAX);
        history.drain(..excess);
        shown = TopView { history, first: shown.first, ..next };
        before = now;
    }
}

/// The view of `now`, with rates since `before`; since the store's start without one, or if it
/// began anew.
fn view(source: &str, before: Option<&Status>, now: &Status) -> TopView {
    let before = same_run(before, now);
    let span = now.uptime - before.map_or(Duration::ZERO, |before| before.uptime);
    TopView {
        source: source.to_owned(),
        uptime: now.uptime,
        policy: now.policy.clone(),
        connections: now.connections,
        items: now.items,
        memory_used: now.memory_used,
        memory_limit: now.memory_limit,
        history: Vec::new(),
        now: store_frame(before, now),
        tails: now.workers.iter().map(|worker| worker.tail).collect(),
        moved: Moved {
            ordered: now.transfers.ordered,
            send_home: now.transfers.send_home,
            p50: now.transfers.p50,
            p99: now.transfers.p99,
            max: now.transfers.max,
            sleeper_p99: now.transfers.sleeper_p99,
            scale_ups: now.transfers.scale_ups.clone(),
        },
        power: power(before.and_then(|before| before.energy.as_ref()), now.energy.as_ref(), span),
        first: 0,
    }
}

/// Power between two readings of one source; two sources have no difference.
fn power(before: Option<&EnergyReading>, now: Option<&EnergyReading>, span: Duration) -> Option<Microwatts> {
    let (before, now) = before.zip(now)?;
    let used: Microjoules = now.used;
    (before.source == now.source && !span.is_zero())
        .then(|| Microwatts((used.0.saturating_sub(before.used.0) as f64 / span.as_secs_f64()) as u64))
}

/// A connection to a running store.
struct Store {
    address: String,
    stream: BufReader<Box<dyn Stream>>,
}

trait Stream: Read + Write {}
impl Stream for TcpStream {}
impl Stream for UnixStream {}

impl Store {
    fn connect(address: &str) -> Result<Self> {
        let patience = Some(std::time::Duration::from(PATIENCE));
        let absent = || {
            format!(
                "no store answers at {address}; start one with `roost serve`, or name another with `roost top HOST:PORT`"
            )
        };
        let stream: Box<dyn Stream> = if let Some(path) = address.strip_prefix("unix:") {
            let stream = UnixStream::connect(path).with_context(absent)?;
            stream.set_read_timeout(patience)?;
            stream.set_write_timeout(patience)?;
            Box::new(stream)
        } else {
            let wrong = |cause: std::io::Error| {
                usage(format!("{address}: {cause}; write HOST:PORT, such as 127.0.0.1:11211, or unix:PATH"))
            };
            let mut last = anyhow!("it has no address");
            let mut connected = None;
            for socket in address.to_socket_addrs().map_err(wrong)? {
                match TcpStream::connect_timeout(&socket, PATIENCE.into()) {
                    Ok(stream) => {
                        connected = Some(stream);
                        break;
                    }
                    Err(cause) => last = cause.into(),
                }
            }
            let stream = connected.ok_or(last).with_context(absent)?;
            stream.set_read_timeout(patience)?;
            stream.set_write_timeout(patience)?;
            Box::new(stream)
        };
        Ok(Self { address: address.to_owned(), stream: BufReader::new(stream) })
    }

    fn status(&mut self) -> Result<Status> {
        let gone = || format!("the store at {} is gone", self.address);
        self.stream.get_mut().write_all(b"stats roost-json\r\n").with_context(gone)?;
        let line = line_of(&mut self.stream).with_context(gone)?;
        let Some(json) = line.strip_prefix("STAT status ") else {
            bail!(
                "{} does not know `stats roost-json` (it answers `{}`): name a Roost",
                self.address,
                line.chars().take(60).collect::<String>().escape_debug()
            );
        };
        let status = serde_json::from_str(json)
            .with_context(|| format!("the store at {} is another version of Roost", self.address))?;
        let end = line_of(&mut self.stream).with_context(gone)?;
        if end != "END" {
            bail!("the store at {} went on with `{}` instead of END", self.address, end.escape_debug());
        }
        Ok(status)
    }
}

/// One line without its end; a peer that never ends one is not read for ever.
fn line_of(stream: &mut impl BufRead) -> Result<String> {
    let mut bytes = Vec::new();
    stream.take(ANSWER_MAX).read_until(b'\n', &mut bytes)?;
    match bytes.pop() {
        Some(b'\n') => {}
        Some(_) => bail!("it closed the connection in the middle of an answer"),
        None => bail!("it closed the connection"),
    }
    if bytes.last() == Some(&b'\r') {
        bytes.pop();
    }
    Ok(String::from_utf8(bytes)?)
}

/// A store that says nothing for this long is called gone.
const PATIENCE: Duration = Duration::from_secs(3);
const SIGNAL_PATIENCE: Duration = Duration::from_millis(250);
/// Between two readings.
const INTERVAL: Duration = Duration::from_secs(1);
/// As many columns as a wide terminal has.
const HISTORY_MAX: usize = 512;
/// A status of a thousand workers is a quarter of this.
const ANSWER_MAX: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use machine::{CpuId, EnergySource, IdleLimit, Rate, Ratio, WorkerId};
    use std::net::TcpListener;
    use store::status::{CpuStatus, TransferStatus, WorkerStatus};

    fn status(seconds: u64, requests: u64) -> Status {
        Status {
            uptime: Duration::from_secs(seconds),
            policy: "peafowl".to_owned(),
            workers: vec![WorkerStatus {
                worker: WorkerId(0),
                cpu: CpuId(3),
                active: true,
                load: Rate::per_second(10.0),
                limit: None,
                residents: 1,
                guests: 0,
                requests,
                stolen: 0,
                io_uring: false,
                busy: Duration::from_millis(500 * seconds),
                awake: Duration::from_secs(seconds),
                tail: None,
                arrivals: Default::default(),
            }],
            cpus: vec![CpuStatus {
                cpu: CpuId(3),
                limit: IdleLimit::None,
                in_force: None,
                residency: vec![("C1".to_owned(), Duration::from_millis(250 * seconds))],
                busy: None,
            }],
            transfers: TransferStatus::default(),
            requests,
            connections: 1,
            items: 0,
            memory_used: 0,
            memory_limit: 1 << 20,
            meters_read: Duration::ZERO,
            energy: Some(EnergyReading {
                used: Microjoules(seconds * 3_000_000),
                source: EnergySource::Modelled("table".to_owned()),
            }),
        }
    }

    #[test]
    fn two_readings_give_the_rates_between_them() {
        let shown = view("x", Some(&status(10, 1_000)), &status(12, 1_500));
        assert_eq!(shown.now.achieved, Some(Rate::per_second(250.0)));
        assert_eq!(shown.now.workers[0].busy, Some(Ratio::new(0.5)));
        assert_eq!(shown.now.cpus[0].residency.as_ref().unwrap()[0].share, Ratio::new(0.25));
        assert_eq!(shown.now.cpus[0].busy, None);
        assert_eq!(shown.power, Some(Microwatts::from_watts(3.0)));
    }

    #[test]
    fn a_store_that_began_anew_shows_no_negative_rate() {
        let shown = view("x", Some(&status(900, 1_000_000)), &status(2, 100));
        assert_eq!(shown.now.achieved, Some(Rate::per_second(50.0)));
        assert_eq!(shown.power, None);
    }

    #[test]
    fn figures_of_two_sources_are_not_subtracted() {
        let mut later = status(12, 1_500);
        later.energy =
            Some(EnergyReading { used: Microjoules(1), source: EnergySource::Measured("rapl".to_owned()) });
        assert_eq!(view("x", Some(&status(10, 1_000)), &later).power, None);
    }

    /// A store that gives these answers to its first client, one per request, and then closes.
    fn answering(answers: Vec<String>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            let mut requests = BufReader::new(client.try_clone().unwrap());
            for answer in answers {
                let mut request = String::new();
                requests.read_line(&mut request).unwrap();
                assert_eq!(request, "stats roost-json\r\n");
                client.write_all(answer.as_bytes()).unwrap();
            }
        });
        address
    }

    #[test]
    fn a_store_is_read_until_it_is_gone() {
        let json = serde_json::to_string(&status(1, 1)).unwrap();
        let address = answering(vec![format!("STAT status {json}\r\nEND\r\n"); 2]);
        let mut store = Store::connect(&address).unwrap();
        assert_eq!(store.status().unwrap(), status(1, 1));
        assert_eq!(store.status().unwrap(), status(1, 1));
        let message = format!("{:#}", store.status().unwrap_err());
        assert!(message.starts_with(&format!("the store at {address} is gone: ")), "{message}");
    }

    #[test]
    fn a_peer_that_is_no_roost_is_called_so() {
        let address = answering(vec!["ERROR\r\n".to_owned()]);
        let message = format!("{:#}", Store::connect(&address).unwrap().status().unwrap_err());
        assert_eq!(
            message,
            format!("{address} does not know `stats roost-json` (it answers `ERROR`): name a Roost")
        );
        let address = answering(vec!["STAT status {\"uptime\":\"long\"}\r\nEND\r\n".to_owned()]);
        let message = format!("{:#}", Store::connect(&address).unwrap().status().unwrap_err());
        let expected = format!("the store at {address} is another version of Roost: ");
        assert!(message.starts_with(&expected), "{message}");
        let address = answering(vec!["x".repeat(ANSWER_MAX as usize + 5)]);
        let message = format!("{:#}", Store::connect(&address).unwrap().status().unwrap_err());
        assert!(message.contains("in the middle of an answer"), "{message}");
    }

    #[test]
    fn an_address_where_nobody_listens_names_the_fix() {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        for address in [free.as_str(), "unix:/nonexistent/socket"] {
            let Err(error) = Store::connect(address) else { panic!("{address} answered") };
            let message = format!("{error:#}");
            let expected = format!(
                "no store answers at {address}; start one with `roost serve`, or name another with \
                 `roost top HOST:PORT`: "
            );
            assert!(message.starts_with(&expected), "{message}");
        }
        let Err(error) = Store::connect("11211") else { panic!("a port alone is no address") };
        assert!(error.to_string().contains("write HOST:PORT"), "{error}");
    }
}
