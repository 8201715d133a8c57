//! The published formats: their columns, as their authors describe them. `docs/scenarios.md` names the
//! publications, and the meaning that a row is given here.

use super::{Amount, Request};
use csv::StringRecord;
use machine::Duration;

/// One of the published formats, with the meaning of its rows.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    pub name: &'static str,
    /// The first line has the names of the columns.
    pub has_header: bool,
    /// The steps of its clock: rows of one step are spread evenly over it.
    pub step: Duration,
    pub rows: Rows,
}

/// The content of a row, or the reason to skip it.
#[derive(Clone, Copy, Debug)]
pub enum Rows {
    Requests(fn(&StringRecord) -> Result<Request<'_>, Reason>),
    /// Amounts of load in windows of this length. If they are CPU time and no requests, the
    /// scenario has to give the highest rate.
    Amounts {
        window: Duration,
        are_requests: bool,
        row: AmountsOf,
    },
}

/// Tells the amounts of a row; the first record is the header.
pub type AmountsOf = fn(&StringRecord, &StringRecord, &mut dyn FnMut(Amount)) -> Result<(), Reason>;

/// Why a row does not count.
pub type Reason = &'static str;

pub static FORMATS: [Format; 6] = [
    Format {
        name: "azure-functions-2019",
        has_header: true,
        step: NONE,
        rows: Rows::Amounts { window: Duration::from_secs(60), are_requests: true, row: azure_2019 },
    },
    Format { name: "azure-functions-2021", has_header: true, step: NONE, rows: Rows::Requests(azure_2021) },
    Format {
        name: "twitter",
        has_header: false,
        step: Duration::from_secs(1),
        rows: Rows::Requests(twitter),
    },
    Format {
        name: "alibaba-2021",
        has_header: true,
        step: Duration::from_millis(1),
        rows: Rows::Requests(alibaba_2021),
    },
    Format {
        name: "google-2019",
        has_header: true,
        step: NONE,
        rows: Rows::Amounts { window: Duration::from_secs(300), are_requests: false, row: google_2019 },
    },
    Format { name: "msr", has_header: false, step: NONE, rows: Rows::Requests(msr) },
];

/// A clock whose steps are too short to matter.
const NONE: Duration = Duration::ZERO;

fn field(row: &StringRecord, place: usize, missing: Reason) -> Result<&str, Reason> {
    row.get(place).filter(|text| !text.is_empty()).ok_or(missing)
}

fn number(row: &StringRecord, place: usize, missing: Reason, wrong: Reason) -> Result<f64, Reason> {
    let number: f64 = field(row, place, missing)?.parse().map_err(|_| wrong)?;
    if (0.0..=LARGEST).contains(&number) { Ok(number) } else { Err(wrong) }
}

fn seconds(seconds: f64) -> Duration {
    Duration::from_nanos((seconds * 1e9).round() as u64)
}

/// A text that can be a class's name.
fn word(row: &StringRecord, place: usize, wrong: Reason) -> Result<&str, Reason> {
    let is_word = |text: &&str| {
        text.len() <= 32 && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
    };
    field(row, place, wrong).ok().filter(is_word).ok_or(wrong)
}

/// Exact in a double, so that no time loses its last digits.
const LARGEST: f64 = (1u64 << 53) as f64;
const CONNECTIONS: u64 = 1_000_000;

/// HashOwner, HashApp, HashFunction, Trigger, then the invocations of each minute.
fn azure_2019(_: &StringRecord, row: &StringRecord, add: &mut dyn FnMut(Amount)) -> Result<(), Reason> {
    const BEFORE: usize = 4;
    if row.len() <= BEFORE {
        return Err("has no minutes");
    }
    for place in BEFORE..row.len() {
        number(row, place, "has a minute without a count", "has a count that is no number")?;
    }
    for place in BEFORE..row.len() {
        let amount = number(row, place, "", "")?;
        let at = Duration::from_secs(60 * (place - BEFORE) as u64);
        add(Amount { at, length: Duration::from_secs(60), amount });
    }
    Ok(())
}

/// app, func, `end_timestamp` and duration, both in seconds.
fn azure_2021(row: &StringRecord) -> Result<Request<'_>, Reason> {
    let end = number(row, 2, "has no end_timestamp", "has an end_timestamp that is no time")?;
    let duration = number(row, 3, "has no duration", "has a duration that is no time")?;
    let at = seconds(end) - seconds(duration);
    let service = Some(seconds(duration));
    Ok(Request { at, class: "invocation", service, connection: None })
}

