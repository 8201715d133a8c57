//! Functions of a program's file: the begin of each, and all its exits, as probes need them.
//!
//! The file is not ours: it is parsed by `object` and decoded by `iced-x86`, every number is
//! bounded, and a part that it lacks is an error with the remedy. Addresses become offsets in the
//! file, as the kernel's uprobes want them.
//!
//! Terms:
//! - A *way out* is a return instruction, or an unconditional jump to another function (a tail
//!   call: the work of the callee is no longer the function's).
//! - Compilers move unlikely code of `f` to a function of its own, `f.cold`: its ways out are
//!   `f`'s, and a jump there is none.
//!
//! Not found here: conditional tail calls and exceptions. The watcher must detect them otherwise.

use iced_x86::{Decoder, DecoderOptions, FlowControl, OpKind};
use object::read::elf::ProgramHeader as _;
use object::{Architecture, File, Object as _, ObjectSymbol as _, SymbolKind};
use std::collections::BTreeSet;
use std::ops::Range;
use thiserror::Error;

/// A function, by offsets in its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// The file's name for it: mangled, where the language does that.
    pub name: String,
    pub entry: u64,
    /// Its ways out; none if it never returns.
    pub exits: Vec<u64>,
}

#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SymbolError {
    #[error("{0}")]
    NotAProgram(String),
    #[error("it is a program for {0}; functions are watched in those for x86-64")]
    Processor(String),
    /// Goroutines change threads in the middle of a call.
    #[error("it is a Go program: a call there changes threads, and no thread's slot can tell of it")]
    Go,
    #[error(
        "it has no names of functions (stripped)\nhint: install its debug symbols (on Debian its \
         package with -dbgsym at \
         the end), or build it without stripping"
    )]
    Stripped,
    #[error("it has no function {wanted}; the nearest: {}", nearest.join(", "))]
    NoSuch { wanted: String, nearest: Vec<String> },
    #[error("it has {0} functions of that name, and no way to tell which is meant")]
    Several(usize),
    /// Its code is not in the file.
    #[error("the code of {0} is not in this file, or its symbol has no size")]
    NoCode(String),
}

/// The function `wanted` of the program `binary`. `debug`: the file with its symbols, where they
/// are elsewhere. `wanted` is the file's name, or the readable one (C++ and Rust).
pub fn function(binary: &[u8], debug: Option<&[u8]>, wanted: &str) -> Result<Function, SymbolError> {
    let not_one = |error: object::Error| SymbolError::NotAProgram(error.to_string());
    let file = File::parse(binary).map_err(not_one)?;
    if file.architecture() != Architecture::X86_64 {
        return Err(SymbolError::Processor(format!("{:?}", file.architecture())));
    }
    if file.section_by_name(".gopclntab").is_some() || file.section_by_name(".note.go.buildid").is_some() {
        return Err(SymbolError::Go);
    }
    let mut symbols = code_symbols(&file);
    if let Some(debug) = debug {
        symbols.extend(code_symbols(&File::parse(debug).map_err(not_one)?));
    }
    if symbols.is_empty() {
        return Err(SymbolError::Stripped);
    }
    let mut found: BTreeSet<(u64, u64)> = placed(&symbols, |name| name == wanted);
    if found.is_empty() {
        found = placed(&symbols, |name| readable(name) == wanted || unversioned(name) == wanted);
    }
    let starts: BTreeSet<u64> = found.iter().map(|&(start, _)| start).collect();
    if starts.len() > 1 {
        return Err(SymbolError::Several(starts.len()));
    }
    // Of two sizes, as aliases may have, the larger.
    let Some(&(start, size)) = found.last() else {
        return Err(SymbolError::NoSuch { wanted: wanted.to_owned(), nearest: nearest(&symbols, wanted) });
    };
    let name = symbols
        .iter()
        .filter(|symbol| symbol.start == start)
        .min_by_key(|symbol| (symbol.name != wanted, readable(&symbol.name) != wanted))
        .map_or_else(|| wanted.to_owned(), |symbol| symbol.name.clone());
    let cold = placed(&symbols, |other| {
        other.strip_prefix(name.as_str()).is_some_and(|rest| rest.starts_with(".cold"))
    });
    let code = std::iter::once((start, size)).chain(cold);
    let parts: Vec<Range<u64>> =
        code.map(|(start, size)| start..start.saturating_add(size.min(CODE_MOST))).collect();
    let segments = segments(binary)?;
    let offset = |address: u64| {
        let segment = segments.iter().find(|segment| segment.addresses.contains(&address))?;
        segment.offset.checked_add(address - segment.addresses.start)
    };
    let no_code = || SymbolError::NoCode(name.clone());
    let entry = offset(start).filter(|_| size > 0).ok_or_else(no_code)?;
    let mut exits = BTreeSet::new();
    for part in &parts {
        let from = offset(part.start).and_then(|offset| usize::try_from(offset).ok()).ok_or_else(no_code)?;
        let length = usize::try_from(part.end - part.start).map_err(|_| no_code())?;
        let code = binary.get(from..from.saturating_add(length)).ok_or_else(no_code)?;
        exits.extend(ways_out(code, part.start, &parts).into_iter().filter_map(offset));
    }
    Ok(Function { name, entry, exits: exits.into_iter().collect() })
}

