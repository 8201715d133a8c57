//! The text for people: the states, the CPUs, the verdict.

use super::answers::Answers;
use super::results::Observation;
use crate::table::{Table, wrap};
use ::observe::sleep::{CpuSlept, Part, Slept, StateSlept, Wakers};
use machine::{CstateKind, Ratio};
use observe::scrape::Scraped;
use std::fmt::Write as _;

/// The whole of it, for a terminal of so many columns.
pub fn of(observation: &Observation, columns: usize) -> String {
    let findings = &observation.findings;
    let mut text = String::new();
    let layout = observation.layout.as_ref().map_or_else(String::new, |layout| format!(" ({layout})"));
    let watched = format!(
        "{}{layout}: {} on {} CPUs, {} sleeps, {} events lost.",
        findings.source,
        findings.elapsed,
        findings.cpus.len(),
        findings.all.sleeps,
        findings.lost
    );
    wrap(&mut text, "", &watched, columns);
    for note in &observation.notes {
        wrap(&mut text, "note: ", note, columns);
    }
    let _ = write!(text, "\n{}\n{}", states(&findings.all), cpus(&findings.cpus));
    if let Some(wakers) = &findings.all.wakers {
        let _ = write!(text, "\nwoken by: {}\n", woken_by(wakers));
    }
    if let Some(answers) = &observation.answers {
        let _ = write!(text, "\n{}", requests(answers));
    }
    if let Some(scraped) = &observation.scraped {
        text.push('\n');
        wrap(&mut text, "", &own_count(scraped, observation.answers.as_ref()), columns);
        for note in &scraped.notes {
            wrap(&mut text, "note: ", note, columns);
        }
    }
    if let Some(power) = &observation.power {
        let _ = write!(text, "\npower {:.2} W on average ({})\n", power.mean.as_watts(), power.source);
    }
    if !observation.work.is_empty() {
        let _ = write!(text, "\n{}", work(observation));
    }
    text.push('\n');
    for sentence in &observation.words {
        wrap(&mut text, "- ", sentence, columns);
    }
    if let Some(verified) = &observation.verified {
        let told = format!(
            "Tried with {} pairs of blocks: p99 {} with shallow sleep, {} with deep. {}",
            verified.pairs, verified.shallow_p99, verified.deep_p99, verified.comparison
        );
        wrap(&mut text, "- ", &told, columns);
    }
    for sentence in &findings.unknown {
        wrap(&mut text, "- ", sentence, columns);
    }
    text
}

fn states(all: &Slept) -> String {
    let header = ["state", "residency", "sleeps", "mean", "premature", "missed deep", "wake"];
    let mut table = Table::new(1, header.map(str::to_owned).to_vec());
    let mut row = |cells: [String; 7]| table.row(cells.to_vec());
    let none = || "-".to_owned();
    row(["active".to_owned(), all.active.to_string(), none(), none(), none(), none(), none()]);
    for state in &all.states {
        row([
            if state.forbidden { format!("{} (forbidden)", state.name) } else { state.name.clone() },
            state.share.to_string(),
            state.sleeps.to_string(),
            or_dash(state.mean),
            part(state.premature),
            part(state.missed_deep),
            wake(state),
        ]);
    }
    let mean = (all.sleeps > 0).then(|| all.time(all.idle()) / all.sleeps);
    let cost = all.wake_cost.map_or_else(none, |cost| format!("costs {} ({})", cost.share, cost.source));
    row([
        "all sleeps".to_owned(),
        all.idle().to_string(),
        all.sleeps.to_string(),
        or_dash(mean),
        part(all.premature),
        part(all.missed_deep),
        cost,
    ]);
    table.text()
}

fn wake(state: &StateSlept) -> String {
    let halts = state.kind != Some(CstateKind::Polling);
    state
        .wake
        .filter(|_| halts)
        .map_or_else(|| "-".to_owned(), |wake| format!("{} {}", wake.usual, wake.source))
}

