//! `roost top`: a running store at this moment.

use super::workers;
use crate::run::{CpuFrame, Frame};
use crate::text::{MISSING, grouped, or_missing};
use machine::{Duration, IdleLimit, Microwatts, Rate, Ratio};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Sparkline, Wrap};
use std::fmt::Write as _;

#[derive(Clone, Debug, Default)]
pub struct TopView {
    pub source: String,
    pub uptime: Duration,
    pub policy: String,
    pub connections: u32,
    pub items: u64,
    /// Bytes charged to the memory limit.
    pub memory_used: u64,
    pub memory_limit: u64,
    /// Requests per second at each refresh, oldest first.
    pub history: Vec<Rate>,
    /// This moment: rates and shares since the refresh before, counters since the store's start.
    pub now: Frame,
    /// The 99th percentile inside each worker, in the order of the frame's workers.
    pub tails: Vec<Option<Duration>>,
    pub moved: Moved,
    pub power: Option<Microwatts>,
    /// The first worker shown, where there is no room for all.
    pub first: usize,
}

/// Connections moved since the store's start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Moved {
    /// Because the scheduler ordered it: to empty a worker, or to relieve a lasting imbalance.
    pub ordered: u64,
    /// Back home, because a worker was overloaded.
    pub send_home: u64,
    /// From leaving one worker to the first read by the other, which was awake: median.
    pub p50: Option<Duration>,
    pub p99: Option<Duration>,
    pub max: Option<Duration>,
    /// 99th percentile where the other worker slept.
    pub sleeper_p99: Option<Duration>,
    /// The last bursts, oldest first: from the first connection sent home until the last worker so
    /// woken had answered.
    pub scale_ups: Vec<Duration>,
}

