//! Values over something: lines with bands, steps, marks with their intervals, a paper's points
//! beside ours.

use super::labels::{self, Area};
use super::series::{self, Drawn, Point, Series, Style, covered, steps};
use super::table::{Row, Table};
use super::{Figure, Quantity, ROWS_MAX, Scale, range};
use crate::drawing::axis::{ABOVE, Axis, BELOW, LABEL_SIZE, Panel};
use crate::drawing::canvas::{Canvas, Ink, Shape, Side, draw, width_of};
use crate::drawing::sheet::{self, Entry, MARK, Mark, RIGHT, WIDTH};

#[derive(Clone, Debug, PartialEq)]
pub struct Lines {
    pub title: String,
    pub see: String,
    pub x: Quantity,
    pub y: Quantity,
    /// The series. One after the other gets its colour, which it keeps in other figures with the
    /// same order.
    pub series: Vec<Series>,
    pub limit: Option<Limit>,
}

/// A line to compare with, such as a goal.
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    pub y: f64,
    pub name: String,
}

impl Lines {
    pub fn new(title: &str, see: &str, x: Quantity, y: Quantity) -> Self {
        let (title, see) = (title.to_owned(), see.to_owned());
        Self { title, see, x, y, series: Vec::new(), limit: None }
    }

    pub fn figure(&self) -> Figure {
        let drawn = series::drawn(&self.series, &self.x, &self.y);
        let drawing =
            self.drawing(&drawn).ok_or_else(|| "There is nothing to draw: no value is known.".to_owned());
        Figure {
            title: self.title.clone(),
            see: self.see.clone(),
            values: drawing.is_ok().then(|| self.values()).flatten(),
            drawing,
        }
    }

