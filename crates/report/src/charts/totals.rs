//! The cost of each phase and the time of its CPUs by state: bars.

use super::Chart;
use super::phases::Track;
use crate::drawing::axis::{Axis, BELOW, LABEL_SIZE, Panel, short};
use crate::drawing::canvas::{Canvas, Ink, Side, draw, width_of};
use crate::drawing::sheet::{self, Entry, Mark, RIGHT, TEXT_SIZE, WIDTH};
use crate::run::StateShare;
use machine::EnergySource;

/// Worker-seconds awake, and energy with its source; with ratios unless others, which have
/// intervals, stand elsewhere.
pub fn cost(tracks: &[Track], with_ratios: bool) -> Chart {
    let title = "What each phase cost";
    let awake = |track: &Track| track.awake().map(|awake| (awake.as_secs_f64(), String::new()));
    let energy =
        |track: &Track| track.energy().map(|e| (e.used.as_joules(), source_word(&e.source).to_owned()));
    let any = tracks.iter().any(|track| awake(track).is_some() || energy(track).is_some());
    let drawing = if any {
        Ok(draw_cost(title, tracks, with_ratios, awake, energy))
    } else {
        Err("No cost was recorded.")
    };
    let see = "Time that workers were awake, summed over the workers, and the energy of their CPUs. Energy \
               says whether it was measured with a meter or modelled from busy time and idle residency.";
    Chart { id: "cost", title, see, drawing }
}

/// The share of time in each idle state, one bar per phase.
pub fn residency(tracks: &[Track]) -> Chart {
    let title = "Where the CPUs spent their time";
    let known: Vec<(&Track, Vec<StateShare>)> =
        tracks.iter().filter_map(|track| Some((track, track.residency()?))).collect();
    let drawing = if known.is_empty() {
        Err("This machine reports no idle residency (no cpuidle).")
    } else {
        Ok(draw_residency(title, &known))
    };
    let see = "Mean over the workers' CPUs, as cpuidle counts it: the state asked for, not always the one \
               reached. The fuller the green, the deeper the sleep.";
    Chart { id: "residency", title, see, drawing }
}

/// A figure and its caption.
type Figure = Option<(f64, String)>;

fn draw_cost(
    title: &str,
    tracks: &[Track],
    with_ratios: bool,
    awake: impl Fn(&Track) -> Figure,
    energy: impl Fn(&Track) -> Figure,
) -> String {
    let names = tracks.iter().map(name).map(|name| width_of(&name, TEXT_SIZE)).fold(0.0, f64::max);
    let half = (f64::from(WIDTH) - RIGHT - names - 12.0 - 40.0) / 2.0;
    let height = tracks.len() as f64 * BAR_ROW;
    let top = 8.0;
    draw(WIDTH, (top + height + BELOW).ceil() as u32, title, |canvas| {
        for (row, track) in tracks.iter().enumerate() {
            let y = top + (row as f64 + 0.5) * BAR_ROW;
            canvas.text((names + 4.0, y), &name(track), Ink::Text, TEXT_SIZE, Side::Left);
        }
        let (first, second) = (names + 12.0, names + 12.0 + half + 40.0);
        draw_bars(canvas, tracks, (first, top, half), with_ratios, "worker-seconds awake", "s", awake);
        draw_bars(
            canvas,
            tracks,
            (second, top, half),
            with_ratios,
            "energy of the workers' CPUs",
            "J",
            energy,
        );
    })
}

