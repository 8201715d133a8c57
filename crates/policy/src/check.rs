//! Parameters that can be: a policy is made only of values within the bounds of its table.
//!
//! A period of zero is a timer that is always due. A bound below the other one can never be kept. A
//! number that is none makes every comparison false. They are refused here, with the key and the
//! value to write. Each policy's table of [`Parameter`]s stands beside its parameters.
//!
//! Invariants: the defaults and the papers' settings pass, and no number that is not finite
//! does.

use crate::registry::{Bounds, Parameter, Unit};
use machine::Duration;
use serde::Serialize;
use serde_json::Value;
use std::fmt;

/// Parameters with a table of their bounds.
pub trait Check: Serialize {
    const PARAMETERS: &'static [Parameter];

    /// The first that cannot be, if there is one.
    fn check(&self) -> Result<(), Wrong> {
        // Only maps with keys that are no text cannot be written, and parameters have none.
        let values = serde_json::to_value(self).expect("plain data is written without error");
        check_values(&values, Self::PARAMETERS)
    }
}

/// A parameter that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {problem}; {fix}")]
pub struct Wrong {
    /// Name of the parameter, dotted below tables.
    pub key: String,
    pub problem: String,
    pub fix: String,
}

impl Wrong {
    /// The same of parameters that lie in a table of this name.
    #[must_use]
    pub fn below(self, table: &str) -> Self {
        Self { key: format!("{table}.{}", self.key), ..self }
    }
}

/// The first of `values` that is outside the bounds of its row.
pub fn check_values(values: &Value, table: &[Parameter]) -> Result<(), Wrong> {
    table.iter().try_for_each(|row| match (find(values, row.name), row.unit) {
        (None, _) => Ok(()),
        (Some(below @ Value::Object(_)), Unit::Table(inner)) => {
            check_values(below, inner).map_err(|wrong| wrong.below(row.name))
        }
        (Some(value), _) => row.check(value, values),
    })
}

/// The value of a dotted name.
pub fn find<'a>(values: &'a Value, name: &str) -> Option<&'a Value> {
    name.split('.').try_fold(values, |value, part| value.get(part))
}

/// A value that has an order.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum Size {
    Time(Duration),
    Number(f64),
}

impl Size {
    fn of(value: &Value) -> Option<Self> {
        match value {
            Value::String(text) => text.parse().ok().map(Self::Time),
            _ => value.as_f64().map(Self::Number),
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Time(length) => length.fmt(f),
            Self::Number(number) => number.fmt(f),
        }
    }
}

impl Parameter {
    fn check(&self, value: &Value, beside: &Value) -> Result<(), Wrong> {
        let wrong = |problem: String, fix: String| Err(Wrong { key: self.name.to_owned(), problem, fix });
        // A number that is not finite is written as null.
        if value.is_null() && self.absent.is_none() && !matches!(self.unit, Unit::Table(_)) {
            return wrong("not a finite number".into(), format!("write {}", self.form()));
        }
        if let Value::Array(elements) = value {
            let numbers = elements.iter().all(|element| element.is_number() || element.is_null());
            return if numbers && !self.holds_all(elements) {
                wrong(value.to_string(), format!("write {}", self.form()))
            } else {
                Ok(())
            };
        }
        let Some(size) = Size::of(value) else { return Ok(()) };
        if !self.holds(size) {
            return wrong(size.to_string(), format!("write {}", self.form()));
        }
        if let Some(other) = self.not_above
            && let Some(most) = find(beside, other).and_then(Size::of)
            && size > most
        {
            let problem = format!("{size} is above `{other}`, {most}");
            return wrong(problem, format!("write no more than `{other}`"));
        }
        Ok(())
    }

    fn holds_all(&self, elements: &[Value]) -> bool {
        if elements.iter().any(Value::is_null) {
            return false;
        }
        let mut numbers = elements.iter().filter_map(Value::as_f64);
        match self.bounds {
            Bounds::AroundOne => {
                let (least, most) = (numbers.next().unwrap_or(0.0), numbers.next().unwrap_or(0.0));
                0.0 < least && least <= 1.0 && 1.0 <= most
            }
            _ => numbers.all(|number| self.holds(Size::Number(number))),
        }
    }

    fn holds(&self, size: Size) -> bool {
        match (self.bounds, size) {
            (Bounds::Any | Bounds::AroundOne, _) => true,
            (Bounds::AboveZero, Size::Time(length)) => !length.is_zero(),
            (Bounds::AboveZero, Size::Number(number)) => number > 0.0,
            (Bounds::ZeroOrMore, Size::Number(number)) => number >= 0.0,
            (Bounds::Within(least, most), Size::Number(number)) => (least..=most).contains(&number),
            (Bounds::AboveZeroTo(most), Size::Number(number)) => 0.0 < number && number <= most,
            (Bounds::AtLeast(least), Size::Time(length)) => length >= least,
            // The unit's form is the policy's own reader's to refuse.
            (Bounds::ZeroOrMore | Bounds::Within(..) | Bounds::AboveZeroTo(_), Size::Time(_)) => true,
            (Bounds::AtLeast(_), Size::Number(_)) => true,
        }
    }

    /// The look of a value, for a message.
    pub fn form(&self) -> String {
        match (self.bounds, self.unit) {
            (Bounds::AboveZero, Unit::Time) => "a time above zero, such as 100ms".into(),
            (Bounds::AboveZero, Unit::Kilohertz) => "a frequency in kHz, such as 2000000".into(),
            (Bounds::AboveZero, Unit::Count) => "a whole number from 1 on".into(),
            (Bounds::AboveZero, _) => "a number above zero".into(),
            (Bounds::ZeroOrMore, _) => "zero or a number above it".into(),
            (Bounds::Within(least, most), _) => format!("a number from {least} to {most}"),
            (Bounds::AboveZeroTo(most), _) => format!("a number above 0, up to {most}"),
            (Bounds::AroundOne, _) => "the least, up to 1, and the most, from 1 on: [0.5, 1.5]".into(),
            (Bounds::AtLeast(least), _) => format!("a time from {least} on"),
            (Bounds::Any, Unit::Time) => "a time, such as 100ms".into(),
            (Bounds::Any, Unit::OneOf(words)) => format!("one of {}", words.join(", ")),
            (Bounds::Any, Unit::Flag) => "true or false".into(),
            (Bounds::Any, Unit::Table(_)) => "a table".into(),
            (Bounds::Any, Unit::List) => "a list".into(),
            (Bounds::Any, Unit::Count) => "a whole number".into(),
            (Bounds::Any, _) => "a number".into(),
        }
    }
}
