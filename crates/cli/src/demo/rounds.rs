//! The result of one round of a treatment, the sum of all of its rounds, and the comparison with
//! stock.

use super::Treatment;
use super::claims::{self, Bar, ROUNDS_LEAST, Scatter};
use crate::frames::{mean_residency, store_frame};
use loadgen::Outcome;
use machine::{Duration, EnergyReading, Microjoules, Rate, Ratio};
use report::run::{Compared, CurvePoint, Phase, StateShare, Verdict, times};
use store::Rests;
use store::status::Status;

/// The load was short if less than this share of it was answered.
const LOAD_LEAST: f64 = 0.9;

/// One round's figures. A figure is missing if it was not measured, or is not the store's.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    awake: Option<f64>,
    wake_ups: Option<f64>,
    longest: Option<f64>,
    cpu_per_request: Option<f64>,
    p99: Option<f64>,
}

/// A figure that the scheduler is held to, as a share of the same round of stock.
struct Figure {
    name: &'static str,
    bar: Bar,
    scatter: Scatter,
    of: fn(&Round) -> Option<f64>,
    shown: fn(f64) -> String,
}

const FIGURES: [Figure; 5] = [
    Figure {
        name: "workers that carry connections",
        bar: Bar::AtMost(0.75),
        scatter: Scatter::Amounts,
        of: |round| round.awake,
        shown: |workers| format!("{workers:.1}"),
    },
    Figure {
        name: "wake-ups/s of the CPU left alone",
        bar: Bar::AtMost(0.75),
        scatter: Scatter::Amounts,
        of: |round| round.wake_ups,
        shown: |rate| format!("{rate:.0}"),
    },
    Figure {
        name: "longest rest of a CPU",
        bar: Bar::AtLeast(2.0),
        scatter: Scatter::Factors,
        of: |round| round.longest,
        shown: length,
    },
    Figure {
        name: "workers' CPU time per request",
        bar: Bar::AtMost(1.0),
        scatter: Scatter::Factors,
        of: |round| round.cpu_per_request,
        shown: |seconds| format!("{:.1}us", seconds * 1e6),
    },
    Figure {
        name: TAIL,
        bar: Bar::AtMost(1.25),
        scatter: Scatter::Factors,
        of: |round| round.p99,
        shown: length,
    },
];

const TAIL: &str = "p99 latency";

fn length(seconds: f64) -> String {
    Duration::from_nanos((seconds * 1e9) as u64).to_string()
}

/// The store's figures between the first measured moment and the last.
pub struct Seen {
    pub first: Status,
    pub end: Status,
    /// The rests of each CPU between the two.
    pub rests: Vec<Rests>,
    /// Wake-ups of the CPU that was left alone most, interval by interval.
    pub quietest: u64,
    pub workers_cpu: Option<Duration>,
}

/// The sum of a treatment so far.
#[derive(Default)]
pub struct Total {
    rounds: Vec<Round>,
    length: Duration,
    offered: f64,
    requests: u64,
    errors: u64,
    late: f64,
    /// Rounds whose tail is the generator's own.
    late_rounds: usize,
    histogram: Option<hdrhistogram::Histogram<u64>>,
    rests: Option<Rests>,
    pub awake: Duration,
    pub moves: u64,
    pub energy: Option<EnergyReading>,
    residency: Option<Vec<StateShare>>,
    /// Why the load of a round was short, of the first short one.
    short: Option<String>,
}

