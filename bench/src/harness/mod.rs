//! The harness of the benches: treatments take turns, and are compared round by round.
//!
//! **The problem.** A shared machine drifts. Two blocks an hour apart differ by more than the
//! effect that is sought, and so do the first and the second of every pair if the order is always
//! the same.
//!
//! **The approach.** A *case* is a load or a setting. In each *round* of a case every *treatment*
//! runs one *block*, in an order drawn from a seed. A block gives metrics. A figure compares the
//! blocks of one round with each other: their ratio, or their difference. Its interval comes from
//! drawing whole rounds anew ([`figure`]). A bench states its figures and their targets as data.
//!
//! Each block is one line of JSON, written with one call as soon as the block has ended, after a
//! line with the machine's facts: a run that is killed leaves whole lines.

pub mod figure;

use crate::exit::Exit;
use crate::machine_facts::this_machine;
use crate::run_folder;
use crate::table::print;
use anyhow::{Context as _, Result};
use figure::{Figure, Row, table};
use linux::SafeFolder;
use report::run::Machine;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use workload::Random;

#[derive(clap::Args, Clone, Debug, Default)]
pub struct Output {
    /// Append raw data, a line of JSON for each block, to a file in this folder
    /// [default: benches/runs/DATE-MACHINE]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print JSON instead of the table
    #[arg(long)]
    pub json: bool,
}

/// The seed of benches that have no flag for it.
pub const SEED: u64 = 1;

pub struct Run {
    folder: PathBuf,
    file: String,
    json: bool,
    header: Header,
    random: Random,
    blocks: Vec<Block>,
    remarks: Vec<String>,
}

/// The first line of a run in its file.
#[derive(Debug, Serialize)]
pub struct Header {
    bench: &'static str,
    pub started: String,
    pub machine: Machine,
    command: Vec<String>,
    version: &'static str,
    pub build: &'static str,
    pub load_before: String,
    seed: u64,
}

#[derive(Clone, Debug, Serialize)]
struct Block {
    case: String,
    round: u32,
    treatment: String,
    valid: bool,
    metrics: BTreeMap<&'static str, f64>,
    /// Values behind the metrics.
    #[serde(skip_serializing_if = "serde_json::Value::is_null")]
    detail: serde_json::Value,
}

#[derive(Debug)]
pub struct Measured {
    metrics: BTreeMap<&'static str, f64>,
    valid: bool,
    detail: serde_json::Value,
}

