//! Numbers with their unit, for axes and for tables.

use serde::{Deserialize, Deserializer, Serialize};

/// The quantity of a number. The number itself is always in the plain unit named here; its shown
/// form depends on its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// A short time, in nanoseconds.
    Nanoseconds,
    /// A long time, in seconds.
    Seconds,
    Watts,
    Joules,
    PerSecond,
    /// A share of one, shown in percent.
    Share,
    Megahertz,
    /// A number of things, or a number without a unit.
    Count,
}

/// How the numbers of an axis are spread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scale {
    /// Evenly, from zero on: lengths can be compared.
    #[default]
    FromZero,
    /// Evenly, over the range of the data: differences can be seen.
    Linear,
    Log,
}

/// How a number was got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// Counted or read from an instrument.
    Measured,
    /// Computed from measurements, or simulated.
    Modelled,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quantity {
    /// Its quantity: `p99`, `power of cores and uncore`.
    pub name: String,
    pub unit: Unit,
    #[serde(default)]
    pub scale: Scale,
    /// Where it is no number: the names of the places 0, 1, 2 ... Empty otherwise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// Where it differs from the page's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

impl Quantity {
    pub fn new(name: &str, unit: Unit) -> Self {
        Self { name: name.to_owned(), unit, scale: Scale::FromZero, names: Vec::new(), basis: None }
    }

    /// Categories, which have no order and no distance.
    pub fn named(name: &str, names: Vec<String>) -> Self {
        Self { names, ..Self::new(name, Unit::Count) }
    }

    /// The same on a logarithmic axis.
    pub fn log(self) -> Self {
        Self { scale: Scale::Log, ..self }
    }

    /// The same on an axis that need not begin at zero.
    pub fn linear(self) -> Self {
        Self { scale: Scale::Linear, ..self }
    }

    /// The same, by a source as [`machine::EnergySource`] is written: `measured (...)`, `modelled (...)`.
    pub fn by_source(self, source: &str) -> Self {
        let basis = match source.split(' ').next() {
            Some("measured") => Some(Basis::Measured),
            Some("modelled") => Some(Basis::Modelled),
            _ => None,
        };
        Self { basis, ..self }
    }
}

impl Unit {
    /// `152 us`, `1.50 ms`, `80.0k/s`, `23.4 %`: three digits that count.
    pub fn text(self, value: f64) -> String {
        self.written(value, 3)
    }

    /// The same with how far it may be off: `152 us ±1.2 %`.
    pub fn text_with(self, value: f64, half_width: Option<f64>) -> String {
        match half_width.map(|half_width| (half_width / value).abs() * 100.0) {
            Some(percent) if percent.is_finite() => {
                // A tight interval has earned a fourth digit.
                let digits = if percent < 0.5 { 4 } else { 3 };
                let off = match percent {
                    0.0..0.005 => "<0.01".to_owned(),
                    0.0..0.095 => fixed(percent, 2),
                    percent if percent > 9_999.0 => ">9999".to_owned(),
                    percent => plain(percent, 2),
                };
                format!("{} \u{b1}{off} %", self.written(value, digits))
            }
            _ => self.text(value),
        }
    }

    fn written(self, value: f64, digits: usize) -> String {
        // 999.96 with four digits is 1000: round before the prefix is chosen.
        let rounded = value.abs() * (1.0 + 0.5 * 10f64.powi(-(digits as i32)));
        let (factor, suffix) = self.prefix(rounded);
        let per_second = if self == Self::PerSecond { "/s" } else { "" };
        match in_units(value, factor) {
            Some(number) => format!("{}{suffix}{per_second}", significant(number, digits)),
            None => crate::text::MISSING.to_owned(),
        }
    }

    /// The largest prefix with which a value of this size is at least one.
    fn prefix(self, size: f64) -> (f64, &'static str) {
        let steps: &[(f64, &str)] = match self {
            Self::Nanoseconds => &[(1e9, " s"), (1e6, " ms"), (1e3, " us"), (1.0, " ns")],
            // Minutes from ten, hours from two on: 90 s are no 1.5 minutes.
            Self::Seconds if size >= 7_200.0 => &[(3_600.0, " h")],
            Self::Seconds if size >= 600.0 => &[(60.0, " min")],
            Self::Seconds => &[(1.0, " s"), (1e-3, " ms"), (1e-6, " us"), (1e-9, " ns")],
            Self::Watts => {
                &[(1e9, " GW"), (1e6, " MW"), (1e3, " kW"), (1.0, " W"), (1e-3, " mW"), (1e-6, " uW")]
            }
            Self::Joules => &[
                (1e9, " GJ"),
                (1e6, " MJ"),
                (1e3, " kJ"),
                (1.0, " J"),
                (1e-3, " mJ"),
                (1e-6, " uJ"),
                (1e-9, " nJ"),
            ],
            Self::PerSecond | Self::Count => &[(1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, "")],
            Self::Share => &[(0.01, " %")],
            Self::Megahertz => &[(1e3, " GHz"), (1.0, " MHz")],
        };
        // Nothing has no size: no prefix.
        let plain = steps.iter().find(|(factor, _)| *factor == 1.0).unwrap_or(&steps[0]);
        if size == 0.0 {
            return *plain;
        }
        let fits = steps.iter().find(|(factor, _)| size >= factor * 0.999_999);
        *fits.unwrap_or(if matches!(self, Self::PerSecond | Self::Count) {
            plain
        } else {
            &steps[steps.len() - 1]
        })
    }
}

/// JSON has no number for NaN and the infinities: they are written as `null`.
pub(super) fn or_nan<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or(f64::NAN))
}

