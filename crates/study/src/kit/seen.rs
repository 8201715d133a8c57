//! Kinds of knowledge that only real hardware gives, and the archives that have shown them.

use super::page::{interval, limit_name, mean, percent, signed};
use super::{Archive, MeterKind};
use crate::prove::Figure;
use report::figures::Unit;
use std::fmt::Write as _;

/// A kind of knowledge, a row of the table.
pub struct SeenRow {
    pub name: &'static str,
    /// An archive's evidence of it; `None` where it has none.
    pub of: fn(&Archive) -> Option<String>,
}

pub const ROWS: [SeenRow; 10] = [
    SeenRow {
        name: "joules of a processor's meter (RAPL)",
        of: |archive| watts(archive, &[MeterKind::Rapl]),
    },
    SeenRow {
        name: "watts of a board, a supply or a power strip",
        of: |archive| watts(archive, &[MeterKind::Sensor, MeterKind::Command]),
    },
    SeenRow { name: "a C-state deeper than the first halt, entered", of: deep_state },
    SeenRow { name: "idle power of each state, by a meter", of: idle_power },
    SeenRow { name: "P-states: a clock limit that changed the speed", of: clocks },
    SeenRow { name: "uncore clock, its bounds read", of: uncore },
    SeenRow { name: "queues of a real network card, counted", of: nic },
    // No archive of the kit shows it: its load is on the loopback.
    SeenRow { name: "a network card's queue moved off a resting CPU", of: |_| None },
    SeenRow {
        name: "cpuset controller",
        of: |archive| archive.machine.cpuset.then(|| archive.machine.cgroups.to_string()),
    },
    SeenRow { name: "a saving by a meter, with its interval", of: saving },
];

fn watts(archive: &Archive, kinds: &[MeterKind]) -> Option<String> {
    let meters = archive.machine.meters.iter().enumerate();
    let of = meters.filter(|(_, meter)| kinds.contains(&meter.kind)).filter_map(|(at, meter)| {
        let idle = archive.limits().into_iter().filter_map(|limit| mean(&archive.idle, limit, at));
        let least = idle.fold(f64::INFINITY, f64::min);
        let in_loads =
            archive.loads.iter().flat_map(|load| &load.blocks).filter_map(|block| *block.watts.get(at)?);
        let most = in_loads.fold(0.0, f64::max);
        match (least.is_finite(), most > 0.0) {
            (true, true) => Some(format!("{}: {least:.1} W at rest, up to {most:.1} W", meter.name)),
            (true, false) => Some(format!("{}: {least:.1} W at rest", meter.name)),
            (false, true) => Some(format!("{}: up to {most:.1} W", meter.name)),
            (false, false) => None,
        }
    });
    joined(of)
}

fn joined(cells: impl Iterator<Item = String>) -> Option<String> {
    let cells: Vec<String> = cells.collect();
    (!cells.is_empty()).then(|| cells.join("; "))
}

fn deep_state(archive: &Archive) -> Option<String> {
    let tables = archive.machine.idle_tables.iter();
    let deep = tables.flat_map(|table| table.states.iter().filter(|state| state.halts).skip(1));
    // The deepest first.
    let mut deep: Vec<_> = deep.collect();
    deep.sort_by_key(|state| std::cmp::Reverse(state.exit_latency_ns));
    deep.iter().find_map(|state| {
        let mut wakes = archive.wakes.iter().filter(|wakes| {
            wakes.states.first().is_some_and(|most| most.state == state.name && most.share > 0.5)
        });
        if let Some(wakes) = wakes.find(|wakes| wakes.by_other_cpu) {
            let time = |ns: u64| Unit::Nanoseconds.text(ns as f64);
            let (woken, told) = (time(wakes.p50_ns), time(state.exit_latency_ns));
            return Some(format!("{}: woken in {woken}, told as {told}", state.name));
        }
        let spans = archive.idle.iter().flat_map(|span| &span.states);
        let share = spans.filter(|share| share.state == state.name).map(|share| share.share);
        let most = share.fold(0.0, f64::max);
        (most > 0.0).then(|| format!("{}: {} of the time at rest", state.name, percent(most)))
    })
}

fn idle_power(archive: &Archive) -> Option<String> {
    let at = archive.machine.meters.iter().position(|meter| meter.kind.is_measured())?;
    let limits = archive.limits();
    let cells = limits
        .iter()
        .filter_map(|limit| Some(format!("{} {:.1} W", limit_name(limit), mean(&archive.idle, limit, at)?)));
    (limits.len() > 1).then(|| joined(cells)).flatten()
}

fn clocks(archive: &Archive) -> Option<String> {
    /// More than the same clock differs from itself between two spans.
    const CHANGED: f64 = 0.9;
    let by_clock = |span: &&super::ClockSpan| span.at_most_khz;
    let slow = archive.clocks.iter().min_by_key(by_clock)?;
    let fast = archive.clocks.iter().max_by_key(by_clock)?;
    let ratio = slow.turns_per_s / fast.turns_per_s;
    let mhz = |khz: u64| khz / 1000;
    (ratio < CHANGED)
        .then(|| format!("{} to {} MHz: speed x {ratio:.2}", mhz(slow.at_most_khz), mhz(fast.at_most_khz)))
}

fn uncore(archive: &Archive) -> Option<String> {
    joined(
        archive.machine.uncore.iter().filter_map(|uncore| {
            Some(format!("{} to {} MHz", uncore.min_khz? / 1000, uncore.max_khz? / 1000))
        }),
    )
}

