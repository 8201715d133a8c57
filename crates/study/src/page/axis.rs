//! The values of a scenario's key as a figure's axis.
//!
//! A scenario has them as text, and only all of them together have a kind: `never` among times
//! makes categories of them all.

use machine::Duration;
use report::figures::{Quantity, Unit};
use std::collections::BTreeMap;

/// A sweep's axis as a figure's.
pub struct Axis<'a> {
    pub quantity: Quantity,
    pub places: BTreeMap<&'a str, f64>,
}

impl<'a> Axis<'a> {
    /// Numbers, rates or times if all values are; categories otherwise.
    pub fn of(key: &str, values: &[&'a str]) -> Self {
        let all = |read: fn(&str) -> Option<f64>| -> Option<Vec<f64>> {
            values.iter().map(|value| read(value)).collect()
        };
        let (numbers, unit) = if let Some(numbers) = all(rate) {
            let last = key.rsplit('.').next().unwrap_or(key);
            let unit = match last {
                "rate" => Unit::PerSecond,
                "utilisation" => Unit::Share,
                _ => Unit::Count,
            };
            (numbers, unit)
        } else if let Some(numbers) = all(time) {
            (numbers, Unit::Nanoseconds)
        } else {
            let places = values.iter().enumerate().map(|(place, value)| (*value, place as f64)).collect();
            let names = values.iter().map(|value| (*value).to_owned()).collect();
            return Self { quantity: Quantity::named(key, names), places };
        };
        let ends = numbers.iter().fold((f64::INFINITY, 0.0f64), |(low, high), &n| (low.min(n), high.max(n)));
        // Values that double from one to the next would crowd at the left.
        let quantity = Quantity::new(key, unit);
        let quantity =
            if ends.0 > 0.0 && ends.1 >= LOG_FROM * ends.0 { quantity.log() } else { quantity.linear() };
        Self { quantity, places: values.iter().copied().zip(numbers).collect() }
    }
}

/// `0.5`, `10k`, `1M`.
fn rate(text: &str) -> Option<f64> {
    let text = text.trim();
    let (digits, factor) = match text.char_indices().next_back()? {
        (end, 'k' | 'K') => (&text[..end], 1e3),
        (end, 'M') => (&text[..end], 1e6),
        (end, 'G') => (&text[..end], 1e9),
        _ => (text, 1.0),
    };
    let number: f64 = digits.replace('_', "").trim().parse().ok()?;
    number.is_finite().then_some(number * factor)
}

/// `300us`.
fn time(text: &str) -> Option<f64> {
    text.trim().parse::<Duration>().ok().map(|length| length.as_nanos() as f64)
}

/// An axis over more than this ratio is logarithmic.
const LOG_FROM: f64 = 16.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_is_what_all_of_its_values_are() {
        let axis = |key: &str, values: &[&'static str]| {
            let axis = Axis::of(key, values);
            (axis.quantity.unit, axis.places.values().copied().fold(0.0, f64::max), axis.quantity.names.len())
        };
        assert_eq!(axis("workload.rate", &["10k", "1M"]), (Unit::PerSecond, 1e6, 0));
        assert_eq!(axis("run.utilisation", &["0.1", "0.9"]), (Unit::Share, 0.9, 0));
        assert_eq!(axis("server.workers", &["1", "12"]), (Unit::Count, 12.0, 0));
        assert_eq!(axis("machine.tick", &["1ms", "4ms"]), (Unit::Nanoseconds, 4e6, 0));
        assert_eq!(axis("machine.tick", &["1ms", "never"]), (Unit::Count, 1.0, 2), "places, no lengths");
        assert_eq!(axis("server.dispatch", &["shared", "random", "k"]), (Unit::Count, 2.0, 3));
    }
}
