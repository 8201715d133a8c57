//! Charts over time: the load, the tail, the transfers.

use super::Chart;
use super::panels;
use super::phases::Track;
use crate::drawing::axis::{ABOVE, Axis, BELOW, Panel, short};
use crate::drawing::canvas::{Canvas, Ink, draw};
use crate::drawing::sheet::{self, Mark, RIGHT, WIDTH};
use crate::run::Frame;
use machine::{Duration, Rate};

/// Load offered and achieved, one panel per phase on one scale.
pub fn load(tracks: &[Track]) -> Chart {
    let title = "Offered load";
    let rates = |frame: &Frame| [frame.offered, frame.achieved];
    let peak = tracks.iter().flat_map(|t| &t.frames).flat_map(rates).flatten().fold(Rate::ZERO, Rate::max);
    let any = tracks.iter().flat_map(|t| &t.frames).flat_map(rates).any(|rate| rate.is_some());
    let drawing = if any { Ok(draw_load(title, tracks, peak)) } else { Err("No rate was recorded.") };
    let see = "The schedule's rate (dashed) and the rate answered. The phases get the same load; where the \
               answered rate leaves the dashed line, the store fell behind.";
    Chart { id: "load", title, see, drawing }
}

/// The tail over time, phases on top of each other.
pub fn latency(tracks: &[Track]) -> Chart {
    let title = "99th percentile latency over time";
    let p99 = |frame: &Frame| frame.p99.map(nanos);
    let (low, high) = range(tracks.iter().flat_map(|track| &track.frames).filter_map(p99));
    let drawing = if low > high {
        Err("No latency was recorded over time.")
    } else {
        Ok(overlaid(title, tracks, 260.0, &Axis::latency(low, high, "p99 (log scale)"), p99))
    };
    let see = "p99 of each interval, counted from when the request should have been sent. Lines on top of \
               each other mean that sleeping cores cost the tail nothing.";
    Chart { id: "latency", title, see, drawing }
}

/// Transfers per second, phases on top of each other.
pub fn transfers(tracks: &[Track]) -> Chart {
    let title = "Connections moved between workers";
    let rates: Vec<Track> = tracks.iter().map(with_transfer_rates).collect();
    let rate = |frame: &Frame| frame.achieved.map(Rate::as_per_second);
    let seen = rates.iter().flat_map(|track| &track.frames).filter_map(rate);
    let (low, high) = range(seen);
    let drawing = if low > high {
        Err("No transfer was counted over time.")
    } else {
        Ok(overlaid(title, &rates, 140.0, &Axis::linear(high, "transfers/s", short), rate))
    };
    let see = "Peaks stand where the load changes: the scheduler packs connections when it falls and sends \
               them home when it rises. A level line above zero would be thrashing.";
    Chart { id: "transfers", title, see, drawing }
}

fn draw_load(title: &str, tracks: &[Track], peak: Rate) -> String {
    let entries = [
        (Mark::Dashes(Ink::Text), "offered".to_owned()),
        (Mark::Fill(Ink::Muted, 0.4), "answered, in the phase's colour".to_owned()),
    ];
    let x = panels::time_axis(tracks);
    let y = Axis::linear(peak.as_per_second(), "requests/s", short);
    let gutter = y.label_width() + 12.0;
    let top = sheet::legend_height(&entries);
    let height = 150.0;
    let grid = panels::grid(tracks.len(), top, gutter, height);
    draw(WIDTH, (top + grid.height).ceil() as u32, title, |canvas| {
        sheet::legend(canvas, &entries);
        for (track, &(left, top, width)) in tracks.iter().zip(&grid.plots) {
            let panel = Panel { left, top, width, height, x: &x, y: &y };
            panel.frame(canvas);
            panels::name_above(canvas, &panel, gutter, track);
            for run in runs(track, |frame| frame.achieved.map(Rate::as_per_second)) {
                let line: Vec<(f64, f64)> = run.iter().map(|&(t, v)| panel.at(t, v)).collect();
                canvas.area(&down_to(&line, top + height), track.ink, 0.3);
                canvas.line(&line, track.ink, 2.0);
            }
            for run in runs(track, |frame| frame.offered.map(Rate::as_per_second)) {
                let line: Vec<(f64, f64)> = run.iter().map(|&(t, v)| panel.at(t, v)).collect();
                canvas.dashes(&line, Ink::Text, 1.25);
            }
        }
    })
}

