//! `roost observe --sweep rate=1k..100k`: how tail, power and residency go with the load, on this
//! machine, under each depth of sleep.
//!
//! Our generator sends at several rates to the store that listens on `--port`, each rate under each
//! depth in turn, so that a drift of the machine favours none. Depths: *stock*, the machine's own
//! choice; *shallow*, the shallowest state that halts; *deep*, always the deepest that is allowed,
//! however short the sleep (the other extreme of the Tradeoffs paper, section III C); *poll*, no
//! sleep. A depth that changes nothing here is left out, with a remark.
//!
//! Invariants: limits are journalled by `linux` and put back on every way out; a point that the
//! generator could not send on time is marked, and drawn all the same.

use super::Args;
use super::answers::Times;
use super::results::Power;
use crate::exit::{Exit, coded, usage};
use crate::run_folder::{self, Kind, REPORT};
use crate::table::{Table, print};
use ::observe::sleep::{Findings, Known, SleepWatch};
use anyhow::{Context as _, Result, bail};
use linux::{EnergyMeter, IdleControl, IdleOptions, LimitState, Root};
use loadgen::{Interval, Items, Pace, Plan, Target};
use machine::{CpuId, CpuList, CstateIndex, CstateTable, Duration, IdleLimit, Microwatts, Rate, Ratio};
use report::figures::{Lines, Page, Part, Point, Quantity, Section, Series, Style, Unit};
use report::run::RunInfo;
use serde::Serialize;
use std::io::Write as _;
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use workload::{ArrivalKind, Profile, Workload};

/// The rates of a sweep: `rate=1k..100k`, or `rate=1k..100k/9` with so many points.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    from: Rate,
    to: Rate,
    points: u32,
}

impl FromStr for Rates {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const POINTS: u32 = 5;
        let wrong = || {
            format!("{text:?} is no range of rates; write rate=1k..100k, or rate=1k..100k/9 for nine points")
        };
        let range = text.strip_prefix("rate=").ok_or_else(wrong)?;
        let (range, points) = match range.split_once('/') {
            Some((range, points)) => (range, points.parse().map_err(|_| wrong())?),
            None => (range, POINTS),
        };
        let (from, to) = range.split_once("..").ok_or_else(wrong)?;
        let rate = |text: &str| workload::parse_rate(text).map_err(|error| error.to_string());
        let rates = Self { from: rate(from)?, to: rate(to)?, points };
        if rates.from >= rates.to || !(2..=100).contains(&points) {
            return Err(wrong());
        }
        Ok(rates)
    }
}

impl Rates {
    /// From the lowest to the highest, each the same factor above the one before.
    fn each(self) -> impl Iterator<Item = Rate> {
        let factor = self.to.as_per_second() / self.from.as_per_second();
        let last = f64::from(self.points - 1);
        (0..self.points).map(move |point| self.from.scale(factor.powf(f64::from(point) / last)))
    }
}

/// How deep CPUs may sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Depth {
    Stock,
    Shallow,
    Deep,
    Poll,
}

impl Depth {
    const ALL: [Self; 4] = [Self::Stock, Self::Shallow, Self::Deep, Self::Poll];

    fn name(self) -> &'static str {
        match self {
            Self::Stock => "stock",
            Self::Shallow => "shallow",
            Self::Deep => "deep",
            Self::Poll => "poll",
        }
    }
}

/// The result of one rate under one depth.
#[derive(Clone, Debug, Serialize)]
struct Measured {
    depth: Depth,
    offered: Rate,
    achieved: Rate,
    /// From the intended send time, by the client.
    latency: Option<Times>,
    /// False if the generator was late, so that the tail is its own.
    valid: bool,
    power: Option<Power>,
    active: Ratio,
    /// Share of the time in each idle state.
    states: Vec<(String, Ratio)>,
}

#[derive(Debug, Serialize)]
struct Sweep {
    target: String,
    notes: Vec<String>,
    points: Vec<Measured>,
}