fn draw_bars(
    canvas: &Canvas<'_>,
    tracks: &[Track],
    (left, top, width): (f64, f64, f64),
    with_ratios: bool,
    title: &str,
    unit: &str,
    figure: impl Fn(&Track) -> Figure,
) {
    let figures: Vec<Figure> = tracks.iter().map(figure).collect();
    let baseline = figures.first().cloned().flatten().map(|(value, _)| value);
    let baseline = baseline.filter(|value| with_ratios && *value > 0.0);
    let label = |row: usize, value: f64, remark: &str| {
        let against = match baseline {
            Some(baseline) if row > 0 && tracks[row].is_as_long_as(&tracks[0]) => {
                format!(" ({:.2}x)", value / baseline)
            }
            _ => String::new(),
        };
        let remark = if remark.is_empty() { String::new() } else { format!(", {remark}") };
        format!("{} {unit}{remark}{against}", figure_text(value))
    };
    let texts: Vec<Option<String>> = figures
        .iter()
        .enumerate()
        .map(|(row, figure)| figure.as_ref().map(|(value, remark)| label(row, *value, remark)))
        .collect();
    // The bars leave room at their right for the longest label.
    let room = texts.iter().flatten().map(|text| width_of(text, TEXT_SIZE)).fold(0.0, f64::max) + 12.0;
    let peak = figures.iter().flatten().map(|(value, _)| *value).fold(0.0, f64::max);
    let axis = Axis::tight(peak, &format!("{title} ({unit})"), short);
    let rows = Axis::rows(tracks.len(), "");
    let height = tracks.len() as f64 * BAR_ROW;
    let panel = Panel { left, top, width: (width - room).max(40.0), height, x: &axis, y: &rows };
    panel.frame(canvas);
    for (row, track) in tracks.iter().enumerate() {
        let y = top + (row as f64 + 0.5) * BAR_ROW;
        match (&figures[row], &texts[row]) {
            (Some((value, _)), Some(text)) => {
                let end = panel.across(*value);
                canvas.rect(left, y - BAR / 2.0, end - left, BAR, track.ink, 0.85);
                canvas.text((end + 7.0, y), text, Ink::Text, TEXT_SIZE, Side::Right);
            }
            _ => canvas.text((left + 7.0, y), "not recorded", Ink::Muted, TEXT_SIZE, Side::Right),
        }
    }
}

fn draw_residency(title: &str, known: &[(&Track, Vec<StateShare>)]) -> String {
    let mut states: Vec<&str> = Vec::new();
    for StateShare { state, .. } in known.iter().flat_map(|(_, shares)| shares) {
        if !states.contains(&state.as_str()) {
            states.push(state);
        }
    }
    let depth = |state: &str| {
        let place = states.iter().position(|other| *other == state).unwrap_or(0);
        0.2 + 0.8 * (place as f64 + 1.0) / states.len() as f64
    };
    let mut entries: Vec<Entry> = vec![(Mark::Fill(Ink::Busy, 1.0), "executing".to_owned())];
    entries.extend(states.iter().map(|state| (Mark::Fill(Ink::Idle, depth(state)), (*state).to_owned())));
    let names = known.iter().map(|(track, _)| width_of(&name(track), TEXT_SIZE)).fold(0.0, f64::max);
    let x = Axis::tight(100.0, "% of the CPUs' time", short);
    let rows = Axis::rows(known.len(), "");
    let left = names + 12.0;
    let top = sheet::legend_height(&entries) + 8.0;
    let height = known.len() as f64 * BAR_ROW;
    let panel = Panel { left, top, width: f64::from(WIDTH) - RIGHT - left, height, x: &x, y: &rows };
    draw(WIDTH, (top + height + BELOW).ceil() as u32, title, |canvas| {
        sheet::legend(canvas, &entries);
        panel.frame(canvas);
        for (row, (track, shares)) in known.iter().enumerate() {
            let y = top + (row as f64 + 0.5) * BAR_ROW;
            canvas.text((left - 8.0, y), &name(track), Ink::Text, TEXT_SIZE, Side::Left);
            let idle: f64 = shares.iter().map(|share| share.share.as_f64()).sum();
            let mut from = 0.0;
            let mut put = |share: f64, ink: Ink, opacity: f64| {
                let (start, end) = (panel.across(from * 100.0), panel.across((from + share) * 100.0));
                canvas.rect(start, y - BAR / 2.0, end - start, BAR, ink, opacity);
                let text = format!("{:.0}%", share * 100.0);
                if end - start > width_of(&text, LABEL_SIZE) + 8.0 {
                    let on = match ink {
                        Ink::Busy => Ink::Card,
                        _ if opacity < 0.6 => Ink::Text,
                        _ => Ink::OnIdle,
                    };
                    canvas.text(((start + end) / 2.0, y), &text, on, LABEL_SIZE, Side::Middle);
                }
                from += share;
            };
            put((1.0 - idle).max(0.0), Ink::Busy, 1.0);
            for StateShare { state, share } in shares {
                put(share.as_f64(), Ink::Idle, depth(state));
            }
        }
    })
}

fn name(track: &Track) -> String {
    sheet::clipped(&track.name, 24)
}

fn figure_text(value: f64) -> String {
    match value {
        v if v >= 1e4 => short((v / 100.0).round() * 100.0),
        v if v >= 100.0 => format!("{v:.0}"),
        v => format!("{v:.1}"),
    }
}

fn source_word(source: &EnergySource) -> &'static str {
    match source {
        EnergySource::Measured(_) => "measured",
        EnergySource::Modelled(_) => "modelled",
    }
}

const BAR_ROW: f64 = 38.0;
const BAR: f64 = 24.0;
