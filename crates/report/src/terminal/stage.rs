//! A staged-burst proxy at this moment: the requests held before each server, how large the last
//! bursts were, and how each class fares.

use crate::text::{grouped, or_missing};
use machine::{Duration, Rate};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

#[derive(Clone, Debug, Default)]
pub struct StageView {
    pub goal: String,
    pub at: Duration,
    /// Answers per second, in the last one.
    pub rate: Option<Rate>,
    pub connections: u32,
    /// Bytes of bodies in memory, and their limit.
    pub memory: (u64, u64),
    pub servers: Vec<ServerNow>,
    pub classes: Vec<ClassNow>,
    /// The last failure of a server.
    pub lost: Option<String>,
}

#[derive(Clone, Debug, Default)]
pub struct ServerNow {
    pub name: String,
    pub is_up: bool,
    pub held: u64,
    pub in_service: u64,
    pub bursts: u64,
    /// How long before its deadline a request goes.
    pub lead: Option<Duration>,
    /// How many requests the last bursts let go, oldest first.
    pub sizes: Vec<u32>,
}

#[derive(Clone, Debug, Default)]
pub struct ClassNow {
    pub name: String,
    pub answered: u64,
    /// Of those, later than their deadline.
    pub late: u64,
    pub p50: Duration,
    pub tail: Duration,
    /// How long they were held, on average.
    pub held: Duration,
}

impl StageView {
    /// Draws the view on the whole of `frame`.
    pub fn draw(&self, frame: &mut ratatui::Frame<'_>) {
        let width = usize::from(frame.area().width);
        let mut lines = vec![
            Line::styled(
                format!("roost stage   goal {}", self.goal),
                Style::new().add_modifier(Modifier::BOLD),
            ),
            Line::raw(format!(
                "{:.0} s  {} answers/s  {} connections  {} of {} KiB in bodies",
                self.at.as_secs_f64(),
                or_missing(self.rate.map(|rate| format!("{:.0}", rate.as_per_second()))),
                self.connections,
                grouped(self.memory.0 / 1024),
                grouped(self.memory.1 / 1024),
            )),
            Line::styled("servers: waiting, at work, and how many the last bursts let go", DIM),
        ];
        for server in &self.servers {
            let state = if server.is_up { Span::styled("up  ", UP) } else { Span::styled("DOWN", DOWN) };
            let facts = format!(
                " {:<20} {:>5} held {:>5} in service {:>8} bursts  lead {}",
                clipped(&server.name, 20),
                server.held,
                server.in_service,
                grouped(server.bursts),
                or_missing(server.lead),
            );
            lines.push(Line::from(vec![state, Span::raw(facts)]));
            lines.push(Line::styled(strip(&server.sizes, width), BURST));
        }
        lines.push(Line::styled("classes since the beginning", DIM));
        for class in &self.classes {
            lines.push(Line::raw(format!(
                "{:<24} {:>10} answered {:>6} late  p50 {:>7}  tail {:>7}  held {:>7}",
                clipped(&class.name, 24),
                grouped(class.answered),
                grouped(class.late),
                class.p50,
                class.tail,
                class.held,
            )));
        }
        if let Some(lost) = &self.lost {
            lines.push(Line::styled(format!("the last failure: {lost}"), DOWN));
        }
        let [body, foot] = Layout::vertical([Constraint::Fill(1), Constraint::Length(1)]).areas(frame.area());
        let left_out = lines.len().saturating_sub(usize::from(body.height));
        frame.render_widget(Paragraph::new(lines), body);
        let more = if left_out > 0 { format!("   {left_out} more lines below") } else { String::new() };
        frame.render_widget(Line::styled(format!("q ends it{more}"), DIM), foot);
    }
}

/// One column for each burst, the newest to the right, as high as the largest of them.
fn strip(sizes: &[u32], width: usize) -> String {
    let shown = &sizes[sizes.len().saturating_sub(width)..];
    let most = shown.iter().copied().max().unwrap_or(0).max(1);
    let level = |size: u32| (u64::from(size) * 7).div_ceil(u64::from(most)) as usize;
    shown.iter().map(|&size| BLOCKS[level(size).min(7)]).collect()
}

fn clipped(text: &str, width: usize) -> String {
    text.chars().take(width).collect()
}

const BLOCKS: [char; 8] =
    ['\u{2581}', '\u{2582}', '\u{2583}', '\u{2584}', '\u{2585}', '\u{2586}', '\u{2587}', '\u{2588}'];
const DIM: Style = Style::new().add_modifier(Modifier::DIM);
const UP: Style = Style::new().fg(Color::Green);
const DOWN: Style = Style::new().fg(Color::Red);
const BURST: Style = Style::new().fg(Color::Blue);

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn view() -> StageView {
        let server = |name: &str, is_up| ServerNow {
            name: name.to_owned(),
            is_up,
            held: 7,
            bursts: 1234,
            lead: Some(Duration::from_millis(60)),
            sizes: (0..100).collect(),
            ..ServerNow::default()
        };
        StageView {
            goal: "500ms@p99.9".to_owned(),
            servers: vec![server("127.0.0.1:9200", true), server("other", false)],
            classes: vec![ClassNow { name: "others".to_owned(), answered: 5000, ..ClassNow::default() }],
            lost: Some("other: connection refused".to_owned()),
            ..StageView::default()
        }
    }

    fn drawn(view: &StageView, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| view.draw(frame)).unwrap();
        let buffer = terminal.backend().buffer().clone();
        let lines = buffer.content().chunks(usize::from(width));
        lines.map(|line| line.iter().map(|cell| cell.symbol()).collect::<String>() + "\n").collect()
    }

    #[test]
    fn it_says_in_words_what_it_says_in_colour() {
        let text = drawn(&view(), 100, 24);
        for word in [
            "500ms@p99.9",
            "up   127.0.0.1:9200",
            "DOWN other",
            "7 held",
            "1,234 bursts",
            "connection refused",
        ] {
            assert!(text.contains(word), "{word}:\n{text}");
        }
        assert!(drawn(&StageView::default(), 80, 24).contains("- answers/s"));
    }

    #[test]
    fn it_draws_on_any_size_and_says_what_it_left_out() {
        for (width, height) in [(1, 1), (10, 3), (300, 2), (80, 24)] {
            drawn(&view(), width, height);
        }
        assert!(drawn(&view(), 80, 5).contains("more lines below"));
    }

    #[test]
    fn a_strip_is_as_high_as_its_largest_and_ends_with_the_newest() {
        assert_eq!(strip(&[0, 7, 14], 10), "\u{2581}\u{2585}\u{2588}");
        assert_eq!(strip(&[9, 9, 1, 0], 2), "\u{2588}\u{2581}");
        assert_eq!(strip(&[], 5), "");
    }
}
