//! Published traces in Roost's own form.
//!
//! A scenario names one by its format: `workload.trace = "twitter:FILE"`. Its rows are read once, and
//! written as the requests or the rates that Roost replays into a file of the user's cache, which the
//! scenario gets in its place. The file's name has a digest of all that it was made from, so that
//! the next run takes it as it is.
//!
//! ```text
//!   FILE or FILE.gz -> csv -> a format's row -> sort, where rows are out of order -> steps of the
//!                                            clock filled, service times drawn -> time,class,service
//!                                         `-> amounts summed by window          -> seconds,rate
//! ```
//!
//! Invariants:
//! - Memory does not grow with the trace, but for its windows, and for the rows of one step of its
//!   clock.
//! - A row that does not parse is counted and told with its reason and line. A file of which most
//!   rows do not parse is refused.

mod formats;

pub use formats::{FORMATS, Format};

use crate::cells::digest;
use crate::exit::usage;
use anyhow::{Context as _, Result, anyhow, bail, ensure};
use csv::StringRecord;
use flate2::read::MultiGzDecoder;
use formats::{Reason, Rows};
use machine::Duration;
use os::SafeFolder;
use report::grouped;
use sim::Document;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek as _, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::UNIX_EPOCH;
use toml::Value;
use workload::{Distribution, Random, Sampler};

/// A row that is a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Request<'a> {
    pub at: Duration,
    pub class: &'a str,
    /// `None`: it is drawn from the scenario's law.
    pub service: Option<Duration>,
    pub connection: Option<u32>,
}

/// Load in a stretch of time, evenly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Amount {
    pub at: Duration,
    pub length: Duration,
    pub amount: f64,
}

/// `document` with Roost's own form of the published trace that it names, if it names one.
pub fn imported(document: Document) -> Result<Document> {
    let Some(workload) = document.table().get("workload").and_then(Value::as_table) else {
        return Ok(document);
    };
    let named = workload.get("trace").and_then(Value::as_str).and_then(|trace| trace.split_once(':'));
    let Some((name, path)) = named.filter(|(name, _)| !name.contains('/')) else { return Ok(document) };
    let Some(format) = FORMATS.iter().find(|format| format.name == name) else {
        let all = FORMATS.map(|format| format.name).join(", ");
        return Err(usage(format!(
            "workload.trace: no published format is called `{name}`\n\nhint: there are {all}; a file of \
             Roost's own has no name before it"
        )));
    };
    let path = document.path().parent().unwrap_or(Path::new("")).join(path);
    let mut workload = workload.clone();
    workload.remove("trace");
    let seed = document.scenario().map_err(usage)?.run.seed;
    let law = match format.rows {
        Rows::Requests(_) => workload.get("service").cloned(),
        Rows::Amounts { .. } => None,
    };
    let (file, told) = cached(format, &path, law.as_ref(), seed)?;
    eprintln!("{told}");
    let file = file.to_str().context("the cache's path is no UTF-8")?.to_owned();
    let mut run = document.table().get("run").and_then(Value::as_table).cloned().unwrap_or_default();
    match format.rows {
        Rows::Requests(_) => {
            // The file has arrivals and service times, those that were drawn as well.
            for key in ["rate", "shape", "arrivals", "batch", "service"] {
                workload.remove(key);
            }
            run.remove("utilisation");
            workload.insert("trace".into(), Value::String(file));
        }
        Rows::Amounts { are_requests, .. } => {
            let has_rate = workload.contains_key("rate") || run.contains_key("utilisation");
            if !are_requests && !has_rate {
                return Err(usage(format!(
                    "workload.rate: {name} tells CPU time and no requests\n\nhint: give the highest rate, \
                     such as workload.rate=50k"
                )));
            }
            workload.insert("shape".into(), Value::String(format!("csv:{file}")));
        }
    }
    let document = document.with("workload", &Value::Table(workload)).map_err(usage)?;
    document.with("run", &Value::Table(run)).map_err(usage)
}