/// `value` with `digits` digits that count.
fn significant(value: f64, digits: usize) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    // Round first: 999.96 with three digits has four before the point.
    let value = format!("{value:.*e}", digits - 1).parse().unwrap_or(value);
    let magnitude = value.abs().log10().floor();
    if !(-4.0..9.0).contains(&magnitude) {
        return exponential(value, digits);
    }
    fixed(value, (digits as f64 - 1.0 - magnitude).max(0.0) as usize)
}

fn fixed(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    // No value is less than nothing by rounding.
    if text.starts_with('-') && text.trim_start_matches(['-', '0', '.']).is_empty() {
        text[1..].to_owned()
    } else {
        text
    }
}

/// The same without zeros at its end.
fn plain(value: f64, digits: usize) -> String {
    let text = significant(value, digits);
    if text.contains('e') || !text.contains('.') {
        return text;
    }
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn exponential(value: f64, digits: usize) -> String {
    let text = format!("{value:.*e}", digits - 1);
    match text.split_once('e') {
        Some((mantissa, exponent)) if mantissa.contains('.') => {
            format!("{}e{exponent}", mantissa.trim_end_matches('0').trim_end_matches('.'))
        }
        _ => text,
    }
}

/// `None` for a text that is no number, or becomes none: the largest share has no percentage.
fn in_units(value: f64, factor: f64) -> Option<f64> {
    Some(value / factor).filter(|number| number.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::EnergySource;
    use proptest::prelude::*;

    #[test]
    fn a_number_is_read_in_its_own_size() {
        for (unit, value, text) in [
            (Unit::Nanoseconds, 152_400.0, "152 us"),
            (Unit::Nanoseconds, 1_500_000.0, "1.50 ms"),
            (Unit::Nanoseconds, 999_960.0, "1.00 ms"),
            (Unit::Nanoseconds, 0.25, "0.250 ns"),
            (Unit::Seconds, 90.0, "90.0 s"),
            (Unit::Seconds, 5_400.0, "90.0 min"),
            (Unit::Watts, 0.032, "32.0 mW"),
            (Unit::Joules, 3.2e-4, "320 uJ"),
            (Unit::PerSecond, 80_000.0, "80.0k/s"),
            (Unit::Share, 0.234, "23.4 %"),
            (Unit::Share, 0.0, "0 %"),
            (Unit::Megahertz, 2_100.0, "2.10 GHz"),
            (Unit::Count, 4.0, "4.00"),
            (Unit::Count, 1e15, "1000000G"),
            (Unit::Count, 1e30, "1e21G"),
            (Unit::Watts, f64::NAN, "-"),
        ] {
            assert_eq!(unit.text(value), text, "{unit:?} {value}");
        }
    }

    #[test]
    fn a_source_says_whether_it_is_a_meter() {
        let basis = |source: &str| Quantity::new("energy", Unit::Joules).by_source(source).basis;
        let source = |source: EnergySource| basis(&source.to_string());
        assert_eq!(source(EnergySource::Measured("rapl".into())), Some(Basis::Measured));
        assert_eq!(source(EnergySource::Modelled("skylake-sp".into())), Some(Basis::Modelled));
        assert_eq!(basis("not known here"), None);
    }

    #[test]
    fn an_interval_has_as_many_digits_as_it_deserves() {
        let text = |value, half_width| Unit::Nanoseconds.text_with(value, half_width);
        assert_eq!(text(152_400.0, Some(1_829.0)), "152 us \u{b1}1.2 %");
        assert_eq!(text(12_045.9, Some(12.0)), "12.05 us \u{b1}0.1 %");
        assert_eq!(text(12_045.9, Some(1.0)), "12.05 us \u{b1}0.01 %");
        assert_eq!(text(12_045.9, Some(6_000.0)), "12.0 us \u{b1}50 %");
        assert_eq!(text(12_045.9, None), "12.0 us");
        assert_eq!(text(12_045.9, Some(0.0)), "12.05 us \u{b1}<0.01 %");
        assert_eq!(text(0.0, Some(1.0)), "0 ns", "no share of nothing");
    }

    #[test]
    fn a_number_too_large_for_its_unit_is_missing() {
        assert_eq!(Unit::Share.text(3.4e306), crate::text::MISSING);
    }

    proptest! {
        #[test]
        fn any_number_is_a_short_text(value in any::<f64>(), half_width in any::<f64>(), place in 0usize..8) {
            let units = [Unit::Nanoseconds, Unit::Seconds, Unit::Watts, Unit::Joules, Unit::PerSecond, Unit::Share,
                Unit::Megahertz, Unit::Count];
            let unit = units[place];
            for text in [unit.text(value), unit.text_with(value, Some(half_width))] {
                prop_assert!(text.len() < 40 && !text.contains("NaN") && !text.contains("inf"), "{text}");
            }
        }
    }
}
