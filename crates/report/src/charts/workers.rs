//! Which workers were awake: the count as a step area, and below it one strip per worker.

use super::Chart;
use super::panels;
use super::phases::Track;
use crate::drawing::axis::{ABOVE, Axis, LABEL_SIZE, Panel, short};
use crate::drawing::canvas::{Canvas, Ink, Side, draw, width_of};
use crate::drawing::sheet::{self, Mark, WIDTH};
use crate::run::WorkerFrame;
use machine::{Duration, Rate, WorkerId};

/// Workers awake over time, one panel per phase.
pub fn awake(tracks: &[Track]) -> Chart {
    let title = "Workers awake";
    let ids = workers(tracks);
    let drawing = if ids.is_empty() {
        Err("No worker reported over time.")
    } else {
        Ok(draw_awake(title, tracks, &ids))
    };
    let see = "Above, how many workers were awake; below, each worker: grey is asleep, and the fuller the \
               colour, the nearer its load is to the limit that it learned. The grey is what was saved.";
    Chart { id: "workers", title, see, drawing }
}

fn draw_awake(title: &str, tracks: &[Track], ids: &[WorkerId]) -> String {
    // The shades are explained in an ink that is drawn: the last phase's, whose workers sleep if
    // any do.
    let shade = tracks.last().map_or(Ink::Muted, |track| track.ink);
    let entries = vec![
        (Mark::Fill(Ink::Asleep, 1.0), "asleep".to_owned()),
        (Mark::Fill(shade, opacity(0.0)), "awake, no load".to_owned()),
        (Mark::Fill(shade, opacity(0.5)), "half its limit".to_owned()),
        (
            Mark::Fill(shade, opacity(1.0)),
            "at its limit (where none is learned: at the run's highest load)".to_owned(),
        ),
    ];
    let x = panels::time_axis(tracks);
    let count = Axis::linear(ids.len() as f64, "workers awake", |n| {
        if n.fract() == 0.0 { short(n) } else { String::new() }
    });
    let rows = Axis::rows(ids.len(), "");
    let row = (160.0 / ids.len() as f64).clamp(3.0, 18.0);
    let gutter = count.label_width().max(width_of(&ids[ids.len() - 1].to_string(), LABEL_SIZE)) + 12.0;
    let (step_height, strip_height) = (90.0, row * ids.len() as f64);
    let top = sheet::legend_height(&entries);
    let grid = panels::grid(tracks.len(), top, gutter, step_height + BETWEEN + strip_height);
    let peak = peak_load(tracks);
    let bare = Axis::tight(tracks.iter().map(Track::end).max().unwrap_or_default().as_secs_f64(), "", |_| {
        String::new()
    });
    draw(WIDTH, (top + grid.height).ceil() as u32, title, |canvas| {
        sheet::legend(canvas, &entries);
        for (track, &(left, top, width)) in tracks.iter().zip(&grid.plots) {
            let steps = Panel { left, top, width, height: step_height, x: &bare, y: &count };
            steps.frame(canvas);
            panels::name_above(canvas, &steps, gutter, track);
            draw_steps(canvas, &steps, track);
            let strips = Panel {
                left,
                top: top + step_height + BETWEEN,
                width,
                height: strip_height,
                x: &x,
                y: &rows,
            };
            draw_strips(canvas, &strips, track, ids, row, peak);
            strips.frame(canvas);
        }
    })
}

fn draw_steps(canvas: &Canvas<'_>, panel: &Panel<'_>, track: &Track) {
    let bottom = panel.top + panel.height;
    let put = |edge: &[(f64, f64)]| {
        if let (Some(first), Some(last)) = (edge.first(), edge.last()) {
            let mut outline = edge.to_vec();
            outline.extend([(last.0, bottom), (first.0, bottom)]);
            canvas.area(&outline, track.ink, 0.3);
            canvas.line(edge, track.ink, 2.0);
        }
    };
    let mut edge = Vec::new();
    for (frame, (from, to)) in track.frames.iter().zip(spans(track)) {
        match frame.workers_awake() {
            Some(awake) => edge.extend([panel.at(from, awake as f64), panel.at(to, awake as f64)]),
            None => put(&std::mem::take(&mut edge)),
        }
    }
    put(&edge);
}

