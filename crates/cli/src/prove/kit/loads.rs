//! Governed and ungoverned blocks of the kit's own service: `roost serve`, `roost load` and
//! `roost prove` as children.
//!
//! Each is in a process group of its own, so that a Ctrl-C reaches this process alone. It tells
//! `roost prove`, which puts back and writes its result, and ends the others after it.

use super::{Ended, GOAL, Run};
use anyhow::{Context as _, Result, anyhow};
use linux::EndsWithParent as _;
use machine::{CpuList, Duration};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use study::kit::{Load, LoadBlock, LoadEnd, State, Word};
use study::prove::{Block, End};

/// Of the highest rate that the generator gets: a quiet night, a day, a busy hour.
const SHARES: [f64; 3] = [0.05, 0.15, 0.30];

/// Those for which there is time: of a short run the middle one.
fn shares(length: Duration) -> &'static [f64] {
    let least = BLOCK_LEAST * u64::from(BLOCKS_LEAST) + AROUND;
    if least * SHARES.len() as u64 <= length { &SHARES } else { &SHARES[1..2] }
}

/// Long beside the arrivals and the epochs, short beside a drift.
const BLOCK_USUAL: Duration = Duration::from_secs(30);
/// Epochs of a second: after the settling time one has to begin and to end.
const BLOCK_LEAST: Duration = Duration::from_secs(4);
/// The fewest that have an interval.
const BLOCKS_LEAST: u32 = 8;

/// The start of `roost prove` and the end of a load take so long together.
const AROUND: Duration = Duration::from_secs(2);

/// How long the highest rate is looked for.
const CALIBRATION: Duration = Duration::from_secs(3);

/// The longest beginning of a block that does not count.
const SETTLE_MOST: Duration = Duration::from_secs(10);

