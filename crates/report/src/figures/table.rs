use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Table {
    /// Its title; nothing if empty.
    pub title: String,
    /// Heads of the columns, that of the rows' names first.
    pub head: Vec<String>,
    pub rows: Vec<Row>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Row {
    pub name: String,
    /// A remark below the name, in small letters; nothing if empty.
    pub remark: String,
    pub cells: Vec<String>,
    /// The place of the contestant whose colour it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub look: Option<usize>,
}
