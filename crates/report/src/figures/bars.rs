//! Lengths to compare: one row of bars for each name, side by side or stacked.

use super::table::{Row, Table};
use super::{Figure, Quantity, Scale, look, range};
use crate::drawing::axis::{Axis, BELOW, LABEL_SIZE, Panel};
use crate::drawing::canvas::{Canvas, Ink, Shape, Side, draw, width_of};
use crate::drawing::sheet::{self, Entry, MARK, Mark, RIGHT, TEXT_SIZE, WIDTH};
use serde::Deserialize;

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bars {
    pub title: String,
    #[serde(default)]
    pub see: String,
    pub quantity: Quantity,
    /// The rows' names, top to bottom.
    #[serde(default)]
    pub rows: Vec<String>,
    #[serde(default)]
    pub parts: Vec<BarPart>,
    #[serde(default)]
    pub form: Form,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BarPart {
    pub name: String,
    pub tone: Tone,
    /// Its length in each row; `None` where it is not known.
    pub values: Vec<Option<Bar>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bar {
    pub value: f64,
    /// How far it may be off to either side.
    #[serde(default)]
    pub spread: Option<f64>,
    #[serde(default)]
    pub printed: Option<f64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    #[default]
    Grouped,
    /// One after the other, together the whole.
    Stacked,
}

/// The looks of a part.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tone {
    /// The colour of the contestant with this place.
    Contestant(usize),
    Busy,
    /// Sleep, from 0, hardly asleep, to 1, as deep as can be.
    Idle(f64),
}

impl Bar {
    pub fn new(value: f64) -> Self {
        Self { value, spread: None, printed: None }
    }
}

impl Tone {
    /// Ink and opacity of the fill, and the ink of text on it.
    pub(super) fn inks(self) -> (Ink, f64, Ink) {
        match self {
            Self::Contestant(place) => (look(place).0, 0.85, Ink::Card),
            Self::Busy => (Ink::Busy, 1.0, Ink::Card),
            Self::Idle(depth) => {
                let opacity = 0.2 + 0.8 * if depth.is_finite() { depth.clamp(0.0, 1.0) } else { 0.0 };
                (Ink::Idle, opacity, if opacity < 0.6 { Ink::Text } else { Ink::OnIdle })
            }
        }
    }
}

impl Bars {
    pub fn figure(&self) -> Figure {
        let known =
            self.parts.iter().flat_map(|part| &part.values).flatten().any(|bar| bar.value.is_finite());
        let drawing = if known && !self.rows.is_empty() {
            Ok(self.drawing())
        } else {
            Err("There is nothing to draw: no value is known.".to_owned())
        };
        let values = drawing.is_ok().then(|| self.values());
        Figure { title: self.title.clone(), see: self.see.clone(), drawing, values }
    }

    /// The bar of a part in a row, if it can be drawn.
    fn bar(&self, part: &BarPart, row: usize) -> Option<Bar> {
        let bar = part.values.get(row).copied().flatten().filter(|bar| bar.value.is_finite())?;
        let positive = |value: f64| value.clamp(0.0, 1e300);
        let finite = |value: &f64| value.is_finite();
        Some(Bar {
            value: positive(bar.value),
            spread: bar.spread.filter(finite),
            printed: bar.printed.filter(finite).map(positive),
        })
    }

    fn drawing(&self) -> String {
        let entries: Vec<Entry> = self.entries();
        let names = self.rows.iter().map(|name| width_of(&shown_name(name), TEXT_SIZE)).fold(0.0, f64::max);
        let left = names + 12.0;
        let row_height = match self.form {
            Form::Stacked => STACK + BETWEEN,
            Form::Grouped => self.parts.len().max(1) as f64 * THIN + BETWEEN,
        };
        // Beside grouped bars stand their values.
        let room = match self.form {
            Form::Stacked => 0.0,
            Form::Grouped => self.texts().map(|text| width_of(&text, LABEL_SIZE)).fold(0.0, f64::max) + 12.0,
        };
        let width = (f64::from(WIDTH) - RIGHT - left - room).max(120.0);
        let from_zero = Quantity { scale: Scale::FromZero, ..self.quantity.clone() };
        let x = from_zero.axis((0.0, self.longest()), true);
        let lanes = Axis::rows(self.rows.len(), "");
        let top = sheet::legend_height(&entries) + 8.0;
        let height = row_height * self.rows.len() as f64;
        let panel = Panel { left, top, width, height, x: &x, y: &lanes };
        draw(WIDTH, (top + height + BELOW).ceil() as u32, &self.title, |canvas| {
            sheet::legend(canvas, &entries);
            panel.frame(canvas);
            for (row, name) in self.rows.iter().enumerate() {
                let middle = top + (row as f64 + 0.5) * row_height;
                canvas.text((left - 8.0, middle), &shown_name(name), Ink::Text, TEXT_SIZE, Side::Left);
                match self.form {
                    Form::Stacked => self.stack(canvas, &panel, row, middle),
                    Form::Grouped => self.group(canvas, &panel, row, middle),
                }
            }
        })
    }

    fn stack(&self, canvas: &Canvas<'_>, panel: &Panel<'_>, row: usize, middle: f64) {
        let mut from = 0.0;
        let mut any = false;
        for part in &self.parts {
            let Some(bar) = self.bar(part, row) else { continue };
            let (ink, opacity, on) = part.tone.inks();
            let (start, end) = (panel.across(from), panel.across(from + bar.value));
            canvas.rect(start, middle - STACK / 2.0, end - start, STACK, ink, opacity);
            let text = self.text(bar.value);
            if end - start > width_of(&text, LABEL_SIZE) + 6.0 {
                canvas.text(((start + end) / 2.0, middle), &text, on, LABEL_SIZE, Side::Middle);
            }
            from += bar.value;
            any = true;
        }
        if !any {
            canvas.text((panel.left + 7.0, middle), "not known", Ink::Muted, LABEL_SIZE, Side::Right);
        }
    }

    fn group(&self, canvas: &Canvas<'_>, panel: &Panel<'_>, row: usize, middle: f64) {
        let first = middle - self.parts.len() as f64 * THIN / 2.0;
        for (place, part) in self.parts.iter().enumerate() {
            let y = first + (place as f64 + 0.5) * THIN;
            let Some(bar) = self.bar(part, row) else {
                canvas.text((panel.left + 7.0, y), "not known", Ink::Muted, LABEL_SIZE, Side::Right);
                continue;
            };
            let (ink, opacity, _) = part.tone.inks();
            let end = panel.across(bar.value);
            canvas.rect(panel.left, y - THIN * 0.4, end - panel.left, THIN * 0.8, ink, opacity);
            let mut reach = end;
            if let Some(spread) = bar.spread {
                let ends = [bar.value - spread, bar.value + spread].map(|value| (panel.across(value), y));
                // On a bar as bright as the text, its edge shows it.
                canvas.line(&ends, Ink::Card, 4.0);
                canvas.line(&ends, Ink::Text, 1.5);
                reach = reach.max(ends[1].0);
            }
            if let Some(printed) = bar.printed {
                canvas.mark((panel.across(printed), y), Shape::Diamond, Ink::Text, MARK * 1.35);
                reach = reach.max(panel.across(printed) + MARK);
            }
            let text = self.quantity.unit.text_with(bar.value, bar.spread);
            canvas.text((reach + 7.0, y), &text, Ink::Text, LABEL_SIZE, Side::Right);
        }
    }

    fn entries(&self) -> Vec<Entry> {
        let entry = |part: &BarPart| {
            let (ink, opacity, _) = part.tone.inks();
            (Mark::Fill(ink, opacity), part.name.clone())
        };
        let mut entries: Vec<Entry> = self.parts.iter().map(entry).collect();
        if entries.len() == 1 && self.form == Form::Grouped {
            // One part is the quantity of the axis.
            entries.clear();
        }
        let printed =
            |part: &BarPart| part.values.iter().flatten().any(|bar| bar.printed.is_some_and(f64::is_finite));
        if self.parts.iter().any(printed) {
            entries.push((
                Mark::Series(Ink::Text, None, Some(Shape::Diamond)),
                "printed in the paper".to_owned(),
            ));
        }
        entries
    }

    /// Where the axis must reach to.
    fn longest(&self) -> f64 {
        let rows = 0..self.rows.len();
        let bars = |row: usize| self.parts.iter().filter_map(move |part| self.bar(part, row));
        match self.form {
            Form::Stacked => rows.map(|row| bars(row).map(|bar| bar.value).sum::<f64>()).fold(0.0, f64::max),
            Form::Grouped => {
                let ends = rows.flat_map(|row| {
                    bars(row)
                        .flat_map(|bar| [bar.value + bar.spread.unwrap_or(0.0), bar.printed.unwrap_or(0.0)])
                });
                range(ends).map_or(0.0, |(_, high)| high)
            }
        }
    }

    fn text(&self, value: f64) -> String {
        self.quantity.unit.text_short(value)
    }

    fn texts(&self) -> impl Iterator<Item = String> {
        let bars =
            self.parts.iter().flat_map(|part| (0..self.rows.len()).filter_map(|row| self.bar(part, row)));
        bars.map(|bar| self.quantity.unit.text_with(bar.value, bar.spread))
    }

    fn values(&self) -> Table {
        let printed = |bar: &Bar| {
            bar.printed.map_or_else(String::new, |printed| {
                format!(" (printed {})", self.quantity.unit.text(printed))
            })
        };
        let cell = |bar: Option<Bar>| match bar {
            Some(bar) => format!("{}{}", self.quantity.unit.text_with(bar.value, bar.spread), printed(&bar)),
            None => crate::text::MISSING.to_owned(),
        };
        let rows = self.rows.iter().enumerate().map(|(row, name)| Row {
            name: name.clone(),
            cells: self.parts.iter().map(|part| cell(self.bar(part, row))).collect(),
            ..Row::default()
        });
        let head = std::iter::once(String::new()).chain(self.parts.iter().map(|part| part.name.clone()));
        Table { head: head.collect(), rows: rows.collect(), ..Table::default() }
    }
}

fn shown_name(name: &str) -> String {
    sheet::clipped(name, 34)
}

const STACK: f64 = 24.0;
const THIN: f64 = 19.0;
const BETWEEN: f64 = 14.0;
