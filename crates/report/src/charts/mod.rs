//! Charts of a run as SVG texts, the same for the report and for the live page.
//!
//! The problem: a reader must see in a minute whether the same load was carried by fewer awake
//! cores, and how that changed the tail. The approach: every chart compares the phases, in one
//! colour each throughout, either side by side on one scale (where lines would hide each other) or
//! on top of each other (where the distance between them is the finding). Legends stand above the
//! plot, where no data can be.
//!
//! Invariants:
//! - Every axis has a unit, and all panels of one chart share their scales.
//! - A chart that lacks its data names the gap instead of drawing zeros.
//! - No drawing depends on the order of anything but the phases; equal runs give equal bytes.

mod distribution;
mod over_time;
mod panels;
pub(crate) mod phases;
mod totals;
mod workers;

use crate::run::{Frame, Summary};

#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// Its name within the page: a word of lower-case letters and dashes.
    pub id: &'static str,
    pub title: &'static str,
    /// Its message, in a sentence or two.
    pub see: &'static str,
    /// The SVG, or why there is none.
    pub drawing: Result<String, &'static str>,
}

/// All charts of a run that is over or still going on, in the order in which they are read.
pub fn all(frames: &[Frame], summary: &Summary) -> Vec<Chart> {
    let tracks = phases::tracks(frames, summary);
    vec![
        workers::awake(&tracks),
        over_time::latency(&tracks),
        distribution::percentiles(&tracks),
        totals::cost(&tracks, summary.compared.is_empty()),
        totals::residency(&tracks),
        over_time::load(&tracks),
        over_time::transfers(&tracks),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::{CpuFrame, CurvePoint, Phase, StateShare, WorkerFrame};
    use machine::{
        CpuId, Duration, EnergyReading, EnergySource, IdleLimit, Microjoules, Rate, Ratio, WorkerId,
    };
    use proptest::prelude::*;

    #[test]
    fn an_empty_run_says_what_is_missing_in_every_chart() {
        for chart in all(&[], &Summary::default()) {
            assert!(chart.drawing.is_err(), "{chart:?}");
        }
    }

    #[test]
    fn one_empty_frame_draws_nothing_false() {
        let frame = Frame { phase: "stock".to_owned(), ..Frame::default() };
        for chart in all(&[frame], &Summary::default()) {
            assert!(chart.drawing.is_err(), "{chart:?}");
        }
    }

    #[test]
    fn equal_runs_give_equal_bytes() {
        let frames: Vec<Frame> = (0..4).map(|n| frame("a", n, 1e4)).collect();
        assert_eq!(all(&frames, &Summary::default()), all(&frames, &Summary::default()));
    }

    fn frame(phase: &str, n: u64, rate: f64) -> Frame {
        let worker = |number: u16| WorkerFrame {
            worker: WorkerId(number),
            cpu: CpuId(number),
            active: number == 0,
            load: Rate::per_second(rate),
            limit: (number == 0).then(|| Rate::per_second(rate / 2.0)),
            busy: Some(Ratio::new(0.5)),
            residents: 1,
            guests: 2,
        };
        Frame {
            phase: phase.to_owned(),
            at: Duration::from_nanos(n.saturating_mul(200_000_000)),
            offered: Some(Rate::per_second(rate)),
            achieved: Some(Rate::per_second(rate)),
            p50: Some(Duration::from_nanos(n)),
            p99: Some(Duration::from_nanos(n.saturating_mul(3))),
            p999: None,
            workers: (0..3).map(worker).collect(),
            cpus: vec![CpuFrame {
                cpu: CpuId(0),
                busy: Some(Ratio::new(0.5)),
                residency: Some(vec![StateShare { state: "C<1>".to_owned(), share: Ratio::new(0.5) }]),
                limit: IdleLimit::None,
                in_force: None,
            }],
            transfers: Some(n),
            awake: Some(Duration::from_nanos(n)),
            energy: Some(EnergyReading {
                used: Microjoules(n),
                source: EnergySource::Modelled("<preset>".to_owned()),
            }),
        }
    }

    proptest! {
        #[test]
        fn any_numbers_are_drawn_within_the_sheet(
            moments in prop::collection::vec((any::<u64>(), any::<f64>()), 1..12),
            shares in prop::collection::vec((any::<f64>(), any::<u64>()), 0..6),
            name in ".{0,12}",
        ) {
            let frames: Vec<Frame> = moments.iter().map(|&(n, rate)| frame(&name, n, rate)).collect();
            let curve = shares.iter().map(|&(share, nanos)| CurvePoint {
                share: Ratio::new(share), latency: Duration::from_nanos(nanos) }).collect();
            let ended = Phase { name: name.clone(), curve, ..Phase::default() };
            for phases in [vec![], vec![ended]] {
                for chart in all(&frames, &Summary { phases, ..Summary::default() }) {
                    let Ok(svg) = chart.drawing else { continue };
                    prop_assert!(!svg.contains("NaN") && !svg.contains("inf\""), "{svg}");
                    assert_within(&svg);
                }
            }
        }
    }

    /// Every coordinate lies within the view box: nothing is clipped.
    fn assert_within(svg: &str) {
        let mut edges = svg.split('"').nth(1).unwrap().split(' ').skip(2).map(|n| n.parse::<f64>().unwrap());
        let (width, height) = (edges.next().unwrap(), edges.next().unwrap());
        for (name, limit) in [(" x=\"", width), (" y=\"", height), (" x1=\"", width), (" y2=\"", height)] {
            for found in svg.split(name).skip(1) {
                let value: f64 = found.split('"').next().unwrap().parse().unwrap();
                assert!((0.0..=limit).contains(&value), "{name}{value} of {limit}");
            }
        }
    }
}