fn nic(archive: &Archive) -> Option<String> {
    // A card of a virtual machine is no real one.
    let is_real = archive.machine.virtual_machine == Some(false);
    let queues = archive.machine.nics.iter().map(|nic| format!("{} receive queues", nic.rx_queues));
    is_real.then(|| joined(queues)).flatten()
}

fn saving(archive: &Archive) -> Option<String> {
    let meter = archive.machine.meters.first().filter(|meter| meter.kind.is_measured())?;
    let figure = Figure::Watts(meter.name.to_string()).to_string();
    joined(archive.loads.iter().filter_map(|load| {
        let outcome = load.outcome(&archive.machine)?;
        let change = outcome.changes.iter().find(|change| change.figure == figure)?;
        let ends = change.low.zip(change.high)?;
        Some(format!("at {} load {} ({})", percent(load.share), signed(change.change), interval(Some(ends))))
    }))
}

/// `docs/hardware.md`: a column for each of the archives, by their names.
pub fn document(archives: &[(String, Archive)]) -> String {
    let mut text = String::from(HEAD);
    let heads: Vec<String> = archives
        .iter()
        .map(|(name, archive)| {
            let processor = archive.machine.processor.as_ref().map_or("", |name| name.as_str());
            format!("[{name}](../benches/hardware/{name}.tar.gz): {processor}, {}", archive.summary.date)
        })
        .collect();
    let columns = if heads.is_empty() { vec!["no archive yet".to_owned()] } else { heads };
    let _ = writeln!(text, "| kind of knowledge | {} |", columns.join(" | "));
    let _ = writeln!(text, "|---|{}", "---|".repeat(columns.len()));
    for row in &ROWS {
        let mut cells: Vec<String> = archives
            .iter()
            .map(|(_, archive)| (row.of)(archive).unwrap_or_else(|| "not seen".to_owned()))
            .collect();
        if cells.is_empty() {
            cells.push("not seen".to_owned());
        }
        let _ = writeln!(text, "| {} | {} |", row.name, cells.join(" | "));
    }
    let owed: Vec<&str> = ROWS
        .iter()
        .filter(|row| !archives.iter().any(|(_, archive)| (row.of)(archive).is_some()))
        .map(|row| row.name)
        .collect();
    let _ = writeln!(text, "\n{} of {} kinds have not been seen by any archive.", owed.len(), ROWS.len());
    if archives.is_empty() {
        text.push_str(OWED);
    }
    text.push_str(TAIL);
    text
}

const HEAD: &str = include_str!("hardware_head.md");
const OWED: &str = include_str!("hardware_owed.md");
const TAIL: &str = include_str!("hardware_tail.md");

#[cfg(test)]
mod tests {
    use super::super::archive::tests::archive;
    use super::*;
    use std::fs;
    use std::path::Path;

    #[test]
    fn the_page_of_the_hardware_is_made_of_the_archives() {
        const MAKE: &str = "ROOST_WRITE=1 cargo test -p study hardware";
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut archives = Vec::new();
        for entry in fs::read_dir(root.join("benches/hardware")).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let Some(name) = name.strip_suffix(".tar.gz") else { continue };
            let archive = Archive::read(&fs::read(&path).unwrap());
            archives.push((name.to_owned(), archive.unwrap_or_else(|why| panic!("{name}: {why}"))));
        }
        archives.sort_by(|one, other| one.0.cmp(&other.0));
        let (page, made) = (root.join("docs/hardware.md"), document(&archives));
        if std::env::var_os("ROOST_WRITE").is_some() {
            fs::write(&page, &made).unwrap();
        }
        assert!(fs::read_to_string(&page).unwrap_or_default() == made, "docs/hardware.md is old: {MAKE}");
    }

    #[test]
    fn an_empty_table_says_what_is_owed() {
        let text = document(&[]);
        assert!(text.contains("| no archive yet |") && text.contains("**Owed.**"), "{text}");
        assert_eq!(text.matches("| not seen |").count(), ROWS.len());
        assert!(text.contains(&format!("{0} of {0} kinds", ROWS.len())));
    }

    #[test]
    fn a_bare_metal_server_fills_the_rows_and_a_virtual_machine_does_not() {
        let server = archive();
        let seen = |archive: &Archive| ROWS.iter().filter(|row| (row.of)(archive).is_some()).count();
        // All but the sensor of a board and the moved queue.
        assert_eq!(seen(&server), ROWS.len() - 2);
        let cells: Vec<String> = ROWS.iter().filter_map(|row| (row.of)(&server)).collect();
        for words in
            ["package-0: 20.0 W at rest, up to 50.0 W", "C6: woken in 60", "800 to 3500 MHz: speed x 0.25"]
        {
            assert!(cells.iter().any(|cell| cell.contains(words)), "{words}: {cells:?}");
        }
        let mut guest = server;
        guest.machine.virtual_machine = Some(true);
        guest.machine.meters[0].kind = MeterKind::Model;
        guest.machine.idle_tables[0].states.pop();
        guest.machine.uncore.clear();
        guest.clocks.clear();
        assert_eq!(seen(&guest), 1, "the cpuset controller alone");
        let text = document(&[("guest".to_owned(), guest)]);
        assert!(!text.contains("Owed") && text.contains("9 of 10 kinds have not been seen"), "{text}");
    }
}