    fn drawing(&self, drawn: &[Drawn<'_>]) -> Option<String> {
        let points = || drawn.iter().flat_map(|drawn| drawn.runs.iter().flatten());
        let ends = |middle: f64, spread: Option<f64>, of: &Quantity| {
            let spread = spread.filter(|spread| spread.is_finite()).unwrap_or(0.0);
            [middle - spread, middle, middle + spread]
                .into_iter()
                .filter(|end| of.shows(*end))
                .collect::<Vec<_>>()
        };
        let xs = range(points().flat_map(|point| ends(point.x, point.spread_x, &self.x)))?;
        let (low, high) =
            range(points().flat_map(|point| ends(point.y.unwrap_or(f64::NAN), point.spread, &self.y)))?;
        let limit = self.limit.as_ref().filter(|limit| self.y.shows(limit.y));
        // A limit far from everything would press the data flat.
        let near = limit.filter(|limit| limit.y <= high.max(0.0) * FAR && limit.y >= low / FAR);
        let ys = near.map_or((low, high), |limit| (low.min(limit.y), high.max(limit.y)));
        let y = self.y.axis(ys, false);
        let left = y.label_width() + 12.0;
        let width = f64::from(WIDTH) - RIGHT - left;
        let x = self.x_axis(xs, width, drawn.iter().any(Drawn::has_marks));
        let entries = self.entries(drawn, limit.map(|limit| (limit, near.is_some())));
        let top = sheet::legend_height(&entries) + ABOVE + 4.0;
        let panel = Panel { left, top, width, height: HEIGHT, x: &x, y: &y };
        let svg = draw(WIDTH, (top + HEIGHT + BELOW).ceil() as u32, &self.title, |canvas| {
            sheet::legend(canvas, &entries);
            panel.frame(canvas);
            if let Some(limit) = near {
                let y = panel.up(limit.y);
                canvas.dashes(&[(left, y), (left + width, y)], Ink::Text, 1.5);
            }
            drawn.iter().for_each(|drawn| self.bands(canvas, &panel, drawn));
            drawn.iter().for_each(|drawn| self.strokes(canvas, &panel, drawn));
            self.names_beside(canvas, &panel, drawn, near.map(|limit| limit.y));
        });
        Some(svg)
    }

    fn x_axis(&self, (low, high): (f64, f64), width: f64, marks: bool) -> Axis {
        if self.x.names.is_empty() {
            // Marks at the very edge would hang over it.
            let from = if self.x.scale == Scale::FromZero { low.min(0.0) } else { low };
            let room = if marks && self.x.scale != Scale::Log { 0.025 * (high - from) } else { 0.0 };
            let low = if from < 0.0 || from >= room { from - room } else { from };
            return self.x.axis((low, high + room), true);
        }
        let letters = (width / self.x.names.len() as f64 / width_of("x", LABEL_SIZE)) as usize;
        let names: Vec<String> =
            self.x.names.iter().map(|name| sheet::clipped(name, letters.max(6) - 1)).collect();
        Axis::named(&names, &self.x.name)
    }

    fn entries(&self, drawn: &[Drawn<'_>], limit: Option<(&Limit, bool)>) -> Vec<Entry> {
        let own = drawn.iter().filter(|drawn| drawn.series.style != Style::Printed);
        let mut entries: Vec<Entry> = own
            .map(|drawn| {
                let stroke = (drawn.series.style != Style::Marks).then_some(drawn.stroke);
                let shape = drawn.has_marks().then_some(drawn.shape);
                let remark = if drawn.runs.is_empty() { " (no value)" } else { "" };
                (Mark::Series(drawn.ink, stroke, shape), format!("{}{remark}", drawn.series.name))
            })
            .collect();
        if drawn.iter().any(|drawn| drawn.series.style == Style::Printed && !drawn.runs.is_empty()) {
            entries.push((
                Mark::Series(Ink::Text, None, Some(Shape::Diamond)),
                "printed in the paper".to_owned(),
            ));
        }
        if let Some((limit, shown)) = limit {
            let far = if shown { "" } else { " (beyond this scale)" };
            entries.push((Mark::Dashes(Ink::Text), format!("{}{far}", limit.name)));
        }
        entries
    }

    fn bands(&self, canvas: &Canvas<'_>, panel: &Panel<'_>, drawn: &Drawn<'_>) {
        let known = |spread: Option<f64>| spread.filter(|spread| spread.is_finite() && *spread > 0.0);
        for run in &drawn.runs {
            let ends = |point: &Point| {
                let (y, spread) = (point.y.unwrap_or(f64::NAN), known(point.spread).unwrap_or(0.0));
                [y - spread, y + spread].map(|y| panel.at(point.x, y))
            };
            if drawn.series.style == Style::Line && run.len() > 1 {
                let upper = run.iter().map(|point| ends(point)[1]);
                let outline: Vec<(f64, f64)> =
                    upper.chain(run.iter().rev().map(|point| ends(point)[0])).collect();
                if run.iter().any(|point| known(point.spread).is_some()) {
                    canvas.area(&outline, drawn.ink, 0.18);
                }
                continue;
            }
            for point in run.iter().filter(|point| known(point.spread).is_some()) {
                canvas.line(&ends(point), drawn.ink, 1.5);
            }
            for point in run {
                if let Some(spread) = known(point.spread_x) {
                    let line = [point.x - spread, point.x + spread]
                        .map(|x| panel.at(x, point.y.unwrap_or(f64::NAN)));
                    canvas.line(&line, drawn.ink, 1.5);
                }
            }
        }
    }

    fn strokes(&self, canvas: &Canvas<'_>, panel: &Panel<'_>, drawn: &Drawn<'_>) {
        for run in &drawn.runs {
            let line: Vec<(f64, f64)> =
                run.iter().map(|point| panel.at(point.x, point.y.unwrap_or(f64::NAN))).collect();
            match drawn.series.style {
                Style::Line => canvas.stroke(&line, drawn.ink, 2.0, drawn.stroke),
                Style::Steps => canvas.stroke(&steps(&line), drawn.ink, 2.0, drawn.stroke),
                Style::Marks | Style::Printed => {}
            }
            if drawn.has_marks() {
                let size = if drawn.series.style == Style::Printed { MARK * 1.35 } else { MARK };
                line.iter().for_each(|&at| canvas.mark(at, drawn.shape, drawn.ink, size));
            }
        }
    }

    /// The names of lone marks, where there is room for them.
    fn names_beside(&self, canvas: &Canvas<'_>, panel: &Panel<'_>, drawn: &[Drawn<'_>], limit: Option<f64>) {
        let mut taken: Vec<Area> = Vec::new();
        for point in drawn.iter().flat_map(|drawn| drawn.runs.iter().flatten()) {
            taken.extend(covered(panel, point));
        }
        let line = limit.map(|limit| panel.up(limit));
        taken.extend(line.map(|y| [panel.left, y - 2.0, panel.left + panel.width, y + 2.0]));
        let lone = |drawn: &&Drawn<'_>| drawn.series.style == Style::Marks && drawn.points() == 1;
        for drawn in drawn.iter().filter(lone) {
            let name = sheet::clipped(&drawn.series.name, 28);
            let beside = covered(panel, &drawn.runs[0][0]);
            if let Some((left, middle)) = labels::free_place(panel, &name, beside, &taken) {
                canvas.text((left, middle), &name, Ink::Text, LABEL_SIZE, Side::Right);
                taken.push(labels::area(&name, (left, middle)));
            }
        }
    }

    /// The numbers, where they are few.
    fn values(&self) -> Option<Table> {
        let lone = self.series.iter().all(|series| series.style == Style::Marks && series.points.len() <= 1);
        let name = |series: &Series| {
            if series.style == Style::Printed {
                format!("{}, printed", series.name)
            } else {
                series.name.clone()
            }
        };
        let shown = |point: &Point| {
            point
                .y
                .map_or_else(|| crate::text::MISSING.to_owned(), |y| self.y.unit.text_with(y, point.spread))
        };
        if lone {
            let rows =
                self.series.iter().flat_map(|series| series.points.iter().map(move |point| (series, point)));
            let rows = rows.map(|(series, point)| {
                let cells = vec![self.x.unit.text_with(point.x, point.spread_x), shown(point)];
                Row { name: series.name.clone(), cells, ..Row::default() }
            });
            let head = vec![String::new(), self.x.name.clone(), self.y.name.clone()];
            return Some(Table { head, rows: rows.take(ROWS_MAX).collect(), ..Table::default() });
        }
        let mut xs: Vec<f64> = self
            .series
            .iter()
            .flat_map(|series| &series.points)
            .map(|point| point.x)
            .filter(|x| x.is_finite())
            .collect();
        xs.sort_by(f64::total_cmp);
        xs.dedup();
        if xs.len() > ROWS_MAX {
            return None;
        }
        let rows = xs.iter().map(|&x| {
            let at = |series: &Series| {
                series
                    .points
                    .iter()
                    .find(|point| point.x == x)
                    .map_or_else(|| crate::text::MISSING.to_owned(), shown)
            };
            let place = self.x.names.get(x as usize).cloned();
            Row {
                name: place.unwrap_or_else(|| self.x.unit.text(x)),
                cells: self.series.iter().map(at).collect(),
                ..Row::default()
            }
        });
        let head = std::iter::once(self.x.name.clone()).chain(self.series.iter().map(name)).collect();
        Some(Table { head, rows: rows.collect(), ..Table::default() })
    }
}

/// Height of the plot, in pixels.
const HEIGHT: f64 = 270.0;
/// A limit that is farther from all values than this is named, not drawn.
const FAR: f64 = 4.0;
