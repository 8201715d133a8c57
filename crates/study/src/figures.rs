//! The figures of a run, by the names of `--metrics`, a scenario's `[figure]`, CSV files and
//! tables.
//!
//! One list for all of them, so that a name means the same wherever it stands. A figure that a run
//! has not got (an idle state that its machine lacks, a deadline that was not set, the times of an
//! unstable run) is absent, never zero.

use super::columns::Rows;
use sim::Outcome;
use sim::outcome::{Estimate, StateShare, Verdict};
use std::fmt;
use std::str::FromStr;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Nanoseconds,
    Watts,
    Joules,
    Share,
    PerSecond,
    Count,
}

impl Unit {
    fn suffix(self) -> &'static str {
        match self {
            Self::Nanoseconds => "_ns",
            Self::Watts | Self::Joules | Self::Share | Self::PerSecond | Self::Count => "",
        }
    }

    pub fn text(self, value: f64) -> String {
        match self {
            Self::Nanoseconds => scaled(value * 1e-9, "s", 3),
            Self::Watts => format!("{value:.1} W"),
            Self::Joules => scaled(value, "J", 3),
            Self::Share => format!("{:.1}%", value * 100.0),
            Self::PerSecond => scaled(value, "/s", 3),
            Self::Count => format!("{value:.2}"),
        }
    }

    /// The same with its interval, if it has one: `152us ±1.2%`.
    pub fn estimate_text(self, found: &Estimate) -> String {
        let Some(interval) = found.interval() else { return self.text(found.value) };
        let relative = interval.relative();
        let digits = if relative < 0.005 { 4 } else { 3 };
        let value = match self {
            Self::Nanoseconds => scaled(interval.estimate * 1e-9, "s", digits),
            other => other.text(interval.estimate),
        };
        format!("{value} ±{}", percent(relative))
    }
}

/// A half-width: two digits where they matter.
fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if !percent.is_finite() {
        "?".to_owned()
    } else if percent < 0.095 {
        format!("{percent:.2}%")
    } else if percent < 9.95 {
        format!("{percent:.1}%")
    } else {
        format!("{percent:.0}%")
    }
}

