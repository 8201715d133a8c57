//! The whole distribution of latency, not only the points that a table has room for.

use super::Chart;
use super::panels;
use super::phases::Track;
use crate::drawing::axis::{ABOVE, Axis, BELOW, Panel};
use crate::drawing::canvas::draw;
use crate::drawing::sheet::{self, RIGHT, WIDTH};
use crate::run::CurvePoint;

/// Latency by percentile, phases on top of each other.
pub fn percentiles(tracks: &[Track]) -> Chart {
    let title = "Latency by percentile";
    let drawing = drawn(title, tracks).ok_or("No latency distribution is recorded yet.");
    let see = "How slow the slowest half, tenth, hundredth ... of all requests were: each step to the \
               right is one more nine. A phase whose line lies lower is better at every percentile where \
               it does.";
    Chart { id: "percentiles", title, see, drawing }
}

fn drawn(title: &str, tracks: &[Track]) -> Option<String> {
    let curves: Vec<(&Track, Vec<CurvePoint>)> =
        tracks.iter().map(|track| (track, curve(track))).filter(|(_, curve)| !curve.is_empty()).collect();
    let nanos = |point: &CurvePoint| point.latency.as_nanos() as f64;
    let points = || curves.iter().flat_map(|(_, curve)| curve);
    let low = points().map(nanos).reduce(f64::min)?;
    let high = points().map(nanos).reduce(f64::max)?;
    let furthest = points().map(|point| point.share.as_f64()).fold(0.0, f64::max);
    let entries = panels::phase_entries(tracks);
    let x = Axis::nines(furthest, "percentile of requests");
    let y = Axis::latency(low, high, "latency (log scale)");
    let left = y.label_width() + 12.0;
    let top = sheet::legend_height(&entries) + ABOVE + 4.0;
    let height = 280.0;
    let panel = Panel { left, top, width: f64::from(WIDTH) - RIGHT - left, height, x: &x, y: &y };
    Some(draw(WIDTH, (top + height + BELOW).ceil() as u32, title, |canvas| {
        sheet::legend(canvas, &entries);
        panel.frame(canvas);
        for (track, curve) in &curves {
            let line: Vec<(f64, f64)> =
                curve.iter().map(|point| panel.at(point.share.as_f64(), nanos(point))).collect();
            canvas.line(&line, track.ink, 2.5);
        }
    }))
}

/// The points of a phase from the median on; the first and last share that can be placed by nines.
fn curve(track: &Track) -> Vec<CurvePoint> {
    let Some(phase) = &track.summary else { return Vec::new() };
    let placeable = |point: &&CurvePoint| (0.5..1.0).contains(&point.share.as_f64());
    let mut points: Vec<CurvePoint> = phase.curve.iter().filter(placeable).copied().collect();
    points.sort_by(|a, b| a.share.as_f64().total_cmp(&b.share.as_f64()));
    points
}
