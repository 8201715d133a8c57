//! The sheet that charts are drawn on: plotters' SVG backend, in CSS pixels, with named inks.
//!
//! An ink is a role (text, grid, the first phase), not a colour: the page decides what it looks like, so one
//! drawing suits a light page, a dark one and a projector. plotters knows only RGB, so each ink is drawn as a
//! colour that stands for it, and in the finished SVG every such colour becomes `var(--ink-name, colour)`. The
//! colour in the `var` is for an SVG that was saved without its page.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// What something is drawn with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ink {
    /// Text that is read first.
    Text,
    /// Axis labels and remarks.
    Muted,
    /// Grid lines.
    Grid,
    /// The card's background, for text on a dark fill.
    Card,
    /// A worker that sleeps.
    Asleep,
    /// A CPU that executes.
    Busy,
    /// An idle state; deeper is more opaque.
    Idle,
    /// Text on an opaque [`Ink::Idle`].
    OnIdle,
    /// The phase with this place in the run's order.
    Phase(usize),
}

/// Where a text lies from its point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// It begins there.
    Right,
    /// It is centred there.
    Middle,
    /// It ends there.
    Left,
}

/// A sheet of `width` x `height` CSS pixels.
pub struct Canvas<'a> {
    area: DrawingArea<SVGBackend<'a>, plotters::coord::Shift>,
}

/// Draws on a sheet and gives the SVG. `label` is read to those who do not see it.
pub fn draw(width: u32, height: u32, label: &str, paint: impl FnOnce(&Canvas<'_>)) -> String {
    let mut svg = String::new();
    {
        let backend = SVGBackend::with_string(&mut svg, (width * SCALE as u32, height * SCALE as u32));
        let canvas = Canvas { area: backend.into_drawing_area() };
        paint(&canvas);
        canvas.area.present().expect(IN_MEMORY);
    }
    let body = svg.split_once(">\n").map_or("", |(_opening, body)| body);
    let mut named = format!(
        "<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">\n",
        width * SCALE as u32,
        height * SCALE as u32,
        crate::text::escape(label)
    );
    name_inks(body, &mut named);
    named
}

/// The style sheet that gives the inks their colours on a light and on a dark page.
pub fn style_sheet() -> String {
    let side = |pick: fn(&Colours) -> &'static str| -> String {
        INKS.iter().map(|(name, colours)| format!("--{name}:{};", pick(colours))).collect()
    };
    format!(
        ":root{{color-scheme:light dark;{}}}@media (prefers-color-scheme:dark){{:root{{{}}}}}",
        side(|colours| colours.light),
        side(|colours| colours.dark)
    )
}

/// About how wide `text` will be at `size` pixels. Fonts differ; this errs on the wide side of the usual ones.
pub fn width_of(text: &str, size: f64) -> f64 {
    text.chars().count() as f64 * size * 0.57
}

impl Canvas<'_> {
    /// A line through `points`.
    pub fn line(&self, points: &[(f64, f64)], ink: Ink, width: f64) {
        if points.len() > 1 {
            let style = colour(ink).stroke_width((width * SCALE).round() as u32);
            self.put(&PathElement::new(scaled(points), style));
        } else if let Some(&point) = points.first() {
            self.dot(point, ink, width);
        }
    }

    /// A dashed line through `points`.
    pub fn dashes(&self, points: &[(f64, f64)], ink: Ink, width: f64) {
        if points.len() > 1 {
            let dashed = RGBColor(1, DASHED, colour(ink).2);
            self.put(&PathElement::new(scaled(points), dashed.stroke_width((width * SCALE).round() as u32)));
        } else if let Some(&point) = points.first() {
            self.dot(point, ink, width);
        }
    }

    /// The area within `points`.
    pub fn area(&self, points: &[(f64, f64)], ink: Ink, opacity: f64) {
        if points.len() > 2 {
            self.put(&Polygon::new(scaled(points), colour(ink).mix(opacity).filled()));
        }
    }

    /// A filled rectangle.
    pub fn rect(&self, left: f64, top: f64, width: f64, height: f64, ink: Ink, opacity: f64) {
        let corners = [at((left, top)), at((left + width.max(0.0), top + height.max(0.0)))];
        self.put(&Rectangle::new(corners, colour(ink).mix(opacity).filled()));
    }

    /// A round mark.
    pub fn dot(&self, centre: (f64, f64), ink: Ink, radius: f64) {
        self.put(&Circle::new(at(centre), (radius * SCALE).round() as i32, colour(ink).filled()));
    }

    /// One line of text, its middle at the height of `point`.
    pub fn text(&self, point: (f64, f64), text: &str, ink: Ink, size: f64, side: Side) {
        let h_pos = match side {
            Side::Right => HPos::Left,
            Side::Middle => HPos::Center,
            Side::Left => HPos::Right,
        };
        // plotters writes size / 1.24 into the SVG.
        let colour = colour(ink);
        let style = TextStyle::from((FontFamily::SansSerif, size * SCALE * 1.24))
            .color(&colour)
            .pos(Pos::new(h_pos, VPos::Center));
        // A control character in an SVG inside a page would be a fault of the page.
        let text: String = text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
        self.put(&Text::new(text, at(point), style));
    }

    fn put<'b, E>(&self, element: &'b E)
    where
        &'b E: plotters::element::PointCollection<'b, (i32, i32)>,
        E: for<'c> plotters::element::Drawable<SVGBackend<'c>>,
    {
        self.area.draw(element).expect(IN_MEMORY);
    }
}

