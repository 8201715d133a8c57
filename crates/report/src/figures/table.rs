//! Rows and columns of text.

use crate::text::escape;
use serde::Deserialize;
use std::fmt::Write as _;

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Table {
    /// Its title; nothing if empty.
    pub title: String,
    /// Heads of the columns, that of the rows' names first.
    pub head: Vec<String>,
    pub rows: Vec<Row>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Row {
    pub name: String,
    /// A remark below the name, in small letters; nothing if empty.
    pub remark: String,
    pub cells: Vec<String>,
    /// The place of the contestant whose colour it has.
    pub look: Option<usize>,
}

impl Table {
    pub(super) fn write(&self, page: &mut String) {
        page.push_str("<div class=\"scroll\"><table>\n");
        if !self.title.is_empty() {
            let _ = writeln!(page, "<caption>{}</caption>", escape(&self.title));
        }
        page.push_str("<thead><tr>");
        for head in &self.head {
            let _ = write!(page, "<th scope=\"col\">{}</th>", escape(head));
        }
        page.push_str("</tr></thead>\n<tbody>\n");
        for row in &self.rows {
            let class =
                row.look.map_or_else(String::new, |place| format!(" class=\"phase-{}\"", place % 6 + 1));
            let _ = write!(page, "<tr{class}><th scope=\"row\">{}", escape(&row.name));
            if !row.remark.is_empty() {
                let _ = write!(page, "<small>{}</small>", escape(&row.remark));
            }
            page.push_str("</th>");
            for cell in &row.cells {
                // An interval stands below its figure, in small letters: tables are wide enough
                // without it.
                let _ = match cell.split_once(" \u{b1}") {
                    Some((figure, off)) => {
                        write!(page, "<td>{} <small>\u{b1}{}</small></td>", escape(figure), escape(off))
                    }
                    None => write!(page, "<td>{}</td>", escape(cell)),
                };
            }
            page.push_str("</tr>\n");
        }
        page.push_str("</tbody></table></div>\n");
    }
}
