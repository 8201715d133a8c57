//! Series of points: their drawable parts, and their looks.

use super::labels::Area;
use super::{Quantity, look};
use crate::drawing::axis::Panel;
use crate::drawing::canvas::{Ink, Shape, Stroke};
use crate::drawing::sheet::MARK;

#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    pub name: String,
    pub style: Style,
    /// Its points; those of a line may come in any order.
    pub points: Vec<Point>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// From point to point, with a mark on each while they are few.
    Line,
    /// Marks alone; one that stands alone has its name beside it.
    Marks,
    /// Each value holds until the next point.
    Steps,
    /// Published numbers, as empty marks in the colour of the series with the same name.
    Printed,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    pub x: f64,
    /// How high; `None` is a gap.
    pub y: Option<f64>,
    /// How far `y` may be off to either side.
    pub spread: Option<f64>,
    /// How far `x` may be off to either side.
    pub spread_x: Option<f64>,
}

impl Point {
    pub fn new(x: f64, y: Option<f64>) -> Self {
        Self { x, y, spread: None, spread_x: None }
    }
}

/// A series as it is drawn.
pub(super) struct Drawn<'a> {
    pub series: &'a Series,
    pub ink: Ink,
    pub stroke: Stroke,
    pub shape: Shape,
    /// The drawable points, in stretches without a gap.
    pub runs: Vec<Vec<Point>>,
}

/// Gives each series its looks, and sorts out its drawable parts.
pub(super) fn drawn<'a>(all: &'a [Series], x: &Quantity, y: &Quantity) -> Vec<Drawn<'a>> {
    let own = |series: &&Series| series.style != Style::Printed;
    let names: Vec<&str> = all.iter().filter(own).map(|series| series.name.as_str()).collect();
    let mut next = 0;
    let drawn = all.iter().map(|series| {
        let (ink, stroke, shape) = if series.style == Style::Printed {
            let like = names.iter().position(|name| *name == series.name);
            (like.map_or(Ink::Text, Ink::Phase), Stroke::Solid, Shape::Diamond)
        } else {
            next += 1;
            look(next - 1)
        };
        let mut runs = runs_of(series, x, y);
        if !x.names.is_empty() && matches!(series.style, Style::Marks | Style::Printed) {
            let place = names.iter().position(|name| *name == series.name);
            let aside = place.map_or(0.0, |place| aside(place, names.len()));
            runs.iter_mut().flatten().for_each(|point| point.x += aside);
        }
        Drawn { series, ink, stroke, shape, runs }
    });
    drawn.collect()
}

/// How far from the middle of a category the marks of one of `count` series lie, so that they do
/// not hide each other.
fn aside(place: usize, count: usize) -> f64 {
    (place as f64 - (count as f64 - 1.0) / 2.0) * (0.7 / count as f64).min(0.08)
}

/// The stretches of a series without a gap, left to right.
fn runs_of(series: &Series, x: &Quantity, y: &Quantity) -> Vec<Vec<Point>> {
    let mut points: Vec<Point> = series.points.iter().filter(|point| x.shows(point.x)).copied().collect();
    if matches!(series.style, Style::Line | Style::Steps) {
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
    }
    let mut runs = vec![Vec::new()];
    for point in points {
        match point.y {
            Some(height) if y.shows(height) => runs.last_mut().expect("one run is always open").push(point),
            _ => runs.push(Vec::new()),
        }
    }
    runs.retain(|run| !run.is_empty());
    if runs.iter().map(Vec::len).sum::<usize>() > POINTS_MAX {
        runs.iter_mut().for_each(|run| *run = thinned(run));
    }
    runs
}

impl Drawn<'_> {
    /// How many points can be drawn.
    pub fn points(&self) -> usize {
        self.runs.iter().map(Vec::len).sum()
    }

    pub fn has_marks(&self) -> bool {
        match self.series.style {
            Style::Marks | Style::Printed => true,
            Style::Line => self.points() <= MARKS_MAX,
            Style::Steps => false,
        }
    }
}

/// The area of a mark and its intervals: across, and up.
pub(super) fn covered(panel: &Panel<'_>, point: &Point) -> [Area; 2] {
    let y = point.y.unwrap_or(f64::NAN);
    let (middle, height) = panel.at(point.x, y);
    let half = MARK / 2.0 + 1.0;
    let reach = |spread: Option<f64>| spread.filter(|spread| spread.is_finite()).unwrap_or(0.0).abs();
    let [left, right] = [-1.0, 1.0].map(|side| panel.across(point.x + side * reach(point.spread_x)));
    let [bottom, top] = [-1.0, 1.0].map(|side| panel.up(y + side * reach(point.spread)));
    [
        [left.min(middle - half), height - half, right.max(middle + half), height + half],
        [middle - half, top.min(height - half), middle + half, bottom.max(height + half)],
    ]
}

/// Level from each point to below the next.
pub(super) fn steps(line: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let level = line.windows(2).flat_map(|pair| [pair[0], (pair[1].0, pair[0].1)]);
    level.chain(line.last().copied()).collect()
}

/// The lowest and the highest point of each of many stretches: a spike must not vanish.
fn thinned(run: &[Point]) -> Vec<Point> {
    let stretch = run.len().div_ceil(POINTS_MAX / 2).max(1);
    let height = |point: &&Point| point.y.unwrap_or(f64::NAN);
    let mut kept = Vec::new();
    for points in run.chunks(stretch) {
        let low = points.iter().min_by(|a, b| height(a).total_cmp(&height(b)));
        let high = points.iter().max_by(|a, b| height(a).total_cmp(&height(b)));
        let mut ends: Vec<Point> = low.into_iter().chain(high).copied().collect();
        ends.sort_by(|a, b| a.x.total_cmp(&b.x));
        ends.dedup();
        kept.extend(ends);
    }
    kept
}

/// More points than this lie closer than pixels.
const POINTS_MAX: usize = 1_000;
/// More marks than this on a line hide it.
const MARKS_MAX: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::Unit;

    fn runs(style: Style, points: Vec<Point>) -> Vec<Vec<Point>> {
        let series = Series { name: "a".into(), style, points };
        runs_of(&series, &Quantity::new("x", Unit::Count), &Quantity::new("y", Unit::Count).log())
    }

    #[test]
    fn a_spike_survives_thinning() {
        let height = |n: u32| if n == 12_345 { 99.0 } else { 1.0 };
        let points = (0..20_000).map(|n| Point::new(f64::from(n), Some(height(n)))).collect();
        let runs = runs(Style::Line, points);
        assert!(runs[0].len() <= POINTS_MAX && runs[0].contains(&Point::new(12_345.0, Some(99.0))));
        assert!(runs[0].windows(2).all(|pair| pair[0].x < pair[1].x));
    }

    #[test]
    fn a_gap_ends_a_run_and_so_does_what_the_axis_cannot_show() {
        let points = [Some(1.0), None, Some(2.0), Some(-1.0), Some(f64::NAN), Some(3.0)];
        let points = points.into_iter().enumerate().map(|(n, y)| Point::new(n as f64, y)).collect();
        let lengths: Vec<usize> = runs(Style::Line, points).iter().map(Vec::len).collect();
        assert_eq!(lengths, [1, 1, 1]);
    }

    #[test]
    fn steps_are_level() {
        assert_eq!(steps(&[(0.0, 1.0), (2.0, 3.0)]), [(0.0, 1.0), (2.0, 1.0), (2.0, 3.0)]);
        assert_eq!(steps(&[]), []);
    }
}
