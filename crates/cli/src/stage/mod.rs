//! `roost stage`: the arguments become a proxy, and signals end it.
//!
//! ```text
//!   options.rs    flags and the file, as one configuration
//!   folder.rs     the folder of a run: readings and bursts as they come, in the end a summary and a page
//!   page.rs       that page
//!   told.rs       the same in a terminal, during the run and at its end
//!   cells.rs      the tables that both show
//! ```

mod cells;
mod folder;
mod options;
mod page;
mod told;

pub use options::Args;

use crate::exit::{Exit, coded, usage};
use crate::signals::EndSignals;
use crate::table::print;
use ::proxy::{Proxy, StartError};
use anyhow::{Context as _, Result};
use folder::Folder;
use report::terminal::{Screen, Wish};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use told::View;

pub fn run(args: &Args) -> Result<ExitCode> {
    let config = args.config()?;
    config.check().map_err(usage)?;
    check_period(&config)?;
    let mut folder = args.out.as_deref().map(|place| Folder::begin(place, &config)).transpose()?;
    let stopped = until_signal()?;
    let proxy = start(config)?;
    let metrics = args
        .names
        .address()
        .map(|address| crate::metrics::serve_stage(address, &args.names, proxy.watcher()))
        .transpose()?;
    announce(&proxy, metrics, args);
    let seen = watch(args, &proxy, folder.as_mut(), &stopped);
    if let Some(folder) = &mut folder {
        folder.bursts(&proxy.take_bursts())?;
    }
    let (all_answered, status) = proxy.stop();
    if let Some(folder) = folder {
        eprintln!("{}", folder.end(&status)?);
    }
    if args.json {
        crate::json::print(1, &status)?;
    } else {
        print(&told::summary(&status))?;
    }
    seen?;
    if all_answered {
        return match missed(&status) {
            Some(why) => Err(coded(Exit::GoalMissed, why)),
            None => Ok(ExitCode::SUCCESS),
        };
    }
    Err(coded(
        Exit::Failed,
        "some clients were not answered within the time for it\nhint: give them longer with drain under [limits]",
    ))
}

/// Refuses a period of which no request would ever see the end.
fn check_period(config: &::proxy::Config) -> Result<()> {
    let Some(period) = config.period else { return Ok(()) };
    let own = config.classes.iter().filter(|class| !class.never_stage).filter_map(|class| class.deadline);
    let longest = own.map(|deadline| deadline.0).fold(config.goal.latency, machine::Duration::max);
    if !config.hold || period.0 < longest {
        return Ok(());
    }
    Err(usage(format!(
        "period {} is not shorter than the longest deadline, {longest}: every request would go by \
         its deadline, and none by the period\nhint: --period {}, or leave it out",
        period.0,
        longest.scale(0.5)
    )))
}

/// Why the goal was missed, if it was: more answers were late than the goal allows and chance
/// explains.
fn missed(status: &::proxy::Status) -> Option<String> {
    let sum =
        |of: fn(&::proxy::Counts) -> u64| status.classes.iter().map(|class| of(&class.counts)).sum::<u64>();
    let (answered, late) = (sum(|counts| counts.answered), sum(|counts| counts.late));
    let allowed = answered as f64 * (1.0 - status.goal.quantile);
    (status.hold && is_too_many(late, allowed)).then(|| {
        format!(
            "the goal of {} was missed: {late} of {answered} answers were later than their \
             deadline, {allowed:.1} may be",
            status.goal
        )
    })
}

/// True if at least so many would come with a chance below one in a thousand where `expected` do in
/// the mean (Poisson).
fn is_too_many(count: u64, expected: f64) -> bool {
    if count as f64 <= expected {
        return false;
    }
    // The first `count` terms of the distribution, in logarithms: the terms of large means would
    // vanish.
    let mut term = -expected;
    let mut below = 0.0;
    for n in 0..count {
        below += term.exp();
        term += expected.ln() - ((n + 1) as f64).ln();
    }
    1.0 - below < 1e-3
}

/// True if `roost stage` wrote this folder.
pub fn is_run(place: &Path) -> bool {
    folder::is_here(place)
}

