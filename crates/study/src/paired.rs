//! Contestants against one of them, on the same arrivals, services and noise.
//!
//! The figures alone say too little of who is better: two intervals that overlap may belong to runs
//! that differ beyond doubt, because both had the same congested spells. Here is the interval of the
//! difference; see [`sim::statistics::Portions`].

use super::columns::{Columns, Rows};
use super::figures::{Figure, Unit};
use serde::Serialize;
use sim::Outcome;
use sim::outcome::{Estimate, Verdict};
use sim::statistics::{Difference, Interval, Portion, Quantity};

/// A contestant's figure less that of the reference.
#[derive(Clone, Debug, Serialize)]
pub struct Compared {
    pub contestant: String,
    /// The contestant that it is compared with.
    pub against: String,
    /// As a column of `summary.csv` is called.
    #[serde(serialize_with = "column")]
    pub figure: Figure,
    #[serde(flatten)]
    pub difference: Difference,
}

/// Figures of which differences are told.
const FIGURES: [&str; 8] = ["mean", "p50", "p95", "p99", "p999", "core_watts", "cpu_watts", "server_watts"];

/// The difference of one figure; `None` where the two runs have no pairs.
pub fn difference(figure: &Figure, ours: &Outcome, reference: &Outcome) -> Option<Difference> {
    if [ours, reference].iter().any(|run| run.verdict == Verdict::Unstable) {
        return None;
    }
    let name = figure.to_string();
    match figure {
        Figure::Plain("core_watts" | "cpu_watts" | "server_watts") => ours.power_difference(reference, &name),
        Figure::Plain("p999") => ours.response_difference(reference, "p99.9".parse().ok()?),
        Figure::Plain(_) | Figure::Percentile(_) => {
            ours.response_difference(reference, name.parse::<Quantity>().ok()?)
        }
        _ => None,
    }
}

/// Every contestant but the reference against it, figure by figure; nothing if no contestant is
/// called so.
pub fn against(reference: &str, outcomes: &[Outcome]) -> Vec<Compared> {
    let Some(of) = outcomes.iter().find(|outcome| outcome.contestant == reference) else { return Vec::new() };
    let mut figures: Vec<Figure> = FIGURES.iter().filter_map(|name| name.parse().ok()).collect();
    let all = Figure::of_all(outcomes.iter()).into_iter();
    figures.extend(all.filter(|figure| matches!(figure, Figure::Percentile(_))));
    let others = outcomes.iter().filter(|outcome| outcome.contestant != reference);
    let compared = |ours: &Outcome, figure: &Figure| {
        Some(Compared {
            contestant: ours.contestant.clone(),
            against: reference.to_owned(),
            figure: figure.clone(),
            difference: difference(figure, ours, of)?,
        })
    };
    others.flat_map(|ours| figures.iter().filter_map(move |figure| compared(ours, figure))).collect()
}

/// `differences.csv`: a row for each contestant and figure.
pub fn columns(compared: &[Compared]) -> Columns {
    let estimate = |found: Interval| Estimate { value: found.estimate, half_width: Some(found.half_width) };
    Rows::of(compared)
        .text("contestant", |one| one.contestant.clone())
        .text("against", |one| one.against.clone())
        .text("figure", |one| one.figure.column())
        .estimate("difference", "", |one| Some(estimate(one.difference.absolute)))
        .estimate("relative", "", |one| one.difference.relative.map(estimate))
        .count("pairs", |one| one.difference.pairs as u64)
        .text("of", |one| portions_name(one.difference.portion).to_owned())
        .end()
}

/// The kinds of portions that the differences rest on, and how many pairs: `48 batches`.
pub fn basis(compared: &[Compared]) -> String {
    let mut told: Vec<String> = Vec::new();
    for portion in [Portion::Batch, Portion::Stretch, Portion::Replication] {
        let of = compared.iter().filter(|one| one.difference.portion == portion);
        let pairs = of.map(|one| one.difference.pairs);
        let (Some(least), Some(most)) = (pairs.clone().min(), pairs.max()) else { continue };
        let pairs = if least == most { most.to_string() } else { format!("{least} to {most}") };
        told.push(format!("{pairs} {}", portions_name(portion)));
    }
    told.join(" and ")
}

fn portions_name(portion: Portion) -> &'static str {
    match portion {
        Portion::Batch => "batches",
        Portion::Stretch => "stretches of time",
        Portion::Replication => "replications",
    }
}

fn column<S: serde::Serializer>(figure: &Figure, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&figure.column())
}

