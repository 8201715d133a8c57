//! The page of a grid: lines over one axis, maps over two, a table of all cells.

use super::super::figures::Figure as Named;
use super::axis::Axis;
use super::parts::{Measured, against, has_figures, unit};
use super::{Facts, head, tail};
use report::distinct;
use report::figures::{
    Bar, BarPart, Bars, Cell, Form, HeatMap, Labels, Limit, Page, Part, Quantity, Row, Section, Table, Tone,
    Unit,
};
use sim::Outcome;

#[derive(Clone, Debug)]
pub struct Swept<'a> {
    /// Keys and values of the axes, the same keys in every cell.
    pub axes: Vec<(&'a str, &'a str)>,
    pub outcome: &'a Outcome,
}

/// The page of `roost sim sweep`. No measures: power and the tail.
pub fn sweep_page(facts: &Facts, cells: &[Swept<'_>]) -> Page {
    let tail = tail(facts.goal.as_ref());
    let measures = [Named::Plain("cpu_watts"), tail.figure.clone()];
    let grid = Grid::new(cells);
    let mut page = head(facts);
    page.summary = grid.summary();
    page.alarms.extend(grid.alarm());
    let limit = |measure: &Named| tail.limit.clone().filter(|_| *measure == tail.figure);
    let figures = measures.iter().flat_map(|measure| grid.figures(measure, limit(measure)));
    page.sections = vec![
        Section::new(
            "Over the axes",
            "Bands are 95 % confidence intervals. Where a line has a gap or a cell is hatched, the \
             queue is unstable or the figure is not known.",
            figures.collect(),
        ),
        Section::new("All cells", "", grid.table(&measures)),
    ];
    page
}

struct Grid<'a> {
    cells: &'a [Swept<'a>],
    contestants: Vec<&'a str>,
    /// Axes with more than one value, each with its values; that with most first.
    axes: Vec<(&'a str, Vec<&'a str>)>,
}

