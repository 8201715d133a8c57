//! `roost observe --from`: a recording made elsewhere.

use super::results::{self, Observation};
use super::trace::SleepTrace;
use super::watched::Watched;
use super::{Args, table};
use crate::exit::usage;
use crate::table::{columns, print};
use ::observe::recording::{self, Input, Recording, RecordingError};
use ::observe::sleep::Findings;
use ::observe::verdict::{Evidence, Verdict};
use anyhow::Result;
use machine::Instant;
use std::io;
use std::path::Path;
use std::process::ExitCode;

pub fn run(args: &Args, file: &Path) -> Result<ExitCode> {
    let mut watched = args.machine.as_deref().map_or_else(|| Ok(Watched::default()), Watched::named)?;
    if let Some(file) = &args.wake_latency {
        watched.measured(file)?;
    }
    let mut trace =
        args.perfetto.as_ref().map(|path| SleepTrace::create(path, Instant::from_nanos(0))).transpose()?;
    let recording = read(file, &watched, trace.as_mut()).map_err(usage)?;
    let mut notes = recording.notes.clone();
    notes.extend(watched.remarks(&recording.pattern));
    let findings = Findings::of(&recording.pattern, &watched.known);
    let evidence = Evidence { power: watched.power, ..Evidence::of(findings) };
    let verdict = Verdict::of(&evidence);
    let observation = Observation {
        title: title(file),
        layout: Some(recording.layout.to_string()),
        machine: watched.name,
        notes,
        words: verdict.words(),
        findings: evidence.findings,
        verdict,
        requests: Vec::new(),
        answers: None,
        scraped: None,
        power: None,
        work: Vec::new(),
        hardware: Vec::new(),
        verified: None,
    };
    if let Some(trace) = trace {
        eprintln!("{}", trace.end(&observation));
    }
    let place = results::write(args.out.as_deref(), &observation, None)?;
    if args.json {
        crate::json::print(1, &observation)?;
    } else {
        print(&format!("{}\nreport: {}\n", table::of(&observation, columns()), place.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn read(
    file: &Path,
    watched: &Watched,
    mut trace: Option<&mut SleepTrace>,
) -> Result<Recording, RecordingError> {
    let table = |cpu| watched.table(cpu);
    let mut tell = |event| {
        if let Some(trace) = &mut trace {
            trace.event(event, &table);
        }
    };
    if file == Path::new("-") {
        return recording::read("standard input", io::stdin().lock(), table, &mut tell);
    }
    recording::read_input(Input::File(file), table, &mut tell)
}

fn title(file: &Path) -> String {
    match file.file_name().map(|name| name.to_string_lossy()) {
        Some(name) if name != "-" => format!("How the CPUs slept: {name}"),
        _ => "How the CPUs slept".to_owned(),
    }
}
