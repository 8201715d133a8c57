//! Values over two things, as colours with the numbers in them.
//!
//! The scale goes one way from light to dark (dark to light on a dark page), so that its order is
//! seen without seeing a hue. A cell that has no value, or whose value means nothing, has no colour
//! of the scale: it is hatched and named.

use super::table::{Row, Table};
use super::{Figure, Quantity, ROWS_MAX, Scale, range};
use crate::drawing::axis::LABEL_SIZE;
use crate::drawing::canvas::{Canvas, HEAT_STEPS, Ink, Side, draw, width_of};
use crate::drawing::sheet::{self, Entry, LEGEND_LINE, Mark, TEXT_SIZE, WIDTH};

/// A grid of values, one for each contestant.
#[derive(Clone, Debug, PartialEq)]
pub struct HeatMap {
    pub title: String,
    pub see: String,
    pub x: Labels,
    pub y: Labels,
    pub quantity: Quantity,
    /// Grids of one scale, each with its name: for each value of `y`, one cell for each value of
    /// `x`.
    pub panels: Vec<(String, Vec<Vec<Cell>>)>,
}

/// The values of an axis, as text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Labels {
    pub name: String,
    /// Its values, from the corner outwards.
    pub values: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    Value(f64),
    /// None, for a reason of a word: `unstable`.
    Marked(String),
    Missing,
}

/// The colour scale: which values its two ends are.
#[derive(Clone, Copy, Debug)]
struct Colours {
    low: f64,
    high: f64,
    log: bool,
}

struct Layout {
    columns: usize,
    gutter: f64,
    cell: (f64, f64),
    panel: (f64, f64),
    top: f64,
}

impl HeatMap {
    pub fn figure(&self) -> Figure {
        let colours = range(self.shown()).map(|(low, high)| Colours {
            low,
            high,
            log: self.quantity.scale == Scale::Log,
        });
        let any =
            self.panels.iter().flat_map(|(_, rows)| rows.iter().flatten()).any(|cell| *cell != Cell::Missing);
        let drawing = if any && !self.x.values.is_empty() && !self.y.values.is_empty() {
            Ok(self.drawing(colours))
        } else {
            Err("There is nothing to draw: no cell is known.".to_owned())
        };
        let values = drawing.is_ok().then(|| self.values()).flatten();
        Figure { title: self.title.clone(), see: self.see.clone(), drawing, values }
    }

    fn shown(&self) -> impl Iterator<Item = f64> {
        let cells = self.panels.iter().flat_map(|(_, rows)| rows.iter().flatten());
        cells.filter_map(|cell| match cell {
            Cell::Value(value) if self.quantity.shows(*value) => Some(*value),
            _ => None,
        })
    }

    fn layout(&self) -> Layout {
        let (across, up) = (self.x.values.len() as f64, self.y.values.len() as f64);
        let fits = match self.x.values.len() {
            0..=6 => 3,
            7..=12 => 2,
            _ => 1,
        };
        let columns = fits.min(self.panels.len()).max(1);
        let labels =
            self.y.values.iter().map(|value| width_of(&label(value), LABEL_SIZE)).fold(0.0, f64::max);
        let gutter = labels + 10.0;
        let width = (f64::from(WIDTH) - (columns - 1) as f64 * GAP) / columns as f64;
        let cell = (((width - gutter - EDGE) / across).min(CELL_MAX.0), (ROOM / up).clamp(4.0, CELL_MAX.1));
        let top = LEGEND_LINE + 22.0;
        Layout { columns, gutter, cell, panel: (width, NAME + TITLE + cell.1 * up + BELOW), top }
    }

    fn drawing(&self, colours: Option<Colours>) -> String {
        let layout = self.layout();
        let height = layout.top + layout.panel.1 * self.panels.len().div_ceil(layout.columns) as f64;
        draw(WIDTH, height.ceil() as u32, &self.title, |canvas| {
            self.legend(canvas, colours);
            for (n, (name, rows)) in self.panels.iter().enumerate() {
                let left = (n % layout.columns) as f64 * (layout.panel.0 + GAP);
                let top = layout.top + (n / layout.columns) as f64 * layout.panel.1;
                let chars = (layout.panel.0 / width_of("x", TEXT_SIZE)) as usize;
                canvas.text(
                    (left, top + NAME / 2.0),
                    &sheet::clipped(name, chars),
                    Ink::Text,
                    TEXT_SIZE,
                    Side::Right,
                );
                canvas.text(
                    (left, top + NAME + TITLE / 2.0 - 2.0),
                    &self.y.name,
                    Ink::Muted,
                    LABEL_SIZE,
                    Side::Right,
                );
                self.grid(canvas, &layout, (left + layout.gutter, top + NAME + TITLE), rows, colours);
            }
        })
    }

