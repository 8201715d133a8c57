//! Functions of a program that cannot be changed, as hot-function slots: `linux::probes`'s probes
//! behind the very [`slots::Reader`] that reads an agent's file. A policy that decides from slots
//! need not know where they come from.
//!
//! ```text
//!   the program  --uprobe-->  program in the kernel  --stores-->  a map that is a slot file  <--mapped--  slots::Reader
//!                                      '-- first enter while the reader sleeps: a ring buffer --> Reader::sleep
//! ```
//!
//! Invariants:
//! - A call that was left by an exception, by `longjmp` or by an unseen tail call is not reported
//!   as inside for ever: once a thread has been inside for [`LONG`] and sleeps further out on its
//!   stack, it is outside. The kernel is asked about such threads only, 7 us each.
//! - A thread that ends is outside at once, and a process that ends has no thread inside.
//! - It costs the service a trap at each enter and each exit (`roost-bench uprobe` measures it),
//!   and nothing after this is dropped.

use linux::code_files::{code_file_named, code_files, seen_from_here};
use linux::probes::{
    BpfError, FunctionProgram, FunctionTally, ImageRings, Probe, SLOT_COUNT, stack_of_sleeper,
};
use linux::symbols::{SymbolError, build_id, function, readable};
use linux::{FileError, Root};
use machine::{Duration, Instant};
use slots::{Identity, Map, Memory, Reader, ReaderError, WriterOptions};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Mutex;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use thiserror::Error;

/// A thread that is inside for longer is asked whether it still is.
pub const LONG: Duration = Duration::from_millis(20);

/// A function of a program's file, as a person names it: `BINARY:SYMBOL`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionName {
    /// A path, or the file's name alone.
    pub binary: String,
    /// As the file calls it or as people do.
    pub symbol: String,
}

impl FromStr for FunctionName {
    type Err = String;

    /// The first single colon divides: C++ and Rust names hold double ones.
    fn from_str(text: &str) -> Result<Self, String> {
        let (binary, symbol) = text
            .split_once(':')
            .filter(|(binary, symbol)| !binary.is_empty() && !symbol.is_empty() && !symbol.starts_with(':'))
            .ok_or_else(|| {
                format!(
                    "`{text}` names no function of a program: write BINARY:SYMBOL, as in \
                     memcached:process_command"
                )
            })?;
        Ok(Self { binary: binary.to_owned(), symbol: symbol.to_owned() })
    }
}

impl std::fmt::Display for FunctionName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.binary, self.symbol)
    }
}

