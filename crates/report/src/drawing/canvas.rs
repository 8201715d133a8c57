//! The sheet that charts are drawn on: plotters' SVG backend, in CSS pixels, with named inks.
//!
//! An ink is a role (text, grid, the first phase), not a colour: the page decides its looks, so one
//! drawing suits a light page, a dark one and a projector. plotters knows only RGB, so each ink is
//! drawn as a colour that stands for it. In the finished SVG every such colour becomes
//! `var(--ink-name, colour)`. The colour in the `var` is for an SVG that was saved without its
//! page.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ink {
    /// Text that is read first.
    Text,
    Muted,
    Grid,
    /// The card's background, for text on a dark fill.
    Card,
    Asleep,
    Busy,
    /// An idle state; deeper is more opaque.
    Idle,
    /// Text on an opaque [`Ink::Idle`].
    OnIdle,
    /// The phase, or the contestant, with this place in the run's order.
    Phase(usize),
    /// A step of the heat scale, from 0, next to the card's colour, to [`HEAT_STEPS`] - 1, farthest
    /// from it.
    Heat(usize),
    /// Text on the lower half of the heat scale.
    OnCool,
    OnHot,
}

/// The form of a mark: readers who cannot tell two colours apart can tell two forms apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    Disc,
    Square,
    Triangle,
    Wedge,
    Plus,
    Cross,
    /// The outline of a square on its tip, empty within.
    Diamond,
}

impl Shape {
    /// The form for the contestant with this place.
    pub fn of(place: usize) -> Self {
        [Self::Disc, Self::Square, Self::Triangle, Self::Wedge, Self::Plus, Self::Cross][place % 6]
    }
}