impl TopView {
    /// Draws the view on the whole of `frame`.
    pub fn draw(&self, frame: &mut ratatui::Frame<'_>) {
        let cpus = self.now.cpus.len() as u16;
        // The CPUs give way before the workers do: at least four workers stay.
        let cpu_rows = cpus.min(frame.area().height.saturating_sub(16)).max(cpus.min(2));
        // The source of an energy figure may be a long name, and is never cut.
        let width = usize::from(frame.area().width.max(1));
        let energy_rows = self.energy_line().chars().count().div_ceil(width).clamp(1, 3) as u16;
        let [head, facts, chart, gap, table, gap_too, cpu_area, moved, bursts, energy] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(1),
            Constraint::Length(if frame.area().height >= 20 { 4 } else { 0 }),
            Constraint::Length(1),
            Constraint::Fill(1),
            Constraint::Length(1),
            Constraint::Length(cpu_rows),
            Constraint::Length(1),
            Constraint::Length(1),
            Constraint::Length(energy_rows),
        ])
        .areas(frame.area());
        self.draw_head(frame, head);
        frame.render_widget(Paragraph::new(self.facts()), facts);
        self.draw_history(frame, chart);
        let dim = Style::new().add_modifier(Modifier::DIM);
        frame.render_widget(Paragraph::new(Line::styled(self.worker_title(table.height), dim)), gap);
        workers::draw(frame, table, &self.now, &self.tails, self.first);
        let title = "cpus: share of time executing and in each idle state; idle limit asked";
        frame.render_widget(Paragraph::new(Line::styled(title, dim)), gap_too);
        let cpus = self.now.cpus.iter().map(|cpu| Line::raw(cpu_line(cpu)));
        frame.render_widget(Paragraph::new(cpus.collect::<Vec<_>>()), cpu_area);
        frame.render_widget(Paragraph::new(self.moved_line()), moved);
        frame.render_widget(Paragraph::new(self.bursts_line()), bursts);
        frame.render_widget(Paragraph::new(self.energy_line()).wrap(Wrap { trim: true }), energy);
    }

    /// The same as plain text, for a pipe.
    pub fn text(&self) -> String {
        let mut text = format!(
            "{}  policy {}  up {}\n{}\n\n",
            self.source,
            self.policy,
            span(self.uptime),
            self.facts()
        );
        text.push_str(&workers::lines(&self.now, &self.tails));
        text.push('\n');
        for cpu in &self.now.cpus {
            let _ = writeln!(text, "{}", cpu_line(cpu));
        }
        let _ = writeln!(text, "\n{}\n{}\n{}", self.moved_line(), self.bursts_line(), self.energy_line());
        text
    }

    fn draw_head(&self, frame: &mut ratatui::Frame<'_>, area: Rect) {
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let left = Line::from(vec![
            Span::styled("roost top", bold),
            Span::raw(format!("  {}  policy {}  up {}", self.source, self.policy, span(self.uptime))),
        ]);
        frame.render_widget(Paragraph::new(left), area);
        let hint = Line::styled(" q quits", Style::new().add_modifier(Modifier::DIM)).right_aligned();
        if area.width > 60 {
            frame.render_widget(hint, Rect { x: area.right() - 8, width: 8, ..area });
        }
    }

    fn facts(&self) -> String {
        format!(
            "{} requests/s  {} connections  {} items  {} of {}",
            self.now
                .achieved
                .map_or_else(|| MISSING.to_owned(), |rate| grouped(rate.as_per_second().round() as u64)),
            grouped(self.connections.into()),
            grouped(self.items),
            bytes(self.memory_used),
            bytes(self.memory_limit),
        )
    }

    fn draw_history(&self, frame: &mut ratatui::Frame<'_>, area: Rect) {
        let [title, chart] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
        let shown = &self.history[self.history.len().saturating_sub(usize::from(area.width))..];
        let peak = shown.iter().copied().fold(Rate::ZERO, Rate::max);
        let text = format!("requests/s, a column per refresh, highest {peak}");
        frame.render_widget(
            Paragraph::new(Line::styled(text, Style::new().add_modifier(Modifier::DIM))),
            title,
        );
        let values: Vec<u64> = shown.iter().map(|rate| rate.as_per_second() as u64).collect();
        frame.render_widget(Sparkline::default().data(values).style(Style::new().fg(Color::Cyan)), chart);
    }

    fn worker_title(&self, height: u16) -> String {
        let (all, awake) = (self.now.workers.len(), self.now.workers_awake().unwrap_or(0));
        let rows = usize::from(height.saturating_sub(1));
        let hidden = if rows < all { format!("; {rows} shown, arrow keys move") } else { String::new() };
        format!("workers: {awake} of {all} active{hidden}")
    }

    fn moved_line(&self) -> String {
        let Moved { ordered, send_home, p50, p99, max, sleeper_p99, .. } = &self.moved;
        format!(
            "moved: {} ordered, {} home; p50 {} p99 {} max {}; sleeper p99 {}",
            grouped(*ordered),
            grouped(*send_home),
            or_missing(*p50),
            or_missing(*p99),
            or_missing(*max),
            or_missing(*sleeper_p99),
        )
    }

    fn bursts_line(&self) -> String {
        let mut sorted = self.moved.scale_ups.clone();
        sorted.sort_unstable();
        match (self.moved.scale_ups.last(), sorted.get(sorted.len() / 2)) {
            (Some(last), Some(middle)) => {
                format!(
                    "bursts: all woken workers served after {last}; median of the last {}: {middle}",
                    sorted.len()
                )
            }
            _ => format!("bursts: {MISSING} (none so far)"),
        }
    }

    fn energy_line(&self) -> String {
        let Some(energy) = &self.now.energy else {
            return format!("energy: {MISSING} (no meter, and no model for this machine)");
        };
        let power =
            self.power.map_or_else(|| MISSING.to_owned(), |power| format!("{:.1} W", power.as_watts()));
        format!("energy: {power} now, {} since the start, {}", energy.used, energy.source)
    }
}

fn cpu_line(cpu: &CpuFrame) -> String {
    let percent = |share: Option<Ratio>| {
        share.map_or_else(|| format!("{MISSING:>4}"), |share| format!("{:>3.0}%", share.as_f64() * 100.0))
    };
    let mut line = format!("{:<6} executing {}", cpu.cpu.to_string(), percent(cpu.busy));
    match &cpu.residency {
        Some(shares) => {
            for share in shares {
                let _ = write!(line, "  {} {}", share.state, percent(Some(share.share)));
            }
        }
        None => line.push_str("  idle states not reported"),
    }
    line.push_str("  limit ");
    match cpu.limit {
        IdleLimit::None => line.push_str("none"),
        IdleLimit::Deepest => line.push_str("the deepest"),
        IdleLimit::ExitLatency(latency) if latency.is_zero() => line.push_str("poll"),
        IdleLimit::ExitLatency(latency) => {
            let _ = write!(line, "{latency}");
        }
    }
    match cpu.in_force {
        Some(false) => line.push_str(" (refused)"),
        Some(true) if cpu.limit != IdleLimit::None => line.push_str(" (in force)"),
        _ => {}
    }
    line
}

