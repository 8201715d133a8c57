//! Finished cells of a sweep, kept in a file that survives a kill.
//!
//! One line of JSON for each, appended in one write as the cell finishes. A line that a kill tore
//! in two has no end: it is cut off when the file is opened again, and its cell is done again.
//! Tables are made from the file alone, so a sweep that was resumed ends with the same files as one
//! that was not.

use super::columns::{Columns, Rows};
use super::page::Swept;
use super::results::{Entry, of_runs};
use crate::exit::{Exit, coded, usage};
use anyhow::{Context as _, Result};
use os::SafeFolder;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

/// Which cell: the same key is the same run, figure for figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Key {
    /// The axes' values as TOML writes them, in order of the axes' keys.
    pub axes: BTreeMap<String, String>,
    pub contestant: String,
    pub seed: u64,
    /// Digest of the scenario that this cell runs in.
    pub scenario: String,
}

impl Key {
    /// As progress calls it: `workload.rate=10k menu`.
    pub fn name(&self) -> String {
        let axes = self.axes.iter().map(|(axis, value)| format!("{axis}={value}"));
        axes.chain([self.contestant.clone()]).collect::<Vec<_>>().join(" ")
    }

    /// For looking up: one text for one key.
    pub fn text(&self) -> String {
        format!("{:?} {:?} {} {}", self.axes, self.contestant, self.seed, self.scenario)
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cell {
    pub key: Key,
    /// The results; without its time series.
    pub run: Entry,
}

impl Cell {
    /// The cell as the page of a sweep takes it.
    pub fn swept(&self) -> Swept<'_> {
        let axes = self.key.axes.iter().map(|(axis, value)| (axis.as_str(), value.as_str()));
        Swept { axes: axes.collect(), outcome: &self.run.outcome }
    }
}

#[derive(Debug)]
pub struct Cells {
    path: PathBuf,
    file: File,
}

/// Its name in the run's folder.
pub const CELLS: &str = "cells.jsonl";

impl Cells {
    /// Opens or makes the file of a folder, for this process alone, and cuts off a torn last line.
    pub fn open(folder: &Path) -> Result<Self> {
        let path = folder.join(CELLS);
        let failed = || format!("cannot open {}; name another folder with --out", path.display());
        let opened = SafeFolder::open(folder).and_then(|folder| folder.update(CELLS, 0o666));
        let mut file = opened.with_context(failed)?;
        if file.try_lock().is_err() {
            let folder = folder.display();
            return Err(coded(
                Exit::Refused,
                format!(
                    "{folder}: another sweep writes here\n\nhint: wait for it, or name another folder with --out"
                ),
            ));
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).with_context(failed)?;
        let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        file.set_len(whole as u64).with_context(failed)?;
        Ok(Self { path, file })
    }

    /// Everything that is finished, in the order in which it was.
    pub fn read(&mut self) -> Result<Vec<Cell>> {
        self.file.rewind()?;
        let mut cells = Vec::new();
        for (index, line) in BufReader::new(&self.file).split(b'\n').enumerate() {
            let line = line.with_context(|| format!("cannot read {}", self.path.display()))?;
            if line.is_empty() {
                continue;
            }
            cells.push(serde_json::from_slice(&line).map_err(|error| {
                let path = self.path.display();
                usage(format!(
                    "{path}, line {}: {error}\n\nhint: delete that line; its cell is done again",
                    index + 1
                ))
            })?);
        }
        Ok(cells)
    }

    /// Appends a finished cell. It is with the system when this returns.
    pub fn append(&mut self, cell: &Cell) -> Result<()> {
        let mut line = serde_json::to_vec(cell)?;
        line.push(b'\n');
        let written = self.file.seek(SeekFrom::End(0)).and_then(|_| self.file.write_all(&line));
        written.with_context(|| format!("cannot write {}; free some space", self.path.display()))
    }
}

/// `cells.csv`: a row for each cell, its axes first.
pub fn columns(cells: &[Cell]) -> Columns {
    let axes = cells.first().into_iter().flat_map(|cell| cell.key.axes.keys());
    let rows = axes.fold(Rows::of(cells), |rows, axis| {
        rows.text(axis.as_str(), |cell| cell.key.axes.get(axis).cloned())
    });
    of_runs(rows.text("contestant", |cell| cell.key.contestant.clone()), cells, |cell| &cell.run)
}

/// FNV-1a with 64 bits, as 16 hexadecimal digits: the same on every machine and in every version,
/// which the standard library's hashes do not promise. Against mistakes, not against malice.
pub fn digest(text: &str) -> String {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let hash = text.bytes().fold(OFFSET, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME));
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_is_the_published_one() {
        // From the reference vectors of the hash's authors.
        assert_eq!(digest(""), "cbf29ce484222325");
        assert_eq!(digest("a"), "af63dc4c8601ec8c");
        assert_eq!(digest("foobar"), "85944171f73967e8");
    }

    #[test]
    fn a_torn_line_is_cut_off_and_a_wrong_one_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(CELLS);
        std::fs::write(&path, "\n{\"key\":{\"axes\":{}").unwrap();
        assert!(Cells::open(folder.path()).unwrap().read().unwrap().is_empty());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "\n");
        std::fs::write(&path, "\n{\"key\":1}\n").unwrap();
        let error = Cells::open(folder.path()).unwrap().read().unwrap_err().to_string();
        assert!(error.contains("cells.jsonl, line 2") && error.contains("hint"), "{error}");
    }

    #[test]
    fn two_sweeps_do_not_share_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let first = Cells::open(folder.path()).unwrap();
        assert!(Cells::open(folder.path()).unwrap_err().to_string().contains("another sweep"));
        drop(first);
        Cells::open(folder.path()).unwrap();
    }
}
