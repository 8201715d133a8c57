//! The table of workers, as both views show it: a bar of load against limit, and where connections
//! are served.

use crate::run::{Frame, WorkerFrame};
use crate::text::{MISSING, or_missing};
use machine::{Duration, Rate};
use ratatui::layout::{Constraint, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Cell, Row, Table};

/// Draws the workers of `now` from the one at `first` on, with as many rows as `area` has; `tails`
/// are the workers' own 99th percentiles, in the same order, where there are any.
pub fn draw(
    frame: &mut ratatui::Frame<'_>,
    area: Rect,
    now: &Frame,
    tails: &[Option<Duration>],
    first: usize,
) {
    if area.height == 0 || area.width == 0 {
        return;
    }
    let peak = now.workers.iter().map(|worker| worker.load).fold(Rate::ZERO, Rate::max);
    let room = usize::from(area.height) - 1;
    let first = first.min(now.workers.len().saturating_sub(room));
    let bar_width = usize::from(area.width.saturating_sub(FIXED_WIDTH));
    let rows = now.workers.iter().enumerate().skip(first).take(room).map(|(place, worker)| {
        let tail = tails.get(place).copied().flatten();
        row(worker, tail, peak, bar_width)
    });
    let title = |text: &'static str| Cell::from(Text::from(text).right_aligned());
    let header = [
        Cell::from("worker"),
        Cell::from("cpu"),
        Cell::from("state"),
        Cell::from("load of its limit"),
        title("load"),
        title("limit"),
        title("home"),
        title("guest"),
        title("busy"),
        title("p99"),
    ];
    let header = Row::new(shown(header, bar_width)).style(Style::new().add_modifier(Modifier::DIM));
    let widths = WIDTHS.map(|width| if width == 0 { Constraint::Fill(1) } else { Constraint::Length(width) });
    let widths = shown(widths, bar_width);
    frame.render_widget(Table::new(rows, widths).header(header).column_spacing(1), area);
}

/// One line of text per worker, for a pipe.
pub fn lines(now: &Frame, tails: &[Option<Duration>]) -> String {
    let mut text = format!(
        "{:<10} {:<6} {:<7} {:>9} {:>9} {:>5} {:>5} {:>6} {:>8}\n",
        "worker", "cpu", "state", "load", "limit", "home", "guest", "busy", "p99"
    );
    for (place, worker) in now.workers.iter().enumerate() {
        let tail = tails.get(place).copied().flatten();
        text.push_str(&format!(
            "{:<10} {:<6} {:<7} {:>9} {:>9} {:>5} {:>5} {:>6} {:>8}\n",
            worker.worker.to_string(),
            worker.cpu.to_string(),
            state(worker),
            worker.load.to_string(),
            or_missing(worker.limit),
            worker.residents,
            worker.guests,
            or_missing(worker.busy),
            or_missing(tail),
        ));
    }
    text
}

/// `filled` of `width` cells in eighths of a cell.
pub fn bar(share: f64, width: usize) -> String {
    const EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let share = if share.is_nan() { 0.0 } else { share.clamp(0.0, 1.0) };
    let eighths = (share * width as f64 * 8.0).round() as usize;
    let mut bar = "█".repeat(eighths / 8);
    if !eighths.is_multiple_of(8) {
        bar.push(EIGHTHS[eighths % 8]);
    }
    let drawn = bar.chars().count();
    bar.extend(std::iter::repeat_n('·', width.saturating_sub(drawn)));
    bar
}

fn row(worker: &WorkerFrame, tail: Option<Duration>, peak: Rate, bar_width: usize) -> Row<'static> {
    // Without a limit of its own, a worker is measured by the busiest one.
    let limit = worker.limit.unwrap_or(peak).as_per_second();
    let share = if limit > 0.0 { worker.load.as_per_second() / limit } else { 0.0 };
    let colour = match share {
        _ if !worker.active => Color::DarkGray,
        _ if worker.limit.is_none() => Color::Cyan,
        share if share > 1.0 => Color::Red,
        share if share > 0.9 => Color::Yellow,
        _ => Color::Green,
    };
    let number = |text: String| Cell::from(Text::from(text).right_aligned());
    let dim = if worker.active { Style::new() } else { Style::new().fg(Color::DarkGray) };
    let cells = [
        Cell::from(worker.worker.0.to_string()),
        Cell::from(worker.cpu.to_string()),
        Cell::from(Span::styled(state(worker), Style::new().fg(colour))),
        Cell::from(Line::styled(bar(share, bar_width), Style::new().fg(colour))),
        number(worker.load.to_string()),
        number(or_missing(worker.limit)),
        number(worker.residents.to_string()),
        number(worker.guests.to_string()),
        number(
            worker.busy.map_or_else(|| MISSING.to_owned(), |busy| format!("{:.0}%", busy.as_f64() * 100.0)),
        ),
        number(or_missing(tail)),
    ];
    Row::new(shown(cells, bar_width)).style(dim)
}

/// The columns that there is room for: a narrow window loses the CPU and the bar, which the figures
/// repeat.
fn shown<T>(columns: [T; 10], bar_width: usize) -> Vec<T> {
    let narrow = bar_width < BAR_WIDTH_MIN;
    let kept = columns.into_iter().enumerate().filter(|(column, _)| !narrow || ![1, 3].contains(column));
    kept.map(|(_, cell)| cell).collect()
}

fn state(worker: &WorkerFrame) -> &'static str {
    if worker.active { "active" } else { "asleep" }
}

/// Widths of the columns; the bar takes the rest.
const WIDTHS: [u16; 10] = [6, 5, 6, 0, 8, 8, 4, 5, 5, 7];
/// A shorter bar would show no difference between its limit and nine tenths of it.
const BAR_WIDTH_MIN: usize = 4;
/// All other columns and the spaces between.
const FIXED_WIDTH: u16 = 54 + 9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_as_wide_as_asked_whatever_the_share() {
        for width in [0, 1, 7, 30] {
            for share in [f64::NAN, -1.0, 0.0, 0.01, 0.5, 0.999, 1.0, 7.0, f64::INFINITY] {
                assert_eq!(bar(share, width).chars().count(), width, "{share} of {width}");
            }
        }
        assert_eq!(bar(0.5, 4), "██··");
        assert_eq!(bar(0.3, 4), "█▎··");
    }

    #[test]
    fn the_columns_add_up() {
        assert_eq!(WIDTHS.iter().sum::<u16>() + 9, FIXED_WIDTH);
    }
}