/// A long length of time, as people say it.
fn span(length: Duration) -> String {
    let seconds = length.as_nanos() / 1_000_000_000;
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h{:02}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

fn bytes(count: u64) -> String {
    match count {
        0..1_024 => format!("{count} B"),
        1_024..1_048_576 => format!("{:.1} KiB", count as f64 / 1_024.0),
        1_048_576..1_073_741_824 => format!("{:.1} MiB", count as f64 / 1_048_576.0),
        _ => format!("{:.2} GiB", count as f64 / 1_073_741_824.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::{StateShare, WorkerFrame};
    use machine::{CpuId, EnergyReading, EnergySource, Microjoules, WorkerId};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn view(count: u16) -> TopView {
        let worker = |number: u16| WorkerFrame {
            worker: WorkerId(number),
            cpu: CpuId(number % 2),
            active: number < 2,
            load: Rate::per_second(if number < 2 { 4_800.0 - 2_400.0 * f64::from(number) } else { 0.0 }),
            limit: (number != 3).then(|| Rate::per_second(5_000.0)),
            busy: (number != 3).then(|| Ratio::new(0.6)),
            residents: 8,
            guests: if number == 0 { 24 } else { 0 },
        };
        let share = |state: &str, share| StateShare { state: state.to_owned(), share: Ratio::new(share) };
        TopView {
            source: "127.0.0.1:11211".to_owned(),
            uptime: Duration::from_secs(125),
            policy: "peafowl".to_owned(),
            connections: 64,
            items: 1_200_000,
            memory_used: 327 << 20,
            memory_limit: 1 << 30,
            history: (0..100).map(|n| Rate::per_second(f64::from(n) * 72.0)).collect(),
            now: Frame {
                achieved: Some(Rate::per_second(7_200.0)),
                workers: (0..count).map(worker).collect(),
                cpus: vec![
                    CpuFrame {
                        cpu: CpuId(0),
                        busy: Some(Ratio::new(0.43)),
                        residency: Some(vec![share("POLL", 0.01), share("C1", 0.4), share("C6", 0.16)]),
                        limit: IdleLimit::ExitLatency(Duration::from_micros(2)),
                        in_force: Some(true),
                    },
                    CpuFrame {
                        cpu: CpuId(1),
                        busy: None,
                        residency: None,
                        limit: IdleLimit::None,
                        in_force: None,
                    },
                ],
                energy: Some(EnergyReading {
                    used: Microjoules(178_900_000),
                    source: EnergySource::Modelled("skylake-sp".to_owned()),
                }),
                ..Frame::default()
            },
            tails: vec![Some(Duration::from_micros(120)), None],
            moved: Moved {
                ordered: 97,
                send_home: 64,
                p50: Some(Duration::from_micros(9)),
                p99: Some(Duration::from_micros(24)),
                max: None,
                sleeper_p99: Some(Duration::from_micros(81)),
                scale_ups: [1_400, 900, 1_100].map(Duration::from_micros).to_vec(),
            },
            power: Some(Microwatts::from_watts(9.13)),
            first: 0,
        }
    }

    fn drawn(view: &TopView, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| view.draw(frame)).unwrap();
        let buffer = terminal.backend().buffer().clone();
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
        (0..height).map(line).collect()
    }

    #[test]
    fn all_of_it_fits_on_80_by_24() {
        let lines = drawn(&view(4), 80, 24);
        let expected = [
            "roost top  127.0.0.1:11211  policy peafowl  up 2m05s                     q quits",
            "7,200 requests/s  64 connections  1,200,000 items  327.0 MiB of 1.00 GiB",
            "requests/s, a column per refresh, highest 7128/s",
        ];
        assert_eq!(lines[..3], expected, "{lines:#?}");
        let expected = [
            "workers: 2 of 4 active",
            "worker cpu   state  load of its limit     load    limit home guest  busy     p99",
            "0      cpu0  active ████████████████▍   4800/s   5000/s    8    24   60%   120us",
            "1      cpu1  active ████████▏········   2400/s   5000/s    8     0   60%       -",
            "2      cpu0  asleep ·················      0/s   5000/s    8     0   60%       -",
            "3      cpu1  asleep ·················      0/s        -    8     0     -       -",
        ];
        assert_eq!(lines[6..12], expected, "{lines:#?}");
        let expected = [
            "cpus: share of time executing and in each idle state; idle limit asked",
            "cpu0   executing  43%  POLL   1%  C1  40%  C6  16%  limit 2.00us (in force)",
            "cpu1   executing    -  idle states not reported  limit none",
            "moved: 97 ordered, 64 home; p50 9.00us p99 24.0us max -; sleeper p99 81.0us",
            "bursts: all woken workers served after 1.10ms; median of the last 3: 1.10ms",
            "energy: 9.1 W now, 178.9 J since the start, modelled (skylake-sp)",
        ];
        assert_eq!(lines[18..], expected, "{lines:#?}");
    }

    #[test]
    fn more_workers_than_rows_can_be_reached_and_are_counted() {
        let mut view = view(64);
        let lines = drawn(&view, 80, 24);
        assert_eq!(lines[6], "workers: 2 of 64 active; 10 shown, arrow keys move");
        view.first = 1_000;
        let lines = drawn(&view, 80, 24);
        assert!(lines[17].starts_with("63     cpu1"), "{lines:#?}");
    }

    #[test]
    fn a_long_source_of_energy_is_wrapped_not_cut() {
        let mut view = view(4);
        let long = "epyc-9755, an estimate for this unlisted processor";
        view.now.energy.as_mut().unwrap().source = EnergySource::Modelled(long.to_owned());
        let lines = drawn(&view, 80, 24);
        assert_eq!(
            lines[22..],
            [
                "energy: 9.1 W now, 178.9 J since the start, modelled (epyc-9755, an estimate for",
                "this unlisted processor)"
            ]
        );
    }

    #[test]
    fn a_narrow_window_keeps_every_figure_of_a_worker() {
        let lines = drawn(&view(2), 60, 24);
        assert_eq!(lines[8], "0      active   4800/s   5000/s    8    24   60%   120us", "{lines:#?}");
    }

    #[test]
    fn no_size_makes_it_panic() {
        for (width, height) in [(1, 1), (3, 40), (200, 2), (80, 5), (40, 12), (79, 23), (300, 90)] {
            for workers in [0, 1, 200] {
                drawn(&view(workers), width, height);
            }
            drawn(&TopView::default(), width, height);
        }
    }

    #[test]
    fn the_plain_text_has_the_same_figures() {
        assert_eq!(
            view(4).text(),
            "127.0.0.1:11211  policy peafowl  up 2m05s\n\
             7,200 requests/s  64 connections  1,200,000 items  327.0 MiB of 1.00 GiB\n\n\
             worker     cpu    state        load     limit  home guest   busy      p99\n\
             worker-0   cpu0   active     4800/s    5000/s     8    24  60.0%    120us\n\
             worker-1   cpu1   active     2400/s    5000/s     8     0  60.0%        -\n\
             worker-2   cpu0   asleep        0/s    5000/s     8     0  60.0%        -\n\
             worker-3   cpu1   asleep        0/s         -     8     0      -        -\n\n\
             cpu0   executing  43%  POLL   1%  C1  40%  C6  16%  limit 2.00us (in force)\n\
             cpu1   executing    -  idle states not reported  limit none\n\n\
             moved: 97 ordered, 64 home; p50 9.00us p99 24.0us max -; sleeper p99 81.0us\n\
             bursts: all woken workers served after 1.10ms; median of the last 3: 1.10ms\n\
             energy: 9.1 W now, 178.9 J since the start, modelled (skylake-sp)\n"
        );
    }

    #[test]
    fn long_times_read_as_people_say_them() {
        let of = |seconds| span(Duration::from_secs(seconds));
        assert_eq!([of(7), of(61), of(3_700), of(200_000)], ["7s", "1m01s", "1h01m", "2d07h"]);
    }
}
