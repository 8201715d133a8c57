//! Values over something: lines with bands, steps, marks with their intervals, a paper's points
//! beside ours.

use super::Quantity;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lines {
    pub title: String,
    #[serde(default)]
    pub see: String,
    pub x: Quantity,
    pub y: Quantity,
    /// The series. One after the other gets its colour, which it keeps in other figures with the
    /// same order.
    #[serde(default)]
    pub series: Vec<Series>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
}

/// A bound to compare with, such as a goal, as it was at each place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    pub name: String,
    /// At the left edge; `None` while there is none.
    pub y: Option<f64>,
    /// From which `x` on it was another one, left to right.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<(f64, Option<f64>)>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Series {
    pub name: String,
    #[serde(default)]
    pub style: Style,
    /// Its points; those of a line may come in any order.
    pub points: Vec<Point>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Style {
    /// From point to point, with a mark on each while they are few; the rolling median in a band
    /// where they are many.
    #[default]
    Line,
    /// Marks alone; one that stands alone has its name beside it.
    Marks,
    /// Each value holds until the next point.
    Steps,
    /// Published numbers, as empty marks in the colour of the series with the same name.
    Printed,
}

/// In JSON `[x, y]`, `[x, y, spread]` or `[x, y, spread, spread_x]`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "Vec<Option<f64>>", into = "Vec<Option<f64>>")]
pub struct Point {
    pub x: f64,
    /// How high; `None` is a gap.
    pub y: Option<f64>,
    /// How far `y` may be off to either side.
    pub spread: Option<f64>,
    /// How far `x` may be off to either side.
    pub spread_x: Option<f64>,
}

impl Lines {
    pub fn new(title: &str, see: &str, x: Quantity, y: Quantity) -> Self {
        let (title, see) = (title.to_owned(), see.to_owned());
        Self { title, see, x, y, series: Vec::new(), limit: None }
    }

    pub fn add(&mut self, name: impl Into<String>, style: Style, points: impl IntoIterator<Item = Point>) {
        self.series.push(Series::new(name, style, points));
    }
}

impl Series {
    pub fn new(name: impl Into<String>, style: Style, points: impl IntoIterator<Item = Point>) -> Self {
        Self { name: name.into(), style, points: points.into_iter().collect() }
    }
}

impl Limit {
    /// The same from one edge to the other.
    pub fn level(name: impl Into<String>, y: f64) -> Self {
        Self { name: name.into(), y: Some(y), changes: Vec::new() }
    }
}

impl Point {
    pub fn new(x: f64, y: Option<f64>) -> Self {
        Self { x, y, spread: None, spread_x: None }
    }
}

impl From<Vec<Option<f64>>> for Point {
    fn from(numbers: Vec<Option<f64>>) -> Self {
        let number = |place: usize| numbers.get(place).copied().flatten();
        Self { x: number(0).unwrap_or(f64::NAN), y: number(1), spread: number(2), spread_x: number(3) }
    }
}

impl From<Point> for Vec<Option<f64>> {
    fn from(point: Point) -> Self {
        let numbers = [Some(point.x), point.y, point.spread, point.spread_x];
        let mut numbers = numbers.map(|number| number.filter(|number| number.is_finite())).to_vec();
        let known = numbers.iter().rposition(Option::is_some).unwrap_or(0);
        numbers.truncate(known.max(1) + 1);
        numbers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_is_as_short_as_its_numbers_and_a_gap_is_null() {
        let spread = Point { spread: Some(0.5), ..Point::new(1.0, Some(2.0)) };
        for (point, json) in [
            (Point::new(1.0, Some(2.0)), "[1.0,2.0]"),
            (Point::new(1.0, None), "[1.0,null]"),
            (spread, "[1.0,2.0,0.5]"),
            (Point { spread_x: Some(3.0), ..spread }, "[1.0,2.0,0.5,3.0]"),
        ] {
            assert_eq!(serde_json::to_string(&point).unwrap(), json);
            assert_eq!(serde_json::from_str::<Point>(json).unwrap(), point);
        }
        assert_eq!(serde_json::to_string(&Point::new(1.0, Some(f64::NAN))).unwrap(), "[1.0,null]");
    }
}
