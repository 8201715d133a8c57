//! How a whole is divided, over something: layers on top of each other, a panel for each
//! contestant.

use super::bars::Tone;
use super::{Figure, Quantity, range};
use crate::drawing::axis::{Axis, BELOW, LABEL_SIZE, Panel as Plot, short};
use crate::drawing::canvas::{Canvas, Ink, Side, draw};
use crate::drawing::sheet::{self, Entry, Mark, RIGHT, TEXT_SIZE, WIDTH};

#[derive(Clone, Debug, PartialEq)]
pub struct Areas {
    pub title: String,
    pub see: String,
    /// Along the bottom of all panels.
    pub x: Quantity,
    /// The divided quantity: shares of one.
    pub y: Quantity,
    /// The layers, from the ground up.
    pub layers: Vec<Layer>,
    pub panels: Vec<Panel>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    pub name: String,
    pub tone: Tone,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Panel {
    pub name: String,
    pub x: Vec<f64>,
    /// For each layer, its share at each place.
    pub layers: Vec<Vec<f64>>,
}

impl Areas {
    pub fn figure(&self) -> Figure {
        let places = self.panels.iter().flat_map(|panel| &panel.x).copied().filter(|x| x.is_finite());
        let drawing = match range(places) {
            Some(ends) => Ok(self.drawing(ends)),
            None => Err("There is nothing to draw: no value is known.".to_owned()),
        };
        Figure { title: self.title.clone(), see: self.see.clone(), drawing, values: None }
    }

    fn drawing(&self, (low, high): (f64, f64)) -> String {
        let entry = |layer: &Layer| {
            let (ink, opacity, _) = layer.tone.inks();
            (Mark::Fill(ink, opacity), layer.name.clone())
        };
        let entries: Vec<Entry> = self.layers.iter().map(entry).collect();
        let columns = if self.panels.len() > 2 { 2 } else { 1 };
        let x = self.x.axis((low.min(0.0), high), true);
        let y = Axis::tight(100.0, "", |share| format!("{} %", short(share)));
        let gutter = y.label_width() + 12.0;
        let room = (f64::from(WIDTH) - (columns - 1) as f64 * GAP) / columns as f64;
        let width = room - gutter - RIGHT;
        let top = sheet::legend_height(&entries) + 6.0;
        let row = NAME + HEIGHT + BELOW;
        let height = top + row * self.panels.len().div_ceil(columns) as f64;
        draw(WIDTH, height.ceil() as u32, &self.title, |canvas| {
            sheet::legend(canvas, &entries);
            for (n, panel) in self.panels.iter().enumerate() {
                let left = (n % columns) as f64 * (room + GAP) + gutter;
                let top = top + (n / columns) as f64 * row + NAME;
                let plot = Plot { left, top, width, height: HEIGHT, x: &x, y: &y };
                plot.frame(canvas);
                let name = sheet::clipped(&panel.name, if columns > 1 { 56 } else { 110 });
                canvas.text((left, top - 14.0), &name, Ink::Text, TEXT_SIZE, Side::Right);
                if panel.x.is_empty() {
                    canvas.text(
                        (left + 7.0, top + HEIGHT / 2.0),
                        "not known",
                        Ink::Muted,
                        LABEL_SIZE,
                        Side::Right,
                    );
                }
                self.layers(canvas, &plot, panel);
            }
        })
    }

    fn layers(&self, canvas: &Canvas<'_>, plot: &Plot<'_>, panel: &Panel) {
        let mut ground = vec![0.0; panel.x.len()];
        for (layer, shares) in self.layers.iter().zip(&panel.layers) {
            let (ink, opacity, _) = layer.tone.inks();
            let share = |place: usize| shares.get(place).copied().filter(|share| share.is_finite());
            let above: Vec<f64> = ground
                .iter()
                .enumerate()
                .map(|(place, below)| below + share(place).unwrap_or(0.0).clamp(0.0, 1.0))
                .collect();
            // Level over each stretch: nothing is known of the slope between two points.
            let upper = edge(plot, &panel.x, &above);
            let lower = edge(plot, &panel.x, &ground);
            let outline: Vec<(f64, f64)> = upper.into_iter().chain(lower.into_iter().rev()).collect();
            canvas.area(&outline, ink, opacity);
            ground = above;
        }
    }
}

/// A line of steps, each as far to both sides of its place as to the middle between it and the
/// next.
fn edge(plot: &Plot<'_>, x: &[f64], shares: &[f64]) -> Vec<(f64, f64)> {
    let middle = |a: usize, b: usize| (x[a] + x[b]) / 2.0;
    let mut edge = Vec::with_capacity(2 * x.len());
    for (place, share) in shares.iter().enumerate() {
        let from = if place == 0 { x[0] } else { middle(place - 1, place) };
        let to = if place + 1 == x.len() { x[place] } else { middle(place, place + 1) };
        edge.extend([plot.at(from, share * 100.0), plot.at(to, share * 100.0)]);
    }
    edge
}

/// Height of a panel's plot, in pixels.
const HEIGHT: f64 = 120.0;
const GAP: f64 = 16.0;
/// Above a panel, for its name.
const NAME: f64 = 30.0;
