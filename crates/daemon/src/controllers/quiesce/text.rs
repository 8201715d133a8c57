//! The state for a person: no line is wider than a plain terminal.

use super::{BackgroundStatus, PayoffStatus, QuiesceStatus};
use policy::quiescence::{Outlook, Reason};
use std::fmt::Write as _;

/// The width of a plain terminal.
const COLUMNS: usize = 80;
/// The beginning of a unit's line.
const INDENT: &str = "              ";

impl QuiesceStatus {
    /// The state in a few lines of at most 80 columns.
    pub fn text(&self) -> String {
        of(self)
    }
}

impl PayoffStatus {
    /// Whether freezing pays, in a sentence.
    pub fn text(&self) -> String {
        payoff(self)
    }
}

fn of(status: &QuiesceStatus) -> String {
    let word = match status.outlook {
        Outlook::Busy => "critical work runs",
        Outlook::Waiting => "critical work waits",
        Outlook::Frozen => "all stand still",
        Outlook::LeftOff => "critical work waits, freezing left off",
        Outlook::Blind => "events were lost: nothing is frozen",
    };
    let mut text = format!("{:8.1} s  {word}\n", status.at_ms / 1e3);
    let idle = format!(
        "all idle {:.1} % of the time, {} times",
        status.all_idle_share * 100.0,
        status.all_idle_times
    );
    let cpus = shortened(&format!("CPU {}", status.cpus), COLUMNS - 4 - idle.len());
    line(&mut text, "  ", &format!("{cpus} {idle}"));
    for critical in &status.critical {
        let processes = format!("{} processes", critical.processes);
        unit(&mut text, "critical", &critical.unit, &critical.name, &processes);
    }
    for background in &status.background {
        let state = match (&background.spared, background.is_frozen) {
            (Some(_), _) => "left alone",
            (None, true) => "frozen",
            (None, false) => "runs",
        };
        unit(&mut text, "background", &background.unit, &background.name, state);
        stood(&mut text, background);
    }
    let measured = if status.cost_is_measured { "measured" } else { "not measured in a dry run" };
    let cost = format!(
        "freeze + thaw {:.0} us ({measured}); waits of {:.1} ms and longer count",
        status.cost_us,
        status.min_wait_us / 1e3
    );
    line(&mut text, "  ", &cost);
    if let Some([p50, p99, max]) = status.thaw_us {
        line(&mut text, "  ", &format!("thawed after p50 {p50:.0}, p99 {p99:.0}, at most {max:.0} us"));
    }
    line(&mut text, "  ", &payoff(&status.payoff));
    text
}

fn unit(text: &mut String, role: &str, unit: &str, name: &str, state: &str) {
    let named = if unit == name || unit.contains('/') { unit.to_owned() } else { format!("{name} ({unit})") };
    let first = format!("  {role:width$}", width = INDENT.len() - 2);
    let room = COLUMNS - first.len() - 2 - state.len();
    let _ = writeln!(text, "{first}{:<32}  {state}", shortened(&named, room));
}

fn stood(text: &mut String, background: &BackgroundStatus) {
    let frozen = format!(
        "frozen {:.1} % of the time, {} times, at most {:.0} ms, by {}",
        background.frozen_share * 100.0,
        background.freezes,
        background.longest_ms,
        background.way
    );
    line(text, INDENT, &frozen);
    if let Some(why) = &background.spared {
        line(text, INDENT, why);
    }
}

fn payoff(payoff: &PayoffStatus) -> String {
    let verdict = payoff.verdict;
    let points = |share: Option<f64>| share.map(|share| format!("{:+.1} points", share * 100.0));
    let percent =
        |share: Option<f64>| share.map_or("not known".to_owned(), |share| format!("{:+.1} %", share * 100.0));
    let found = match (verdict.pays, points(verdict.gain), points(verdict.gain_at_most)) {
        (_, Some(gain), _) => format!(
            "all idle {gain} of the time with freezing; critical cycles {} (at most {}), waits {} \
             (at most {}), p99 \
             {}, of {} cycles without and {} with",
            percent(verdict.cycle),
            percent(verdict.cycle_at_most),
            percent(verdict.wait),
            percent(verdict.wait_at_most),
            percent(verdict.tail),
            verdict.cycles[0],
            verdict.cycles[1]
        ),
        (Some(false), None, Some(most)) => format!("all idle {most} of the time at most"),
        _ => "not known yet".to_owned(),
    };
    let why = match verdict.why {
        Some(Reason::NothingToGain | Reason::NoGain) => "too little is gained",
        Some(Reason::Longer) => "critical work takes longer with it",
        Some(Reason::LongerTail) => "the longest cycles of critical work are with it",
        Some(Reason::NotExcluded) => "that critical work takes longer cannot be excluded",
        None => "left off",
    };
    let again = payoff.again_s.map_or(String::new(), |again| format!("; tried again in {again:.0} s"));
    match (verdict.is_trying, verdict.pays) {
        (true, _) => format!("being found out whether freezing pays; so far: {found}"),
        (false, Some(true)) => format!("freezing pays: {found}{again}"),
        (false, Some(false)) => {
            format!("freezing does not pay and is left off, {why}: {found}{again}")
        }
        (false, None) => "not tried out whether freezing pays".to_owned(),
    }
}

fn line(text: &mut String, first: &str, words: &str) {
    // A word that is wider than the line would not be wrapped.
    let words: Vec<String> = words.split(' ').map(|word| shortened(word, COLUMNS - first.len())).collect();
    *text += &wrapped(first, &words.join(" "));
}

/// Its end, which tells it from others, if there is no room for all of it.
fn shortened(text: &str, room: usize) -> String {
    let length = text.chars().count();
    if length <= room {
        return text.to_owned();
    }
    let end: String = text.chars().skip(length + 2 - room.max(2)).collect();
    format!("..{end}")
}

/// `words` after `first`, wrapped at spaces; further lines are indented as far.
fn wrapped(first: &str, words: &str) -> String {
    let (mut text, indent) = (first.to_owned(), first.chars().count());
    let (mut used, mut is_first) = (indent, true);
    for word in words.split(' ').filter(|word| !word.is_empty()) {
        let width = word.chars().count();
        if !is_first && used + 1 + width > COLUMNS {
            text += "\n";
            text += &" ".repeat(indent);
            used = indent;
        } else if !is_first {
            text += " ";
            used += 1;
        }
        text += word;
        used += width;
        is_first = false;
    }
    text + "\n"
}