pub fn run(args: &Args, rates: Rates, ended: &AtomicBool) -> Result<ExitCode> {
    let Some(port) = args.service.port else {
        return Err(usage("--sweep sends its own load: name the store's port with --port"));
    };
    let place = format!("127.0.0.1:{port}");
    if std::net::TcpStream::connect(&place).is_err() {
        return Err(usage(format!(
            "no service listens at {place}\nhint: start the store first; --sweep speaks memcached's protocol"
        )));
    }
    let length = args.length();
    if length < Duration::from_secs(1) {
        return Err(usage("--for: a point of a sweep needs a second at least"));
    }
    let root = Root::system();
    let cpus = linux::online_cpus(&root).context("reading which CPUs there are")?;
    let mut notes = Vec::new();
    let depths: Vec<Depth> = Depth::ALL
        .into_iter()
        .filter(|&depth| match limit(&root, &cpus, depth) {
            Ok(_) => true,
            Err(why) => {
                notes.push(format!("{} is left out: {why}", depth.name()));
                false
            }
        })
        .collect();
    let mut sweep = Sweep { target: place.clone(), notes, points: Vec::new() };
    let plan = |pace| Plan {
        length,
        warmup: Duration::from_millis(500),
        asks: Items::of(Workload { keys: 10_000, gets: Ratio::new(0.9), ..Workload::default() }),
        ..Plan::new(Target::Tcp(place.clone()), pace)
    };
    loadgen::fill(&plan(Pace::Closed { depth: 1 })).map_err(usage)?;
    for (number, rate) in rates.each().enumerate() {
        // Each rate begins with another depth.
        let mut order = depths.clone();
        order.rotate_left(number % depths.len());
        for depth in order {
            eprintln!("sweep: {rate}, {}", depth.name());
            let _limits = limit(&root, &cpus, depth).map_err(|why| coded(Exit::Refused, why))?;
            let pace = Pace::Open { arrivals: ArrivalKind::Poisson, profile: Profile::constant(rate)? };
            sweep.points.push(point(&root, &cpus, depth, rate, &plan(pace), ended)?);
            if ended.load(Ordering::Relaxed) {
                sweep.notes.push("Stopped before all points were measured.".to_owned());
                return finish(args, &sweep);
            }
        }
    }
    finish(args, &sweep)
}

/// Puts all CPUs under a depth while the returned guard lives.
fn limit(root: &Root, cpus: &CpuList, depth: Depth) -> Result<Option<IdleControl>, String> {
    if depth == Depth::Stock {
        return Ok(None);
    }
    let mut control = IdleControl::open(root, cpus, IdleOptions::new("roost observe --sweep"))
        .map_err(|held| held.to_string())?;
    for &cpu in &cpus.0 {
        let state = match depth {
            Depth::Stock => continue,
            Depth::Shallow => control.apply(cpu, control.active_limit(cpu)),
            Depth::Poll => control.apply(cpu, IdleLimit::ExitLatency(Duration::ZERO)),
            Depth::Deep => {
                let deepest = deepest(&mut control, cpu)?;
                control.forbid_shallower(cpu, deepest)
            }
        };
        match state {
            LimitState::Refused { reason } => return Err(format!("{cpu}: {reason}")),
            state if state.has_effect() => {}
            _ => return Err(format!("{cpu} has no idle state that it would forbid")),
        }
    }
    Ok(Some(control))
}

/// The deepest state that is allowed on a CPU, if that says anything about depth.
fn deepest(control: &mut IdleControl, cpu: CpuId) -> Result<CstateIndex, String> {
    if !control.table(cpu).is_some_and(CstateTable::has_depth) {
        return Err(format!(
            "{cpu} has less than two idle states that halt, so none is deep; see `roost doctor`"
        ));
    }
    control.deepest_allowed(cpu).ok_or_else(|| {
        format!("on {cpu} all idle states that halt are forbidden; `roost doctor` shows the limit")
    })
}

fn point(
    root: &Root,
    cpus: &CpuList,
    depth: Depth,
    offered: Rate,
    plan: &Plan,
    ended: &AtomicBool,
) -> Result<Measured> {
    let (mut sleeps, _) = SleepWatch::open(root, ::observe::sleep::Without::Nothing, linux::now());
    let began = linux::now();
    let mut energy = EnergyMeter::open(root, cpus, began);
    let before = energy.read(began);
    let mut each = |_: &Interval<'_>| {
        sleeps.catch_up();
        if ended.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let outcome = loadgen::run(plan, &mut each)?;
    if outcome.is_broken() {
        bail!("the store failed under load:\n{outcome}");
    }
    let now = linux::now();
    let power = before.zip(energy.read(now)).map(|(before, after)| {
        let joules = after.used.as_joules() - before.used.as_joules();
        let watts = joules / now.since(began).as_secs_f64().max(1e-9);
        Power { mean: Microwatts((watts.max(0.0) * 1e6) as u64), source: after.source.to_string() }
    });
    let findings = Findings::of(&sleeps.read(now), &Known::default());
    Ok(Measured {
        depth,
        offered,
        achieved: outcome.achieved,
        latency: Times::of(&outcome.histogram),
        valid: outcome.valid,
        power,
        active: findings.all.active,
        states: findings.all.states.iter().map(|state| (state.name.clone(), state.share)).collect(),
    })
}

const SWEEP: &str = "sweep.json";
const KIND: Kind = Kind { name: "observe-sweep", mark: SWEEP };

