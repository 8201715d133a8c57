//! Axes and panels: from values to pixels, with ticks at round numbers and a unit on every axis.

use super::canvas::{Canvas, Ink, Side, width_of};

/// One axis: a range, its ticks, and how a value becomes a place on it.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    scale: Scale,
    low: f64,
    high: f64,
    /// Places and labels of the ticks, in the axis' own numbers.
    ticks: Vec<(f64, String)>,
    /// Its quantity, with its unit.
    title: String,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Scale {
    Linear,
    Log,
    /// A share of requests, by nines: 50 %, 90 %, 99 %, 99.9 % ... at equal steps.
    Nines,
}

impl Axis {
    /// From zero to at least `max`, labelled by `label`; where that gives no text there is no tick.
    pub fn linear(max: f64, title: &str, label: impl Fn(f64) -> String) -> Self {
        let max = if max.is_finite() && max > 0.0 { max.min(1e300) } else { 1.0 };
        let step = round_step(max / 4.0);
        let steps = (max / step - 1e-9).ceil().max(1.0);
        let ticks = (0..=steps as usize).map(|n| (n as f64 * step, label(n as f64 * step)));
        let ticks = ticks.filter(|(_, label)| !label.is_empty()).collect();
        Self { scale: Scale::Linear, low: 0.0, high: steps * step, ticks, title: title.to_owned() }
    }

    /// From zero to exactly `max` with ticks at round numbers within: for time, where room after
    /// the end would look like a pause.
    pub fn tight(max: f64, title: &str, label: impl Fn(f64) -> String) -> Self {
        let mut axis = Self::linear(max, title, label);
        if max.is_finite() && max > 0.0 {
            axis.high = max;
            axis.ticks.retain(|(at, _)| *at <= max * 1.000_001);
        }
        axis
    }

    /// Latencies in nanoseconds from `min` to `max`, logarithmic.
    pub fn latency(min: f64, max: f64, title: &str) -> Self {
        let max = if max.is_finite() { max } else { min };
        Self::log(min.max(1.0), max.clamp(1.0, 1e18), title, nanos_label)
    }

    /// From `min` to `max`, logarithmic; a value that is not positive becomes the least shown.
    pub fn log(min: f64, max: f64, title: &str, label: impl Fn(f64) -> String) -> Self {
        let positive =
            |value: f64| if value.is_finite() && value > 0.0 { value.clamp(1e-18, 1e18) } else { 1.0 };
        let (min, max) = (positive(min), positive(max).max(positive(min)));
        // Marks at 1, 2, 5 of each decade, or at more digits where that would leave two or three;
        // the range goes from the mark below to the mark above.
        let digits: &[f64] = if max < 4.0 * min { &FINE } else { &[1.0, 2.0, 5.0] };
        let decades = min.log10().floor() as i32 - 1..=max.log10().ceil() as i32;
        let marks: Vec<f64> = decades
            .flat_map(|exponent| digits.iter().map(move |digit| digit * power_of_ten(exponent)))
            .collect();
        let below = marks.iter().rposition(|&mark| mark <= min * 1.000_001).unwrap_or(0);
        let above = marks.iter().position(|&mark| mark >= max * 0.999_999).unwrap_or(marks.len() - 1);
        let range = &marks[below..=above.clamp(below + 1, marks.len() - 1)];
        // A short range has room for every mark, a long one for decades, an absurd one for some of
        // them.
        let stride = match range.len() {
            0..=10 => None,
            11..=28 => Some(1),
            more => Some((more / 24 + 1) as i32),
        };
        let shown = |mark: f64| {
            stride.is_none_or(|stride| is_decade(mark) && (mark.log10().round() as i32) % stride == 0)
        };
        let ticks = range.iter().filter(|&&mark| shown(mark)).map(|&mark| (mark, label(mark))).collect();
        Self {
            scale: Scale::Log,
            low: range[0],
            high: range[range.len() - 1],
            ticks,
            title: title.to_owned(),
        }
    }

