//! Which runs a claim means: coordinates on a figure's board, and stretches of a time series.

use super::{Part, Pick, Selection};
use crate::board::{Board, Outcomes, Place};
use toml::Value;

/// Which part of a time series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    First,
    Last,
    Each,
    Sample(usize),
}

impl When {
    pub(super) fn parse(value: &Value) -> Result<Self, String> {
        match value {
            Value::String(text) if text == "first" => Ok(Self::First),
            Value::String(text) if text == "last" => Ok(Self::Last),
            Value::String(text) if text == "each" => Ok(Self::Each),
            Value::Integer(sample) if *sample > 0 => Ok(Self::Sample(*sample as usize)),
            other => Err(format!("time = {other}: write \"first\", \"last\", \"each\" or a sample's number")),
        }
    }
}

/// The samples that a part is looked at in; one `None` for the whole run.
pub(super) fn stretches(
    time: Option<When>,
    part: &Part,
    outcomes: &Outcomes<'_>,
) -> Result<Vec<Option<usize>>, String> {
    let Some(time) = time else { return Ok(vec![None]) };
    let places = part.subject.iter().chain(&part.against).chain(&part.reference);
    let lengths = places.filter_map(|&place| outcomes[place]).map(|outcome| outcome.points.len());
    let samples = lengths.min().filter(|&samples| samples > 0).ok_or("no time series")?;
    Ok(match time {
        When::First => vec![Some(0)],
        When::Last => vec![Some(samples - 1)],
        When::Sample(sample) if sample <= samples => vec![Some(sample - 1)],
        When::Sample(sample) => return Err(format!("there is no sample {sample} of {samples}")),
        When::Each => (0..samples).map(Some).collect(),
    })
}

/// Lists are read place by place.
pub(super) fn picks(selection: &Selection) -> Result<Vec<Pick>, String> {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let lists = selection.values().filter_map(Value::as_array).map(Vec::len);
    let length = lists.clone().max().unwrap_or(1);
    if lists.clone().any(|other| other != length) {
        return Err("lists of one selection have the same length".into());
    }
    let pick = |at: usize| {
        let coordinate = |(key, value): (&String, &Value)| {
            let value = value.as_array().map_or(value, |list| &list[at]);
            (key.clone(), text(value))
        };
        selection.iter().filter(|(key, _)| *key != "time").map(coordinate).collect()
    };
    Ok((0..length).map(pick).collect())
}

impl Place {
    /// As a person finds it again.
    pub fn name(&self) -> String {
        self.name_without("")
    }

    /// The same without the value on one axis.
    pub fn name_without(&self, key: &str) -> String {
        let axes = self.axes.iter().filter(|(axis, _)| *axis != key);
        let axes = axes.map(|(axis, value)| format!("{} {value}", axis.rsplit('.').next().unwrap_or(axis)));
        std::iter::once(self.contestant.clone()).chain(axes).collect::<Vec<_>>().join(", ")
    }

    pub(super) fn is(&self, pick: &Pick) -> Result<bool, String> {
        for (key, wanted) in pick {
            let has = match key.as_str() {
                "contestant" => Some(&self.contestant),
                "variant" => self.variant.as_ref(),
                "policy" => Some(&self.policies),
                axis => self.axes.get(axis),
            };
            match has {
                None => return Err(format!("runs have no `{key}`")),
                Some(has) if has != wanted => return Ok(false),
                Some(_) => {}
            }
        }
        Ok(true)
    }
}

impl Board {
    /// The run that differs from `place` in the keys of `pick` and in nothing else that is free.
    pub(super) fn counterpart(&self, place: usize, pick: &Pick) -> Result<usize, String> {
        let place = &self.places[place];
        let mut candidates = Vec::new();
        for (index, other) in self.places.iter().enumerate() {
            let same_axes = place
                .axes
                .iter()
                .all(|(axis, value)| pick.contains_key(axis) || other.axes.get(axis) == Some(value));
            if same_axes && other.is(pick)? {
                candidates.push(index);
            }
        }
        type Likeness = fn(&Place, &Place) -> bool;
        let alike: [Likeness; 2] = [|a, b| a.variant == b.variant, |a, b| a.policies == b.policies];
        for alike in alike {
            if candidates.len() > 1 {
                candidates.retain(|&index| alike(&self.places[index], place));
            }
        }
        match candidates[..] {
            [one] => Ok(one),
            [] => Err(format!("no run beside {} is {pick:?}", place.name())),
            _ => Err(format!("several runs beside {} are {pick:?}", place.name())),
        }
    }
}