/// Replaces the colours that stand for inks. A dashed one also gets its pattern, which plotters could only draw as
/// one element per dash.
fn name_inks(body: &str, named: &mut String) {
    let mut rest = body;
    while let Some(start) = rest.find(STAND_IN) {
        let (before, found) = rest.split_at(start);
        named.push_str(before);
        let (colour, after) = found[1..].split_once('"').expect("plotters closes what it quotes");
        let part = |at: usize| colour.get(at..at + 2).and_then(|hex| u8::from_str_radix(hex, 16).ok());
        let (style, index) = (part(3).unwrap_or_default(), part(5).unwrap_or_default());
        let (name, colours) = &INKS[usize::from(index) % INKS.len()];
        named.push_str(&format!("\"var(--{name},{})\"", colours.light));
        if style == DASHED {
            named.push_str(&format!(" stroke-dasharray=\"{} {}\"", 5.0 * SCALE, 4.0 * SCALE));
        }
        rest = after;
    }
    named.push_str(rest);
}

fn colour(ink: Ink) -> RGBColor {
    let index = match ink {
        Ink::Text => 0,
        Ink::Muted => 1,
        Ink::Grid => 2,
        Ink::Card => 3,
        Ink::Asleep => 4,
        Ink::Busy => 5,
        Ink::Idle => 6,
        Ink::OnIdle => 7,
        Ink::Phase(place) => FIRST_PHASE + place % (INKS.len() - FIRST_PHASE),
    };
    RGBColor(1, SOLID, index as u8)
}

fn at((x, y): (f64, f64)) -> (i32, i32) {
    ((x * SCALE).round() as i32, (y * SCALE).round() as i32)
}

fn scaled(points: &[(f64, f64)]) -> Vec<(i32, i32)> {
    points.iter().copied().map(at).collect()
}

/// plotters speaks whole pixels; four to one CSS pixel keep curves smooth on any screen.
const SCALE: f64 = 4.0;
const IN_MEMORY: &str = "drawing into memory cannot fail";
/// How plotters writes the colours that stand for inks: red is 1, green the style, blue the ink. The quote sets an
/// attribute apart from a text, in which a quote is escaped.
const STAND_IN: &str = "\"#01";
const SOLID: u8 = 2;
const DASHED: u8 = 3;

struct Colours {
    light: &'static str,
    dark: &'static str,
}

const FIRST_PHASE: usize = 8;
/// The phases' hues are those of Okabe and Ito's palette ("Color Universal Design", 2008), which people with any
/// of the common colour deficiencies tell apart; on a dark page they are lightened, the order of hues is kept.
const INKS: [(&str, Colours); 14] = [
    ("ink-text", Colours { light: "#1c2024", dark: "#eceef0" }),
    ("ink-muted", Colours { light: "#5f6872", dark: "#a3adb8" }),
    ("ink-grid", Colours { light: "#e3e6e9", dark: "#343a41" }),
    ("ink-card", Colours { light: "#ffffff", dark: "#1b1f24" }),
    ("ink-asleep", Colours { light: "#e3e6e9", dark: "#343a41" }),
    ("ink-busy", Colours { light: "#5f6872", dark: "#a3adb8" }),
    ("ink-idle", Colours { light: "#009e73", dark: "#2fc79a" }),
    ("ink-on-idle", Colours { light: "#1c2024", dark: "#101317" }),
    ("ink-phase-1", Colours { light: "#d55e00", dark: "#ff8b3d" }),
    ("ink-phase-2", Colours { light: "#b5558a", dark: "#e59ac6" }),
    ("ink-phase-3", Colours { light: "#0072b2", dark: "#5ab4f0" }),
    ("ink-phase-4", Colours { light: "#009e73", dark: "#2fc79a" }),
    ("ink-phase-5", Colours { light: "#b07800", dark: "#f0b429" }),
    ("ink-phase-6", Colours { light: "#2f8fc4", dark: "#8fd0f5" }),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_colour_of_a_drawing_is_an_ink() {
        let svg = draw(100, 50, "a \"label\" <b>", |canvas| {
            canvas.line(&[(0.0, 0.0), (10.0, 10.0)], Ink::Phase(0), 2.0);
            canvas.line(&[(3.0, 3.0)], Ink::Phase(1), 2.0);
            canvas.line(&[], Ink::Phase(1), 2.0);
            canvas.rect(0.0, 0.0, -5.0, 5.0, Ink::Busy, 0.5);
            canvas.dashes(&[(0.0, 0.0), (50.0, 10.0)], Ink::Muted, 1.0);
            canvas.area(&[(0.0, 0.0), (5.0, 5.0), (0.0, 5.0)], Ink::Idle, 0.3);
            canvas.text((5.0, 5.0), "x < \"#010200\" \u{7}", Ink::Text, 12.0, Side::Middle);
        });
        assert!(svg.starts_with("<svg viewBox"), "{svg}");
        assert!(svg.trim_end().ends_with("</svg>"), "{svg}");
        assert!(svg.contains("var(--ink-phase-1,#d55e00)"), "{svg}");
        assert!(svg.contains("&quot;#010200&quot;"), "a text that looks like an ink stays a text: {svg}");
        assert!(!svg.contains("=\"#"), "{svg}");
        assert!(!svg.contains('\u{7}'), "{svg}");
        assert!(svg.contains("a &quot;label&quot; &lt;b&gt;"), "{svg}");
        assert!(!svg.contains("http"), "nothing outside is named: {svg}");
    }

    #[test]
    fn more_phases_than_colours_begin_again() {
        assert_eq!(colour(Ink::Phase(6)), colour(Ink::Phase(0)));
        assert_ne!(colour(Ink::Phase(5)), colour(Ink::Phase(0)));
    }
}