    /// From `min` to `max`, both moved outwards to round numbers of `unit`s.
    pub fn between(min: f64, max: f64, unit: f64, title: &str, label: impl Fn(f64) -> String) -> Self {
        Self::in_steps(4.0, (min, max), unit, title, label)
    }

    fn in_steps(
        steps: f64,
        (min, max): (f64, f64),
        unit: f64,
        title: &str,
        label: impl Fn(f64) -> String,
    ) -> Self {
        let (min, max) = apart(min, max);
        let step = round_step((max - min) / unit / steps) * unit;
        let first = (min / step + 1e-9).floor();
        let last = (max / step - 1e-9).ceil().max(first + 1.0);
        let ticks = (0..=(last - first) as usize).map(|n| (first + n as f64) * step);
        let ticks = ticks.map(|at| (at, label(at))).collect();
        Self { scale: Scale::Linear, low: first * step, high: last * step, ticks, title: title.to_owned() }
    }

    /// From exactly `min` to exactly `max`, with ticks at round numbers of `unit`s within.
    pub fn exactly(min: f64, max: f64, unit: f64, title: &str, label: impl Fn(f64) -> String) -> Self {
        let (min, max) = apart(min, max);
        let mut axis = Self::in_steps(8.0, (min, max), unit, title, label);
        let slack = (max - min) * 1e-6;
        axis.ticks.retain(|(at, _)| (min - slack..=max + slack).contains(at));
        (axis.low, axis.high) = (min, max);
        axis
    }

    /// One place for each name, at 0, 1, 2 ...
    pub fn named(names: &[String], title: &str) -> Self {
        let ticks = names.iter().enumerate().map(|(n, name)| (n as f64, name.clone())).collect();
        let high = names.len().max(1) as f64 - 0.5;
        Self { scale: Scale::Linear, low: -0.5, high, ticks, title: title.to_owned() }
    }

    /// Shares of requests from 50 % towards 100 % by nines, as far as `max`.
    pub fn nines(max: f64, title: &str) -> Self {
        let all =
            [(0.5, "50"), (0.9, "90"), (0.99, "99"), (0.999, "99.9"), (0.9999, "99.99"), (0.99999, "99.999")];
        let last = all.iter().position(|&(share, _)| share >= max - 1e-9).unwrap_or(all.len() - 1).max(1);
        let ticks = all[..=last].iter().map(|&(share, text)| (share, text.to_owned())).collect();
        Self { scale: Scale::Nines, low: 0.5, high: all[last].0, ticks, title: title.to_owned() }
    }

    /// Rows counted from 0 at the bottom to `count`, without ticks.
    pub fn rows(count: usize, title: &str) -> Self {
        let high = count.max(1) as f64;
        Self { scale: Scale::Linear, low: 0.0, high, ticks: Vec::new(), title: title.to_owned() }
    }

    /// Where `value` lies: 0 at the low end, 1 at the high end; values outside stop at the ends.
    pub fn place(&self, value: f64) -> f64 {
        let on = |value: f64| match self.scale {
            Scale::Linear => value,
            Scale::Log => value.max(1e-9).log10(),
            Scale::Nines => -(1.0 - value).max(1e-12).log10(),
        };
        let (low, high) = (on(self.low), on(self.high));
        let place = (on(value) - low) / (high - low);
        if place.is_nan() { 0.0 } else { place.clamp(0.0, 1.0) }
    }

    /// The widest tick label, in pixels.
    pub fn label_width(&self) -> f64 {
        self.ticks.iter().map(|(_, label)| width_of(label, LABEL_SIZE)).fold(0.0, f64::max)
    }
}

/// A rectangle of the sheet with an axis along its bottom and one up its left side.
pub struct Panel<'a> {
    /// Left edge of the plot, in pixels of the sheet.
    pub left: f64,
    pub top: f64,
    pub width: f64,
    pub height: f64,
    pub x: &'a Axis,
    /// The axis up the left side.
    pub y: &'a Axis,
}