impl Total {
    pub fn add(&mut self, treatment: &Treatment, outcome: &Outcome, seen: &Seen) {
        let Seen { first, end, rests, quietest, workers_cpu } = seen;
        let seconds = outcome.measured.as_secs_f64().max(1e-9);
        let answered = outcome.counts.answered;
        let awake = awake_of(end) - awake_of(first);
        let offered = outcome.offered.map_or(0.0, Rate::as_per_second);
        let achieved = outcome.achieved.as_per_second();
        // A punctual generator is a matter of the tail alone; an answer that is missing is one of
        // the load.
        let is_short = outcome.counts.unsent > 0 || answered == 0 || achieved < LOAD_LEAST * offered;
        if is_short {
            self.short.get_or_insert_with(|| {
                format!(
                    "{}: the store was offered {offered:.0} requests a second and answered \
                     {achieved:.0}; give a lower --peak",
                    treatment.name
                )
            });
        }
        let longest = rests.iter().filter_map(Rests::longest).max();
        let is_late = !is_short && !outcome.stands.p99;
        self.late_rounds += usize::from(is_late);
        self.rounds.push(if is_short {
            Round::default()
        } else {
            Round {
                awake: Some(awake.as_secs_f64() / seconds),
                wake_ups: Some(*quietest as f64 / seconds),
                longest: longest.map(Duration::as_secs_f64),
                cpu_per_request: workers_cpu.map(|cpu| cpu.as_secs_f64() / answered as f64),
                p99: (!is_late).then(|| outcome.latency.p99.as_secs_f64()),
            }
        });
        self.length += outcome.measured;
        self.offered += offered;
        self.requests += answered;
        self.errors += outcome.counts.errors();
        self.late += outcome.late.as_f64();
        match &mut self.histogram {
            // Both have the generator's bounds.
            Some(histogram) => drop(histogram.add(&outcome.histogram)),
            none => *none = Some(outcome.histogram.clone()),
        }
        for cpu in rests {
            match &mut self.rests {
                Some(sum) => sum.add(cpu),
                none => *none = Some(cpu.clone()),
            }
        }
        self.awake += awake;
        self.moves += moves(end) - moves(first);
        if let Some(energy) = energy_between(first, end) {
            match &mut self.energy {
                Some(sum) => sum.used.0 += energy.used.0,
                none => *none = Some(energy),
            }
        }
        let residency = mean_residency(&store_frame(Some(first), end).cpus);
        match (&mut self.residency, residency) {
            (Some(sum), Some(round)) => {
                for (sum, round) in sum.iter_mut().zip(round) {
                    sum.share = Ratio::new(sum.share.as_f64() + round.share.as_f64());
                }
            }
            (none @ None, some) => *none = some,
            (Some(_), None) => {}
        }
    }

    pub fn phase(&self, treatment: &Treatment) -> Phase {
        let count = self.rounds.len().max(1) as f64;
        let at = |share: f64| {
            self.histogram.as_ref().map(|histogram| Duration::from_nanos(histogram.value_at_quantile(share)))
        };
        let curve = CurvePoint::SHARES
            .iter()
            .filter_map(|&share| Some(CurvePoint { share: Ratio::new(share), latency: at(share)? }));
        let shares = |states: &Vec<StateShare>| {
            let mean = |state: &StateShare| Ratio::new(state.share.as_f64() / count);
            states.iter().map(|state| StateShare { share: mean(state), ..state.clone() }).collect()
        };
        Phase {
            name: treatment.name.to_owned(),
            what: treatment.what.to_owned(),
            length: Some(self.length),
            offered: Some(Rate::per_second(self.offered / count)),
            achieved: Some(Rate::of(self.requests, self.length)),
            requests: Some(self.requests),
            errors: Some(self.errors),
            p50: at(0.5),
            p99: at(0.99),
            p999: at(0.999),
            max: at(1.0),
            curve: curve.collect(),
            awake: Some(self.awake),
            residency: self.residency.as_ref().map(shares),
            energy: self.energy.clone(),
            transfers: Some(self.moves),
            late: Some(Ratio::new(self.late / count)),
        }
    }

    /// The rests of all CPUs, as a reader sees them.
    fn rested(&self) -> Option<String> {
        let rests = self.rests.as_ref()?;
        let (half, most, longest) = (rests.by_time(0.5)?, rests.by_time(0.9)?, rests.longest()?);
        Some(format!("p50 {half}, p90 {most}, longest {longest}"))
    }

    /// Pairs of rounds of which both had the load that they should have.
    fn pairs(&self, stock: &Self, of: fn(&Round) -> Option<f64>) -> Vec<(f64, f64)> {
        let rounds = stock.rounds.iter().zip(&self.rounds);
        rounds.filter_map(|(stock, own)| Some((of(stock)?, of(own)?))).collect()
    }

