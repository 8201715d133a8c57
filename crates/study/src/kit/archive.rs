//! The archive: a gzipped tar of JSON files, and nothing else.
//!
//! It is read into memory and never unpacked, so a path in it cannot lead anywhere. A stranger's
//! archive is refused with the reason when it is too large, has an entry of another name or kind, or
//! numbers that no machine has.

use super::{ClockSpan, FORMAT, IdleSpan, Load, Machine, Summary, Wakes};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, Read, Write};

/// Of the unpacked archive. A run of [`BLOCKS_MAX`] blocks at each of three loads has 200 kB.
pub const SIZE_MAX: u64 = 4 << 20;

/// The most blocks that a run has at one load.
pub const BLOCKS_MAX: u32 = 100;

/// More loads than this are no run of ours.
const LOADS_MAX: usize = 16;
/// More lines of a list than this are none either.
const LINES_MAX: usize = 4096;
/// No list of a machine's parts is longer.
const PARTS_MAX: usize = 1024;

/// All files of an archive, as they are read.
#[derive(Clone, Debug, PartialEq)]
pub struct Archive {
    pub summary: Summary,
    pub machine: Machine,
    pub wakes: Vec<Wakes>,
    pub idle: Vec<IdleSpan>,
    pub clocks: Vec<ClockSpan>,
    pub loads: Vec<Load>,
}

#[derive(Debug)]
pub struct ArchiveError(String);

impl std::fmt::Display for ArchiveError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ArchiveError {}

fn wrong(why: impl Into<String>) -> ArchiveError {
    ArchiveError(why.into())
}

impl Archive {
    /// Whether these bytes begin as gzip does (RFC 1952, section 2.3.1).
    pub fn is_one(bytes: &[u8]) -> bool {
        bytes.starts_with(&[0x1f, 0x8b])
    }

    /// The files by name, in the order of the archive.
    pub fn files(&self) -> Vec<(String, String)> {
        let mut files = vec![text("kit.json", &self.summary), text("machine.json", &self.machine)];
        files.extend((!self.wakes.is_empty()).then(|| text("wakes.json", &self.wakes)));
        files.extend((!self.idle.is_empty()).then(|| text("idle.json", &self.idle)));
        files.extend((!self.clocks.is_empty()).then(|| text("clocks.json", &self.clocks)));
        files.extend(self.loads.iter().zip(1..).map(|(load, number)| text(&load_name(number), load)));
        files
    }

    /// Its bytes: no owner, no time, so that equal findings give equal bytes.
    pub fn write(&self, to: impl Write) -> io::Result<()> {
        let mut tar = tar::Builder::new(GzEncoder::new(to, Compression::default()));
        for (name, text) in self.files() {
            let mut header = tar::Header::new_ustar();
            header.set_size(text.len() as u64);
            header.set_mode(0o644);
            header.set_mtime(0);
            tar.append_data(&mut header, &name, text.as_bytes())?;
        }
        tar.into_inner()?.finish()?.flush()
    }

    pub fn read(bytes: &[u8]) -> Result<Self, ArchiveError> {
        let mut tar_bytes = Vec::new();
        GzDecoder::new(bytes)
            .take(SIZE_MAX + 1)
            .read_to_end(&mut tar_bytes)
            .map_err(|cause| wrong(format!("it cannot be unpacked: {cause}")))?;
        if tar_bytes.len() as u64 > SIZE_MAX {
            return Err(wrong(format!("more than {} MiB are in it", SIZE_MAX >> 20)));
        }
        let mut files = Files::default();
        let mut tar = tar::Archive::new(&tar_bytes[..]);
        let entries = tar.entries().map_err(|cause| wrong(format!("it is no tar: {cause}")))?;
        // Raw: extensions that give an entry a long name or another size are no part of ours.
        for entry in entries.raw(true) {
            let mut entry = entry.map_err(|cause| wrong(format!("it is no tar: {cause}")))?;
            let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
            if entry.header().entry_type() != tar::EntryType::Regular {
                return Err(wrong("an entry is no plain file"));
            }
            let mut content = Vec::new();
            entry.read_to_end(&mut content).map_err(|cause| wrong(format!("it is cut off: {cause}")))?;
            files.take(&name, &content)?;
        }
        files.whole()
    }
}

fn text(name: &str, content: &impl Serialize) -> (String, String) {
    let mut text = serde_json::to_string_pretty(content).expect("numbers and words");
    text.push('\n');
    (name.to_owned(), text)
}

fn load_name(number: usize) -> String {
    format!("load-{number}.json")
}

#[derive(Default)]
struct Files {
    summary: Option<Summary>,
    machine: Option<Machine>,
    wakes: Option<Vec<Wakes>>,
    idle: Option<Vec<IdleSpan>>,
    clocks: Option<Vec<ClockSpan>>,
    loads: Vec<Load>,
}