impl Panel<'_> {
    /// Where the point of these values lies on the sheet.
    pub fn at(&self, x: f64, y: f64) -> (f64, f64) {
        (self.across(x), self.up(y))
    }

    /// Where a value of the bottom axis lies.
    pub fn across(&self, x: f64) -> f64 {
        self.left + self.x.place(x) * self.width
    }

    /// Where a value of the left axis lies.
    pub fn up(&self, y: f64) -> f64 {
        self.top + (1.0 - self.y.place(y)) * self.height
    }

    /// Grid, ticks, and the titles of both axes: the left one's stands above the plot, where it can
    /// be read without turning the head.
    pub fn frame(&self, canvas: &Canvas<'_>) {
        let bottom = self.top + self.height;
        for (value, label) in &self.y.ticks {
            let y = self.up(*value);
            canvas.line(&[(self.left, y), (self.left + self.width, y)], Ink::Grid, 1.0);
            canvas.text((self.left - 7.0, y), label, Ink::Muted, LABEL_SIZE, Side::Left);
        }
        if !self.y.title.is_empty() {
            let above = (self.left - self.y.label_width() - 12.0, self.top - 19.0);
            canvas.text(above, &self.y.title, Ink::Muted, LABEL_SIZE, Side::Right);
        }
        canvas.line(&[(self.left, bottom), (self.left + self.width, bottom)], Ink::Muted, 1.0);
        let mut free_from = f64::NEG_INFINITY;
        for (value, label) in &self.x.ticks {
            let x = self.across(*value);
            canvas.line(&[(x, bottom), (x, bottom + 4.0)], Ink::Muted, 1.0);
            let half = width_of(label, LABEL_SIZE) / 2.0;
            if x - half >= free_from {
                canvas.text((x, bottom + 14.0), label, Ink::Muted, LABEL_SIZE, Side::Middle);
                free_from = x + half + 6.0;
            }
        }
        if !self.x.title.is_empty() {
            let below = (self.left + self.width / 2.0, bottom + 31.0);
            canvas.text(below, &self.x.title, Ink::Muted, LABEL_SIZE, Side::Middle);
        }
    }
}