impl Run<'_> {
    pub(super) fn loads(&mut self) -> Result<Ended> {
        let (for_server, for_load) = split(&self.cpus);
        let Ok((server, port)) = serve(&for_server) else {
            return Ok((State::Gap, Some("roost serve did not start here")));
        };
        let highest = match self.highest_rate(port, &for_load) {
            Ok(rate) => rate,
            Err(_) if self.is_stopped() => return Ok((State::EndedEarly, None)),
            Err(error) => {
                eprintln!("  {error:#}");
                return Ok((State::Gap, Some("roost load got no answers here")));
            }
        };
        eprintln!("  the highest rate is {highest:.0}/s");
        let length = self.part_of(65) - CALIBRATION;
        let shares = shares(length);
        let (blocks, block) = blocks(length / shares.len() as u64);
        let mut why = None;
        for &share in shares {
            if self.is_stopped() {
                break;
            }
            let rate = (share * highest).max(1.0).round();
            eprintln!("  load of {rate:.0}/s: {blocks} blocks of {block}");
            match self.load(port, &for_load, (share, rate), (blocks, block)) {
                Ok(load) => self.archive.loads.push(load),
                Err(error) => {
                    eprintln!("  {error:#}");
                    why = Some("the service cannot be governed here, or the proof broke off");
                }
            }
        }
        drop(server);
        Ok(match (self.archive.loads.is_empty(), why) {
            (true, why) => (State::Gap, Some(why.unwrap_or("no load was measured"))),
            (false, why) => (State::Done, why),
        })
    }

    fn highest_rate(&self, port: u16, cpus: &CpuList) -> Result<f64> {
        let length = CALIBRATION.to_string();
        let mut command = generator(port, cpus, &length)?;
        command.args(["--preload", "--arrivals", "closed:1", "--json"]).stdout(Stdio::piped());
        let mut child = Own::start(&mut command)?;
        let mut text = String::new();
        let output = child.0.stdout.take().context("its output")?;
        output.take(1 << 20).read_to_string(&mut text)?;
        child.wait(|| self.is_stopped(), || ())?;
        let found: serde_json::Value = serde_json::from_str(&text).context("its JSON")?;
        let rate = found["achieved_per_s"].as_f64().filter(|rate| *rate > 0.0);
        rate.ok_or_else(|| anyhow!("no request was answered"))
    }

    fn load(
        &self,
        port: u16,
        cpus: &CpuList,
        (share, rate): (f64, f64),
        (blocks, block): (u32, Duration),
    ) -> Result<Load> {
        let folder = tempfile::tempdir()?;
        let goal = self.args.goal.map_or_else(|| GOAL.to_owned(), |goal| goal.to_string());
        // It is ended when the proof has ended.
        let length = (block * u64::from(blocks) + Duration::from_secs(600)).to_string();
        let mut command = generator(port, cpus, &length)?;
        let _load = Own::start(command.args(["--rate", &rate.to_string()]).stdout(Stdio::null()))?;
        let said = tempfile::NamedTempFile::new_in(folder.path())?;
        let out = folder.path().join("run");
        let mut prove = roost()?;
        prove.args(["prove", "--port", &port.to_string(), "--goal", &goal, "--json", "--out"]).arg(&out);
        prove.args(["--blocks", &blocks.to_string(), "--block", &block.to_string()]);
        let settling = (block / 3).min(SETTLE_MOST);
        let like = format!("{}%", 100.0 * self.args.like);
        prove.args(["--settle", &settling.to_string(), "--like", &like]);
        for meter in &self.args.meter {
            prove.args(["--meter", meter]);
        }
        prove.arg("--").args(&self.args.govern).stdout(Stdio::null()).stderr(said.reopen()?);
        let mut prove = Own::start(&mut prove)?;
        let mut told = 0;
        prove.wait(
            || self.is_stopped(),
            || {
                let all = read_blocks(&out);
                for block in all.iter().skip(told) {
                    let rate = block.rate_per_s.map_or(String::new(), |rate| format!(", {rate:.0}/s"));
                    eprintln!("  block {} of {blocks}: {}{rate}", block.number, block.treatment);
                }
                told = all.len().max(told);
            },
        )?;
        let found = read_blocks(&out);
        if found.is_empty() {
            let said = fs::read_to_string(said.path()).unwrap_or_default();
            let said = said.lines().find(|line| line.starts_with("roost:")).unwrap_or("it said nothing");
            return Err(anyhow!("no block was measured: {}", linux::printable(said)));
        }
        Ok(Load {
            share,
            offered_per_s: rate,
            goal: Word::of(&goal),
            planned_blocks: blocks,
            block_s: block.as_secs_f64(),
            settling_s: settling.as_secs_f64(),
            like: self.args.like,
            end: end_of(&out).unwrap_or(LoadEnd::Broken),
            blocks: found.iter().map(|block| LoadBlock::of(block, &self.meters)).collect(),
        })
    }
}

/// How many blocks, and how long each is, in this time.
fn blocks(length: Duration) -> (u32, Duration) {
    let length = length - AROUND;
    let fitting = length.as_nanos() / BLOCK_USUAL.as_nanos();
    let blocks = (fitting as u32 / 2 * 2).clamp(BLOCKS_LEAST, study::kit::BLOCKS_MAX);
    (blocks, (length / u64::from(blocks)).max(BLOCK_LEAST))
}

/// CPUs of the server and of the generator: apart from four CPUs on, else the same ones.
fn split(cpus: &CpuList) -> (CpuList, CpuList) {
    let count = cpus.0.len();
    if count < 4 {
        return (cpus.clone(), cpus.clone());
    }
    let of_server = count - count / 4;
    let all = cpus.0.iter().copied();
    (CpuList(all.clone().take(of_server).collect()), CpuList(all.skip(of_server).collect()))
}

fn roost() -> Result<Command> {
    Ok(Command::new(std::env::current_exe().context("this program's file")?))
}