/// The file in the cache, made if it is not there, and a line about its rows.
fn cached(format: &Format, path: &Path, law: Option<&Value>, seed: u64) -> Result<(PathBuf, String)> {
    let cannot = || format!("cannot read the trace {}", path.display());
    let whole = path.canonicalize().with_context(cannot)?;
    let about = whole.metadata().with_context(cannot)?;
    let changed = about.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let made_from = format!("1 {} {} {} {changed} {law:?} {seed}", format.name, whole.display(), about.len());
    let folder = cache()?;
    let name = format!("{}-{}.csv", format.name, digest(&made_from));
    let (file, note) = (folder.path().join(&name), format!("{name}.txt"));
    if folder.has(&name)
        && let Ok(told) = fs::read_to_string(folder.path().join(&note))
    {
        return Ok((file, told));
    }
    let input = File::open(&whole).with_context(cannot)?;
    let input: Box<dyn Read> = match whole.extension() {
        Some(kind) if kind == "gz" => Box::new(MultiGzDecoder::new(BufReader::new(input))),
        _ => Box::new(input),
    };
    let law = law.map(|law| law.clone().try_into::<Distribution>()).transpose();
    let law = law.map_err(|error| usage(format!("workload.service: {error}")))?;
    let law = law.map(|law| law.sampler()).transpose().map_err(usage)?;
    let mut rows = Err(anyhow!("nothing was read"));
    let written = folder.replace(&name, 0o600, |made| {
        rows = import(format, input, folder.path(), law.as_ref(), seed, made);
        rows.as_ref().map(drop).map_err(|error| io::Error::other(error.to_string()))
    });
    let told = rows.map_err(|error| usage(format!("{}: {error:#}", path.display())))?.told(format);
    written?;
    // Without it the file is made again.
    folder.replace(&note, 0o600, |file| file.write_all(told.as_bytes()))?;
    Ok((file, told))
}

/// `roost/traces` in the user's cache (XDG Base Directory Specification).
fn cache() -> Result<SafeFolder> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let own =
        || if cfg!(windows) { absolute("LOCALAPPDATA") } else { Some(absolute("HOME")?.join(".cache")) };
    let cache = absolute("XDG_CACHE_HOME").or_else(own);
    let folder = cache.context("no place for traces: set HOME or XDG_CACHE_HOME")?.join("roost/traces");
    let made = SafeFolder::make(&folder, 0o700).and_then(SafeFolder::trusted);
    made.with_context(|| format!("traces cannot be kept in {}: set XDG_CACHE_HOME", folder.display()))
}

/// The rows of a trace, and those of them that do not count.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counted {
    pub rows: u64,
    /// By reason: how many were skipped, and the first one's line.
    pub skipped: BTreeMap<Reason, (u64, u64)>,
}

impl Counted {
    fn skip(&mut self, reason: Reason, line: u64) {
        self.skipped.entry(reason).or_insert((0, line)).0 += 1;
    }

    fn told(&self, format: &Format) -> String {
        let skipped: u64 = self.skipped.values().map(|(count, _)| count).sum();
        let reason = |(reason, (count, line)): (&Reason, &(u64, u64))| {
            format!("{} {reason} (first in line {line})", grouped(*count))
        };
        let reasons = self.skipped.iter().map(reason).collect::<Vec<_>>().join(", ");
        let reasons = if reasons.is_empty() { String::new() } else { format!(": {reasons}") };
        format!("{}: {} rows, {} skipped{reasons}", format.name, grouped(self.rows), grouped(skipped))
    }
}