/// `1500` as `1.5k`: a count on an axis or in a cell.
pub fn short(value: f64) -> String {
    let (scaled, unit) = match value.abs() {
        v if v >= 1e9 => (value / 1e9, "G"),
        v if v >= 1e6 => (value / 1e6, "M"),
        v if v >= 1e3 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let text = format!("{scaled:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{text}{unit}")
}

/// Pixels below a panel for tick labels and a title.
pub const BELOW: f64 = 42.0;
/// Pixels above a panel for the left axis' title.
pub const ABOVE: f64 = 26.0;
/// Size of tick labels and titles, in pixels.
pub const LABEL_SIZE: f64 = 12.5;

/// Digits of a logarithmic axis over less than a decade.
const FINE: [f64; 11] = [1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0];

fn round_step(raw: f64) -> f64 {
    let decade = 10f64.powf(raw.log10().floor());
    let digit = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().find(|digit| digit * decade >= raw * 0.999_999);
    digit.unwrap_or(10.0) * decade
}

/// Two ends that a range can lie between: finite, and apart by more than rounding errors.
fn apart(min: f64, max: f64) -> (f64, f64) {
    let tame = |value: f64| if value.is_nan() { 0.0 } else { value.clamp(-1e300, 1e300) };
    let (min, max) = (tame(min), tame(max).max(tame(min)));
    let size = min.abs().max(max.abs());
    match (max - min, size) {
        (_, size) if size < 1e-290 => (0.0, 1.0),
        (span, size) if span > size * 1e-9 => (min, max),
        _ => (min - size / 20.0, max + size / 20.0),
    }
}

/// Exactly the number that `1e-6` is, where `powi` would be off in the last digit.
fn power_of_ten(exponent: i32) -> f64 {
    if exponent < 0 { 1.0 / 10f64.powi(-exponent) } else { 10f64.powi(exponent) }
}

fn is_decade(mark: f64) -> bool {
    let exponent = mark.log10();
    (exponent - exponent.round()).abs() < 1e-9
}

fn nanos_label(nanos: f64) -> String {
    match nanos {
        n if n >= 1e9 => format!("{} s", short(n / 1e9)),
        n if n >= 1e6 => format!("{} ms", short(n / 1e6)),
        n if n >= 1e3 => format!("{} us", short(n / 1e3)),
        n => format!("{} ns", short(n)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn labels(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|(_, label)| label.as_str()).collect()
    }

    #[test]
    fn ticks_are_round_numbers() {
        assert_eq!(labels(&Axis::linear(87_000.0, "", short)), ["0", "25k", "50k", "75k", "100k"]);
        assert_eq!(labels(&Axis::linear(2.0, "", short)), ["0", "0.5", "1", "1.5", "2"]);
        assert_eq!(labels(&Axis::tight(19.8, "", short)), ["0", "5", "10", "15"]);
        let narrow = Axis::latency(130e3, 900e3, "");
        assert_eq!(labels(&narrow), ["100 us", "200 us", "500 us", "1 ms"]);
        assert_eq!(labels(&Axis::latency(30e3, 90e6, "")), ["100 us", "1 ms", "10 ms", "100 ms"]);
        assert_eq!(labels(&Axis::nines(0.9999, "")), ["50", "90", "99", "99.9", "99.99"]);
    }

    #[test]
    fn the_nines_lie_at_equal_steps() {
        let axis = Axis::nines(0.9999, "");
        let step = axis.place(0.99) - axis.place(0.9);
        assert!((axis.place(0.999) - axis.place(0.99) - step).abs() < 1e-6);
        assert_eq!(axis.place(1.0), 1.0);
    }

    #[test]
    fn ranges_need_not_begin_at_zero() {
        assert_eq!(labels(&Axis::between(41.0, 58.0, 1.0, "", short)), ["40", "45", "50", "55", "60"]);
        assert_eq!(labels(&Axis::between(-3.0, 4.0, 1.0, "", short)), ["-4", "-2", "0", "2", "4"]);
        assert_eq!(
            labels(&Axis::exactly(41.0, 58.0, 1.0, "", short)),
            ["42.5", "45", "47.5", "50", "52.5", "55", "57.5"]
        );
        let minutes = Axis::between(0.0, 5_400.0, 60.0, "", |at| short(at / 60.0));
        assert_eq!(labels(&minutes), ["0", "25", "50", "75", "100"]);
        let same = Axis::between(7.0, 7.0, 1.0, "", short);
        assert!((0.2..0.8).contains(&same.place(7.0)), "{same:?}");
        assert_eq!(
            labels(&Axis::log(0.003, 0.4, "", |at| at.to_string())),
            ["0.002", "0.005", "0.01", "0.02", "0.05", "0.1", "0.2", "0.5"]
        );
    }

    #[test]
    fn a_short_logarithmic_range_has_more_marks() {
        assert_eq!(labels(&Axis::latency(240e3, 365e3, "")), ["200 us", "250 us", "300 us", "400 us"]);
    }

    proptest! {
        #[test]
        fn any_value_lies_within_any_axis(max in any::<f64>(), min in any::<f64>(), value in any::<f64>()) {
            let names = ["a".to_owned(), "b".to_owned()];
            for axis in [Axis::linear(max, "", short), Axis::tight(max, "", short), Axis::latency(min, max, ""),
                Axis::nines(max, ""), Axis::rows(3, ""), Axis::log(min, max, "", short), Axis::named(&names, ""),
                Axis::between(min, max, 1.0, "", short), Axis::exactly(min, max, 60.0, "", short)] {
                prop_assert!((0.0..=1.0).contains(&axis.place(value)), "{axis:?} {value}");
                prop_assert!(axis.ticks.len() <= 12, "{axis:?}");
            }
        }

        #[test]
        fn a_larger_value_lies_no_lower(a in 0.0..1e15f64, b in 0.0..1e15f64) {
            let (small, large) = if a < b { (a, b) } else { (b, a) };
            for axis in [Axis::linear(1e12, "", short), Axis::latency(10.0, 1e14, ""),
                Axis::between(-5.0, 1e14, 1.0, "", short)] {
                prop_assert!(axis.place(small) <= axis.place(large));
            }
        }
    }
}
