//! A key of a scenario that is written as a plain value or as a table.

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, IntoDeserializer, MapAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::marker::PhantomData;

pub(crate) enum Either<P, T> {
    Plain(P),
    Table(T),
}

/// Reads one; `expected` says how it is written. A mistake within a table is told as the table tells it.
pub(crate) fn either<'de, D, P, T>(from: D, expected: &'static str) -> Result<Either<P, T>, D::Error>
where
    D: Deserializer<'de>,
    P: Deserialize<'de>,
    T: Deserialize<'de>,
{
    from.deserialize_any(Reader { expected, read: PhantomData })
}

struct Reader<P, T> {
    expected: &'static str,
    read: PhantomData<(P, T)>,
}

impl<'de, P: Deserialize<'de>, T: Deserialize<'de>> Visitor<'de> for Reader<P, T> {
    type Value = Either<P, T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }
    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        let read = P::deserialize(text.into_deserializer()).map(Either::Plain);
        read.map_err(|_: E| E::invalid_type(Unexpected::Str(text), &self))
    }
    fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
        let read = P::deserialize(number.into_deserializer()).map(Either::Plain);
        read.map_err(|_: E| E::invalid_type(Unexpected::Signed(number), &self))
    }
    fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
        self.visit_i64(i64::try_from(number).unwrap_or(i64::MAX))
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Either::Table)
    }
}