    fn grid(
        &self,
        canvas: &Canvas<'_>,
        layout: &Layout,
        (left, top): (f64, f64),
        rows: &[Vec<Cell>],
        colours: Option<Colours>,
    ) {
        let (wide, high) = layout.cell;
        let count = self.y.values.len();
        let bottom = top + count as f64 * high;
        // Labels that would touch are left out, the first one never.
        let every = (15.0 / high).ceil() as usize;
        for (n, value) in self.y.values.iter().enumerate().step_by(every.max(1)) {
            let middle = bottom - (n as f64 + 0.5) * high;
            canvas.text((left - 6.0, middle), &label(value), Ink::Muted, LABEL_SIZE, Side::Left);
        }
        let widest =
            self.x.values.iter().map(|value| width_of(&label(value), LABEL_SIZE)).fold(0.0, f64::max) + 6.0;
        let every = (widest / wide).ceil() as usize;
        for (n, value) in self.x.values.iter().enumerate().step_by(every.max(1)) {
            canvas.text(
                (left + (n as f64 + 0.5) * wide, bottom + 13.0),
                &label(value),
                Ink::Muted,
                LABEL_SIZE,
                Side::Middle,
            );
        }
        let middle = left + self.x.values.len() as f64 * wide / 2.0;
        canvas.text((middle, bottom + 30.0), &self.x.name, Ink::Muted, LABEL_SIZE, Side::Middle);
        for (up, row) in rows.iter().take(count).enumerate() {
            for (across, cell) in row.iter().take(self.x.values.len()).enumerate() {
                let corner = (left + across as f64 * wide, bottom - (up + 1) as f64 * high);
                self.cell(canvas, corner, layout.cell, cell, colours);
            }
        }
    }

    fn cell(
        &self,
        canvas: &Canvas<'_>,
        (left, top): (f64, f64),
        (wide, high): (f64, f64),
        cell: &Cell,
        colours: Option<Colours>,
    ) {
        // A seam between cells, where there is room for one.
        let seam = if wide.min(high) > 12.0 { 1.5 } else { 0.0 };
        let (w, h) = (wide - seam, high - seam);
        let middle = (left + w / 2.0, top + h / 2.0);
        let fits = |text: &str| w > width_of(text, LABEL_SIZE) + 4.0 && h >= 15.0;
        match (cell, colours) {
            (Cell::Value(value), Some(colours)) if self.quantity.shows(*value) => {
                let share = colours.place(*value);
                fill(canvas, (left, top, w, h), share);
                let on = if share <= 0.5 { Ink::OnCool } else { Ink::OnHot };
                let texts = [self.quantity.unit.text(*value), self.quantity.unit.text_short(*value)];
                if let Some(text) = texts.iter().find(|text| fits(text)) {
                    canvas.text(middle, text, on, LABEL_SIZE, Side::Middle);
                }
            }
            (Cell::Marked(word), _) => {
                canvas.hatch(left, top, w, h);
                if fits(word) {
                    let half = width_of(word, LABEL_SIZE) / 2.0 + 1.0;
                    canvas.rect(middle.0 - half, middle.1 - 8.0, half * 2.0, 16.0, Ink::Card, 0.85);
                    canvas.text(middle, word, Ink::Text, LABEL_SIZE, Side::Middle);
                }
            }
            _ => {
                canvas.rect(left, top, w, h, Ink::Grid, 0.4);
                canvas.text(middle, crate::text::MISSING, Ink::Muted, LABEL_SIZE, Side::Middle);
            }
        }
    }