fn draw_strips(
    canvas: &Canvas<'_>,
    panel: &Panel<'_>,
    track: &Track,
    ids: &[WorkerId],
    row: f64,
    peak: Rate,
) {
    let gap = if row > 8.0 { 2.0 } else { 0.5 };
    for (place, &id) in ids.iter().enumerate() {
        let top = panel.top + place as f64 * row;
        // Where rows are too thin for a name each, the first and the last say which way they are
        // counted.
        if row >= 12.0 || place == 0 || place + 1 == ids.len() {
            let middle = top + row / 2.0;
            canvas.text(
                (panel.left - 7.0, middle),
                &id.to_string(),
                Ink::Muted,
                LABEL_SIZE - 1.0,
                Side::Left,
            );
        }
        // Neighbours of one shade become one rectangle: fewer seams and a smaller page.
        let mut open: Option<(f64, f64, Option<u32>)> = None;
        let put = |(from, to, shade): (f64, f64, Option<u32>)| {
            let (ink, opacity) = match shade {
                None => (Ink::Asleep, 1.0),
                Some(shade) => (track.ink, opacity(f64::from(shade) / SHADES)),
            };
            canvas.rect(from, top, to - from, row - gap, ink, opacity);
        };
        for (frame, (from, to)) in track.frames.iter().zip(spans(track)) {
            let Some(worker) = frame.workers.iter().find(|worker| worker.worker == id) else {
                open.take().into_iter().for_each(put);
                continue;
            };
            let shade = worker.active.then(|| (load_share(worker, peak) * SHADES).round() as u32);
            let (from, to) = (panel.across(from), panel.across(to));
            match &mut open {
                Some((_, until, same)) if *same == shade => *until = to,
                _ => open.replace((from, to, shade)).into_iter().for_each(put),
            }
        }
        open.into_iter().for_each(put);
    }
}

/// From when to when each frame stands: since the frame before, whose end it is.
fn spans(track: &Track) -> impl Iterator<Item = (f64, f64)> {
    let mut before = Duration::ZERO;
    track.frames.iter().map(move |frame| {
        let from = before.min(frame.at);
        before = frame.at;
        (from.as_secs_f64(), frame.at.as_secs_f64())
    })
}

/// Load as a share of the limit; of the run's highest load for a worker that has no limit.
fn load_share(worker: &WorkerFrame, peak: Rate) -> f64 {
    let limit = worker.limit.filter(|limit| limit.as_per_second() > 0.0).unwrap_or(peak).as_per_second();
    if limit > 0.0 { (worker.load.as_per_second() / limit).clamp(0.0, 1.0) } else { 0.0 }
}

fn peak_load(tracks: &[Track]) -> Rate {
    let loads =
        tracks.iter().flat_map(|t| &t.frames).flat_map(|frame| &frame.workers).map(|worker| worker.load);
    loads.fold(Rate::ZERO, Rate::max)
}

fn workers(tracks: &[Track]) -> Vec<WorkerId> {
    let seen =
        tracks.iter().flat_map(|t| &t.frames).flat_map(|frame| &frame.workers).map(|worker| worker.worker);
    let mut ids: Vec<WorkerId> = seen.collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// An awake worker without load must still differ from one asleep.
fn opacity(share: f64) -> f64 {
    0.22 + 0.78 * share
}

const SHADES: f64 = 8.0;
/// Room between the step area and the strips.
const BETWEEN: f64 = ABOVE - 8.0;

#[cfg(test)]
mod tests {
    use super::*;
    use machine::CpuId;

    fn worker(load: f64, limit: Option<f64>) -> WorkerFrame {
        WorkerFrame {
            worker: WorkerId(0),
            cpu: CpuId(0),
            active: true,
            load: Rate::per_second(load),
            limit: limit.map(Rate::per_second),
            busy: None,
            residents: 0,
            guests: 0,
        }
    }

    #[test]
    fn a_worker_without_a_limit_is_measured_by_the_highest_load() {
        let peak = Rate::per_second(200.0);
        assert_eq!(load_share(&worker(50.0, Some(100.0)), peak), 0.5);
        assert_eq!(load_share(&worker(50.0, None), peak), 0.25);
        assert_eq!(load_share(&worker(50.0, Some(0.0)), peak), 0.25);
        assert_eq!(load_share(&worker(150.0, Some(100.0)), peak), 1.0);
        assert_eq!(load_share(&worker(0.0, None), Rate::ZERO), 0.0);
    }
}
