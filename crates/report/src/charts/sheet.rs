//! What all sheets have in common: their width, the legend above the plots, panels side by side.

use super::axis::{ABOVE, Axis, BELOW, Panel};
use super::canvas::{Canvas, Ink, Side, width_of};
use super::phases::Track;

/// Width of every sheet, in CSS pixels.
pub const WIDTH: u32 = 1080;
/// Size of legends and names, in pixels.
pub const TEXT_SIZE: f64 = 14.0;
/// Free space at the right edge, for half of the last tick's label.
pub const RIGHT: f64 = 26.0;
/// Height of a line of the legend.
pub const LEGEND_LINE: f64 = 24.0;

/// How an entry of a legend is marked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mark {
    /// As a line.
    Line(Ink),
    /// As a dashed line.
    Dashes(Ink),
    /// As a fill with this opacity.
    Fill(Ink, f64),
}

/// One entry of a legend.
pub type Entry = (Mark, String);

/// Height that a legend takes at this width.
pub fn legend_height(entries: &[Entry]) -> f64 {
    placed(entries).last().map_or(0.0, |&(_, line)| (line + 1) as f64 * LEGEND_LINE)
}

/// Draws a legend at the top of the sheet.
pub fn legend(canvas: &Canvas<'_>, entries: &[Entry]) {
    for ((mark, text), (x, line)) in entries.iter().zip(placed(entries)) {
        let y = line as f64 * LEGEND_LINE + LEGEND_LINE / 2.0;
        match *mark {
            Mark::Line(ink) => canvas.line(&[(x, y), (x + SWATCH, y)], ink, 3.0),
            Mark::Dashes(ink) => canvas.dashes(&[(x, y), (x + SWATCH, y)], ink, 2.0),
            Mark::Fill(ink, opacity) => canvas.rect(x, y - 6.5, SWATCH, 13.0, ink, opacity),
        }
        canvas.text((x + SWATCH + 7.0, y), &clipped(text, LEGEND_CHARS), Ink::Text, TEXT_SIZE, Side::Right);
    }
}

/// The phases as entries of a legend.
pub fn phase_entries(tracks: &[Track]) -> Vec<Entry> {
    tracks.iter().map(|track| (Mark::Line(track.ink), described(track))).collect()
}

/// `text` of at most `max` characters; a longer one ends in dots.
pub fn clipped(text: &str, max: usize) -> String {
    if text.chars().count() <= max {
        return text.to_owned();
    }
    let kept: String = text.chars().take(max.saturating_sub(3)).collect();
    format!("{kept}...")
}

/// The axis of time that panels of these phases share.
pub fn time_axis(tracks: &[Track]) -> Axis {
    let end = tracks.iter().map(Track::end).max().unwrap_or_default();
    Axis::tight(end.as_secs_f64(), "seconds since the phase began", super::axis::short)
}

/// Where the panels of `count` phases lie, three to a row: left edge, top edge and width of each plot, and the
/// height of the whole. `height` is that of one plot, `gutter` the room for labels at the left of each row.
pub struct Grid {
    /// Left edge, top edge and width of each plot.
    pub plots: Vec<(f64, f64, f64)>,
    /// Height of all rows.
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

/// The phase's name and, where known, what is different about it.
fn described(track: &Track) -> String {
    match &track.summary {
        Some(phase) if !phase.what.is_empty() => format!("{}: {}", track.name, phase.what),
        _ => track.name.clone(),
    }
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
/// What the narrowest panel has room for above it.
const NAME_CHARS: usize = 32;
const GAP: f64 = 18.0;
const NAME: f64 = 26.0;