fn finish(args: &Args, sweep: &Sweep) -> Result<ExitCode> {
    let started = run_folder::started()?;
    let place = KIND.place(args.out.as_deref(), &started)?.make()?;
    run_folder::clear(&place, &[])?;
    let json = serde_json::to_string_pretty(sweep)?;
    run_folder::write(&place, SWEEP, |file| writeln!(file, "{json}"))?;
    let info = RunInfo { name: run_folder::name_of(&place), ..KIND.info(started, title(sweep), &[METHOD]) };
    run_folder::write_info(&place, &info)?;
    run_folder::write_report(&place, &page(&info, sweep))?;
    if args.json {
        crate::json::print(1, sweep)?;
    } else {
        let notes: String = sweep.notes.iter().map(|note| format!("note: {note}\n")).collect();
        print(&format!("{notes}{}\nreport: {}\n", table(sweep), place.join(REPORT).display()))?;
    }
    let is_late = sweep.points.iter().any(|point| !point.valid);
    Ok(if is_late { Exit::Invalid.into() } else { ExitCode::SUCCESS })
}

fn title(sweep: &Sweep) -> String {
    format!("Tail, power and residency against load, {}", sweep.target)
}

fn table(sweep: &Sweep) -> String {
    let head = ["depth", "offered", "achieved", "p50", "p99", "power", "active", "states"];
    let mut table = Table::new(1, head.map(str::to_owned).to_vec());
    for point in &sweep.points {
        let none = || "-".to_owned();
        let states: Vec<String> = point
            .states
            .iter()
            .filter(|(_, share)| share.as_f64() >= 0.001)
            .map(|(name, share)| format!("{name} {share}"))
            .collect();
        let late = if point.valid { "" } else { " (late)" };
        table.row(vec![
            point.depth.name().to_owned(),
            point.offered.to_string(),
            point.achieved.to_string(),
            point.latency.map_or_else(none, |times| times.p50.to_string()),
            point.latency.map_or_else(none, |times| format!("{}{late}", times.p99)),
            point.power.as_ref().map_or_else(none, |power| format!("{:.2} W", power.mean.as_watts())),
            point.active.to_string(),
            states.join(", "),
        ]);
    }
    let source = sweep.points.iter().find_map(|point| point.power.as_ref()).map(|power| &power.source);
    let source = source.map_or_else(String::new, |source| format!("power is {source}\n"));
    format!("{}{source}", table.text())
}

/// In the manner of CARB's Figures 1 and 2 and the Tradeoffs paper's Figures 3 and 6.
fn page(info: &RunInfo, sweep: &Sweep) -> Page {
    let rate = || Quantity::new("requests per second", Unit::PerSecond).log();
    let depths: Vec<Depth> = Depth::ALL
        .into_iter()
        .filter(|&depth| sweep.points.iter().any(|point| point.depth == depth))
        .collect();
    let series = |depth: Depth, value: &dyn Fn(&Measured) -> Option<f64>| {
        let mut points: Vec<&Measured> = sweep.points.iter().filter(|point| point.depth == depth).collect();
        points.sort_by(|one, other| one.offered.as_per_second().total_cmp(&other.offered.as_per_second()));
        let points =
            points.iter().map(|point| Point::new(point.offered.as_per_second(), value(point))).collect();
        Series { name: depth.name().to_owned(), style: Style::Line, points }
    };
    let figure = |title: &str, see: &str, y: Quantity, value: &dyn Fn(&Measured) -> Option<f64>| -> Part {
        let series = depths.iter().map(|&depth| series(depth, value)).collect();
        Lines { series, ..Lines::new(title, see, rate(), y) }.part()
    };
    let nanos =
        |pick: fn(&Times) -> Duration| move |point: &Measured| Some(pick(&point.latency?).as_nanos() as f64);
    let source = sweep.points.iter().find_map(|point| point.power.as_ref()).map(|power| power.source.clone());
    let latency = || Quantity::new("latency", Unit::Nanoseconds).log();
    let mut figures = vec![
        figure(
            "Tail against load",
            "99th percentile, counted from when each request should have been sent.",
            latency(),
            &nanos(|times| times.p99),
        ),
        figure(
            "Median against load",
            "At low load a median above the service time is the price of waking.",
            latency(),
            &nanos(|times| times.p50),
        ),
        figure(
            "Power against load",
            &format!("All CPUs; {}.", source.as_deref().unwrap_or("not known here")),
            Quantity::new("power", Unit::Watts).by_source(source.as_deref().unwrap_or("")),
            &|point| Some(point.power.as_ref()?.mean.as_watts()),
        ),
        figure(
            "Work against load",
            "Share of the CPU time that is not idle.",
            Quantity::new("active", Unit::Share),
            &|point| Some(point.active.as_f64()),
        ),
    ];
    for &depth in &depths {
        let mut names: Vec<&String> =
            sweep.points.iter().flat_map(|point| point.states.iter().map(|(name, _)| name)).collect();
        names.sort();
        names.dedup();
        let state = |name: &String| Series {
            name: name.clone(),
            ..series(depth, &|point| {
                point.states.iter().find(|(own, _)| own == name).map(|(_, share)| share.as_f64())
            })
        };
        let y = Quantity::new("share of time", Unit::Share);
        let title = format!("Residency against load, {}", depth.name());
        let lines = Lines {
            series: names.into_iter().map(state).collect(),
            ..Lines::new(&title, "The states that were asked for.", rate(), y)
        };
        figures.push(lines.part());
    }
    Page {
        title: title(sweep),
        summary: format!("{} points, {} depths of sleep.", sweep.points.len(), depths.len()),
        alarms: sweep.notes.clone(),
        sections: vec![Section::new("Against load", "", figures)],
        notes: vec![METHOD.to_owned()],
        ..Page::of(info)
    }
}

