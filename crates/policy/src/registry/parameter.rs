//! One parameter of a policy: its unit, its bounds, and where its default comes from.

use machine::Duration;

/// A row of a policy's table of parameters.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// The key in a file; dotted where one of several forms is written (`threshold.fixed`).
    pub name: &'static str,
    pub unit: Unit,
    pub bounds: Bounds,
    /// The name of a parameter beside it that it must not exceed.
    pub not_above: Option<&'static str>,
    pub meaning: &'static str,
    /// Where the default comes from: a paper's section, the kernel, a measurement, or why we chose
    /// it.
    pub source: &'static str,
    /// The value that the driver sets where it knows better than the default.
    pub given: Option<&'static str>,
    /// The rule that holds while the key is left out and has no default.
    pub absent: Option<&'static str>,
}

/// The unit of a value, and so how a file writes it.
#[derive(Clone, Copy, Debug)]
pub enum Unit {
    /// Text such as `"100ms"`; `"never"` where the policy allows it.
    Time,
    Kilohertz,
    Microwatts,
    RequestsPerSecond,
    /// A number that is a part of one.
    Share,
    /// A number without a unit.
    Number,
    Count,
    Percent,
    Flag,
    OneOf(&'static [&'static str]),
    List,
    Table(&'static [Parameter]),
}

/// The values that a parameter can have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bounds {
    Any,
    AboveZero,
    ZeroOrMore,
    /// Both ends included; each element of a list.
    Within(f64, f64),
    /// Above zero, up to and with this.
    AboveZeroTo(f64),
    /// A pair: the least, up to 1, and the most, from 1 on.
    AroundOne,
    AtLeast(Duration),
}

impl Parameter {
    const fn new(name: &'static str, unit: Unit, meaning: &'static str) -> Self {
        let (bounds, not_above, source, given, absent) = (Bounds::Any, None, "", None, None);
        Self { name, unit, bounds, not_above, meaning, source, given, absent }
    }

    #[must_use]
    pub const fn source(self, source: &'static str) -> Self {
        Self { source, ..self }
    }

    #[must_use]
    pub const fn given(self, given: &'static str) -> Self {
        Self { given: Some(given), ..self }
    }

    #[must_use]
    pub const fn absent(self, absent: &'static str) -> Self {
        Self { absent: Some(absent), ..self }
    }

    #[must_use]
    pub const fn not_above(self, other: &'static str) -> Self {
        Self { not_above: Some(other), ..self }
    }

    #[must_use]
    pub const fn above_zero(self) -> Self {
        Self { bounds: Bounds::AboveZero, ..self }
    }

    #[must_use]
    pub const fn zero_or_more(self) -> Self {
        Self { bounds: Bounds::ZeroOrMore, ..self }
    }

    #[must_use]
    pub const fn within(self, least: f64, most: f64) -> Self {
        Self { bounds: Bounds::Within(least, most), ..self }
    }

    #[must_use]
    pub const fn above_zero_to(self, most: f64) -> Self {
        Self { bounds: Bounds::AboveZeroTo(most), ..self }
    }

    #[must_use]
    pub const fn around_one(self) -> Self {
        Self { bounds: Bounds::AroundOne, ..self }
    }

    #[must_use]
    pub const fn at_least(self, least: Duration) -> Self {
        Self { bounds: Bounds::AtLeast(least), ..self }
    }
}

/// A length of time; any, unless told otherwise.
pub const fn time(name: &'static str, meaning: &'static str) -> Parameter {
    Parameter::new(name, Unit::Time, meaning)
}

/// A parameter that is a frequency above zero.
pub const fn clock(name: &'static str, meaning: &'static str) -> Parameter {
    Parameter::new(name, Unit::Kilohertz, meaning).above_zero()
}

pub const fn power(name: &'static str, meaning: &'static str) -> Parameter {
    Parameter::new(name, Unit::Microwatts, meaning)
}

pub const fn rate(name: &'static str, meaning: &'static str) -> Parameter {
    Parameter::new(name, Unit::RequestsPerSecond, meaning).zero_or_more()
}

/// A part of one: none of it, all, or between.
pub const fn share(name: &'static str, meaning: &'static str) -> Parameter {
    Parameter::new(name, Unit::Share, meaning).within(0.0, 1.0)
}

/// A share of requests that tables can be made for.
pub const fn quantile(name: &'static str, meaning: &'static str) -> Parameter {
    Parameter::new(name, Unit::Share, meaning).within(0.5, 0.9999)
}

/// A number; zero or more, unless told otherwise.
pub const fn number(name: &'static str, meaning: &'static str) -> Parameter {
    Parameter::new(name, Unit::Number, meaning).zero_or_more()
}

/// A whole number; any, unless told otherwise.
pub const fn count(name: &'static str, meaning: &'static str) -> Parameter {
    Parameter::new(name, Unit::Count, meaning)
}

pub const fn percent(name: &'static str, meaning: &'static str) -> Parameter {
    Parameter::new(name, Unit::Percent, meaning).within(1.0, 100.0)
}

pub const fn flag(name: &'static str, meaning: &'static str) -> Parameter {
    Parameter::new(name, Unit::Flag, meaning)
}

pub const fn one_of(name: &'static str, meaning: &'static str, words: &'static [&'static str]) -> Parameter {
    Parameter::new(name, Unit::OneOf(words), meaning)
}

pub const fn list(name: &'static str, meaning: &'static str) -> Parameter {
    Parameter::new(name, Unit::List, meaning)
}

pub const fn table(name: &'static str, meaning: &'static str, parameters: &'static [Parameter]) -> Parameter {
    Parameter::new(name, Unit::Table(parameters), meaning)
}