/// Where a text lies from its point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Right,
    Middle,
    Left,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stroke {
    Solid,
    Dashed,
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

/// About how wide `text` will be at `size` pixels. Fonts differ; this errs on the wide side of the
/// usual ones.
pub fn width_of(text: &str, size: f64) -> f64 {
    // From the Korean block on, most letters are as wide as they are high.
    text.chars().map(|c| if c < '\u{1100}' { 0.57 } else { 1.1 }).sum::<f64>() * size
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

    /// A line through `points`, as `stroke` says.
    pub fn stroke(&self, points: &[(f64, f64)], ink: Ink, width: f64, stroke: Stroke) {
        match stroke {
            Stroke::Solid => self.line(points, ink, width),
            Stroke::Dashed => self.dashes(points, ink, width),
        }
    }

    /// A mark of this form, `size` pixels from side to side.
    pub fn mark(&self, (x, y): (f64, f64), shape: Shape, ink: Ink, size: f64) {
        let half = size / 2.0;
        match shape {
            Shape::Disc => self.dot((x, y), ink, half),
            Shape::Square => self.rect(x - half * 0.9, y - half * 0.9, size * 0.9, size * 0.9, ink, 1.0),
            Shape::Triangle | Shape::Wedge => {
                let up = if shape == Shape::Triangle { -half } else { half };
                self.area(
                    &[(x, y + up * 1.1), (x + half * 1.1, y - up * 0.8), (x - half * 1.1, y - up * 0.8)],
                    ink,
                    1.0,
                );
            }
            Shape::Plus => {
                self.line(&[(x - half, y), (x + half, y)], ink, STROKE);
                self.line(&[(x, y - half), (x, y + half)], ink, STROKE);
            }
            Shape::Cross => {
                let half = half * 0.8;
                self.line(&[(x - half, y - half), (x + half, y + half)], ink, STROKE);
                self.line(&[(x - half, y + half), (x + half, y - half)], ink, STROKE);
            }
            Shape::Diamond => {
                let corners = [(x, y - half), (x + half, y), (x, y + half), (x - half, y)];
                self.area(&corners, Ink::Card, 1.0);
                let [first, second, ..] = corners;
                // Round the corner twice, so that the last one is no gap.
                self.line(&[&corners[..], &[first, second]].concat(), ink, STROKE);
            }
        }
    }

    /// The area within `points`.
    pub fn area(&self, points: &[(f64, f64)], ink: Ink, opacity: f64) {
        if points.len() > 2 {
            self.put(&Polygon::new(scaled(points), colour(ink).mix(opacity).filled()));
        }
    }

    pub fn rect(&self, left: f64, top: f64, width: f64, height: f64, ink: Ink, opacity: f64) {
        let corners = [at((left, top)), at((left + width.max(0.0), top + height.max(0.0)))];
        self.put(&Rectangle::new(corners, colour(ink).mix(opacity).filled()));
    }

    /// A field of slanted lines, for a missing value.
    pub fn hatch(&self, left: f64, top: f64, width: f64, height: f64) {
        const APART: f64 = 7.0;
        self.rect(left, top, width, height, Ink::Grid, 0.5);
        let mut foot = APART / 2.0;
        while foot < width + height {
            // From the bottom edge, or the right one, up to the left edge, or the top one.
            let (from, to) = (foot.min(width), (foot - height).max(0.0));
            let line = [(left + from, top + height - (foot - from)), (left + to, top + height - (foot - to))];
            self.line(&line, Ink::Muted, 0.75);
            foot += APART;
        }
    }

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

/// Replaces the colours that stand for inks. A dashed one also gets its pattern, which plotters
/// could only draw as one element per dash.
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
        Ink::Phase(place) => FIRST_PHASE + place % PHASES,
        Ink::Heat(step) => FIRST_HEAT + step.min(HEAT_STEPS - 1),
        Ink::OnCool => ON_HEAT,
        Ink::OnHot => ON_HEAT + 1,
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
/// How plotters writes the colours that stand for inks: red is 1, green the style, blue the ink.
/// The quote sets an attribute apart from a text, in which a quote is escaped.
const STAND_IN: &str = "\"#01";
const SOLID: u8 = 2;
const DASHED: u8 = 3;

struct Colours {
    light: &'static str,
    dark: &'static str,
}

const FIRST_PHASE: usize = 8;
/// So many phases or contestants have a colour of their own.
pub const PHASES: usize = 6;
const FIRST_HEAT: usize = FIRST_PHASE + PHASES;
/// So many colours does the heat scale run through.
pub const HEAT_STEPS: usize = 5;
const ON_HEAT: usize = FIRST_HEAT + HEAT_STEPS;
/// Width of the lines that marks are made of.
const STROKE: f64 = 2.0;
/// The phases' hues are those of Okabe and Ito's palette ("Color Universal Design", 2008), which
/// people with any of the common colour deficiencies tell apart; on a dark page they are lightened,
/// the order of hues is kept. The heat scale runs from yellow-green to dark blue and grows steadily
/// darker (on a dark page: lighter), so that its order is seen without any hue. Its middle is where
/// black and white text are read equally well, above 4.3 to 1.
const INKS: [(&str, Colours); 21] = [
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
    ("ink-heat-1", Colours { light: "#f4f7da", dark: "#1d2a52" }),
    ("ink-heat-2", Colours { light: "#9fd6b4", dark: "#215d8c" }),
    ("ink-heat-3", Colours { light: "#248293", dark: "#248293" }),
    ("ink-heat-4", Colours { light: "#215d8c", dark: "#86caa2" }),
    ("ink-heat-5", Colours { light: "#18224e", dark: "#f4f3b8" }),
    ("ink-on-cool", Colours { light: "#000000", dark: "#ffffff" }),
    ("ink-on-hot", Colours { light: "#ffffff", dark: "#000000" }),
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

    /// Relative luminance as WCAG 2 defines it.
    fn luminance(hex: &str) -> f64 {
        let part = |at: usize| f64::from(u8::from_str_radix(&hex[at..at + 2], 16).unwrap()) / 255.0;
        let linear = |c: f64| if c <= 0.040_45 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) };
        0.2126 * linear(part(1)) + 0.7152 * linear(part(3)) + 0.0722 * linear(part(5))
    }

    #[test]
    fn the_heat_scale_grows_steadily_away_from_the_card_and_text_on_it_is_read() {
        for pick in [|colours: &Colours| colours.light, |colours: &Colours| colours.dark] {
            let steps: Vec<f64> =
                INKS[FIRST_HEAT..ON_HEAT].iter().map(|(_, colours)| luminance(pick(colours))).collect();
            let [cool, hot] = [ON_HEAT, ON_HEAT + 1].map(|index| luminance(pick(&INKS[index].1)));
            let rising = steps[0] < steps[1];
            for pair in steps.windows(2) {
                assert_eq!(pair[0] < pair[1], rising, "{steps:?}");
                assert!((pair[0] - pair[1]).abs() > 0.03, "{steps:?}");
            }
            let contrast = |a: f64, b: f64| (a.max(b) + 0.05) / (a.min(b) + 0.05);
            let middle = HEAT_STEPS / 2;
            assert!(steps[..=middle].iter().all(|&step| contrast(step, cool) > 4.3), "{steps:?}");
            assert!(steps[middle..].iter().all(|&step| contrast(step, hot) > 4.3), "{steps:?}");
        }
    }
}
