//! A year's electricity, its money and its carbon, from a mean power.
//!
//! The energy of a year is the power times 8760 h, the hours of 365 days. Money is that times the
//! price of a kWh, carbon times the emissions of a kWh. Nothing has a default: a sum that a person
//! has not asked for is not shown. The power is that of the servers alone; a reader whose building draws half
//! as much again for cooling says so in the price.

use serde::{Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// The hours of a year of 365 days.
pub const HOURS_A_YEAR: f64 = 365.0 * 24.0;

/// Money for a kWh, such as `0.30/kWh` or `0.30EUR/kWh`.
#[derive(Clone, Debug, PartialEq)]
pub struct Price {
    per_kwh: f64,
    /// Written after the sums; empty where the price has none.
    currency: String,
}

/// Grams of CO2 equivalent for a kWh, such as `350g/kWh`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Carbon {
    grams_per_kwh: f64,
}

/// The options that say them, for every command that prints a year.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Tariff {
    pub price: Option<Price>,
    pub carbon: Option<Carbon>,
    /// The number of servers that do the same as the one that was measured.
    pub servers: u32,
}

/// A year of a mean power. A saving is negative where power rises.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Year {
    pub servers: u32,
    pub kwh: f64,
    /// In the currency of the price.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub money: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub currency: Option<String>,
    /// Kilograms of CO2 equivalent in the year.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub carbon_kg: Option<f64>,
}

impl Tariff {
    /// True if a person has said a price or a carbon intensity.
    pub fn is_given(&self) -> bool {
        self.price.is_some() || self.carbon.is_some()
    }

    /// A year at so many watts of each server.
    pub fn year(&self, watts: f64) -> Year {
        let servers = self.servers.max(1);
        let kwh = watts * f64::from(servers) * HOURS_A_YEAR / 1000.0;
        let currency = self.price.as_ref().map(|price| price.currency.clone());
        Year {
            servers,
            kwh,
            money: self.price.as_ref().map(|price| kwh * price.per_kwh),
            currency: currency.filter(|currency| !currency.is_empty()),
            carbon_kg: self.carbon.map(|carbon| kwh * carbon.grams_per_kwh / 1000.0),
        }
    }
}

impl Year {
    /// The sum with its currency, such as `1314 EUR`.
    pub fn money_text(&self) -> Option<String> {
        let sum = rounded(self.money?);
        Some(self.currency.as_ref().map_or_else(|| sum.clone(), |currency| format!("{sum} {currency}")))
    }

    /// Kilograms, or tonnes from a thousand on.
    pub fn carbon_text(&self) -> Option<String> {
        let kg = self.carbon_kg?;
        Some(if kg.abs() < 1000.0 {
            format!("{} kg CO2", rounded(kg))
        } else {
            format!("{:.1} t CO2", kg / 1000.0)
        })
    }
}

/// Three digits below a hundred, whole numbers above.
fn rounded(value: f64) -> String {
    match value.abs() {
        size if size < 1.0 => format!("{value:.3}"),
        size if size < 10.0 => format!("{value:.2}"),
        size if size < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

impl fmt::Display for Year {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} kWh", rounded(self.kwh))?;
        for part in [self.money_text(), self.carbon_text()].into_iter().flatten() {
            write!(f, ", {part}")?;
        }
        Ok(())
    }
}

/// The number at the beginning of `text`, and the rest up to `/kWh`.
fn number_and_unit(text: &str) -> Option<(f64, &str)> {
    let unit_and_number = text.strip_suffix("/kWh")?;
    let end = unit_and_number.find(|c: char| !c.is_ascii_digit() && c != '.');
    let (number, unit) = unit_and_number.split_at(end.unwrap_or(unit_and_number.len()));
    let number: f64 = number.parse().ok()?;
    (number.is_finite() && number > 0.0).then_some((number, unit.trim()))
}

impl FromStr for Price {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match number_and_unit(text) {
            Some((per_kwh, currency)) if currency.chars().all(char::is_alphabetic) => {
                Ok(Self { per_kwh, currency: currency.to_owned() })
            }
            _ => Err(format!("`{text}` is no price: write one above 0 such as 0.30/kWh or 0.30EUR/kWh")),
        }
    }
}

impl FromStr for Carbon {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match number_and_unit(text) {
            Some((grams_per_kwh, "g")) => Ok(Self { grams_per_kwh }),
            Some((kilograms, "kg")) => Ok(Self { grams_per_kwh: kilograms * 1000.0 }),
            _ => Err(format!("`{text}` is no carbon intensity: write one above 0 such as 350g/kWh")),
        }
    }
}

impl fmt::Display for Price {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}/kWh", self.per_kwh, self.currency)
    }
}

impl fmt::Display for Carbon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}g/kWh", self.grams_per_kwh)
    }
}

impl Serialize for Price {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for Carbon {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tariff(price: &str, carbon: &str, servers: u32) -> Tariff {
        Tariff { price: Some(price.parse().unwrap()), carbon: Some(carbon.parse().unwrap()), servers }
    }

    /// 100 W for 8760 h are 876 kWh; at 0.30 a kWh 262.80, at 350 g 306.6 kg.
    #[test]
    fn a_year_is_8760_hours() {
        let year = tariff("0.30EUR/kWh", "350g/kWh", 1).year(100.0);
        assert!((year.kwh - 876.0).abs() < 1e-9);
        assert!((year.money.unwrap() - 262.8).abs() < 1e-9);
        assert!((year.carbon_kg.unwrap() - 306.6).abs() < 1e-9);
        assert_eq!(year.to_string(), "876 kWh, 263 EUR, 307 kg CO2");
        let many = tariff("0.30/kWh", "0.35kg/kWh", 200).year(100.0);
        assert_eq!(many.to_string(), "175200 kWh, 52560, 61.3 t CO2");
    }

    #[test]
    fn a_saving_may_be_negative() {
        let year = tariff("0.30/kWh", "350g/kWh", 1).year(-1.0);
        assert_eq!(year.to_string(), "-8.76 kWh, -2.63, -3.07 kg CO2");
    }

    #[test]
    fn a_missing_price_is_no_free_energy() {
        let year = Tariff { price: None, carbon: None, servers: 1 }.year(100.0);
        assert_eq!((year.money, year.carbon_kg), (None, None));
        assert_eq!(year.to_string(), "876 kWh");
    }

    #[test]
    fn nonsense_is_told_with_its_fix() {
        for wrong in ["0.30", "/kWh", "-1/kWh", "0/kWh", "x/kWh", "0.3€ 4/kWh", "inf/kWh", "1e3/kWh"] {
            assert!(wrong.parse::<Price>().is_err_and(|why| why.contains("0.30/kWh")), "{wrong}");
        }
        for wrong in ["350", "350/kWh", "350t/kWh", "0g/kWh", "-5g/kWh"] {
            assert!(wrong.parse::<Carbon>().is_err_and(|why| why.contains("350g/kWh")), "{wrong}");
        }
        for right in ["0.3/kWh", "0.3EUR/kWh"] {
            assert_eq!(right.parse::<Price>().unwrap().to_string(), right);
        }
    }
}