impl<'a> Grid<'a> {
    fn new(cells: &'a [Swept<'a>]) -> Self {
        let keys = distinct(cells.iter().flat_map(|cell| cell.axes.iter().map(|(key, _)| *key)));
        let axes = keys.into_iter().map(|key| (key, distinct(cells.iter().filter_map(|cell| cell.at(key)))));
        let mut axes: Vec<(&str, Vec<&str>)> = axes.filter(|(_, values)| values.len() > 1).collect();
        // There is more room along the bottom.
        axes.sort_by_key(|(_, values)| std::cmp::Reverse(values.len()));
        Self { cells, contestants: distinct(cells.iter().map(|cell| cell.outcome.contestant.as_str())), axes }
    }

    fn summary(&self) -> String {
        let axes: Vec<String> =
            self.axes.iter().map(|(key, values)| format!("{key} ({} values)", values.len())).collect();
        let over =
            if axes.is_empty() { "at one place".to_owned() } else { format!("over {}", axes.join(" and ")) };
        let who = match &self.contestants[..] {
            [one] => (*one).to_owned(),
            many => format!("{} contestants", many.len()),
        };
        format!("{} cells: {who} {over}.", self.cells.len())
    }

    fn alarm(&self) -> Option<String> {
        let unstable = self.cells.iter().filter(|cell| !has_figures(cell.outcome)).count();
        (unstable > 0).then(|| {
            format!(
                "{unstable} of {} cells are unstable: more arrives there than can be served, so they have no figures.",
                self.cells.len()
            )
        })
    }

    fn figures(&self, measure: &Named, limit: Option<Limit>) -> Vec<Part> {
        let (name, quantity) = quantity(measure);
        match &self.axes[..] {
            [] => vec![self.side_by_side(&name, measure, quantity)],
            [(key, values)] => vec![self.line(&name, key, values, measure, quantity, limit)],
            [x, y, rest @ ..] => self.maps(&name, x, y, rest, measure, &quantity),
        }
    }

    /// Nothing varies: a bar for each contestant.
    fn side_by_side(&self, name: &str, measure: &Named, quantity: Quantity) -> Part {
        let bar = |contestant: &&str| {
            let cell = self.cells.iter().find(|cell| cell.outcome.contestant == *contestant)?;
            let found = measure.of(cell.outcome)?;
            Some(Bar { value: found.value, spread: found.half_width, printed: None })
        };
        let values = self.contestants.iter().map(bar);
        Bars {
            title: name.to_owned(),
            see: String::new(),
            quantity,
            rows: self.contestants.iter().map(|name| (*name).to_owned()).collect(),
            parts: vec![BarPart::new(name, Tone::Busy, values)],
            form: Form::Grouped,
        }
        .part()
    }

    fn line(
        &self,
        name: &str,
        key: &str,
        values: &[&str],
        measure: &Named,
        y: Quantity,
        limit: Option<Limit>,
    ) -> Part {
        let axis = Axis::of(key, values);
        let place = |cell: &Swept<'_>| cell.at(key).and_then(|value| axis.places.get(value).copied());
        let measured: Vec<Measured<'_>> = self
            .cells
            .iter()
            .filter_map(|cell| {
                Some(Measured {
                    contestant: &cell.outcome.contestant,
                    x: place(cell)?,
                    y: measure.of(cell.outcome),
                })
            })
            .collect();
        against(&format!("{name} against {key}"), "", axis.quantity, y, &measured, &[], limit)
    }

    /// Maps over the first two axes: a panel for each contestant and, while they are few, each
    /// value of the others.
    fn maps(
        &self,
        name: &str,
        x: &(&str, Vec<&str>),
        y: &(&str, Vec<&str>),
        rest: &[(&str, Vec<&str>)],
        measure: &Named,
        quantity: &Quantity,
    ) -> Vec<Part> {
        let mut combinations: Vec<Vec<(&str, &str)>> = vec![Vec::new()];
        for (key, values) in rest {
            let longer = combinations.iter().flat_map(|combination| {
                values.iter().map(move |value| [&combination[..], &[(*key, *value)]].concat())
            });
            combinations = longer.take(COMBINATIONS_MAX).collect();
        }
        let labels = |(key, values): &(&str, Vec<&str>)| Labels {
            name: (*key).to_owned(),
            values: values.iter().map(|value| (*value).to_owned()).collect(),
        };
        let figure = |combination: &Vec<(&str, &str)>| {
            let panel = |contestant: &&str| {
                let cell = |across: &str, up: &str| {
                    let place = [&combination[..], &[(x.0, across), (y.0, up)]].concat();
                    self.cell(contestant, &place, measure)
                };
                let row = |up: &&str| x.1.iter().map(|across| cell(across, up)).collect();
                ((*contestant).to_owned(), y.1.iter().map(row).collect())
            };
            let at: Vec<String> = combination.iter().map(|(key, value)| format!("{key} = {value}")).collect();
            let title = if at.is_empty() { name.to_owned() } else { format!("{name}, {}", at.join(", ")) };
            HeatMap {
                title,
                see: String::new(),
                x: labels(x),
                y: labels(y),
                quantity: quantity.clone(),
                panels: self.contestants.iter().map(panel).collect(),
            }
            .part()
        };
        combinations.iter().map(figure).collect()
    }

    fn cell(&self, contestant: &str, place: &[(&str, &str)], measure: &Named) -> Cell {
        let there = |cell: &&Swept<'_>| {
            cell.outcome.contestant == contestant
                && place.iter().all(|(key, value)| cell.at(key) == Some(value))
        };
        match self.cells.iter().find(there) {
            None => Cell::Missing,
            Some(cell) if !has_figures(cell.outcome) => Cell::Marked("unstable".to_owned()),
            Some(cell) => measure.of(cell.outcome).map_or(Cell::Missing, |found| Cell::Value(found.value)),
        }
    }

    fn table(&self, measures: &[Named]) -> Vec<Part> {
        let keys = self.axes.iter().map(|(key, _)| *key);
        let head = ["contestant"].into_iter().chain(keys.clone()).map(str::to_owned);
        let head = head.chain(measures.iter().map(|measure| quantity(measure).0));
        let rows = self.cells.iter().take(ROWS_MAX).map(|cell| {
            let axes = keys.clone().map(|key| cell.at(key).unwrap_or("-").to_owned());
            let figures = measures.iter().map(|measure| match measure.of(cell.outcome) {
                Some(found) => unit(measure.unit()).text_with(found.value, found.half_width),
                None if !has_figures(cell.outcome) => "unstable".to_owned(),
                None => "-".to_owned(),
            });
            let name = cell.outcome.contestant.clone();
            let look = self.contestants.iter().position(|contestant| *contestant == name);
            Row { name, remark: String::new(), cells: axes.chain(figures).collect(), look }
        });
        let mut parts = vec![Table::new("", head, rows).part()];
        if let Some(more) = self.cells.len().checked_sub(ROWS_MAX).filter(|more| *more > 0) {
            parts.push(Part::Text(format!("{more} more cells are in cells.csv.")));
        }
        parts
    }
}

impl Swept<'_> {
    fn at(&self, key: &str) -> Option<&str> {
        self.axes.iter().find(|(axis, _)| *axis == key).map(|(_, value)| *value)
    }
}

/// The title of a figure above a plot, and its axis.
fn quantity(measure: &Named) -> (String, Quantity) {
    let key = measure.to_string();
    let name = match key.as_str() {
        "cpu_watts" => "Power of cores and uncore".to_owned(),
        "core_watts" => "Power of the cores".to_owned(),
        "server_watts" => "Power of the server".to_owned(),
        "joules_per_request" => "Energy per request".to_owned(),
        "p999" => "p99.9".to_owned(),
        "mean" => "Mean response time".to_owned(),
        _ => key.replace('_', " "),
    };
    let unit = unit(measure.unit());
    let quantity = Quantity::new(&name, unit);
    // Response times grow beyond all bounds towards the limit of a server.
    (name, if unit == Unit::Nanoseconds { quantity.log() } else { quantity })
}

/// More maps of one figure are not looked at.
const COMBINATIONS_MAX: usize = 8;
/// More rows are for files.
const ROWS_MAX: usize = 300;
