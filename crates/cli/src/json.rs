//! The documents of `--json`: one object with a number `format`, and units in the names.
//!
//! A unit comes from the type of a value, so no command can forget one: a field `p99` that holds a
//! `machine::Duration` is printed as `p99_ns`. A list, or a map of names, of such values has the
//! unit in its own name. A field whose value is not known is left out: its type, and so its name,
//! would not be known either. docs/reference/json.md lists the documents.

use crate::table;
use anyhow::{Context as _, Result};
use serde::{Serialize, Serializer, ser};
use serde_json::Value;
use std::fmt::Display;

/// Units of Roost's types, as the end of a name.
const UNITS: [(&str, &str); 6] = [
    ("Duration", "_ns"),
    ("Instant", "_ns"),
    ("Kilohertz", "_khz"),
    ("Microwatts", "_uw"),
    ("Microjoules", "_uj"),
    ("Rate", "_per_s"),
];

/// Prints `document`, which must be an object, as format number `format`.
pub fn print(format: u32, document: &impl Serialize) -> Result<()> {
    table::print(&text(format, document)?)
}

/// The same as a text.
pub fn text(format: u32, document: &impl Serialize) -> Result<String> {
    let Tree::Object(mut fields) = document.serialize(Units).context("a document")?.tree else {
        anyhow::bail!("a document is an object");
    };
    fields.retain(|(name, _)| name != "format");
    fields.insert(0, ("format".to_owned(), Tree::Plain(format.into())));
    Ok(serde_json::to_string_pretty(&Tree::Object(fields))? + "\n")
}

/// JSON whose fields keep their order.
enum Tree {
    Plain(Value),
    List(Vec<Tree>),
    Object(Vec<(String, Tree)>),
}

impl Serialize for Tree {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Plain(value) => value.serialize(serializer),
            Self::List(all) => serializer.collect_seq(all),
            Self::Object(fields) => serializer.collect_map(fields.iter().map(|(name, tree)| (name, tree))),
        }
    }
}

/// A value and the unit that its name has to tell.
struct Node {
    tree: Tree,
    unit: Option<&'static str>,
}

impl Node {
    fn plain(value: impl Into<Value>) -> Result<Self, Error> {
        Ok(Self { tree: Tree::Plain(value.into()), unit: None })
    }
}

type Error = serde_json::Error;

fn refused(why: impl Display) -> Error {
    ser::Error::custom(why)
}

/// `name` with the unit, if it does not end so already.
fn named(name: String, unit: Option<&str>) -> String {
    match unit {
        Some(unit) if !name.ends_with(unit) && name != unit[1..] => name + unit,
        _ => name,
    }
}

/// Turns values into nodes.
struct Units;

/// Gathers the parts of a list, a map or a structure.
struct Parts {
    /// The name of the enum's variant that this is.
    variant: Option<&'static str>,
    /// The parts of a map of names have no unit in their names; the map has it.
    is_of_names: bool,
    name: String,
    fields: Vec<(String, Tree)>,
    list: Vec<Tree>,
    unit: Option<&'static str>,
}

impl Parts {
    fn begin(variant: Option<&'static str>, is_of_names: bool) -> Result<Self, Error> {
        let (name, fields, list) = (String::new(), Vec::new(), Vec::new());
        Ok(Self { variant, is_of_names, name, fields, list, unit: None })
    }

