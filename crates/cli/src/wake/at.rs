//! `roost wake at`: a planner's caller from the shell.

use crate::exit::{Exit, coded, usage};
use anyhow::{Context as _, Result};
use daemon::wake::wire::{WakeAnswer, WakeAsk};
use linux::Root;
use machine::{CpuList, Duration};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Ask that CPUs be ready at a time from now, and wait until that is over
///
/// The request is taken back when the caller ends, so this stays until the window has passed.
#[derive(clap::Args)]
#[command(after_help = include_str!("../../help/wake-at.txt"))]
pub struct At {
    /// Which CPUs, up to four
    #[arg(long, value_name = "LIST")]
    cpus: Option<CpuList>,
    /// In how long they shall be ready
    #[arg(long = "in", value_name = "TIME")]
    ahead: Duration,
    /// For how long
    #[arg(long, value_name = "TIME", default_value = "1ms")]
    stay: Duration,
    /// The control socket of the daemon [default: /run/roost/roost.sock]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Print the planner's answer as JSON
    #[arg(long)]
    json: bool,
}

pub fn at(args: &At) -> Result<ExitCode> {
    let mut caller = Caller::connect(&crate::daemon::socket_or(args.socket.as_ref(), &Root::system()))?;
    let ask = WakeAsk::Wake {
        cpus: args.cpus.as_ref().map(ToString::to_string),
        ahead: format!("{}ns", args.ahead.as_nanos()),
        stay: format!("{}ns", args.stay.as_nanos()),
    };
    let until = linux::now() + args.ahead + args.stay;
    let answer = caller.ask(&ask)?;
    if args.json {
        crate::json::print(1, &answer)?;
    }
    match answer {
        WakeAnswer::Done { id } => {
            if !args.json {
                println!("request {id}: ready in {}, for {}", args.ahead, args.stay);
            }
            linux::sleep_until(until);
            Ok(ExitCode::SUCCESS)
        }
        WakeAnswer::Refused(reason) => Err(coded(Exit::Refused, format!("refused: {reason}"))),
        other => Err(usage(format!("an answer that fits nothing: {other:?}"))),
    }
}

struct Caller(BufReader<UnixStream>);

impl Caller {
    fn connect(socket: &Path) -> Result<Self> {
        let no_planner = |cause: std::io::Error| {
            let hint = match cause.kind() {
                std::io::ErrorKind::PermissionDenied => "use sudo",
                _ => "start one with `roost wake`, or name its socket with --socket",
            };
            coded(Exit::Failed, format!("no planner answers at {}: {cause}\nhint: {hint}", socket.display()))
        };
        let stream = linux::connect_within(socket, PATIENCE).map_err(no_planner)?;
        stream.set_read_timeout(Some(ANSWER_PATIENCE)).map_err(no_planner)?;
        Ok(Self(BufReader::new(stream)))
    }

    fn ask(&mut self, ask: &WakeAsk) -> Result<WakeAnswer> {
        let line = serde_json::to_string(ask)? + "\n";
        self.0.get_mut().write_all(line.as_bytes()).context("the planner has hung up")?;
        let mut answer = String::new();
        self.0.read_line(&mut answer).context("the planner does not answer")?;
        serde_json::from_str(&answer).context("what answers is no planner of this version")
    }
}

const PATIENCE: std::time::Duration = std::time::Duration::from_secs(5);

/// A planner that has just begun answers once it has measured wake-up times: some five seconds, and more
/// on a busy machine.
const ANSWER_PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);