fn cpus(cpus: &[CpuSlept]) -> String {
    let header = ["cpu", "active", "sleeps/s", "premature", "missed deep", "idle <1ms", "deepest used"];
    let mut table = Table::new(1, header.map(str::to_owned).to_vec());
    for CpuSlept { cpu, slept } in cpus.iter().take(CPUS_SHOWN) {
        let deepest = slept.states.iter().rfind(|state| state.sleeps > 0);
        table.row(vec![
            cpu.to_string(),
            if slept.seen.is_zero() { "-".to_owned() } else { slept.active.to_string() },
            format!("{:.0}", slept.transitions_per_s.as_per_second()),
            share(slept.premature),
            share(slept.missed_deep),
            or_dash(slept.slices.map(|slices| slices.short_of_idle)),
            deepest.map_or_else(|| "-".to_owned(), |state| format!("{} {}", state.name, state.share)),
        ]);
    }
    let more = cpus.len().saturating_sub(CPUS_SHOWN);
    if more > 0 {
        table.remark(format!("+{more}"), "more CPUs: --json has them all");
    }
    table.text()
}

fn requests(answers: &Answers) -> String {
    let mut table =
        Table::new(1, ["requests", "mean", "p50", "p95", "p99", "p99.9", "max"].map(str::to_owned).to_vec());
    for (name, times) in answers.rows() {
        let cells =
            [times.mean, times.p50, times.p95, times.p99, times.p999, times.max].map(|time| time.to_string());
        table.row(std::iter::once(name.to_owned()).chain(cells).collect());
    }
    let hidden = match (answers.interrupt, answers.wakes_hidden) {
        (None, 1..) => ", the interrupted CPU's own waking not told apart: it halts",
        _ => "",
    };
    let timed = match answers.timed {
        timed if timed < answers.requests => format!(" ({timed} of them timed, by chance)"),
        _ => String::new(),
    };
    format!(
        "{}: {} requests{timed}, {} seen at {}, {} merged{hidden}\n{}",
        answers.service,
        answers.requests,
        answers.rate,
        answers.way,
        answers.merged,
        table.text()
    )
}

/// The service's own figures, and beside them the kernel's.
fn own_count(scraped: &Scraped, answers: Option<&Answers>) -> String {
    let mut text = format!(
        "{} says of itself: {}",
        scraped.source,
        scraped.rate.map_or_else(|| "no rate".to_owned(), |rate| rate.to_string())
    );
    if let Some(p99) = scraped.p99 {
        let _ = write!(text, ", p99 {p99}");
    }
    if let Some(connections) = scraped.connections {
        let _ = write!(text, ", {connections} connections");
    }
    if let Some(answers) = answers {
        let _ = write!(text, "; the kernel says: {}", answers.rate);
        let p99 = answers.response.map(|times| times.p99);
        if let Some(p99) = p99.filter(|_| scraped.p99.is_some()) {
            let _ = write!(text, ", p99 {p99}");
        }
    }
    text + "."
}

/// How the CPUs worked, and the states that their cores were really in.
fn work(observation: &Observation) -> String {
    let mut table =
        Table::new(1, ["cpu", "instructions/cycle", "stalled", "entered"].map(str::to_owned).to_vec());
    for work in observation.work.iter().take(CPUS_SHOWN) {
        let entered: Vec<String> = observation
            .hardware
            .iter()
            .filter(|state| state.cpu == work.cpu)
            .map(|state| format!("{} {}", state.state, state.share))
            .collect();
        table.row(vec![
            work.cpu.to_string(),
            or_dash(work.per_cycle.map(|ratio| format!("{ratio:.2}"))),
            or_dash(work.stalled),
            if entered.is_empty() { "-".to_owned() } else { entered.join(", ") },
        ]);
    }
    table.text()
}

fn woken_by(wakers: &Wakers) -> String {
    let total = wakers.total().max(1);
    let share = |count: u64| Ratio::new(count as f64 / total as f64);
    format!(
        "timer {}, device {}, another CPU {}, no interrupt seen {}",
        share(wakers.timer),
        share(wakers.device),
        share(wakers.ipi),
        share(wakers.unseen)
    )
}

fn part(part: Option<Part>) -> String {
    part.map_or_else(|| "-".to_owned(), |part| format!("{} ({})", part.count, part.share))
}

fn share(part: Option<Part>) -> String {
    or_dash(part.map(|part| part.share))
}

fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// More lines than this are not read.
const CPUS_SHOWN: usize = 64;
