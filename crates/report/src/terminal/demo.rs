//! The live view of `roost demo`: the running phase, its load, the awake workers, and the tail of
//! each phase so far.

use super::workers;
use crate::run::{Frame, Phase, Summary};
use crate::text::{MISSING, or_missing};
use machine::{Duration, Rate};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Cell, Paragraph, Row, Sparkline, Table};

#[derive(Clone, Copy, Debug)]
pub struct DemoView<'a> {
    /// The run, in a few words.
    pub title: &'a str,
    pub plan: &'a [Planned],
    /// The moments so far, of all phases.
    pub frames: &'a [Frame],
    pub summary: &'a Summary,
    /// One more line, such as how to end it.
    pub hint: &'a str,
}

/// A phase as it is planned.
#[derive(Clone, Debug, PartialEq)]
pub struct Planned {
    pub name: String,
    pub what: String,
    pub length: Duration,
}

impl DemoView<'_> {
    /// Draws the view on the whole of `frame`.
    pub fn draw(&self, frame: &mut ratatui::Frame<'_>) {
        let [head, progress, phases, load_title, load, strip_title, strip, hint] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(1),
            Constraint::Length(self.plan.len() as u16 + 1),
            Constraint::Length(1),
            Constraint::Length(if frame.area().height >= 20 { 4 } else { 2 }),
            Constraint::Length(1),
            Constraint::Fill(1),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let dim = Style::new().add_modifier(Modifier::DIM);
        frame.render_widget(Paragraph::new(Line::styled(self.title, bold)), head);
        self.draw_progress(frame, progress);
        self.draw_phases(frame, phases);
        if let Some(now) = self.frames.last() {
            let asked =
                format!("load offered in this phase, now {}, answered {}", or(now.offered), or(now.achieved));
            frame.render_widget(Paragraph::new(Line::styled(asked, dim)), load_title);
            self.draw_load(frame, load, &now.phase);
            let (all, awake) = (now.workers.len(), now.workers_awake().unwrap_or(0));
            let title = format!("workers: {awake} of {all} active");
            frame.render_widget(Paragraph::new(Line::styled(title, dim)), strip_title);
            workers::draw(frame, strip, now, &[], 0);
        }
        frame.render_widget(Paragraph::new(Line::styled(self.hint, dim)), hint);
    }

    /// One line for the moment of the last frame, where there is no terminal to draw on.
    pub fn progress_line(&self) -> String {
        let Some(now) = self.frames.last() else { return "starting".to_owned() };
        let length = self.plan.iter().find(|phase| phase.name == now.phase).map(|phase| phase.length);
        let awake = now.workers_awake().map_or_else(|| MISSING.to_owned(), |awake| awake.to_string());
        format!(
            "{} {:.1}s of {}: offered {} answered {} workers active {awake} of {} p99 {}",
            now.phase,
            now.at.as_secs_f64(),
            length.map_or_else(|| MISSING.to_owned(), |length| format!("{:.0}s", length.as_secs_f64())),
            or(now.offered),
            or(now.achieved),
            now.workers.len(),
            or_missing(now.p99),
        )
    }

    fn draw_progress(&self, frame: &mut ratatui::Frame<'_>, area: Rect) {
        let whole: Duration = self.plan.iter().map(|phase| phase.length).sum();
        let so_far: Duration = self.plan.iter().map(|phase| self.elapsed(phase)).sum();
        let left = whole - so_far;
        let text = format!(" {:>3.0}s left", left.as_secs_f64());
        let width = usize::from(area.width).saturating_sub(text.len());
        let share = so_far.as_secs_f64() / whole.as_secs_f64().max(1e-9);
        let line = format!("{}{text}", workers::bar(share, width));
        frame.render_widget(Paragraph::new(Line::styled(line, Style::new().fg(Color::Cyan))), area);
    }

    fn draw_phases(&self, frame: &mut ratatui::Frame<'_>, area: Rect) {
        let number = |text: String| Cell::from(Text::from(text).right_aligned());
        let running = self.frames.last().map(|frame| frame.phase.as_str());
        let rows = self.plan.iter().map(|planned| {
            let ended = self.summary.phases.iter().find(|phase| phase.name == planned.name);
            let (state, style) = match ended {
                Some(_) => ("done", Style::new()),
                None if running == Some(&planned.name) => {
                    ("running", Style::new().add_modifier(Modifier::BOLD))
                }
                None => ("waiting", Style::new().add_modifier(Modifier::DIM)),
            };
            let figures = self.figures(&planned.name, ended);
            Row::new([
                Cell::from(planned.name.clone()),
                Cell::from(planned.what.clone()),
                Cell::from(state),
                number(figures[0].clone()),
                number(figures[1].clone()),
                number(figures[2].clone()),
            ])
            .style(style)
        });
        let header = Row::new([
            Cell::from("phase"),
            Cell::from(""),
            Cell::from("state"),
            number("p99".to_owned()),
            number("awake".to_owned()),
            number("energy".to_owned()),
        ])
        .style(Style::new().add_modifier(Modifier::DIM));
        let widths = [
            Constraint::Length(10),
            Constraint::Fill(1),
            Constraint::Length(7),
            Constraint::Length(8),
            Constraint::Length(7),
            Constraint::Length(17),
        ];
        frame.render_widget(Table::new(rows, widths).header(header).column_spacing(1), area);
    }

    /// p99, worker-seconds awake and energy: of the whole phase once it has ended, until then so
    /// far. Percentiles of intervals do not add up to one of the phase, so while it runs the median
    /// of them stands there, marked by `~`.
    fn figures(&self, name: &str, ended: Option<&Phase>) -> [String; 3] {
        let frames = || self.frames.iter().filter(|frame| frame.phase == name);
        let last = frames().next_back();
        let tail = match ended {
            Some(phase) => or_missing(phase.p99),
            None => {
                let mut tails: Vec<Duration> = frames().filter_map(|frame| frame.p99).collect();
                tails.sort_unstable();
                tails.get(tails.len() / 2).map_or_else(|| MISSING.to_owned(), |middle| format!("~{middle}"))
            }
        };
        let awake = ended.map_or_else(|| last.and_then(|frame| frame.awake), |phase| phase.awake);
        let energy =
            ended.map_or_else(|| last.and_then(|frame| frame.energy.as_ref()), |phase| phase.energy.as_ref());
        [
            tail,
            awake.map_or_else(|| MISSING.to_owned(), |awake| format!("{:.0} s", awake.as_secs_f64())),
            energy.map_or_else(
                || MISSING.to_owned(),
                |energy| {
                    let source = energy.source.to_string();
                    format!("{} {}", energy.used, source.split(' ').next().unwrap_or_default())
                },
            ),
        ]
    }

    fn draw_load(&self, frame: &mut ratatui::Frame<'_>, area: Rect, phase: &str) {
        let Some(length) =
            self.plan.iter().find(|planned| planned.name == phase).map(|planned| planned.length)
        else {
            return;
        };
        // One column per equal part of the phase, so that the line fills the width just as the
        // phase ends.
        let columns = usize::from(area.width);
        let mut values = vec![None; columns];
        for moment in self.frames.iter().filter(|frame| frame.phase == phase) {
            let share = moment.at.as_secs_f64() / length.as_secs_f64().max(1e-9);
            let column = ((share * columns as f64) as usize).min(columns.saturating_sub(1));
            if let (Some(value), Some(rate)) = (values.get_mut(column), moment.offered.or(moment.achieved)) {
                *value = Some(rate.as_per_second() as u64);
            }
        }
        // Where frames are rarer than columns, the column shows the rate that was asked before.
        let last = values.iter().rposition(Option::is_some).unwrap_or(0);
        let mut before = 0;
        let filled = values.iter().take(last + 1).map(|value| {
            before = value.unwrap_or(before);
            before
        });
        let chart =
            Sparkline::default().data(filled.collect::<Vec<u64>>()).style(Style::new().fg(Color::Cyan));
        frame.render_widget(chart, area);
    }

    fn elapsed(&self, planned: &Planned) -> Duration {
        if self.summary.phases.iter().any(|phase| phase.name == planned.name) {
            return planned.length;
        }
        let last = self.frames.iter().rfind(|frame| frame.phase == planned.name);
        last.map_or(Duration::ZERO, |frame| frame.at.min(planned.length))
    }
}