/// Reads a trace and writes Roost's form of it. `folder` takes the files that are sorted; `law` is
/// that of service times that the trace does not have.
pub fn import(
    format: &Format,
    input: impl Read,
    folder: &Path,
    law: Option<&Sampler>,
    seed: u64,
    mut out: impl Write,
) -> Result<Counted> {
    // No format quotes its fields, and a quote without an end would swallow the rest of the file.
    let mut csv = csv::ReaderBuilder::new()
        .has_headers(format.has_header)
        .flexible(true)
        .quoting(false)
        .from_reader(Lines { input, length: 0 });
    let header = if format.has_header { csv.headers()?.clone() } else { StringRecord::new() };
    let mut counted = Counted::default();
    let mut row = StringRecord::new();
    let mut next = |counted: &mut Counted, row: &mut StringRecord| -> Result<Option<u64>> {
        loop {
            match csv.read_record(row) {
                Ok(false) => return Ok(None),
                Ok(true) => {
                    counted.rows += 1;
                    return Ok(Some(row.position().map_or(0, csv::Position::line)));
                }
                Err(error) if matches!(error.kind(), csv::ErrorKind::Utf8 { .. }) => {
                    counted.rows += 1;
                    counted.skip("is not text", error.position().map_or(0, csv::Position::line));
                }
                Err(error) => return Err(error.into()),
            }
        }
    };
    match format.rows {
        Rows::Amounts { window, row: read, .. } => {
            let mut windows: BTreeMap<u64, f64> = BTreeMap::new();
            while let Some(line) = next(&mut counted, &mut row)? {
                let mut add = |amount: Amount| spread(&mut windows, window, amount);
                if let Err(reason) = read(&header, &row, &mut add) {
                    counted.skip(reason, line);
                }
                ensure!(windows.len() <= WINDOWS_MAX, "line {line}: its times span more than a year");
            }
            check(format, &counted)?;
            write_rates(&windows, window, &mut out)?;
        }
        Rows::Requests(read) => {
            let mut raw = BufWriter::new(tempfile::tempfile_in(folder)?);
            let (mut before, mut is_sorted) = (Duration::ZERO, true);
            let (mut first, mut last) = (Duration::MAX, Duration::ZERO);
            let (mut classes, step) = (BTreeSet::new(), format.step.as_nanos());
            while let Some(line) = next(&mut counted, &mut row)? {
                match read(&row) {
                    Ok(Request { service: None, .. }) if law.is_none() => bail!(
                        "{} has no service times\n\nhint: write workload.service, such as {{ exponential = \
                         \"10us\" }}",
                        format.name
                    ),
                    Ok(Request { service: Some(service), .. }) if service > SPAN_MAX => {
                        counted.skip("takes longer than 115 days", line);
                    }
                    Ok(mut request) => {
                        let at = request.at.as_nanos();
                        // A row between two steps would be spread beyond the next one.
                        request.at = Duration::from_nanos(at - at.checked_rem(step).unwrap_or_default());
                        is_sorted &= before <= request.at;
                        before = request.at;
                        (first, last) = (first.min(before), last.max(before));
                        if !classes.contains(request.class) {
                            classes.insert(request.class.to_owned());
                            ensure!(classes.len() <= CLASSES_MAX, "line {line}: the 257th class");
                        }
                        writeln!(raw, "{}", Line(&request))?;
                    }
                    Err(reason) => counted.skip(reason, line),
                }
            }
            check(format, &counted)?;
            ensure!(last - first < SPAN_MAX, "its times span more than 115 days");
            let raw = raw.into_inner().map_err(|error| error.into_error())?;
            let raw = if is_sorted { raw } else { sorted(raw, folder)? };
            write_requests(raw, format.step, law, seed, &mut out)?;
        }
    }
    out.flush()?;
    Ok(counted)
}

/// A reader that refuses lines which no format has: one line shall not fill the memory.
struct Lines<R> {
    input: R,
    /// Bytes since the last end of a line.
    length: usize,
}

impl<R: Read> Read for Lines<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(buffer)?;
        for part in buffer[..count].split_inclusive(|byte| *byte == b'\n') {
            self.length += part.len();
            if self.length > LINE_MAX {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a line is longer than 1 MiB"));
            }
            if part.ends_with(b"\n") {
                self.length = 0;
            }
        }
        Ok(count)
    }
}

const LINE_MAX: usize = 1 << 20;
/// As many as a job trace may have.
const CLASSES_MAX: usize = 256;
/// The longest time of a job trace is 10^7 s.
const SPAN_MAX: Duration = Duration::from_secs(9_999_999);
/// No trace is longer than a year of minutes.
const WINDOWS_MAX: usize = 527_040;

/// Rows that do not parse are the exception.
fn check(format: &Format, counted: &Counted) -> Result<()> {
    let skipped: u64 = counted.skipped.values().map(|(count, _)| count).sum();
    ensure!(
        counted.rows > 0 && skipped * 2 <= counted.rows,
        "is no trace of the format {}: {}",
        format.name,
        counted.told(format)
    );
    Ok(())
}

/// A request as the file that is sorted has it.
struct Line<'a>(&'a Request<'a>);

impl std::fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Request { at, class, service, connection } = self.0;
        write!(f, "{},{class},", at.as_nanos())?;
        service.map_or(Ok(()), |service| write!(f, "{}", service.as_nanos()))?;
        f.write_str(",")?;
        connection.map_or(Ok(()), |connection| write!(f, "{connection}"))
    }
}