/// `digits` significant digits and a prefix: 12.05us, 1.50ms, 80.0k/s.
fn scaled(value: f64, unit: &str, digits: usize) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value}{unit}");
    }
    let prefixes = [(1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "u"), (1e-9, "n")];
    // 999.96 with four digits is 1000: round before the prefix is chosen.
    let magnitude = value.abs() * (1.0 + 0.5 * 10f64.powi(-(digits as i32)));
    let fits = prefixes.iter().filter(|(_, prefix)| unit != "s" || !matches!(*prefix, "M" | "k"));
    let (factor, prefix) = fits.clone().find(|(factor, _)| magnitude >= *factor).unwrap_or(&(1e-9, "n"));
    let shown = value / factor;
    let before = shown.abs().log10().floor().max(0.0) as usize + 1;
    format!("{shown:.*}{prefix}{unit}", digits.saturating_sub(before))
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Figure {
    /// One that every run has.
    Plain(&'static str),
    /// Share of CPU time in an idle state, by its name.
    Residency(String),
    /// Sleeps per second in an idle state.
    Sleeps(String),
    /// Share of working time in an operating point, by its kHz.
    Frequency(u64),
    /// Requests of a class that came too late, as a share of the class.
    Missed(String),
    /// A percentile that only runs with a goal or a precision for it have, such as `p97`.
    Percentile(String),
}

struct Plain {
    name: &'static str,
    unit: Unit,
    has_interval: bool,
    of: fn(&Outcome) -> Option<Estimate>,
}

/// Every figure that any run has, in the order of files.
const PLAIN: &[Plain] = &[
    plain("throughput", Unit::PerSecond, |run| counted(run.rate)),
    estimate("mean", Unit::Nanoseconds, |run| run.responses.mean_ns),
    estimate("p50", Unit::Nanoseconds, |run| run.responses.p50_ns),
    estimate("p95", Unit::Nanoseconds, |run| run.responses.p95_ns),
    estimate("p99", Unit::Nanoseconds, |run| run.responses.p99_ns),
    estimate("p999", Unit::Nanoseconds, |run| run.responses.p999_ns),
    plain("core_watts", Unit::Watts, |run| counted(run.power.cores_watts)),
    plain("uncore_watts", Unit::Watts, |run| counted(run.power.uncore_watts)),
    estimate("cpu_watts", Unit::Watts, |run| {
        Some(Estimate { value: run.power.cpu_watts, half_width: run.power.cpu_half_width_watts })
    }),
    plain("server_watts", Unit::Watts, |run| counted(run.power.server_watts)),
    plain("joules_per_request", Unit::Joules, |run| counted(run.power.joules_per_request)),
    plain("awake_cores", Unit::Count, |run| counted(run.awake)),
    plain("active_cores", Unit::Count, |run| counted(run.active)),
    plain("working", Unit::Share, |run| counted(run.working)),
    plain("waking", Unit::Share, |run| counted(run.waking)),
    plain("polling", Unit::Share, |run| counted(run.polling)),
    plain("package_asleep", Unit::Share, |run| counted(run.package_asleep)),
    plain("transitions_per_s", Unit::PerSecond, |run| counted(run.transitions_per_s)),
    plain("premature", Unit::Share, |run| of_sleeps(run, |state| state.premature)),
    plain("missed_deep", Unit::Share, |run| of_sleeps(run, |state| state.missed_deep)),
    plain("missed", Unit::Share, missed),
    plain("moved", Unit::Count, |run| run.transfers.and_then(|(moved, _)| counted(moved as f64))),
];

const fn plain(name: &'static str, unit: Unit, of: fn(&Outcome) -> Option<Estimate>) -> Plain {
    Plain { name, unit, has_interval: false, of }
}

const fn estimate(name: &'static str, unit: Unit, of: fn(&Outcome) -> Option<Estimate>) -> Plain {
    Plain { name, unit, has_interval: true, of }
}

fn counted(value: f64) -> Option<Estimate> {
    value.is_finite().then_some(Estimate { value, half_width: None })
}

/// A share of each state's sleeps, over all states.
fn of_sleeps(run: &Outcome, share: fn(&StateShare) -> f64) -> Option<Estimate> {
    let sleeps: f64 = run.states.iter().map(|state| state.sleeps_per_s).sum();
    let such: f64 = run.states.iter().map(|state| share(state) * state.sleeps_per_s).sum();
    if sleeps > 0.0 { counted(such / sleeps) } else { None }
}

/// Late answers among those that had a deadline.
fn missed(run: &Outcome) -> Option<Estimate> {
    let with_deadline = run.classes.iter().filter_map(|class| Some((class.missed?, class.requests)));
    let (late, all) = with_deadline.fold((0, 0), |sum, (late, all)| (sum.0 + late, sum.1 + all));
    if all > 0 { counted(late as f64 / all as f64) } else { None }
}

impl Figure {
    /// All figures that any of the runs has, in the order of files.
    pub fn of_all<'a>(runs: impl Iterator<Item = &'a Outcome>) -> Vec<Self> {
        let mut figures: Vec<Self> = PLAIN.iter().map(|plain| Self::Plain(plain.name)).collect();
        let mut seen = |figure: Self| {
            if !figures.contains(&figure) {
                figures.push(figure);
            }
        };
        let runs: Vec<&Outcome> = runs.collect();
        let states = || runs.iter().flat_map(|run| &run.states);
        states().for_each(|state| seen(Self::Residency(state.name.clone())));
        states().for_each(|state| seen(Self::Sleeps(state.name.clone())));
        runs.iter().flat_map(|run| &run.frequencies).for_each(|&(khz, _)| seen(Self::Frequency(khz)));
        let others = runs.iter().flat_map(|run| &run.responses.others);
        others.for_each(|other| seen(Self::Percentile(other.what.to_string())));
        let classes = runs.iter().flat_map(|run| &run.classes);
        classes
            .filter(|class| class.missed.is_some())
            .for_each(|class| seen(Self::Missed(class.name.clone())));
        figures
    }

    pub fn of(&self, run: &Outcome) -> Option<Estimate> {
        if run.verdict == Verdict::Unstable {
            return None;
        }
        let state = |name: &str| run.states.iter().find(|state| state.name == name);
        match self {
            Self::Plain(name) => (plain_named(name)?.of)(run),
            Self::Percentile(name) => run.responses.at(name.parse().ok()?),
            Self::Residency(name) => counted(state(name)?.share),
            Self::Sleeps(name) => counted(state(name)?.sleeps_per_s),
            Self::Frequency(khz) => counted(run.frequencies.iter().find(|(point, _)| point == khz)?.1),
            Self::Missed(name) => {
                let class = run.classes.iter().find(|class| class.name == *name)?;
                counted(class.missed? as f64 / class.requests.max(1) as f64)
            }
        }
    }

    pub fn unit(&self) -> Unit {
        match self {
            Self::Plain(name) => plain_named(name).map_or(Unit::Count, |plain| plain.unit),
            Self::Residency(_) | Self::Frequency(_) | Self::Missed(_) => Unit::Share,
            Self::Sleeps(_) => Unit::PerSecond,
            Self::Percentile(_) => Unit::Nanoseconds,
        }
    }

    /// The name of its column in a file.
    pub fn column(&self) -> String {
        format!("{self}{}", self.unit().suffix())
    }

    /// Adds its columns to a table: the figure, and the ends of its interval if it has one.
    pub fn add<'a, R>(&self, rows: Rows<'a, R>, run: impl Fn(&'a R) -> &'a Outcome) -> Rows<'a, R> {
        if self.has_interval() {
            return rows.estimate(&self.to_string(), self.unit().suffix(), |row| self.of(run(row)));
        }
        rows.number(self.column(), |row| self.of(run(row)).map(|found| found.value))
    }

    fn has_interval(&self) -> bool {
        match self {
            Self::Plain(name) => plain_named(name).is_some_and(|plain| plain.has_interval),
            Self::Percentile(_) => true,
            _ => false,
        }
    }

    /// As a person reads it in a table; `-` where there is nothing.
    pub fn text(&self, run: &Outcome) -> String {
        self.of(run).map_or_else(|| "-".to_owned(), |found| self.unit().estimate_text(&found))
    }
}