const METHOD: &str = "Open-loop Poisson arrivals, 9 gets of 10, latency from the intended send \
                      time; at each rate the depths follow each other in turn. Stock is what the \
                      machine does by itself, shallow the shallowest state that halts, deep \
                      always the deepest that is allowed, poll no sleep.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_rise_by_the_same_factor() {
        let rates: Rates = "rate=1k..16k".parse().unwrap();
        let each: Vec<f64> = rates.each().map(Rate::as_per_second).collect();
        assert_eq!(each.len(), 5);
        for (rate, wanted) in each.iter().zip([1e3, 2e3, 4e3, 8e3, 16e3]) {
            assert!((rate - wanted).abs() < 1e-6 * wanted, "{each:?}");
        }
        assert_eq!("rate=1k..100k/9".parse::<Rates>().unwrap().points, 9);
    }

    /// A machine of a text file, as `roost doctor --record` writes one.
    fn recorded(tree: &str) -> (tempfile::TempDir, Root) {
        let folder = tempfile::tempdir().unwrap();
        ::observe::doctor::unpack(tree, folder.path()).unwrap();
        let root = Root::at(folder.path());
        (folder, root)
    }

    #[test]
    fn each_depth_leaves_the_states_that_it_means_and_goes_without_a_trace() {
        let (_folder, root) = recorded(include_str!("../../../observe/tests/testdata/intel-server.tree"));
        let cpus: CpuList = "6-7".parse().unwrap();
        let reads = || {
            let cpu = "sys/devices/system/cpu/cpu7";
            let read = |file: &str| std::fs::read_to_string(root.path(&format!("{cpu}/{file}"))).unwrap();
            let states = linux::idle_table(&root, CpuId(7)).unwrap().0.len();
            let disabled: String = (0..states).map(|n| read(&format!("cpuidle/state{n}/disable"))).collect();
            (read("power/pm_qos_resume_latency_us").trim().to_owned(), disabled.replace('\n', ""))
        };
        let untouched = reads();
        for (depth, latency, disabled) in [
            (Depth::Stock, "0", "0000"),
            (Depth::Shallow, "2", "0000"),
            (Depth::Deep, "0", "1110"),
            (Depth::Poll, "n/a", "0000"),
        ] {
            let limits = limit(&root, &cpus, depth).unwrap();
            assert_eq!(reads(), (latency.to_owned(), disabled.to_owned()), "{depth:?}");
            drop(limits);
            assert_eq!(reads(), untouched, "{depth:?}");
        }
    }

    #[test]
    fn a_machine_without_depth_leaves_deep_out_and_says_why() {
        let (_folder, root) =
            recorded(include_str!("../../../observe/tests/testdata/vm-without-cpuidle.tree"));
        let why = limit(&root, &"0-1".parse().unwrap(), Depth::Deep).unwrap_err();
        assert!(why.contains("less than two idle states that halt"), "{why}");
        let (_folder, root) = recorded(include_str!("../../../observe/tests/testdata/intel-server.tree"));
        std::fs::write(root.path("sys/devices/system/cpu/cpu7/power/pm_qos_resume_latency_us"), "n/a\n")
            .unwrap();
        let why = limit(&root, &"7".parse().unwrap(), Depth::Deep).unwrap_err();
        assert!(why.contains("all idle states that halt are forbidden"), "{why}");
    }

    #[test]
    fn what_was_left_out_stands_on_the_page() {
        let sweep =
            Sweep { target: "x".into(), notes: vec!["deep is left out: why".into()], points: Vec::new() };
        let info = RunInfo::default();
        assert!(page(&info, &sweep).json().contains("deep is left out: why"));
    }

    #[test]
    fn a_range_that_is_none_is_told_how_to_write_one() {
        for text in ["1k..2k", "rate=2k..1k", "rate=1k", "rate=x..2k", "rate=1k..2k/1", "rate=1k..2k/x"] {
            assert!(!text.parse::<Rates>().unwrap_err().is_empty(), "{text}");
        }
    }
}