    fn element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        let Node { tree, unit } = value.serialize(Units)?;
        self.unit = self.unit.or(unit);
        self.list.push(tree);
        Ok(())
    }

    fn field<T: Serialize + ?Sized>(&mut self, name: String, value: &T) -> Result<(), Error> {
        let Node { tree, unit } = value.serialize(Units)?;
        if matches!(tree, Tree::Plain(Value::Null)) {
            return Ok(());
        }
        if self.is_of_names {
            self.unit = self.unit.or(unit);
            self.fields.push((name, tree));
        } else {
            self.fields.push((named(name, unit), tree));
        }
        Ok(())
    }

    fn node(self, tree: Tree) -> Result<Node, Error> {
        Ok(match self.variant {
            Some(variant) => variant_of(variant, Node { tree, unit: self.unit }),
            None => Node { tree, unit: self.unit },
        })
    }

    fn into_list(mut self) -> Result<Node, Error> {
        let list = std::mem::take(&mut self.list);
        self.node(Tree::List(list))
    }

    fn into_object(mut self) -> Result<Node, Error> {
        let fields = std::mem::take(&mut self.fields);
        self.node(Tree::Object(fields))
    }
}

fn variant_of(variant: &str, node: Node) -> Node {
    let name = named(variant.to_owned(), node.unit);
    Node { tree: Tree::Object(vec![(name, node.tree)]), unit: None }
}

macro_rules! plain {
    ($($method:ident($type:ty))*) => {
        $(fn $method(self, value: $type) -> Result<Node, Error> { Node::plain(value) })*
    };
}

impl Serializer for Units {
    type Ok = Node;
    type Error = Error;
    type SerializeSeq = Parts;
    type SerializeTuple = Parts;
    type SerializeTupleStruct = Parts;
    type SerializeTupleVariant = Parts;
    type SerializeMap = Parts;
    type SerializeStruct = Parts;
    type SerializeStructVariant = Parts;

    plain! {
        serialize_bool(bool) serialize_i8(i8) serialize_i16(i16) serialize_i32(i32) serialize_i64(i64)
        serialize_u8(u8) serialize_u16(u16) serialize_u32(u32) serialize_u64(u64)
        serialize_f32(f32) serialize_f64(f64) serialize_str(&str)
    }

    fn serialize_char(self, value: char) -> Result<Node, Error> {
        Node::plain(value.to_string())
    }
    fn serialize_bytes(self, value: &[u8]) -> Result<Node, Error> {
        Node::plain(value)
    }
    fn serialize_none(self) -> Result<Node, Error> {
        Node::plain(Value::Null)
    }
    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<Node, Error> {
        value.serialize(Self)
    }
    fn serialize_unit(self) -> Result<Node, Error> {
        Node::plain(Value::Null)
    }
    fn serialize_unit_struct(self, _: &'static str) -> Result<Node, Error> {
        Node::plain(Value::Null)
    }
    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Result<Node, Error> {
        Node::plain(variant)
    }
    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> Result<Node, Error> {
        let node = value.serialize(Self)?;
        let unit = UNITS.iter().find(|(of, _)| *of == name).map(|(_, unit)| *unit);
        Ok(Node { unit: unit.or(node.unit), ..node })
    }
    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<Node, Error> {
        Ok(variant_of(variant, value.serialize(Self)?))
    }
    fn serialize_seq(self, _: Option<usize>) -> Result<Parts, Error> {
        Parts::begin(None, false)
    }
    fn serialize_tuple(self, _: usize) -> Result<Parts, Error> {
        Parts::begin(None, false)
    }
    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Parts, Error> {
        Parts::begin(None, false)
    }
    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Parts, Error> {
        Parts::begin(Some(variant), false)
    }
    /// serde does not say the length of a structure that has others flattened into it.
    fn serialize_map(self, length: Option<usize>) -> Result<Parts, Error> {
        Parts::begin(None, length.is_some())
    }
    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Parts, Error> {
        Parts::begin(None, false)
    }
    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Parts, Error> {
        Parts::begin(Some(variant), false)
    }
}

macro_rules! lists {
    ($($trait:ident $method:ident)*) => {
        $(impl ser::$trait for Parts {
            type Ok = Node;
            type Error = Error;
            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
                self.element(value)
            }
            fn end(self) -> Result<Node, Error> {
                self.into_list()
            }
        })*
    };
}
lists! {
    SerializeSeq serialize_element
    SerializeTuple serialize_element
    SerializeTupleStruct serialize_field
    SerializeTupleVariant serialize_field
}