/// All phases as lines in one panel.
fn overlaid(
    title: &str,
    tracks: &[Track],
    height: f64,
    y: &Axis,
    value: impl Fn(&Frame) -> Option<f64>,
) -> String {
    let entries = panels::phase_entries(tracks);
    let x = panels::time_axis(tracks);
    let left = y.label_width() + 12.0;
    let top = sheet::legend_height(&entries) + ABOVE + 4.0;
    let panel = Panel { left, top, width: f64::from(WIDTH) - RIGHT - left, height, x: &x, y };
    draw(WIDTH, (top + height + BELOW).ceil() as u32, title, |canvas: &Canvas<'_>| {
        sheet::legend(canvas, &entries);
        panel.frame(canvas);
        for track in tracks {
            for run in runs(track, &value) {
                let line: Vec<(f64, f64)> = run.iter().map(|&(t, v)| panel.at(t, v)).collect();
                canvas.line(&line, track.ink, 2.0);
            }
        }
    })
}

/// The stretches of a track in which `value` is known: a gap stays a gap.
fn runs(track: &Track, value: impl Fn(&Frame) -> Option<f64>) -> Vec<Vec<(f64, f64)>> {
    let points = track.frames.iter().map(|frame| value(frame).map(|v| (frame.at.as_secs_f64(), v)));
    let mut runs = vec![Vec::new()];
    for point in points {
        match point {
            Some(point) => runs.last_mut().expect("one run is always open").push(point),
            None => runs.push(Vec::new()),
        }
    }
    runs.retain(|run| !run.is_empty());
    runs
}

/// A line closed along the bottom of its panel.
fn down_to(line: &[(f64, f64)], bottom: f64) -> Vec<(f64, f64)> {
    let (Some(first), Some(last)) = (line.first(), line.last()) else { return Vec::new() };
    let mut outline = line.to_vec();
    outline.extend([(last.0, bottom), (first.0, bottom)]);
    outline
}

/// The track with, for each frame, the rate of transfers since the frame before in place of the
/// load.
fn with_transfer_rates(track: &Track) -> Track {
    let mut before: Option<(Duration, u64)> = None;
    let frames = track.frames.iter().map(|frame| {
        let rate = frame.transfers.and_then(|count| {
            let (at, earlier) = before.replace((frame.at, count))?;
            let span = frame.at - at;
            (!span.is_zero()).then(|| Rate::of(count.saturating_sub(earlier), span))
        });
        Frame { achieved: rate, ..frame.clone() }
    });
    Track { frames: frames.collect(), ..track.clone() }
}

fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)))
}

fn nanos(length: Duration) -> f64 {
    length.as_nanos() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::charts::phases::tracks;
    use crate::run::Summary;

    fn track(values: &[Option<u64>]) -> Track {
        let frame = |(n, &transfers): (usize, &Option<u64>)| Frame {
            phase: "a".to_owned(),
            at: Duration::from_secs(n as u64),
            transfers,
            ..Frame::default()
        };
        let frames: Vec<Frame> = values.iter().enumerate().map(frame).collect();
        tracks(&frames, &Summary::default()).remove(0)
    }

    #[test]
    fn a_gap_in_the_data_is_a_gap_in_the_line() {
        let track = track(&[Some(1), Some(2), None, Some(3)]);
        let runs = runs(&track, |frame| frame.transfers.map(|n| n as f64));
        assert_eq!(runs, [vec![(0.0, 1.0), (1.0, 2.0)], vec![(3.0, 3.0)]]);
    }

    #[test]
    fn rates_span_a_lost_count_and_a_restart_is_no_negative_rate() {
        let track = with_transfer_rates(&track(&[Some(10), None, Some(30), Some(5)]));
        let rates: Vec<Option<f64>> =
            track.frames.iter().map(|f| f.achieved.map(Rate::as_per_second)).collect();
        assert_eq!(rates, [None, None, Some(10.0), Some(0.0)]);
    }
}
