//! The lengths that a file of perf names, looked at before they are believed: a damaged one would
//! have the reader ask for more memory than there is.
//!
//! `tools/perf/Documentation/perf.data-file-format.txt` describes the file: a header with three
//! sections, the records, and a table of further sections behind them.

use std::io::{BufRead, Read as _, Seek, SeekFrom};

type Checked<T> = Result<T, String>;

pub(super) fn check(file: &mut (impl BufRead + Seek)) -> Checked<()> {
    let io = |cause: std::io::Error| cause.to_string();
    let end = file.seek(SeekFrom::End(0)).map_err(io)?;
    file.seek(SeekFrom::Start(0)).map_err(io)?;
    let mut magic = [0; 8];
    file.read_exact(&mut magic).map_err(io)?;
    let is_little = magic[0] == b'P';
    let header = number(file, is_little)?;
    if header == PIPED {
        return Err("it was written to a pipe".to_owned());
    }
    let attribute = number(file, is_little)?;
    if !(ATTRIBUTE..=LONGEST).contains(&attribute) || header > LONGEST {
        return Err(damaged("its header"));
    }
    let within =
        |(from, length): (u64, u64)| from.checked_add(length).filter(|&to| to <= end).map(|_| (from, length));
    let mut sections = [(0, 0); 3];
    for section in &mut sections {
        *section = (number(file, is_little)?, number(file, is_little)?);
    }
    let [attributes, records, types] = sections;
    within(attributes).filter(|_| types.1 == 0).ok_or_else(|| damaged("its header"))?;
    if records.1 == 0 {
        return Err("it has no records: perf was killed, or still writes it".to_owned());
    }
    let (from, length) = within(records).ok_or_else(|| "it was cut off".to_owned())?;
    let mut features = [0; 4];
    for word in &mut features {
        *word = number(file, is_little)?;
    }
    file.seek(SeekFrom::Start(from + length)).map_err(io)?;
    let mut descriptions = None;
    for feature in (0..256).filter(|bit| features[bit / 64] & (1 << (bit % 64)) != 0) {
        let section = (number(file, is_little)?, number(file, is_little)?);
        let (from, length) = within(section)
            .filter(|&(_, length)| length <= SECTION_MAX)
            .ok_or_else(|| damaged("a section"))?;
        if feature == EVENT_DESC {
            descriptions = Some((from, length));
        }
    }
    let (at, size) = descriptions.ok_or_else(|| "it does not name its events".to_owned())?;
    events(file, at, size, is_little)?;
    walk(file, from, length, is_little)
}

/// The descriptions of events: their counts and lengths lie within their section.
fn events(file: &mut (impl BufRead + Seek), at: u64, size: u64, is_little: bool) -> Checked<()> {
    file.seek(SeekFrom::Start(at)).map_err(|cause| cause.to_string())?;
    let mut bytes = Vec::new();
    file.by_ref().take(size).read_to_end(&mut bytes).map_err(|cause| cause.to_string())?;
    let wrong = || damaged("the list of its events");
    let word = |at: usize| {
        let bytes: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
        Some(if is_little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) } as usize)
    };
    let (count, attribute) = word(0).zip(word(4)).ok_or_else(wrong)?;
    if count == 0 || count.checked_mul(attribute).is_none_or(|all| attribute == 0 || all > bytes.len()) {
        return Err(wrong());
    }
    let mut at = 8;
    for _ in 0..count {
        let ids = word(at + attribute).ok_or_else(wrong)?;
        let name = word(at + attribute + 4).ok_or_else(wrong)?;
        at += attribute + 8 + name + 8 * ids;
        if at > bytes.len() {
            return Err(wrong());
        }
    }
    Ok(())
}

/// The lengths of all records lie within the file.
fn walk(file: &mut (impl BufRead + Seek), from: u64, length: u64, is_little: bool) -> Checked<()> {
    file.seek(SeekFrom::Start(from)).map_err(|cause| cause.to_string())?;
    let mut left = length;
    while left > 0 {
        let mut head = [0; 8];
        file.read_exact(&mut head).map_err(|cause| cause.to_string())?;
        let [a, b, c, d, _, _, e, f] = head;
        let (kind, size) = if is_little {
            (u32::from_le_bytes([a, b, c, d]), u16::from_le_bytes([e, f]))
        } else {
            (u32::from_be_bytes([a, b, c, d]), u16::from_be_bytes([e, f]))
        };
        if kind == AUXTRACE {
            return Err("it has a hardware trace".to_owned());
        }
        let size = u64::from(size);
        if size < 8 || size > left {
            return Err(damaged("a record"));
        }
        left -= size;
        let mut skip = size as usize - 8;
        while skip > 0 {
            let ahead = file.fill_buf().map_err(|cause| cause.to_string())?.len().min(skip);
            if ahead == 0 {
                return Err("it was cut off".to_owned());
            }
            file.consume(ahead);
            skip -= ahead;
        }
    }
    Ok(())
}

fn number(file: &mut impl BufRead, is_little: bool) -> Checked<u64> {
    let mut bytes = [0; 8];
    file.read_exact(&mut bytes).map_err(|_| "it was cut off".to_owned())?;
    Ok(if is_little { u64::from_le_bytes(bytes) } else { u64::from_be_bytes(bytes) })
}

fn damaged(part: &str) -> String {
    format!("{part} is damaged")
}

/// The header of a file that went through a pipe is no longer than this.
const PIPED: u64 = 16;
/// `PERF_ATTR_SIZE_VER0` of the kernel's `perf_event.h`.
const ATTRIBUTE: u64 = 64;
const LONGEST: u64 = 4096;
/// The longest describe a kernel's events: megabytes.
const SECTION_MAX: u64 = 1 << 28;
/// `HEADER_EVENT_DESC` of perf's own `header.h`.
const EVENT_DESC: usize = 12;
/// `PERF_RECORD_AUXTRACE` of the kernel's `perf_event.h`.
const AUXTRACE: u32 = 71;
