//! The common parts of the charts of phases: legend, axis of time, panels side by side.

use super::phases::Track;
use crate::drawing::axis::{self, ABOVE, Axis, BELOW, Panel};
use crate::drawing::canvas::{Canvas, Ink, Side};
use crate::drawing::sheet::{Entry, Mark, RIGHT, TEXT_SIZE, WIDTH, clipped};

/// The phases as entries of a legend.
pub fn phase_entries(tracks: &[Track]) -> Vec<Entry> {
    tracks.iter().map(|track| (Mark::Line(track.ink), described(track))).collect()
}

/// The axis of time that panels of these phases share.
pub fn time_axis(tracks: &[Track]) -> Axis {
    let end = tracks.iter().map(Track::end).max().unwrap_or_default();
    Axis::tight(end.as_secs_f64(), "seconds since the phase began", axis::short)
}

/// Where the panels of `count` phases lie, three to a row: left edge, top edge and width of each
/// plot, and the height of the whole. `height` is that of one plot, `gutter` the room for labels at
/// the left of each row.
pub struct Grid {
    /// Left edge, top edge and width of each plot.
    pub plots: Vec<(f64, f64, f64)>,
    pub height: f64,
}

/// Lays out `count` plots, the first row beginning at `top`.
pub fn grid(count: usize, top: f64, gutter: f64, height: f64) -> Grid {
    let columns = count.clamp(1, 3);
    let width = (f64::from(WIDTH) - RIGHT - gutter - (columns - 1) as f64 * (GAP + gutter)) / columns as f64;
    let row_height = NAME + ABOVE + height + BELOW;
    let plots = (0..count).map(|n| {
        let (row, column) = (n / columns, n % columns);
        let left = gutter + column as f64 * (width + GAP + gutter);
        (left, top + row as f64 * row_height + NAME + ABOVE, width)
    });
    Grid { plots: plots.collect(), height: count.div_ceil(columns) as f64 * row_height }
}

/// Writes the phase's name above its panel, beside a block of its ink.
pub fn name_above(canvas: &Canvas<'_>, panel: &Panel<'_>, gutter: f64, track: &Track) {
    let (x, y) = ((panel.left - gutter).max(0.0), panel.top - ABOVE - NAME / 2.0);
    canvas.rect(x, y - 6.5, 13.0, 13.0, track.ink, 1.0);
    canvas.text((x + 20.0, y), &clipped(&track.name, NAME_CHARS), Ink::Text, TEXT_SIZE, Side::Right);
}

/// The phase's name and, where known, its difference.
fn described(track: &Track) -> String {
    match &track.summary {
        Some(phase) if !phase.what.is_empty() => format!("{}: {}", track.name, phase.what),
        _ => track.name.clone(),
    }
}

/// The width of text above the narrowest panel.
const NAME_CHARS: usize = 32;
const GAP: f64 = 18.0;
const NAME: f64 = 26.0;