macro_rules! structures {
    ($($trait:ident)*) => {
        $(impl ser::$trait for Parts {
            type Ok = Node;
            type Error = Error;
            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                name: &'static str,
                value: &T,
            ) -> Result<(), Error> {
                self.field(name.to_owned(), value)
            }
            fn end(self) -> Result<Node, Error> {
                self.into_object()
            }
        })*
    };
}
structures! { SerializeStruct SerializeStructVariant }

impl ser::SerializeMap for Parts {
    type Ok = Node;
    type Error = Error;
    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Error> {
        self.name = match key.serialize(Units)?.tree {
            Tree::Plain(Value::String(name)) => name,
            Tree::Plain(value @ (Value::Number(_) | Value::Bool(_))) => value.to_string(),
            _ => return Err(refused("a name is a text or a number")),
        };
        Ok(())
    }
    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        let name = std::mem::take(&mut self.name);
        self.field(name, value)
    }
    fn end(self) -> Result<Node, Error> {
        self.into_object()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::{Duration, Kilohertz, Rate};
    use std::collections::BTreeMap;

    #[derive(Serialize)]
    struct Inner {
        p99: Option<Duration>,
        p50: Option<Duration>,
        rate: Rate,
    }

    #[derive(Serialize)]
    #[serde(rename_all = "snake_case")]
    enum Kind {
        Stock,
        Capped(Kilohertz),
        Timed { stay: Duration },
    }

    #[derive(Serialize)]
    struct Whole {
        #[serde(flatten)]
        inner: Inner,
        took_ns: Duration,
        clocks: Vec<Kilohertz>,
        residency: BTreeMap<String, Duration>,
        states: Vec<(String, Duration)>,
        kinds: Vec<Kind>,
        per_s: Rate,
    }

    #[test]
    fn units_stand_in_the_names_and_unknown_values_are_left_out() {
        let inner = || Inner { p99: Some(Duration::from_micros(2)), p50: None, rate: Rate::per_second(1.5) };
        let whole = Whole {
            inner: inner(),
            took_ns: Duration::from_nanos(1),
            clocks: vec![Kilohertz(800)],
            residency: BTreeMap::from([("C1".to_owned(), Duration::from_nanos(7))]),
            states: vec![("POLL".to_owned(), Duration::from_nanos(8))],
            per_s: Rate::per_second(2.5),
            kinds: vec![
                Kind::Stock,
                Kind::Capped(Kilohertz(9)),
                Kind::Timed { stay: Duration::from_nanos(3) },
            ],
        };
        let expected = r#"{"format":4,"p99_ns":2000,"rate_per_s":1.5,"took_ns":1,"clocks_khz":[800],
            "residency_ns":{"C1":7},"states_ns":[["POLL",8]],
            "kinds":["stock",{"capped_khz":9},{"timed":{"stay_ns":3}}],"per_s":2.5}"#;
        let bare = |text: &str| text.split_whitespace().collect::<String>();
        assert_eq!(bare(&text(4, &whole).unwrap()), bare(expected));
    }

    /// `roost observe --wake-latency` reads the document of `roost doctor --json --probe`.
    #[test]
    fn a_probe_that_was_printed_is_read_again_and_so_is_one_of_earlier_versions() {
        #[derive(Serialize, serde::Deserialize, PartialEq, Debug)]
        struct Report {
            probe: observe::probe::Probe,
        }
        let earlier = include_str!("../../observe/testdata/doctor/lab-probe.json");
        let report: Report = serde_json::from_str(earlier).unwrap();
        assert!(!report.probe.batches.is_empty());
        let printed = text(1, &report).unwrap();
        assert!(printed.contains("\"p99_ns\""), "{printed}");
        assert_eq!(serde_json::from_str::<Report>(&printed).unwrap(), report);
    }

    #[test]
    fn a_list_is_no_document() {
        assert!(text(1, &[1, 2]).is_err());
    }
}