fn plain_named(name: &str) -> Option<&'static Plain> {
    PLAIN.iter().find(|plain| plain.name == name)
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(name) => f.write_str(name),
            Self::Percentile(name) => f.write_str(name),
            Self::Residency(state) => write!(f, "residency.{state}"),
            Self::Sleeps(state) => write!(f, "sleeps_per_s.{state}"),
            Self::Frequency(khz) => write!(f, "frequency.{khz}"),
            Self::Missed(class) => write!(f, "missed.{class}"),
        }
    }
}

impl FromStr for Figure {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if let Some(plain) = plain_named(text) {
            return Ok(Self::Plain(plain.name));
        }
        match text.split_once('.') {
            Some(("residency", state)) => Ok(Self::Residency(state.to_owned())),
            Some(("sleeps_per_s", state)) => Ok(Self::Sleeps(state.to_owned())),
            Some(("missed", class)) => Ok(Self::Missed(class.to_owned())),
            Some(("frequency", khz)) => khz
                .parse()
                .map(Self::Frequency)
                .map_err(|_| format!("`{text}`: write a frequency in kHz, such as frequency.2100000")),
            _ => {
                let names: Vec<&str> = PLAIN.iter().map(|plain| plain.name).collect();
                let likely = super::options::nearest(text, names.iter().copied());
                let hint = likely.map_or_else(String::new, |name| format!("did you mean {name}? "));
                Err(format!(
                    "no figure is called `{text}`: {hint}There are {}, residency.STATE, sleeps_per_s.STATE, \
                     frequency.KHZ and missed.CLASS",
                    names.join(", ")
                ))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_as_they_are_printed() {
        let all = PLAIN.iter().map(|plain| Figure::Plain(plain.name));
        let named = [
            Figure::Residency("C6".into()),
            Figure::Sleeps("C1E".into()),
            Figure::Frequency(2_100_000),
            Figure::Missed("light.cheap".into()),
        ];
        for figure in all.chain(named) {
            assert_eq!(figure.to_string().parse(), Ok(figure));
        }
    }

    #[test]
    fn an_unknown_figure_is_told_its_nearest() {
        let error = "cpu_wats".parse::<Figure>().unwrap_err();
        assert!(error.contains("did you mean cpu_watts?"), "{error}");
        assert!("frequency.fast".parse::<Figure>().unwrap_err().contains("kHz"));
    }

    #[test]
    fn numbers_keep_their_digits_across_prefixes() {
        for (value, unit, digits, text) in [
            (12.0459e-6, "s", 4, "12.05us"),
            (152.4e-6, "s", 3, "152us"),
            (1.5e-3, "s", 3, "1.50ms"),
            (999.96e-6, "s", 4, "1.000ms"),
            (999.4e-6, "s", 3, "999us"),
            (2.5, "s", 3, "2.50s"),
            (7200.0, "s", 3, "7200s"),
            (80_000.0, "/s", 3, "80.0k/s"),
            (8.0e-10, "s", 3, "0.80ns"),
            (3.2e-4, "J", 3, "320uJ"),
            (0.0, "J", 3, "0J"),
        ] {
            assert_eq!(scaled(value, unit, digits), text);
        }
    }

    #[test]
    fn an_interval_has_as_many_digits_as_it_deserves() {
        let text = |value, half_width| Unit::Nanoseconds.estimate_text(&Estimate { value, half_width });
        assert_eq!(text(152_400.0, Some(1_829.0)), "152us ±1.2%");
        assert_eq!(text(12_045.9, Some(12.0)), "12.05us ±0.1%");
        assert_eq!(text(12_045.9, Some(1.0)), "12.05us ±0.01%");
        assert_eq!(text(12_045.9, Some(6_000.0)), "12.0us ±50%");
        assert_eq!(text(12_045.9, None), "12.0us");
    }
}
