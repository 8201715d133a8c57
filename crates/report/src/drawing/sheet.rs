//! The common parts of all sheets: their width, and the legend above the plots, where no data can
//! be.

use super::canvas::{Canvas, Ink, Shape, Side, Stroke, width_of};

/// Width of every sheet, in CSS pixels.
pub const WIDTH: u32 = 1080;
/// Size of legends and names, in pixels.
pub const TEXT_SIZE: f64 = 14.0;
/// Free space at the right edge, for half of the last tick's label.
pub const RIGHT: f64 = 26.0;
/// Size of a mark, in pixels.
pub const MARK: f64 = 9.0;
/// Height of a line of the legend.
pub const LEGEND_LINE: f64 = 24.0;

/// How an entry of a legend is marked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mark {
    Line(Ink),
    Dashes(Ink),
    /// As a fill with this opacity.
    Fill(Ink, f64),
    /// As a line, if it is drawn as one, with a mark on it, if it has them.
    Series(Ink, Option<Stroke>, Option<Shape>),
    Hatched,
}

pub type Entry = (Mark, String);

/// Height that a legend takes at this width.
pub fn legend_height(entries: &[Entry]) -> f64 {
    placed(entries).last().map_or(0.0, |&(_, line)| (line + 1) as f64 * LEGEND_LINE)
}

/// Draws a legend at the top of the sheet.
pub fn legend(canvas: &Canvas<'_>, entries: &[Entry]) {
    legend_from(canvas, entries, 0.0);
}

/// Draws a legend at the top of the sheet, right of the present ones.
pub fn legend_from(canvas: &Canvas<'_>, entries: &[Entry], left: f64) {
    for ((mark, text), (x, line)) in entries.iter().zip(placed(entries)) {
        let x = left + x;
        let y = line as f64 * LEGEND_LINE + LEGEND_LINE / 2.0;
        match *mark {
            Mark::Line(ink) => canvas.line(&[(x, y), (x + SWATCH, y)], ink, 3.0),
            Mark::Dashes(ink) => canvas.dashes(&[(x, y), (x + SWATCH, y)], ink, 2.0),
            Mark::Fill(ink, opacity) => canvas.rect(x, y - 6.5, SWATCH, 13.0, ink, opacity),
            Mark::Series(ink, stroke, shape) => {
                if let Some(stroke) = stroke {
                    canvas.stroke(&[(x, y), (x + SWATCH, y)], ink, 2.5, stroke);
                }
                if let Some(shape) = shape {
                    canvas.mark((x + SWATCH / 2.0, y), shape, ink, MARK);
                }
            }
            Mark::Hatched => canvas.hatch(x, y - 6.5, SWATCH, 13.0),
        }
        canvas.text((x + SWATCH + 7.0, y), &clipped(text, LEGEND_CHARS), Ink::Text, TEXT_SIZE, Side::Right);
    }
}

/// `text` of at most `max` characters; a longer one ends in dots.
pub fn clipped(text: &str, max: usize) -> String {
    if text.chars().count() <= max {
        return text.to_owned();
    }
    let kept: String = text.chars().take(max.saturating_sub(3)).collect();
    format!("{kept}...")
}

/// Left edge and line of each entry.
fn placed(entries: &[Entry]) -> Vec<(f64, usize)> {
    let (mut x, mut line) = (0.0, 0);
    let mut places = Vec::with_capacity(entries.len());
    for (_, text) in entries {
        let width = SWATCH + 7.0 + width_of(&clipped(text, LEGEND_CHARS), TEXT_SIZE);
        if x > 0.0 && x + width > f64::from(WIDTH) {
            (x, line) = (0.0, line + 1);
        }
        places.push((x, line));
        x += width + 24.0;
    }
    places
}

const SWATCH: f64 = 22.0;
const LEGEND_CHARS: usize = 64;