/// By time; rows of one time stay in their order. `sort` keeps to a bound of memory, and the files
/// have no names, so that nothing is left of a killed run.
fn sorted(mut raw: File, folder: &Path) -> Result<File> {
    // Windows has a `sort` that knows neither numbers nor stability.
    ensure!(
        !cfg!(windows),
        "rows are out of order: sort them by their times, or read the trace on Linux or macOS"
    );
    let sorted = tempfile::tempfile_in(folder)?;
    raw.rewind()?;
    let status = Command::new("sort")
        .args(["--field-separator=,", "--key=1,1n", "--stable", "--buffer-size=64M"])
        .arg("--temporary-directory")
        .arg(folder)
        .env("LC_ALL", "C")
        .stdin(raw)
        .stdout(sorted.try_clone()?)
        .status()
        .context("rows are out of order, and `sort` (coreutils) cannot be run")?;
    ensure!(status.success(), "rows are out of order, and `sort` has failed: {status}");
    Ok(sorted)
}

fn write_requests(
    mut raw: File,
    step: Duration,
    law: Option<&Sampler>,
    seed: u64,
    out: &mut impl Write,
) -> Result<()> {
    let mut out = BufWriter::new(out);
    writeln!(out, "time,class,service,connection")?;
    let mut random = Random::new(seed ^ SERVICE_SALT, 0);
    let mut first = None;
    let mut group: Vec<String> = Vec::new();
    let mut group_at = 0;
    let mut fill = |group: &mut Vec<String>, at: u64, first: u64| -> Result<()> {
        let count = group.len().max(1) as u64;
        for (place, rest) in group.drain(..).enumerate() {
            let at = at - first + step.as_nanos() * place as u64 / count;
            let mut fields = rest.split(',');
            let (class, service) = (fields.next().unwrap_or_default(), fields.next().unwrap_or_default());
            write!(out, "{at}ns,{class},")?;
            match law.filter(|_| service.is_empty()) {
                Some(law) => write!(out, "{}ns", law.draw(&mut random).as_nanos())?,
                None => write!(out, "{service}ns")?,
            }
            match fields.next().filter(|connection| !connection.is_empty()) {
                Some(connection) => writeln!(out, ",{connection}")?,
                None => writeln!(out)?,
            }
        }
        Ok(())
    };
    raw.rewind()?;
    for line in BufReader::new(raw).lines() {
        let line = line?;
        let (at, rest) = line.split_once(',').context("a line of ours has a comma")?;
        let at: u64 = at.parse()?;
        let began = *first.get_or_insert(at);
        if at != group_at || step.is_zero() {
            fill(&mut group, group_at, began)?;
            group_at = at;
        }
        group.push(rest.to_owned());
    }
    fill(&mut group, group_at, first.unwrap_or_default())?;
    out.flush()?;
    Ok(())
}

const SERVICE_SALT: u64 = 0x7472_6163_6573_0001;

/// Adds an amount to the windows that it lies in, each by its part.
fn spread(windows: &mut BTreeMap<u64, f64>, window: Duration, amount: Amount) {
    let (from, length) = (amount.at.as_nanos(), amount.length.as_nanos().max(1));
    let until = from.saturating_add(length);
    let mut at = from;
    while at < until && windows.len() <= WINDOWS_MAX {
        let number = at / window.as_nanos();
        let end = ((number + 1).saturating_mul(window.as_nanos())).min(until);
        *windows.entry(number).or_default() += amount.amount * (end - at) as f64 / length as f64;
        at = end;
    }
}

/// The highest rate of a shape.
const RATE_MAX: f64 = 1e9;

/// Windows without rows have no load.
fn write_rates(windows: &BTreeMap<u64, f64>, window: Duration, out: &mut impl Write) -> Result<()> {
    let (Some((&first, _)), Some((&last, _))) = (windows.first_key_value(), windows.last_key_value()) else {
        bail!("has no load in it");
    };
    ensure!(last - first < WINDOWS_MAX as u64, "its times span more than a year");
    ensure!(last > first, "has one window of {window}: a rate that changes needs two");
    let rate_of = |amount: f64| amount / window.as_secs_f64();
    let highest = windows.values().copied().map(rate_of).fold(0.0, f64::max);
    ensure!(highest > 0.0, "has no load in it");
    ensure!(highest <= RATE_MAX, "has a rate of {highest} a second: a shape has at most {RATE_MAX}");
    writeln!(out, "seconds,rate")?;
    for number in first..=last {
        let rate = rate_of(windows.get(&number).copied().unwrap_or_default());
        let seconds = (number - first) as f64 * window.as_secs_f64();
        writeln!(out, "{seconds},{rate}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
