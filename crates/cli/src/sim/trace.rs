//! `--perfetto` of `roost sim run`: the first requests of every contestant, one by one.
//!
//! A contestant is a track with a track for its decisions, and for each CPU: its sleeps, the requests
//! that it works on, those that wait for it (side by side where several do), and its clock. An arrow
//! leads from a waiting request to the work on it, and to the decision that its arrival, beginning or
//! end led to. Contestants are simulated once more for it: a run without a trace pays nothing.

use crate::exit::usage;
use anyhow::Result;
use machine::{Duration, FrequencyLimit, Instant, Platform};
use policy::Why;
use policy::kind::Decision;
use report::perfetto::{Flow, Trace, Track};
use sim::engine::{Chronicle, Ended, Piece, What};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

pub struct SimTrace<W: Write = BufWriter<File>> {
    path: PathBuf,
    out: Trace<W>,
    contestants: u64,
}

/// Requests of all contestants together: 200,000 are some 60 MB, which ui.perfetto.dev opens in
/// seconds.
pub const REQUESTS: u64 = 200_000;
/// Rows of waiting requests for each CPU; the longer queues show their beginning.
const LANES: usize = 16;

enum Told {
    Begin(Track, String, Option<Flow>),
    End(Track),
    Value(Track, f64),
    Instant(Track, String, Vec<(&'static str, String)>, Option<Flow>),
}

/// The events of a contestant, each with its time, on each track in order.
#[derive(Default)]
struct Events(Vec<(u64, Told)>);

impl Events {
    fn slice(&mut self, on: Track, from: u64, to: u64, name: String, flow: Option<Flow>) {
        self.0.push((from, Told::Begin(on, name, flow)));
        self.0.push((to, Told::End(on)));
    }
}

impl SimTrace {
    pub fn create(path: &Path) -> Result<Self> {
        let out = Trace::create(path)
            .map_err(|error| usage(format!("--perfetto: cannot write {}: {error}", path.display())))?;
        Ok(Self { path: path.to_owned(), out, contestants: 0 })
    }

    /// Says where the trace is or why there is none.
    pub fn end(self) -> String {
        self.out.end_at(&self.path)
    }
}

impl<W: Write> SimTrace<W> {
    pub fn take(&mut self, name: &str, ended: &Ended) {
        let Some(chronicle) = ended.chronicle() else { return };
        self.contestants += 1;
        let flow = |request: u64| Flow((self.contestants << 40) + request);
        let out = &mut self.out;
        let root = out.track(name, None);
        let platform = &ended.setup().platform;
        let classes: Vec<String> = ended.class_counts().into_iter().map(|class| class.name).collect();
        let mut events = Events::default();
        decisions(out, root, chronicle, platform, &mut events, &flow);
        let causes: BTreeSet<u64> =
            chronicle.decisions.iter().filter_map(|decided| decided.request).collect();
        for cpu in 0..platform.cpus() as u16 {
            let track = out.track(&format!("CPU {cpu}"), Some(root));
            sleeps(out, track, cpu, chronicle, platform, &mut events);
            requests(out, track, cpu, chronicle, &classes, &causes, &mut events, &flow);
            clocks(out, track, cpu, chronicle, platform, &mut events);
        }
        if let Some(at) = chronicle.cut_ns {
            let name = format!("cut here: the first {} requests are shown", chronicle.pieces.len());
            events.0.push((at, Told::Instant(root, name, Vec::new(), None)));
        }
        // Stable: what was told first of a track stays first.
        events.0.sort_by_key(|(at, _)| *at);
        for (at, told) in events.0 {
            let at = Instant::from_nanos(at);
            match told {
                Told::Begin(on, name, flow) => out.begin(at, on, &name, flow),
                Told::End(on) => out.end(at, on),
                Told::Value(of, value) => out.value(at, of, value),
                Told::Instant(on, name, notes, flow) => {
                    let notes: Vec<(&str, &str)> =
                        notes.iter().map(|(name, text)| (*name, text.as_str())).collect();
                    out.instant(at, on, &name, &notes, flow);
                }
            }
        }
    }
}

fn sleeps(
    out: &mut Trace<impl Write>,
    under: Track,
    cpu: u16,
    chronicle: &Chronicle,
    platform: &Platform,
    events: &mut Events,
) {
    let track = out.track(&format!("CPU {cpu} sleep"), Some(under));
    for sleep in chronicle.sleeps.iter().filter(|sleep| sleep.cpu == cpu) {
        let state = sleep.state.and_then(|state| platform.cstates.0.get(usize::from(state)));
        let name = state.map_or("polling", |state| &state.name);
        events.slice(track, sleep.from_ns, sleep.until_ns, name.to_owned(), None);
        if sleep.awake_ns > sleep.until_ns {
            events.slice(track, sleep.until_ns, sleep.awake_ns, "waking".to_owned(), None);
        }
    }
}

#[expect(clippy::too_many_arguments, reason = "all are parts of one contestant")]
fn requests(
    out: &mut Trace<impl Write>,
    under: Track,
    cpu: u16,
    chronicle: &Chronicle,
    classes: &[String],
    causes: &BTreeSet<u64>,
    events: &mut Events,
    flow: &impl Fn(u64) -> Flow,
) {
    let track = out.track(&format!("CPU {cpu} requests"), Some(under));
    let name = |piece: &Piece| match classes.get(usize::from(piece.class)) {
        Some(class) if classes.len() > 1 => format!("{class} {}", piece.request),
        _ => format!("request {}", piece.request),
    };
    // The end of the last request in each row, and the row's track.
    let mut lanes: Vec<(u64, Track)> = Vec::new();
    // A lane takes requests in order of their arrival.
    let mut waiting: Vec<&Piece> = Vec::new();
    for piece in chronicle.pieces.iter().filter(|piece| piece.cpu == cpu) {
        let waits = piece.began_ns > piece.arrived_ns && !piece.is_part;
        if waits {
            waiting.push(piece);
        }
        let flow = (waits || causes.contains(&piece.request)).then(|| flow(piece.request));
        events.slice(track, piece.began_ns, piece.ended_ns, name(piece), flow);
    }
    waiting.sort_by_key(|piece| piece.arrived_ns);
    for piece in waiting {
        let free = lanes.iter().position(|(end, _)| *end <= piece.arrived_ns);
        let lane = match free {
            Some(lane) => lane,
            None if lanes.len() < LANES => {
                let name = format!("CPU {cpu} waiting {}", lanes.len() + 1);
                lanes.push((0, out.track(&name, Some(under))));
                lanes.len() - 1
            }
            None => continue,
        };
        lanes[lane].0 = piece.began_ns;
        let flow = Some(flow(piece.request));
        events.slice(lanes[lane].1, piece.arrived_ns, piece.began_ns, name(piece), flow);
    }
}

fn clocks(
    out: &mut Trace<impl Write>,
    under: Track,
    cpu: u16,
    chronicle: &Chronicle,
    platform: &Platform,
    events: &mut Events,
) {
    let points = &platform.frequencies.points;
    let changes: Vec<_> = chronicle.clocks.iter().filter(|clock| clock.cpu == cpu).collect();
    let Some(fastest) = points.last().filter(|_| !changes.is_empty()) else { return };
    let track = out.counter(&format!("CPU {cpu} clock"), "kHz", Some(under));
    // Every run begins at the highest operating point.
    events.0.push((0, Told::Value(track, fastest.frequency.0 as f64)));
    for clock in changes {
        if let Some(point) = points.get(usize::from(clock.point)) {
            events.0.push((clock.at_ns, Told::Value(track, point.frequency.0 as f64)));
        }
    }
}

fn decisions(
    out: &mut Trace<impl Write>,
    root: Track,
    chronicle: &Chronicle,
    platform: &Platform,
    events: &mut Events,
    flow: &impl Fn(u64) -> Flow,
) {
    if chronicle.decisions.is_empty() {
        return;
    }
    let track = out.track("decisions", Some(root));
    let mut cores = None;
    // A request's arrow ends at its first decision: others would lead from decision to decision.
    let mut told = BTreeMap::new();
    for decided in &chronicle.decisions {
        if let What::Decision(Decision::Active(active)) = decided.what {
            let track = *cores.get_or_insert_with(|| out.counter("active cores", "cores", Some(root)));
            events.0.push((decided.at_ns, Told::Value(track, f64::from(active))));
        }
        let Some(name) = words(&decided.what, platform) else { continue };
        let mut notes = Vec::new();
        if let Some(why) = decided.why {
            notes.push(("why", reason(why).to_owned()));
        }
        let is_first = decided.request.map(|request| told.insert(request, ()).is_none());
        if let Some(request) = decided.request {
            notes.push(("request", request.to_string()));
        }
        let flow = decided.request.filter(|_| is_first == Some(true)).map(flow);
        events.0.push((decided.at_ns, Told::Instant(track, name, notes, flow)));
    }
}

/// `None` for a wish to be asked again, which changes nothing.
fn words(what: &What, platform: &Platform) -> Option<String> {
    let state = |state: machine::CstateIndex| {
        platform.cstates.0.get(usize::from(state.0)).map_or("?", |state| &state.name)
    };
    let clock = |point: policy::frequency::PointIndex| {
        let point = platform.frequencies.points.get(usize::from(point.0));
        point.map_or_else(String::new, |point| format!("{} MHz", point.frequency.0 / 1000))
    };
    Some(match *what {
        What::Decision(Decision::Active(cores)) => format!("{cores} cores active"),
        What::Decision(Decision::IdleStates { active, parked }) => {
            let parked = parked.map_or("the deepest", state);
            format!("idle in {}, parked in {parked}", state(active))
        }
        What::Decision(Decision::IdleLimit(Duration::MAX)) => "active cores: any idle state".to_owned(),
        What::Decision(Decision::IdleLimit(limit)) => format!("active cores: awake within {limit}"),
        What::Decision(Decision::OperatingPoint { cpu, point }) => format!("CPU {}: {}", cpu.0, clock(point)),
        What::Decision(Decision::Points(point)) => format!("all CPUs: {}", clock(point)),
        What::Decision(Decision::Uncore(FrequencyLimit::None)) => "uncore: no limit".to_owned(),
        What::Decision(Decision::Uncore(FrequencyLimit::AtMost(clock) | FrequencyLimit::Exactly(clock))) => {
            format!("uncore: {clock}")
        }
        What::Decision(Decision::Review { .. }) => return None,
        What::Moved { source, target } => format!("a connection from worker {source} to {target}"),
    })
}

fn reason(why: Why) -> &'static str {
    match why {
        Why::Ordered => "the scheduler ordered it",
        Why::Burst => "sent home: requests came faster than the limit",
        Why::Overload => "sent home: the reported load is above the limit",
        Why::Tail => "sent home: the worker's tail is above the goal",
    }
}