fn generator(port: u16, cpus: &CpuList, length: &str) -> Result<Command> {
    let mut command = roost()?;
    command.args(["load", &format!("127.0.0.1:{port}"), "--for", length, "--cpus", &cpus.to_string()]);
    command.stderr(Stdio::null());
    Ok(command)
}

/// An ordinary store: it leaves its workers and idle states alone, so that `roost govern` is all
/// that governs it.
fn serve(cpus: &CpuList) -> Result<(Own, u16)> {
    let mut command = roost()?;
    command.args(["serve", "--port", "0", "--policy", "all-awake", "--active-idle", "stock"]);
    command.args(["--memory-limit", "256m", "--cpus", &cpus.to_string()]);
    let mut server = Own::start(command.stdout(Stdio::piped()).stderr(Stdio::null()))?;
    let output = server.0.stdout.take().context("its output")?;
    let mut lines = BufReader::new(output).lines();
    let line = lines.find_map(|line| line.ok().filter(|line| line.starts_with("listening on ")));
    let port = line.and_then(|line| line.rsplit(':').next()?.trim().parse().ok());
    // Its later words have a reader as long as it lives.
    std::thread::spawn(move || lines.for_each(drop));
    port.map(|port| (server, port)).ok_or_else(|| anyhow!("it names no port"))
}

/// A child of ours, which is told to end and waited for.
struct Own(Child);

impl Own {
    fn start(command: &mut Command) -> Result<Self> {
        let command = command.stdin(Stdio::null()).process_group(0).ends_with_parent();
        command.spawn().map(Self).context("starting roost")
    }

    fn tell(&self, signal: Signal) {
        if let Some(pid) = Pid::from_raw(self.0.id().cast_signed()) {
            let _ = kill_process(pid, signal);
        }
    }

    /// Waits for its end, tells it once when the run is to end, and looks at it now and then.
    fn wait(&mut self, is_over: impl Fn() -> bool, mut look: impl FnMut()) -> Result<()> {
        let mut is_told = false;
        while self.0.try_wait()?.is_none() {
            if is_over() && !is_told {
                self.tell(Signal::INT);
                is_told = true;
            }
            look();
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        look();
        Ok(())
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        // A child that has been waited for has no process any longer.
        if matches!(self.0.try_wait(), Ok(None)) {
            self.tell(Signal::TERM);
            let _ = self.0.wait();
        }
    }
}

/// The whole lines of it so far.
fn read_blocks(out: &Path) -> Vec<Block> {
    let text = fs::read_to_string(out.join("blocks.jsonl")).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn end_of(out: &Path) -> Option<LoadEnd> {
    let text = fs::read_to_string(out.join("summary.json")).ok()?;
    let found: serde_json::Value = serde_json::from_str(&text).ok()?;
    let end: End = serde_json::from_value(found["end"].clone()).ok()?;
    Some(LoadEnd::from(&end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_fill_the_time() {
        let secs = Duration::from_secs;
        assert_eq!(blocks(secs(42)), (8, secs(5)));
        assert_eq!(blocks(secs(1)), (8, BLOCK_LEAST));
        assert_eq!((shares(secs(36)).len(), shares(secs(1_167)).len()), (1, 3));
        let (count, block) = blocks(secs(390));
        assert_eq!(count, 12);
        assert!(block * 12 <= secs(390) && block > secs(30), "{block}");
        assert_eq!(blocks(secs(86_400)).0, study::kit::BLOCKS_MAX);
    }

    #[test]
    fn the_generator_has_cpus_of_its_own_where_there_are_four() {
        let of = |list: &str| {
            let (server, load) = split(&list.parse().unwrap());
            (server.to_string(), load.to_string())
        };
        assert_eq!(of("0-1"), ("0-1".to_owned(), "0-1".to_owned()));
        assert_eq!(of("0-7"), ("0-5".to_owned(), "6-7".to_owned()));
        assert_eq!(of("4-7"), ("4-6".to_owned(), "7".to_owned()));
    }
}
