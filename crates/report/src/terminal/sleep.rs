//! How the CPUs sleep at this moment: a strip of the last ticks for each, where their time goes by
//! the length of periods, and how the watched service answers.

use crate::text::or_missing;
use machine::{CpuId, Duration, Rate, Ratio};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Wrap};

#[derive(Clone, Debug, Default)]
pub struct SleepView {
    pub title: String,
    pub source: String,
    pub at: Duration,
    /// How long it will go on; zero: until told.
    pub length: Duration,
    pub lost: u64,
    /// The CPUs, in order of number.
    pub cpus: Vec<CpuSleeps>,
    /// Where time went since the beginning, by the length of periods.
    pub lengths: Vec<LengthBar>,
    /// The service in the last tick.
    pub requests: Option<RequestNow>,
    /// The service's own telemetry.
    pub own: Option<OwnWord>,
    /// Watts by the user's meter.
    pub watts: Option<f64>,
}

#[derive(Clone, Debug)]
pub struct CpuSleeps {
    pub cpu: CpuId,
    /// Share of each tick that it worked, oldest first; `None` where nothing was heard of it.
    pub busy: Vec<Option<Ratio>>,
    /// Share of the last tick in each idle state, with its name.
    pub states: Vec<(String, Ratio)>,
    /// Sleeps that ended in the last tick.
    pub sleeps: u64,
}

/// Time in periods of similar length.
#[derive(Clone, Copy, Debug)]
pub struct LengthBar {
    pub from: Duration,
    /// Share of all time in idle ones.
    pub idle: Ratio,
    /// Share of all time in active ones.
    pub active: Ratio,
}

/// The service in the last tick: each time as median and 99th percentile.
#[derive(Clone, Debug)]
pub struct RequestNow {
    pub way: String,
    pub rate: Rate,
    pub response: Option<(Duration, Duration)>,
    pub waiting: Option<(Duration, Duration)>,
    pub service: Option<(Duration, Duration)>,
}

/// A service's own telemetry.
#[derive(Clone, Debug)]
pub struct OwnWord {
    pub source: String,
    /// Requests per second; `None` while it does not answer.
    pub rate: Option<Rate>,
    /// Its 99th percentile, where it tells one.
    pub p99: Option<Duration>,
    /// Its connections, where it tells them.
    pub connections: Option<u64>,
}

impl SleepView {
    /// Draws the view on the whole of `frame`.
    pub fn draw(&self, frame: &mut ratatui::Frame<'_>) {
        let area = frame.area();
        let lengths = (self.lengths.len() as u16 + 1).min(area.height.saturating_sub(8));
        let [head, facts, requests, own, gap, cpus, gap_too, chart] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(1),
            Constraint::Length(if self.requests.is_some() { 2 } else { 0 }),
            Constraint::Length(u16::from(self.own.is_some())),
            Constraint::Length(1),
            Constraint::Fill(1),
            Constraint::Length(1),
            Constraint::Length(lengths),
        ])
        .areas(area);
        self.draw_head(frame, head);
        frame.render_widget(Paragraph::new(self.facts()), facts);
        frame.render_widget(Paragraph::new(self.request_line()).wrap(Wrap { trim: true }), requests);
        frame.render_widget(Paragraph::new(self.own_line()), own);
        let room = usize::from(cpus.height);
        let left_out = self.cpus.len().saturating_sub(room);
        let more = if left_out > 0 { format!(" ({left_out} more CPUs below)") } else { String::new() };
        let title = format!("cpus: share of each second at work; of the last one in each idle state{more}");
        frame.render_widget(Line::styled(title, DIM), gap);
        let lines = self.cpus.iter().take(room).map(|cpu| cpu_line(cpu, usize::from(cpus.width)));
        frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), cpus);
        let title = "time by the length of periods since the beginning: green asleep, blue at work";
        frame.render_widget(Line::styled(title, DIM), gap_too);
        self.draw_lengths(frame, chart);
    }

    fn draw_head(&self, frame: &mut ratatui::Frame<'_>, area: Rect) {
        let bold = Style::new().add_modifier(Modifier::BOLD);
        frame.render_widget(Line::styled(self.title.clone(), bold), area);
        if area.width > 60 {
            let hint = Line::styled(" q ends it", DIM).right_aligned();
            frame.render_widget(hint, Rect { x: area.right() - 10, width: 10, ..area });
        }
    }

    fn facts(&self) -> String {
        let of = if self.length.is_zero() { String::new() } else { format!(" of {}", self.length) };
        let watts = self.watts.map_or_else(String::new, |watts| format!("  {watts:.1} W"));
        let lost = if self.lost > 0 { format!("  {} events lost", self.lost) } else { String::new() };
        format!("{:.0} s{of}  {}{watts}{lost}", self.at.as_secs_f64(), self.source)
    }

    fn request_line(&self) -> String {
        let Some(now) = &self.requests else { return String::new() };
        let time = |name: &str, times: Option<(Duration, Duration)>| {
            times.map_or_else(String::new, |(p50, p99)| format!("  {name} {p50} / {p99}"))
        };
        format!(
            "{}  p50 / p99:{}{}{}  (seen at {})",
            now.rate,
            time("response", now.response),
            time("waiting", now.waiting),
            time("service", now.service),
            now.way
        )
    }

    fn own_line(&self) -> String {
        let Some(OwnWord { source, rate, p99, connections }) = &self.own else { return String::new() };
        let Some(rate) = rate else { return format!("{source} says nothing of itself now") };
        let p99 = p99.map_or_else(String::new, |p99| format!("  p99 {p99}"));
        let connections = connections.map_or_else(String::new, |open| format!("  {open} connections"));
        format!("{rate}{p99}{connections}  (says {source} of itself)")
    }

    fn draw_lengths(&self, frame: &mut ratatui::Frame<'_>, area: Rect) {
        if area.width < 24 {
            return;
        }
        let width = usize::from(area.width) - 18;
        let most =
            self.lengths.iter().map(|bar| bar.idle.as_f64() + bar.active.as_f64()).fold(1e-9, f64::max);
        let lines = self.lengths.iter().map(|length| {
            let part = |share: Ratio| (share.as_f64() / most * width as f64).round() as usize;
            let all = Ratio::new(length.idle.as_f64() + length.active.as_f64());
            Line::from(vec![
                Span::raw(format!("{:>9} ", length.from.to_string())),
                Span::styled("█".repeat(part(length.idle)), Style::new().fg(Color::Green)),
                Span::styled("█".repeat(part(length.active)), Style::new().fg(Color::Blue)),
                Span::styled(format!(" {all}"), DIM),
            ])
        });
        frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), area);
    }
}