    fn compared(&self, stock: &Self, name: &str, figure: &Figure) -> Option<Compared> {
        let pairs = self.pairs(stock, figure.of);
        let (ratio, low, high) = claims::ratio(&pairs, figure.scatter)?;
        let count = pairs.len() as f64;
        let mean = |side: fn(&(f64, f64)) -> f64| {
            let values = pairs.iter().map(side);
            (figure.shown)(match figure.scatter {
                // Of the same kind as the ratio, so that the three fit.
                Scatter::Factors => (values.map(f64::ln).sum::<f64>() / count).exp(),
                Scatter::Amounts => values.sum::<f64>() / count,
            })
        };
        Some(Compared {
            phase: name.to_owned(),
            figure: figure.name.to_owned(),
            first: mean(|pair| pair.0),
            value: mean(|pair| pair.1),
            ratio,
            low,
            high,
        })
    }
}

/// Each treatment against stock, figure by figure.
pub fn compared(treatments: &[Treatment], totals: &[Total]) -> Vec<Compared> {
    let Some(stock) = totals.first() else { return Vec::new() };
    let others = treatments.iter().zip(totals).skip(1);
    others
        .flat_map(|(treatment, total)| {
            FIGURES.iter().filter_map(|figure| total.compared(stock, treatment.name, figure))
        })
        .collect()
}

/// The last treatment against its bars.
pub fn verdicts(treatments: &[Treatment], compared: &[Compared]) -> Vec<Verdict> {
    let Some(last) = treatments.last() else { return Vec::new() };
    let of = |figure: &Figure| {
        let found = compared.iter().find(|found| found.phase == last.name && found.figure == figure.name);
        claims::claim(figure.name, found, figure.bar)
    };
    FIGURES.iter().map(of).collect()
}

/// Why nothing can be claimed: too few pairs of rounds had the load that they should have.
pub fn invalid(totals: &[Total]) -> Option<String> {
    let (stock, last) = (totals.first()?, totals.last()?);
    if last.pairs(stock, |round| round.awake).len() >= ROUNDS_LEAST {
        return None;
    }
    totals.iter().find_map(|total| total.short.clone())
}

pub fn told(treatments: &[Treatment], totals: &[Total], compared: &[Compared]) -> Vec<String> {
    let mut lines = Vec::new();
    let (Some(stock), Some(last)) = (totals.first(), totals.last()) else { return lines };
    let Some(name) = treatments.last().map(|treatment| treatment.name) else { return lines };
    if let (Some(before), Some(now)) = (stock.rested(), last.rested()) {
        lines.push(format!(
            "How long the store leaves a CPU alone, by share of that time: {now}; with stock {before}."
        ));
    }
    let of_last = |figure: &str| compared.iter().find(|found| found.phase == name && found.figure == figure);
    lines.push(match of_last(TAIL) {
        Some(tail) if tail.low > 1.0 => {
            format!("Packing cost the tail: p99 {} of stock, all of its interval above 1.", times(tail.ratio))
        }
        Some(tail) if tail.high < 1.0 => {
            format!("Packing made the tail shorter: p99 {} of stock.", times(tail.ratio))
        }
        Some(tail) => format!(
            "Whether packing costs the tail is within the noise of this machine: p99 between {} and {} of stock.",
            times(tail.low),
            times(tail.high)
        ),
        None => "What packing does to the tail was not measured.".to_owned(),
    });
    let late: usize = totals.iter().map(|total| total.late_rounds).sum();
    let all: usize = totals.iter().map(|total| total.rounds.len()).sum();
    if late > 0 {
        lines.push(format!(
            "The generator was late in {late} of {all} rounds: their p99 is its own and is left out."
        ));
    }
    let short = totals.iter().flat_map(|total| &total.rounds).filter(|round| round.awake.is_none()).count();
    if short > 0 {
        lines.push(format!(
            "In {short} of {all} rounds the load was not answered as offered: they are left out."
        ));
    }
    lines
}

pub fn moves(status: &Status) -> u64 {
    status.transfers.ordered + status.transfers.send_home
}

pub fn awake_of(status: &Status) -> Duration {
    status.workers.iter().map(|worker| worker.awake).sum()
}

pub fn energy_between(first: &Status, last: &Status) -> Option<EnergyReading> {
    let (first, last) = (first.energy.as_ref()?, last.energy.as_ref()?);
    Some(EnergyReading {
        used: Microjoules(last.used.0.saturating_sub(first.used.0)),
        source: last.source.clone(),
    })
}