/// Timestamp in seconds, key, key size, value size, client, operation, TTL.
fn twitter(row: &StringRecord) -> Result<Request<'_>, Reason> {
    let at = number(row, 0, "has no timestamp", "has a timestamp that is no time")?;
    let class = word(row, 5, "has no operation")?;
    let client: u64 =
        field(row, 4, "has no client")?.parse().map_err(|_| "has a client that is no number")?;
    let connection = Some((client % CONNECTIONS) as u32);
    Ok(Request { at: seconds(at), class, service: None, connection })
}

/// A number, traceid, timestamp in ms, rpcid, um, rpctype, dm, interface, rt in ms.
fn alibaba_2021(row: &StringRecord) -> Result<Request<'_>, Reason> {
    let at = number(row, 2, "has no timestamp", "has a timestamp that is no time")?;
    let class = word(row, 5, "has no rpctype")?;
    let rt = number(row, 8, "has no rt", "has an rt that is no time")?;
    let service = Some(seconds(rt * 1e-3));
    Ok(Request { at: seconds(at * 1e-3), class, service, connection: None })
}

/// `start_time` and `end_time` in us, and the column `average_usage.cpus`.
fn google_2019(header: &StringRecord, row: &StringRecord, add: &mut dyn FnMut(Amount)) -> Result<(), Reason> {
    let place = |name: &str| header.iter().position(|column| column.replace('_', ".") == name);
    let column = |name, missing| place(name).ok_or(missing);
    let start = number(row, column("start.time", "is below no start_time")?, "has no start_time", NO_TIME)?;
    let end = number(row, column("end.time", "is below no end_time")?, "has no end_time", NO_TIME)?;
    let cpus = column("average.usage.cpus", "is below no average_usage.cpus")?;
    let cpus = number(row, cpus, "has no average_usage.cpus", "has an amount of CPUs that is no number")?;
    if end <= start {
        return Err("ends before it begins");
    }
    let at = seconds(start * 1e-6);
    let length = seconds((end - start) * 1e-6);
    add(Amount { at, length, amount: cpus * length.as_secs_f64() });
    Ok(())
}

const NO_TIME: Reason = "has a time that is no number";

/// Timestamp in steps of 100 ns since 1601, host, disk, type, offset, size, response time in the
/// same steps.
fn msr(row: &StringRecord) -> Result<Request<'_>, Reason> {
    let ticks: u64 =
        field(row, 0, "has no timestamp")?.parse().map_err(|_| "has a timestamp that is no time")?;
    let disk: u64 = field(row, 2, "has no disk")?.parse().map_err(|_| "has a disk that is no number")?;
    let class = word(row, 3, "has no type")?;
    let response = number(row, 6, "has no response time", "has a response time that is no time")?;
    // From 1970 on: 100 ns since 1601 are more than 64 bits of nanoseconds hold.
    let ticks = ticks.checked_sub(UNIX_EPOCH).ok_or("is older than 1970")?;
    let at = Duration::from_nanos(ticks.checked_mul(100).ok_or("has a timestamp that is no time")?);
    let service = Some(seconds(response * 1e-7));
    Ok(Request { at, class, service, connection: Some((disk % CONNECTIONS) as u32) })
}

/// 1970 in steps of 100 ns since 1601 (Windows FILETIME).
const UNIX_EPOCH: u64 = 116_444_736_000_000_000;