/// `-12.3% ±0.8`, in percent of the reference; `-` where it is nothing.
pub fn relative_text(difference: &Difference) -> String {
    let Some(found) = difference.relative else { return "-".to_owned() };
    let (value, half_width) = (found.estimate * 100.0, found.half_width * 100.0);
    let places = match half_width {
        0.0 => 1,
        ..0.095 => 2,
        0.095..9.95 => 1,
        _ => 0,
    };
    let off = match half_width {
        // Small, and no certainty.
        half_width if half_width > 0.0 && half_width < 0.005 => "<0.01".to_owned(),
        half_width => format!("{half_width:.places$}"),
    };
    format!("{}% \u{b1}{off}", signed(format!("{value:.places$}")))
}

/// `-18.3us ±1.2us`, in the figure's unit.
pub fn absolute_text(unit: Unit, difference: &Difference) -> String {
    let Interval { estimate, half_width } = difference.absolute;
    let text = |value: f64| match unit {
        // Watts have no prefix, so a small difference needs more digits than a figure does.
        Unit::Watts if half_width < 0.095 => format!("{value:.3} W"),
        Unit::Watts if half_width < 0.95 => format!("{value:.2} W"),
        unit => unit.text(value),
    };
    format!("{} \u{b1}{}", signed(text(estimate)), text(half_width))
}

/// With its sign; nothing has none.
fn signed(text: String) -> String {
    let is_nothing = !text.bytes().any(|byte| (b'1'..=b'9').contains(&byte));
    match text.strip_prefix('-') {
        Some(rest) if is_nothing => rest.to_owned(),
        None if !is_nothing => format!("+{text}"),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn difference(estimate: f64, half_width: f64, share: f64, share_half: f64) -> Difference {
        Difference {
            absolute: Interval { estimate, half_width },
            relative: Some(Interval { estimate: share, half_width: share_half }),
            portion: Portion::Batch,
            pairs: 48,
        }
    }

    #[test]
    fn differences_have_signs_and_as_many_digits_as_they_deserve() {
        for (share, half, text) in [
            (-0.1234, 0.0081, "-12.3% ±0.8"),
            (0.1234, 0.0004, "+12.34% ±0.04"),
            (0.5, 0.2, "+50% ±20"),
            (0.0, 0.0, "0.0% ±0.0"),
            (-0.0001, 0.00001, "-0.01% ±<0.01"),
            (-0.00001, 0.01, "0.0% ±1.0"),
        ] {
            assert_eq!(relative_text(&difference(1.0, 1.0, share, half)), text);
        }
        let unknown = Difference { relative: None, ..difference(1.0, 1.0, 0.0, 0.0) };
        assert_eq!(relative_text(&unknown), "-");
        let times = |estimate, half| absolute_text(Unit::Nanoseconds, &difference(estimate, half, 0.0, 0.0));
        assert_eq!(times(-18_300.0, 850.0), "-18.3us ±850ns");
        assert_eq!(times(18_300.0, 1_200.0), "+18.3us ±1.20us");
        assert_eq!(times(0.0, 0.0), "0s ±0s");
        let watts = absolute_text(Unit::Watts, &difference(-2.04, 0.12, 0.0, 0.0));
        assert_eq!(watts, "-2.04 W ±0.12 W");
        let watts = absolute_text(Unit::Watts, &difference(-0.0042, 0.0011, 0.0, 0.0));
        assert_eq!(watts, "-0.004 W ±0.001 W");
    }

    #[test]
    fn the_basis_counts_pairs_of_each_kind() {
        let compared = |pairs, portion| Compared {
            contestant: "a".to_owned(),
            against: "b".to_owned(),
            figure: Figure::Plain("mean"),
            difference: Difference { pairs, portion, ..difference(1.0, 1.0, 0.0, 0.0) },
        };
        let all =
            [compared(48, Portion::Batch), compared(24, Portion::Batch), compared(63, Portion::Stretch)];
        assert_eq!(basis(&all), "24 to 48 batches and 63 stretches of time");
        assert_eq!(basis(&[compared(10, Portion::Replication)]), "10 replications");
        assert_eq!(basis(&[]), "");
        let mut file = Vec::new();
        super::super::columns::write(&columns(&all[..1]), &mut file).unwrap();
        let text = String::from_utf8(file).unwrap();
        assert!(text.ends_with("a,b,mean_ns,1,0,2,0,0,0,48,batches\n"), "{text}");
    }
}