/// `cpu3  ▁▂▇█▁  62 %  POLL 1 %  C1 20 %  C6 17 %  812 sleeps/s`
fn cpu_line(cpu: &CpuSleeps, width: usize) -> Line<'static> {
    let states: Vec<String> = cpu
        .states
        .iter()
        .filter(|(_, share)| share.as_f64() >= 0.001)
        .map(|(name, share)| format!("{name} {share}"))
        .collect();
    let busy = cpu.busy.last().copied().flatten();
    let tail = format!(" {:>7}  {}  {} sleeps", or_missing(busy), states.join("  "), cpu.sleeps);
    let room = width.saturating_sub(8 + tail.chars().count()).clamp(0, STRIP);
    let first = cpu.busy.len().saturating_sub(room);
    let strip: String = cpu.busy[first..].iter().map(|&busy| mark(busy)).collect();
    Line::from(vec![
        Span::raw(format!("{:<7} ", cpu.cpu.to_string())),
        Span::styled(format!("{strip:>room$}"), Style::new().fg(Color::Blue)),
        Span::raw(tail),
    ])
}

/// How much of a tick was work, in eighths.
fn mark(busy: Option<Ratio>) -> char {
    const MARKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let Some(busy) = busy else { return '·' };
    MARKS[((busy.as_f64() * 8.0) as usize).min(7)]
}

const DIM: Style = Style::new().add_modifier(Modifier::DIM);
/// No user looks back further than these seconds.
const STRIP: usize = 60;

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn view() -> SleepView {
        let cpu = |cpu, busy: &[f64]| CpuSleeps {
            cpu: CpuId(cpu),
            busy: busy.iter().map(|&busy| Some(Ratio::new(busy))).collect(),
            states: vec![("POLL".to_owned(), Ratio::new(0.0)), ("C6".to_owned(), Ratio::new(0.38))],
            sleeps: 812,
        };
        SleepView {
            title: "How the CPUs sleep under memcached (port 11211)".to_owned(),
            source: "cpu_idle events".to_owned(),
            at: Duration::from_secs(12),
            length: Duration::from_secs(60),
            lost: 0,
            cpus: vec![cpu(0, &[0.0, 0.3, 1.0]), cpu(1, &[0.62])],
            lengths: vec![
                LengthBar { from: Duration::from_micros(32), idle: Ratio::new(0.1), active: Ratio::new(0.3) },
                LengthBar { from: Duration::from_micros(64), idle: Ratio::new(0.6), active: Ratio::new(0.0) },
            ],
            requests: Some(RequestNow {
                way: "sockets".to_owned(),
                rate: Rate::per_second(20_000.0),
                response: Some((Duration::from_micros(31), Duration::from_micros(95))),
                waiting: None,
                service: None,
            }),
            own: Some(OwnWord {
                source: "memcached:127.0.0.1:11211".to_owned(),
                rate: Some(Rate::per_second(19_900.0)),
                p99: None,
                connections: Some(32),
            }),
            watts: Some(187.5),
        }
    }

    fn drawn(width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| view().draw(frame)).unwrap();
        let buffer = terminal.backend().buffer().clone();
        let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
        (0..height).map(row).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn a_terminal_shows_requests_strips_and_lengths() {
        let text = drawn(100, 16);
        for part in [
            "memcached (port 11211)",
            "12 s of",
            "187.5 W",
            "32 connections  (says memcached:127.0.0.1:11211 of itself)",
            "response 31.0us / 95.0us",
            "▁▃█",
            "C6 38",
            "812 sleeps",
            "32.0us",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
    }

    #[test]
    fn a_service_that_falls_silent_is_said_to_be_silent() {
        let mut view = view();
        assert!(
            view.own_line().starts_with("19900/s") || view.own_line().contains("19.9"),
            "{}",
            view.own_line()
        );
        view.own.as_mut().unwrap().rate = None;
        assert_eq!(view.own_line(), "memcached:127.0.0.1:11211 says nothing of itself now");
        view.own = None;
        assert_eq!(view.own_line(), "");
    }

    #[test]
    fn a_tiny_terminal_is_no_reason_to_panic() {
        for (width, height) in [(1, 1), (10, 3), (30, 6), (200, 60)] {
            drawn(width, height);
        }
    }

    #[test]
    fn marks_rise_with_work() {
        assert_eq!(mark(Some(Ratio::new(0.0))), '▁');
        assert_eq!(mark(Some(Ratio::new(1.0))), '█');
        assert_eq!(mark(None), '·');
    }
}