fn or(rate: Option<Rate>) -> String {
    or_missing(rate)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::WorkerFrame;
    use machine::{CpuId, EnergyReading, EnergySource, Microjoules, WorkerId};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn plan() -> Vec<Planned> {
        [("stock", "all workers, stock idle"), ("scheduler", "as few as the load needs")]
            .map(|(name, what)| Planned {
                name: name.to_owned(),
                what: what.to_owned(),
                length: Duration::from_secs(20),
            })
            .to_vec()
    }

    fn frames(phase: &str, count: u64) -> Vec<Frame> {
        let worker = |number: u16| WorkerFrame {
            worker: WorkerId(number),
            cpu: CpuId(number),
            active: number == 0,
            load: Rate::per_second(500.0),
            limit: Some(Rate::per_second(1_000.0)),
            busy: None,
            residents: 2,
            guests: 0,
        };
        let frame = |n: u64| Frame {
            phase: phase.to_owned(),
            at: Duration::from_millis(200 * (n + 1)),
            offered: Some(Rate::per_second(1_000.0 + 10.0 * n as f64)),
            achieved: Some(Rate::per_second(990.0)),
            p99: Some(Duration::from_micros(300 + n)),
            workers: (0..2).map(worker).collect(),
            awake: Some(Duration::from_millis(200 * (n + 1))),
            energy: Some(EnergyReading {
                used: Microjoules(1_000_000 * n),
                source: EnergySource::Modelled("x".to_owned()),
            }),
            ..Frame::default()
        };
        (0..count).map(frame).collect()
    }

    fn drawn(view: &DemoView<'_>, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| view.draw(frame)).unwrap();
        let buffer = terminal.backend().buffer().clone();
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
        (0..height).map(line).collect()
    }

    #[test]
    fn the_view_shows_where_the_run_is() {
        let stock = Phase {
            name: "stock".to_owned(),
            p99: Some(Duration::from_micros(330)),
            awake: Some(Duration::from_secs(40)),
            ..Phase::default()
        };
        let summary = Summary { phases: vec![stock], ..Summary::default() };
        let frames = [frames("stock", 100), frames("scheduler", 50)].concat();
        let view =
            DemoView { title: "roost demo", plan: &plan(), frames: &frames, summary: &summary, hint: "hint" };
        let lines = drawn(&view, 80, 24);
        assert_eq!(lines[0], "roost demo");
        assert!(lines[1].ends_with("  10s left"), "{lines:#?}");
        assert_eq!(lines[1].chars().filter(|&c| c == '█').count(), 52, "three quarters of 70: {lines:#?}");
        let expected = [
            "phase                                 state        p99   awake            energy",
            "stock      all workers, stock idle    done       330us    40 s                 -",
            "scheduler  as few as the load needs   running   ~325us    10 s   49.0 J modelled",
            "load offered in this phase, now 1490/s, answered 990/s",
        ];
        assert_eq!(lines[2..6].iter().map(|l| l.as_str()).collect::<Vec<_>>(), expected, "{lines:#?}");
        assert_eq!(lines[10], "workers: 1 of 2 active");
        assert_eq!(lines[23], "hint");
        assert_eq!(
            view.progress_line(),
            "scheduler 10.0s of 20s: offered 1490/s answered 990/s workers active 1 of 2 p99 349us"
        );
    }

    #[test]
    fn no_size_and_no_lack_of_data_makes_it_panic() {
        let some = frames("other", 3);
        let empty = Summary::default();
        for (width, height) in [(1, 1), (2, 30), (200, 3), (80, 24), (40, 10)] {
            for frames in [&some[..0], &some] {
                for plan in [&plan()[..], &[]] {
                    let view = DemoView { title: "t", plan, frames, summary: &empty, hint: "" };
                    drawn(&view, width, height);
                    view.progress_line();
                }
            }
        }
    }
}