/// The readable form of a symbol: C++ and Rust names are mangled in files.
pub fn readable(symbol: &str) -> String {
    if let Ok(name) = rustc_demangle::try_demangle(symbol) {
        return format!("{name:#}");
    }
    // A hostile name may unfold to any length; a longer one is unreadable.
    let plain = || symbol.to_owned();
    if !symbol.starts_with("_Z") || symbol.len() > NAME_MOST {
        return plain();
    }
    let Ok(parsed) = cpp_demangle::Symbol::new(symbol) else { return plain() };
    parsed
        .demangle(&cpp_demangle::DemangleOptions::new())
        .ok()
        .filter(|name| name.len() <= 16 * NAME_MOST)
        .unwrap_or_else(plain)
}

/// The file's own number, by which debug symbols are found: below `/usr/lib/debug/.build-id`.
pub fn build_id(binary: &[u8]) -> Option<String> {
    let file = File::parse(binary).ok()?;
    let id = file.build_id().ok()??;
    Some(id.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// A larger one is no function.
const CODE_MOST: u64 = 16 << 20;
/// A longer name is shown as it is.
const NAME_MOST: usize = 4096;

struct Symbol {
    name: String,
    start: u64,
    size: u64,
}

fn code_symbols(file: &File<'_>) -> Vec<Symbol> {
    let of = |symbol: object::Symbol<'_, '_>| {
        let is_code = symbol.kind() == SymbolKind::Text && symbol.is_definition();
        let name = symbol.name().ok()?;
        is_code.then(|| Symbol { name: name.to_owned(), start: symbol.address(), size: symbol.size() })
    };
    file.symbols().chain(file.dynamic_symbols()).filter_map(of).collect()
}

fn placed(symbols: &[Symbol], is_it: impl Fn(&str) -> bool) -> BTreeSet<(u64, u64)> {
    symbols.iter().filter(|symbol| is_it(&symbol.name)).map(|symbol| (symbol.start, symbol.size)).collect()
}

/// `memcpy` of `memcpy@@GLIBC_2.14`.
fn unversioned(name: &str) -> &str {
    name.split('@').next().unwrap_or(name)
}

fn nearest(symbols: &[Symbol], wanted: &str) -> Vec<String> {
    let mut names: Vec<String> = symbols.iter().map(|symbol| readable(&symbol.name)).collect();
    names.sort_unstable();
    names.dedup();
    // People remember the last part of a path.
    let last = |name: &str| name.rsplit("::").next().unwrap_or(name).to_ascii_lowercase();
    let wanted = last(wanted);
    names.sort_by_cached_key(|name| {
        std::cmp::Reverse((strsim::jaro_winkler(&last(name), &wanted) * 1e6) as u64)
    });
    names.truncate(3);
    names
}

struct Segment {
    addresses: Range<u64>,
    offset: u64,
}

/// The parts of the file that are loaded, and their addresses.
fn segments(binary: &[u8]) -> Result<Vec<Segment>, SymbolError> {
    let not_one = |error: object::Error| SymbolError::NotAProgram(error.to_string());
    let header = object::elf::FileHeader64::<object::Endianness>::parse(binary).map_err(not_one)?;
    use object::read::elf::FileHeader as _;
    let endian = header.endian().map_err(not_one)?;
    let headers = header.program_headers(endian, binary).map_err(not_one)?;
    let loaded = headers.iter().filter(|header| header.p_type(endian) == object::elf::PT_LOAD);
    let of = |header: &object::elf::ProgramHeader64<object::Endianness>| Segment {
        addresses: header.p_vaddr(endian)..header.p_vaddr(endian).saturating_add(header.p_filesz(endian)),
        offset: header.p_offset(endian),
    };
    Ok(loaded.map(of).collect())
}

/// Addresses of the ways out in `code`, which lies at `address`; `parts` is all of the function.
fn ways_out(code: &[u8], address: u64, parts: &[Range<u64>]) -> Vec<u64> {
    let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    let mut found = Vec::new();
    while decoder.can_decode() {
        let instruction = decoder.decode();
        let is_out = match instruction.flow_control() {
            FlowControl::Return => true,
            FlowControl::UnconditionalBranch => {
                let is_near = matches!(
                    instruction.op0_kind(),
                    OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64
                );
                is_near && !parts.iter().any(|part| part.contains(&instruction.near_branch_target()))
            }
            _ => false,
        };
        if is_out {
            found.push(instruction.ip());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn returns_and_jumps_elsewhere_are_ways_out() {
        // test edi,edi; je +1 (over the ret); ret; jmp -7 (to the start); jmp far away
        let code = [0x85, 0xff, 0x74, 0x01, 0xc3, 0xeb, 0xf9, 0xe9, 0x00, 0x10, 0x00, 0x00];
        let all = 0x1000..0x1000 + code.len() as u64;
        assert_eq!(ways_out(&code, 0x1000, std::slice::from_ref(&all)), [0x1004, 0x1007]);
        // The cold part is its own.
        assert_eq!(ways_out(&code, 0x1000, &[all, 0x200c..0x2010]), [0x1004]);
    }

    #[test]
    fn names_are_read_as_people_write_them() {
        assert_eq!(readable("_ZN6Server6searchEi"), "Server::search(int)");
        assert_eq!(
            readable("_ZN5linux9processes7symbols8function17h0123456789abcdefE"),
            "linux::processes::symbols::function"
        );
        assert_eq!(readable("process_command"), "process_command");
    }

    #[test]
    fn this_program_s_own_function_is_found_by_either_name() {
        let binary = std::fs::read("/proc/self/exe").unwrap();
        let wanted = "linux::processes::symbols::function";
        let found = function(&binary, None, wanted).unwrap();
        assert!(
            !found.exits.is_empty() && found.exits.iter().all(|&exit| binary[exit as usize] != 0),
            "{found:?}"
        );
        assert_eq!(function(&binary, None, &found.name), Ok(found.clone()));
        assert!(build_id(&binary).is_none_or(|id| id.len() >= 16));
        let error = function(&binary, None, "linux::processes::symbols::functoin").unwrap_err();
        assert!(error.to_string().contains(wanted), "{error}");
    }

    #[test]
    fn what_is_no_program_is_an_error() {
        for bytes in [&b""[..], b"#!/bin/sh\n", b"\x7fELF"] {
            assert!(matches!(function(bytes, None, "main"), Err(SymbolError::NotAProgram(_))));
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(
            damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..40),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut binary = std::fs::read("/bin/true").unwrap();
            for (at, byte) in damage {
                let at = at.index(binary.len().min(4096));
                binary[at] = byte;
            }
            binary.truncate(cut.index(binary.len()));
            let _ = function(&binary, None, "main");
            let _ = build_id(&binary);
        }
    }
}