/// `roost report` of such a folder: the page again, and the results.
pub fn report(place: &Path, to: Option<&Path>, json: bool) -> Result<ExitCode> {
    let (said, status) = folder::again(place, to)?;
    if json {
        crate::json::print(1, &status)?;
    } else {
        print(&format!("{}\n{said}\n", told::summary(&status)))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Starts a proxy; a fault of the arguments ends with the code for that.
pub fn start(config: ::proxy::Config) -> Result<Proxy> {
    Proxy::start(config).map_err(|error| match error {
        StartError::System(_) => error.into(),
        _ => usage(error),
    })
}

/// Looks on until it is time to stop: without anything to show or to write, without waking once.
fn watch(args: &Args, proxy: &Proxy, mut folder: Option<&mut Folder>, stopped: &Receiver<()>) -> Result<()> {
    let mut screen = args.live.then(Screen::open).transpose().context("taking the terminal over")?;
    let mut view = View::new(args.live);
    let began = Instant::now();
    let mut next = began + TICK;
    loop {
        let now = Instant::now();
        let end = args.length.map(|length| began + Duration::from(length));
        if end.is_some_and(|end| end <= now) {
            return Ok(());
        }
        let ticks = screen.is_some() || folder.is_some();
        let until = match (ticks, end) {
            (true, Some(end)) => Some(next.min(end)),
            (true, None) => Some(next),
            (false, end) => end,
        };
        let patience = until.map(|until| until.saturating_duration_since(now));
        if wait(screen.as_ref(), stopped, patience)? {
            return Ok(());
        }
        if ticks && Instant::now() >= next {
            next += TICK;
            let (status, bursts) = (proxy.status(), proxy.take_bursts());
            if let Some(folder) = &mut folder {
                folder.reading(&status)?;
                folder.bursts(&bursts)?;
            }
            view.tick(began.elapsed().into(), &status, &bursts);
            if let Some(screen) = &mut screen {
                screen.draw(|frame| view.shown().draw(frame)).context("drawing")?;
            }
        }
    }
}

/// True if it is time to stop: a signal, or the person at the screen.
fn wait(screen: Option<&Screen>, stopped: &Receiver<()>, patience: Option<Duration>) -> Result<bool> {
    match (screen, patience) {
        (Some(screen), Some(patience)) => {
            let quit = screen.wish(patience.into()).context("reading the keyboard")? == Wish::Quit;
            Ok(quit || stopped.try_recv().is_ok())
        }
        (_, Some(patience)) => Ok(!matches!(stopped.recv_timeout(patience), Err(RecvTimeoutError::Timeout))),
        (_, None) => {
            let _ = stopped.recv();
            Ok(true)
        }
    }
}

/// Where a signal that ends it is told.
fn until_signal() -> Result<Receiver<()>> {
    let (tell, told) = channel();
    EndSignals::watch()?.call(move || {
        let _ = tell.send(());
    })?;
    Ok(told)
}

/// The first lines say where: the process that started the proxy waits for them. It serves without
/// that, too.
fn announce(proxy: &Proxy, metrics: Option<std::net::SocketAddr>, args: &Args) {
    if args.live {
        return;
    }
    // A program that reads JSON from standard output reads nothing else there.
    let say = |line: String| if args.json { eprintln!("{line}") } else { println!("{line}") };
    for address in proxy.addresses() {
        say(format!("listening on {address}"));
    }
    if let Some(address) = metrics {
        say(format!("metrics on http://{address}/metrics"));
    }
    let _ = std::io::stdout().flush();
}

/// Asks a running proxy at its metrics' address.
pub fn status(address: &str, json: bool) -> Result<ExitCode> {
    let unreachable = |cause: &dyn std::fmt::Display| {
        coded(
            Exit::Failed,
            format!(
                "no proxy tells its status at {address}: {cause}\nhint: start it with --metrics {address}"
            ),
        )
    };
    let answer = ask(address).map_err(|cause| unreachable(&cause))?;
    let body = answer.split_once("\r\n\r\n").filter(|(head, _)| head.starts_with("HTTP/1.1 200"));
    let Some((_, body)) = body else {
        return Err(unreachable(&answer.lines().next().unwrap_or("it said nothing")));
    };
    let status = serde_json::from_str(body).map_err(|cause| unreachable(&cause))?;
    if json {
        crate::json::print(1, &status)?;
    } else {
        print(&told::status(&status))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn ask(address: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(
        format!("GET /status.json HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").as_bytes(),
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// A person reads no faster, and a run's readings need no more.
const TICK: Duration = Duration::from_secs(1);
/// A status is told at once.
const PATIENCE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_is_missed_where_chance_does_not_explain_it() {
        // 38 of 424 against p99.9, and as many as a p99 allows of ten thousand.
        assert!(is_too_many(38, 0.424) && is_too_many(150, 100.0));
        assert!(
            !is_too_many(0, 0.0)
                && !is_too_many(1, 0.02)
                && !is_too_many(100, 100.0)
                && !is_too_many(120, 100.0)
        );
        assert!(is_too_many(1_000, 0.0) && is_too_many(200_000, 100_000.0));
    }

    #[test]
    fn a_period_longer_than_every_deadline_is_refused() {
        let config = |goal: &str, period: u64| ::proxy::Config {
            goal: goal.parse().unwrap(),
            period: Some(::proxy::Period(machine::Duration::from_millis(period))),
            ..::proxy::Config::default()
        };
        let error = check_period(&config("100ms@p99", 1000)).unwrap_err().to_string();
        assert!(error.contains("100ms") && error.contains("--period 50.0ms"), "{error}");
        check_period(&config("500ms@p99", 250)).unwrap();
        check_period(&::proxy::Config { hold: false, ..config("100ms@p99", 1000) }).unwrap();
    }
}