    /// The scale with its ends, then the cells without a colour.
    fn legend(&self, canvas: &Canvas<'_>, colours: Option<Colours>) {
        let middle = LEGEND_LINE / 2.0;
        let mut x = 0.0;
        if let Some(colours) = colours {
            canvas.text((x, middle), &self.quantity.name, Ink::Text, TEXT_SIZE, Side::Right);
            x += width_of(&self.quantity.name, TEXT_SIZE) + 12.0;
            let pieces = 48;
            for n in 0..pieces {
                let piece = SCALE / f64::from(pieces);
                let share = (f64::from(n) + 0.5) / f64::from(pieces);
                fill(canvas, (x + f64::from(n) * piece, middle - 7.0, piece + 0.25, 14.0), share);
            }
            for (share, side) in [(0.0, Side::Right), (0.5, Side::Middle), (1.0, Side::Left)] {
                let text = self.quantity.unit.text(colours.at(share));
                canvas.text((x + share * SCALE, middle + 17.0), &text, Ink::Muted, LABEL_SIZE, side);
            }
            x += SCALE + 28.0;
        }
        let mut words: Vec<&String> = Vec::new();
        for cell in self.panels.iter().flat_map(|(_, rows)| rows.iter().flatten()) {
            if let Cell::Marked(word) = cell
                && !words.contains(&word)
            {
                words.push(word);
            }
        }
        let entries: Vec<Entry> =
            words.into_iter().take(3).map(|word| (Mark::Hatched, word.clone())).collect();
        sheet::legend_from(canvas, &entries, x);
    }

    fn values(&self) -> Option<Table> {
        if self.panels.len() * self.y.values.len() > ROWS_MAX {
            return None;
        }
        let text = |cell: Option<&Cell>| match cell {
            Some(Cell::Value(value)) if self.quantity.shows(*value) => self.quantity.unit.text(*value),
            Some(Cell::Marked(word)) => word.clone(),
            _ => crate::text::MISSING.to_owned(),
        };
        let rows = self.panels.iter().flat_map(|(panel, rows)| {
            self.y.values.iter().enumerate().map(move |(up, value)| Row {
                name: format!("{panel}, {} {value}", self.y.name),
                cells: (0..self.x.values.len())
                    .map(|across| text(rows.get(up).and_then(|row| row.get(across))))
                    .collect(),
                ..Row::default()
            })
        });
        let head = std::iter::once(self.x.name.clone()).chain(self.x.values.iter().cloned());
        Some(Table { head: head.collect(), rows: rows.collect(), ..Table::default() })
    }
}

impl Colours {
    /// From 0 at the low end to 1 at the high one; the middle if both are the same.
    fn place(self, value: f64) -> f64 {
        let on = |value: f64| if self.log { value.log10() } else { value };
        let place = (on(value) - on(self.low)) / (on(self.high) - on(self.low));
        if place.is_finite() { place.clamp(0.0, 1.0) } else { 0.5 }
    }

    fn at(self, share: f64) -> f64 {
        if self.log {
            10f64.powf(self.low.log10() * (1.0 - share) + self.high.log10() * share)
        } else {
            self.low * (1.0 - share) + self.high * share
        }
    }
}

/// A field in the colour of this place on the scale: the colour below it, and the one above as
/// strongly as it is near.
fn fill(canvas: &Canvas<'_>, (left, top, wide, high): (f64, f64, f64, f64), share: f64) {
    let step = share * (HEAT_STEPS - 1) as f64;
    let below = (step.floor() as usize).min(HEAT_STEPS - 2);
    canvas.rect(left, top, wide, high, Ink::Heat(below), 1.0);
    canvas.rect(left, top, wide, high, Ink::Heat(below + 1), step - below as f64);
}

fn label(value: &str) -> String {
    sheet::clipped(value, 20)
}

const SCALE: f64 = 220.0;
const GAP: f64 = 24.0;
/// Right of a panel's cells, for half of the last label.
const EDGE: f64 = 14.0;
/// A panel's name, and the name of its vertical axis.
const NAME: f64 = 24.0;
const TITLE: f64 = 20.0;
/// Labels and name of the horizontal axis.
const BELOW: f64 = 52.0;
/// Width and height of a cell at most.
const CELL_MAX: (f64, f64) = (130.0, 42.0);
/// Height of a grid of many rows.
const ROOM: f64 = 340.0;
