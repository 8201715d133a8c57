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

impl Table {
    pub fn new(
        title: impl Into<String>,
        head: impl IntoIterator<Item: Into<String>>,
        rows: impl IntoIterator<Item = Row>,
    ) -> Self {
        let head = head.into_iter().map(Into::into).collect();
        Self { title: title.into(), head, rows: rows.into_iter().collect() }
    }
}

impl Row {
    /// A row without a remark and a look.
    pub fn new(name: impl Into<String>, cells: impl IntoIterator<Item = String>) -> Self {
        Self { name: name.into(), cells: cells.into_iter().collect(), ..Self::default() }
    }
}