impl Files {
    fn take(&mut self, name: &str, content: &[u8]) -> Result<(), ArchiveError> {
        if name == "kit.json" && self.summary.is_none() {
            // Before anything else, so that a newer archive is refused by its number.
            let number = read::<serde_json::Value>(name, content)?;
            match number.get("format").and_then(serde_json::Value::as_u64) {
                Some(number) if number == u64::from(FORMAT) => {}
                Some(number) => {
                    return Err(wrong(format!(
                        "it has format {number}, and this Roost reads {FORMAT}: use the Roost that wrote it"
                    )));
                }
                None => return Err(wrong("kit.json has no format number")),
            }
        }
        match name {
            "kit.json" => once(&mut self.summary, name, content),
            "machine.json" => once(&mut self.machine, name, content),
            "wakes.json" => once(&mut self.wakes, name, content),
            "idle.json" => once(&mut self.idle, name, content),
            "clocks.json" => once(&mut self.clocks, name, content),
            _ if name == load_name(self.loads.len() + 1) && self.loads.len() < LOADS_MAX => {
                self.loads.push(read(name, content)?);
                Ok(())
            }
            _ => Err(wrong("an entry has a name that no archive of ours has")),
        }
    }

    fn whole(self) -> Result<Archive, ArchiveError> {
        let archive = Archive {
            summary: self.summary.ok_or_else(|| wrong("kit.json is missing"))?,
            machine: self.machine.ok_or_else(|| wrong("machine.json is missing"))?,
            wakes: self.wakes.unwrap_or_default(),
            idle: self.idle.unwrap_or_default(),
            clocks: self.clocks.unwrap_or_default(),
            loads: self.loads,
        };
        check(&archive)?;
        Ok(archive)
    }
}

fn once<T: DeserializeOwned>(place: &mut Option<T>, name: &str, content: &[u8]) -> Result<(), ArchiveError> {
    if place.is_some() {
        return Err(wrong(format!("{name} is in it twice")));
    }
    *place = Some(read(name, content)?);
    Ok(())
}

fn read<T: DeserializeOwned>(name: &str, content: &[u8]) -> Result<T, ArchiveError> {
    serde_json::from_slice(content).map_err(|cause| wrong(format!("{name}: {cause}")))
}

/// Lengths and ranges: a page of them can be made, and no sum overflows.
fn check(archive: &Archive) -> Result<(), ArchiveError> {
    let (machine, meters) = (&archive.machine, archive.machine.meters.len());
    let parts = [
        machine.idle_tables.len(),
        machine.clocks.len(),
        machine.uncore.len(),
        meters,
        machine.nics.len(),
        archive.summary.parts.len(),
    ];
    let tables = machine.idle_tables.iter().map(|table| table.states.len());
    if parts.into_iter().chain(tables).any(|length| length > PARTS_MAX) {
        return Err(wrong("a list of a machine's parts is too long"));
    }
    let lists = [archive.wakes.len(), archive.idle.len(), archive.clocks.len()];
    if lists.into_iter().chain(archive.loads.iter().map(|load| load.blocks.len())).any(|n| n > LINES_MAX) {
        return Err(wrong("a list is too long"));
    }
    let watts = (archive.idle.iter().map(|span| &span.watts))
        .chain(archive.clocks.iter().map(|span| &span.watts))
        .chain(archive.loads.iter().flat_map(|load| load.blocks.iter().map(|block| &block.watts)));
    if watts.clone().any(|watts| watts.len() != meters) {
        return Err(wrong("a list of watts has not one entry for each meter"));
    }
    let shares = archive.wakes.iter().map(|wakes| &wakes.states);
    let mut shares = shares.chain(archive.idle.iter().map(|span| &span.states));
    if shares.any(|states| states.len() > PARTS_MAX || states.iter().any(|state| !is_number(state.share))) {
        return Err(wrong("a share of a state is no number"));
    }
    let mut numbers: Vec<f64> = watts.flatten().flatten().copied().collect();
    numbers.push(archive.summary.took_s);
    for span in &archive.idle {
        numbers.extend([Some(span.seconds), span.busy_cpus].into_iter().flatten());
    }
    for span in &archive.clocks {
        numbers.extend([span.seconds, span.turns_per_s]);
    }
    for load in &archive.loads {
        numbers.extend([load.share, load.offered_per_s, load.block_s, load.settling_s, load.like]);
        for block in &load.blocks {
            let options = [block.rate_per_s, block.tail_ns, block.busy_cpus, block.awake_cpus, block.cores];
            numbers.extend(options.into_iter().flatten());
            numbers.extend([block.began_s, block.measured_s]);
        }
        let is_even = load.planned_blocks.is_multiple_of(2);
        if load.planned_blocks > BLOCKS_MAX || !is_even || load.blocks.len() > load.planned_blocks as usize {
            return Err(wrong("a number of blocks that no run has"));
        }
    }
    if numbers.iter().all(|number| is_number(*number)) {
        Ok(())
    } else {
        Err(wrong("a number is negative, or larger than any machine's"))
    }
}

fn is_number(number: f64) -> bool {
    (0.0..=1e15).contains(&number)
}

#[cfg(test)]
pub(super) mod tests;