#[derive(Debug, Error)]
pub enum FunctionError {
    /// The process, or its executable.
    #[error(transparent)]
    File(#[from] FileError),
    /// The process runs no such file.
    #[error("process {pid} runs no file {binary}\nhint: it runs {}", known.join(", "))]
    NoBinary { pid: u32, binary: String, known: Vec<String> },
    /// The file could not be read.
    #[error("{path}: {source}")]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{binary}: {source}")]
    Symbol { binary: String, source: SymbolError },
    #[error("{0} never returns, so no thread is ever outside again; name a function that it calls")]
    Endless(String),
    #[error(transparent)]
    Bpf(#[from] BpfError),
    /// The attached program cannot be read.
    #[error(transparent)]
    Reader(#[from] ReaderError),
}

/// Functions of one process, watched until this is dropped.
#[derive(Debug)]
pub struct FunctionWatch {
    program: FunctionProgram,
    pid: u32,
    names: Vec<String>,
}

impl FunctionWatch {
    /// Watches `wanted` in process `pid`. `tallies`: count and time them, too.
    pub fn attach(
        root: &Root,
        pid: u32,
        wanted: &[FunctionName],
        tallies: bool,
    ) -> Result<Self, FunctionError> {
        let mut binaries = Binaries::of(root, pid)?;
        let mut probes = Vec::new();
        let mut names = Vec::new();
        for one in wanted {
            let (probe, file) = binaries.probe(one)?;
            if probe.function.exits.is_empty() && !tallies {
                return Err(FunctionError::Endless(one.to_string()));
            }
            names.push(format!("{file}:{}", readable(&probe.function.name)));
            probes.push(probe);
        }
        let options = WriterOptions {
            slots: SLOT_COUNT,
            events: 0,
            writer: concat!("roost-uprobe ", env!("CARGO_PKG_VERSION"), " bpf").into(),
            identity: Identity::of(pid),
        };
        let methods: Vec<&str> = names.iter().map(String::as_str).collect();
        let image = slots::image(&methods, &options);
        let program = FunctionProgram::attach(pid, &probes, &image, tallies)?;
        Ok(Self { program, pid, names })
    }

    /// Whether a function could be watched, as far as the files tell.
    pub fn find(root: &Root, pid: u32, name: &FunctionName) -> Result<(), FunctionError> {
        Binaries::of(root, pid)?.probe(name).map(drop)
    }

    /// A reader of the slots. It may outlive this, and then sees no change any more.
    pub fn reader(&self) -> Result<Reader, FunctionError> {
        let path = PathBuf::from(format!("uprobes of process {}", self.pid));
        let failed = |source| FunctionError::Unreadable { path: path.clone(), source };
        let length =
            slots::image(&[], &WriterOptions { slots: SLOT_COUNT, ..WriterOptions::default() }).len();
        let file = File::from(self.program.image().map_err(failed)?);
        let memory = KernelImage {
            map: Map::new(&file, length).map_err(failed)?,
            length: length as u64,
            rings: self.program.rings().map_err(failed)?,
            pid: self.pid,
            asked: Mutex::new(BTreeMap::new()),
        };
        Ok(Reader::from_memory(Box::new(memory), length as u64, &path)?)
    }

    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The counts of each function, in the order of the request.
    pub fn tallies(&self) -> Vec<FunctionTally> {
        self.program.tallies()
    }

    /// Enters and exits that the probes saw, and enters that there was no memory for.
    pub fn probed(&self) -> [u64; 3] {
        self.program.probed()
    }
}

/// The files with a process's code, read as they are needed.
struct Binaries<'a> {
    root: &'a Root,
    pid: u32,
    files: BTreeSet<String>,
    read: BTreeMap<String, Binary>,
}

/// A file with code, and its debug symbols if they lie where distributions put them.
struct Binary {
    path: PathBuf,
    bytes: Vec<u8>,
    debug: Option<Vec<u8>>,
}

impl<'a> Binaries<'a> {
    fn of(root: &'a Root, pid: u32) -> Result<Self, FunctionError> {
        Ok(Self { root, pid, files: code_files(root, pid)?, read: BTreeMap::new() })
    }

    /// Where a function is, and the file in the process's own words.
    fn probe(&mut self, name: &FunctionName) -> Result<(Probe, String), FunctionError> {
        let file = code_file_named(&self.files, &name.binary).ok_or_else(|| FunctionError::NoBinary {
            pid: self.pid,
            binary: name.binary.clone(),
            known: self.files.iter().filter(|file| !file.contains("/ld-linux")).cloned().collect(),
        })?;
        if !self.read.contains_key(&file) {
            self.read.insert(file.clone(), self.binary(&file)?);
        }
        let binary = &self.read[&file];
        let found = function(&binary.bytes, binary.debug.as_deref(), &name.symbol)
            .map_err(|source| FunctionError::Symbol { binary: file.clone(), source })?;
        Ok((Probe { binary: binary.path.clone(), function: found }, file))
    }

    fn binary(&self, file: &str) -> Result<Binary, FunctionError> {
        let path = seen_from_here(self.root, self.pid, file);
        let bytes =
            fs::read(&path).map_err(|source| FunctionError::Unreadable { path: path.clone(), source })?;
        let debug = build_id(&bytes).filter(|id| id.len() > 2).and_then(|id| {
            let (folder, name) = id.split_at(2);
            let name = format!("/usr/lib/debug/.build-id/{folder}/{name}.debug");
            let theirs = fs::read(seen_from_here(self.root, self.pid, &name));
            theirs.or_else(|_| fs::read(self.root.path(name.trim_start_matches('/')))).ok()
        });
        Ok(Binary { path, bytes, debug })
    }
}

/// The kernel's map, mapped: trusted, because programs of ours alone write it, and of one length
/// for ever.
#[derive(Debug)]
struct KernelImage {
    map: Map,
    length: u64,
    rings: ImageRings,
    pid: u32,
    /// When a slot's thread was last asked where it is.
    asked: Mutex<BTreeMap<usize, Instant>>,
}

impl Memory for KernelImage {
    fn read(&self, bytes: &mut [u8], offset: usize) -> io::Result<()> {
        let end = offset as u64 + bytes.len() as u64;
        if end > self.length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.map.copy(bytes, offset);
        if offset == SLOTS && self.mend(bytes) {
            self.map.copy(bytes, offset);
        }
        Ok(())
    }

    fn write32(&self, offset: usize, word: u32) -> io::Result<()> {
        self.map.word32(offset).store(word, Release);
        Ok(())
    }

    fn wait(&self, doorbell: u32, timeout: Option<Duration>) -> io::Result<()> {
        let over = timeout.map(|timeout| linux::now() + timeout);
        // A ring of before may be in the buffer still, and ends one wait.
        while self.map.word32(DOORBELL).load(Acquire) == doorbell {
            let now = linux::now();
            if over.is_some_and(|over| over <= now) {
                break;
            }
            self.rings.wait(over.map(|over| over.since(now)))?;
        }
        Ok(())
    }

    fn wake(&self) -> io::Result<()> {
        self.rings.call()
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.length)
    }
}

impl KernelImage {
    /// Ends calls of threads that sleep further out on their stacks; whether there was one.
    fn mend(&self, slots: &[u8]) -> bool {
        let mut asked = self.asked.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let now = linux::now();
        let mut has_mended = false;
        for (index, slot) in slots.chunks_exact(SLOT).enumerate() {
            let word = |at: usize| u64::from_le_bytes(slot[at..at + 8].try_into().expect("eight bytes"));
            let (state, entered, stack) = (word(0), Instant::from_nanos(word(8)), word(STACK));
            if state & 1 == 0 || now.since(entered) < LONG {
                continue;
            }
            if asked.get(&index).is_some_and(|&last| last > entered && now.since(last) < LONG) {
                continue;
            }
            asked.insert(index, now);
            let tid = u32::from_le_bytes(slot[TID..TID + 4].try_into().expect("four bytes"));
            if stack_of_sleeper(self.pid, tid).is_none_or(|now| now <= stack) {
                continue;
            }
            // Only if it is still that call: the sequence is in this word.
            let outside = u64::from((state as u32).wrapping_add(1)) | state & 0xffff_0000_0000_0000;
            let place = self.map.word64(SLOTS + index * SLOT);
            has_mended |= place.compare_exchange(state, outside, AcqRel, Relaxed).is_ok();
        }
        has_mended
    }
}

/// Offsets of a slot file (docs/formats.md); the stack pointer is the kernel program's own.
const DOORBELL: usize = 76;
const SLOTS: usize = 36_864;
const SLOT: usize = 64;
const TID: usize = 32;
const STACK: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_s_name_is_divided_at_its_first_single_colon() {
        let name: FunctionName = "/usr/bin/a:Server::search(int)".parse().unwrap();
        assert_eq!((name.binary.as_str(), name.symbol.as_str()), ("/usr/bin/a", "Server::search(int)"));
        assert_eq!(name.to_string(), "/usr/bin/a:Server::search(int)");
        for wrong in ["", "search", ":search", "a:", "Server::search"] {
            assert!(wrong.parse::<FunctionName>().unwrap_err().contains("BINARY:SYMBOL"), "{wrong}");
        }
    }
}