impl Measured {
    pub fn of(metrics: impl IntoIterator<Item = (&'static str, f64)>) -> Self {
        Self { metrics: metrics.into_iter().collect(), valid: true, detail: serde_json::Value::Null }
    }

    /// An invalid block is kept in the file and compared with no other.
    pub fn valid(self, valid: bool) -> Self {
        Self { valid, ..self }
    }

    pub fn detail(self, detail: &impl Serialize) -> Result<Self> {
        Ok(Self { detail: serde_json::to_value(detail)?, ..self })
    }
}

impl Header {
    /// Of a run that begins now.
    pub fn now(bench: &'static str, seed: u64) -> Result<Self> {
        Ok(Self {
            bench,
            started: run_folder::started()?,
            machine: this_machine(),
            command: run_folder::command(),
            version: env!("CARGO_PKG_VERSION"),
            build: if cfg!(debug_assertions) { "development" } else { "release" },
            load_before: std::fs::read_to_string("/proc/loadavg").unwrap_or_default().trim().to_owned(),
            seed,
        })
    }
}

impl Run {
    pub fn begin(bench: &'static str, output: &Output, seed: u64) -> Result<Self> {
        let header = Header::now(bench, seed)?;
        let folder = folder(output.out.as_deref(), &header.started, &header.machine);
        append(&folder, &format!("{bench}.jsonl"), &header)?;
        Ok(Self {
            folder,
            file: format!("{bench}.jsonl"),
            json: output.json,
            header,
            random: Random::new(seed, 0),
            blocks: Vec::new(),
            remarks: Vec::new(),
        })
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Of the blocks that have ended.
    pub fn rows(&self, figures: &[Figure]) -> Vec<Row> {
        figures.iter().flat_map(|figure| figure.rows(&self.blocks)).collect()
    }

    /// Runs a block of each treatment in each round.
    pub fn rounds<T: fmt::Display>(
        &mut self,
        case: &str,
        rounds: u32,
        treatments: &[T],
        mut block: impl FnMut(&T, u32) -> Result<Measured>,
    ) -> Result<()> {
        for round in 0..rounds {
            for at in order(&mut self.random, treatments.len()) {
                let treatment = &treatments[at];
                let comma = if case.is_empty() { "" } else { ", " };
                eprintln!("{case}{comma}round {} of {rounds}: {treatment}", round + 1);
                let measured = block(treatment, round)?;
                self.block(case, round, &treatment.to_string(), measured)?;
            }
        }
        Ok(())
    }

    /// Adds a block that was run elsewhere.
    pub fn block(&mut self, case: &str, round: u32, treatment: &str, measured: Measured) -> Result<()> {
        let Measured { metrics, valid, detail } = measured;
        let treatment = treatment.to_owned();
        let block = Block { case: case.to_owned(), round, treatment, valid, metrics, detail };
        append(&self.folder, &self.file, &block)?;
        self.blocks.push(block);
        Ok(())
    }

    pub fn remark(&mut self, remark: impl Into<String>) {
        self.remarks.push(remark.into());
    }

    /// Judges, prints and keeps the figures.
    pub fn end(self, figures: &[Figure]) -> Result<ExitCode> {
        let ended = Ended { figures: self.rows(figures), remarks: self.remarks };
        append(&self.folder, &self.file, &ended)?;
        if self.json {
            let all =
                serde_json::json!({ "run": self.header, "figures": ended.figures, "remarks": ended.remarks });
            print(&format!("{}\n", serde_json::to_string_pretty(&all)?))?;
        } else {
            let mut text = format!("{}\n{}", describe(&self.header.machine), table(&ended.figures));
            ended.remarks.iter().for_each(|remark| text += &format!("{remark}\n"));
            text += &format!("raw data: {}\n", self.folder.join(&self.file).display());
            print(&text)?;
        }
        Ok(code(&ended.figures))
    }
}

/// The last line of a run.
#[derive(Debug, Serialize)]
struct Ended {
    figures: Vec<Row>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    remarks: Vec<String>,
}

/// A target that cannot be judged outweighs one that was missed.
fn code(rows: &[Row]) -> ExitCode {
    let judged = || rows.iter().filter(|row| row.target.is_some());
    if judged().any(|row| row.met.is_none()) {
        Exit::Invalid.into()
    } else if judged().any(|row| row.met == Some(false)) {
        Exit::GoalMissed.into()
    } else {
        ExitCode::SUCCESS
    }
}

fn order(random: &mut Random, count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    for last in (1..count).rev() {
        order.swap(last, random.below(last as u64 + 1) as usize);
    }
    order
}

/// `out`, or a folder of today and this machine.
pub fn folder(out: Option<&Path>, started: &str, machine: &Machine) -> PathBuf {
    out.map_or_else(
        || {
            let model = machine.cpu_model.as_deref().unwrap_or("unknown");
            let name = format!("{model} {}cpu", machine.cpus.unwrap_or(0)).to_lowercase();
            let words = name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
            let name = words.collect::<Vec<_>>().join("-");
            PathBuf::from("benches/runs").join(format!("{}-{name}", &started[..10]))
        },
        Path::to_owned,
    )
}

pub fn describe(machine: &Machine) -> String {
    let unknown = || "unknown".to_owned();
    format!(
        "{}, {} CPUs, Linux {}, hypervisor {}, idle driver {} ({})",
        machine.cpu_model.clone().unwrap_or_else(unknown),
        machine.cpus.map_or_else(unknown, |cpus| cpus.to_string()),
        machine.kernel.clone().unwrap_or_else(unknown),
        machine.hypervisor.clone().unwrap_or_else(|| "none".to_owned()),
        machine.idle_driver.clone().unwrap_or_else(|| "none".to_owned()),
        machine.idle_states.join(", "),
    )
}

/// Appends `result` as one line of JSON to a file of raw data, with one write.
pub fn append(folder: &Path, name: &str, result: &impl Serialize) -> Result<()> {
    let write = || -> Result<()> {
        let line = format!("{}\n", serde_json::to_string(result)?);
        Ok(SafeFolder::make(folder, 0o777)?.append(name, 0o666)?.write_all(line.as_bytes())?)
    };
    write().with_context(|| {
        format!("cannot write {}; name another folder with --out", folder.join(name).display())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use figure::{By, Of, Target};

    #[test]
    fn the_order_is_a_permutation_in_each_round_and_depends_on_the_seed() {
        let orders = |seed: u64| -> Vec<Vec<usize>> {
            let mut random = Random::new(seed, 0);
            (0..50).map(|_| order(&mut random, 4)).collect()
        };
        for one in orders(7) {
            let mut sorted = one.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2, 3], "{one:?}");
        }
        assert_eq!(orders(7), orders(7));
        assert_ne!(orders(7), orders(8));
        let firsts: std::collections::BTreeSet<usize> = orders(7).iter().map(|order| order[0]).collect();
        assert_eq!(firsts.len(), 4, "each is first in some round");
    }

    #[test]
    fn whenever_a_run_is_killed_its_file_has_whole_lines_of_every_ended_block() {
        let folder = tempfile::tempdir().unwrap();
        let output = Output { out: Some(folder.path().to_owned()), json: false };
        let mut run = Run::begin("example", &output, 3).unwrap();
        let mut ended = 0;
        run.rounds("light", 3, &["with", "without"], |_, _| {
            // As a kill at this instant would leave it.
            let text = std::fs::read_to_string(folder.path().join("example.jsonl")).unwrap();
            assert!(text.ends_with('\n'), "{text}");
            let lines: Vec<serde_json::Value> =
                text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            assert_eq!(lines.len(), 1 + ended);
            assert!(lines[0]["machine"]["kernel"].is_string() && lines[0]["seed"] == 3, "{text}");
            assert!(lines[1..].iter().all(|line| line["metrics"]["time"] == 2.5), "{text}");
            ended += 1;
            Ok(Measured::of([("time", 2.5)]))
        })
        .unwrap();
        assert_eq!(ended, 6);
    }

    #[test]
    fn a_target_that_cannot_be_judged_outweighs_one_that_was_missed() {
        let folder = tempfile::tempdir().unwrap();
        let code = |found: f64, valid: bool| {
            let output = Output { out: Some(folder.path().to_owned()), json: true };
            let mut run = Run::begin("example", &output, SEED).unwrap();
            for (treatment, time) in [("without", 10.0), ("with", found)] {
                run.block("", 0, treatment, Measured::of([("time", time)]).valid(valid)).unwrap();
            }
            let of = Of::Ratio("with", "without");
            let late = Figure { target: Some(Target::AtMost(1.5)), ..Figure::new("time", "us", of) };
            run.end(&[Figure { by: By::Median, ..late }]).unwrap()
        };
        assert_eq!(code(15.0, true), ExitCode::SUCCESS);
        assert_eq!(code(16.0, true), Exit::GoalMissed.into());
        assert_eq!(code(16.0, false), Exit::Invalid.into());
    }
}
