//! A table as typed columns: a CSV file is written of it, and Python's data frames are made of it.
//!
//! Each column stands in one place with its name and the way in which a row fills it. A cell that is
//! not known is absent, never zero: in a file it is empty.

use sim::outcome::Estimate;
use sim::statistics::Interval;
use std::io::{self, Write};

/// The cells of a column, one for each row.
#[derive(Clone, Debug, PartialEq)]
pub enum Column {
    Text(Vec<Option<String>>),
    Count(Vec<Option<u64>>),
    Number(Vec<Option<f64>>),
    Truth(Vec<Option<bool>>),
}

/// A table: columns of equal length with their names, in order.
pub type Columns = Vec<(String, Column)>;

/// A table to which columns are still added.
pub struct Rows<'a, R> {
    rows: &'a [R],
    columns: Columns,
}

impl<'a, R> Rows<'a, R> {
    /// A table with a row for each of these, and no columns yet.
    pub fn of(rows: &'a [R]) -> Self {
        Self { rows, columns: Vec::new() }
    }

    pub fn end(self) -> Columns {
        self.columns
    }

    fn add<V>(
        mut self,
        name: impl Into<String>,
        of: impl Fn(&'a R) -> V,
        column: fn(Vec<V>) -> Column,
    ) -> Self {
        self.columns.push((name.into(), column(self.rows.iter().map(of).collect())));
        self
    }

    pub fn text<V: Into<Option<String>>>(self, name: impl Into<String>, of: impl Fn(&'a R) -> V) -> Self {
        self.add(name, |row| of(row).into(), Column::Text)
    }

    pub fn count<V: Into<Option<u64>>>(self, name: impl Into<String>, of: impl Fn(&'a R) -> V) -> Self {
        self.add(name, |row| of(row).into(), Column::Count)
    }

    pub fn number<V: Into<Option<f64>>>(self, name: impl Into<String>, of: impl Fn(&'a R) -> V) -> Self {
        self.add(name, |row| of(row).into(), Column::Number)
    }

    pub fn truth<V: Into<Option<bool>>>(self, name: impl Into<String>, of: impl Fn(&'a R) -> V) -> Self {
        self.add(name, |row| of(row).into(), Column::Truth)
    }

    /// An estimate and the ends of its 95 % interval: `mean_ns`, `mean_low_ns`, `mean_high_ns`.
    pub fn estimate(self, name: &str, unit: &str, of: impl Fn(&'a R) -> Option<Estimate>) -> Self {
        let interval = |row| of(row).and_then(|found| found.interval());
        self.number(format!("{name}{unit}"), |row| of(row).map(|found| found.value))
            .number(format!("{name}_low{unit}"), |row| interval(row).as_ref().map(Interval::low))
            .number(format!("{name}_high{unit}"), |row| interval(row).as_ref().map(Interval::high))
    }
}

/// Writes a table as CSV, its columns' names first.
pub fn write(columns: &Columns, to: impl Write) -> io::Result<()> {
    let mut csv = csv::Writer::from_writer(to);
    csv.write_record(columns.iter().map(|(name, _)| name))?;
    for row in 0..columns.first().map_or(0, |(_, column)| column.len()) {
        csv.write_record(columns.iter().map(|(_, column)| column.cell(row)))?;
    }
    csv.flush()
}

impl Column {
    fn len(&self) -> usize {
        match self {
            Self::Text(cells) => cells.len(),
            Self::Count(cells) => cells.len(),
            Self::Number(cells) => cells.len(),
            Self::Truth(cells) => cells.len(),
        }
    }

    fn cell(&self, row: usize) -> String {
        fn text(cell: Option<&impl ToString>) -> String {
            cell.map_or_else(String::new, ToString::to_string)
        }
        match self {
            Self::Text(cells) => text(cells[row].as_ref()),
            Self::Count(cells) => text(cells[row].as_ref()),
            Self::Number(cells) => text(cells[row].as_ref()),
            Self::Truth(cells) => text(cells[row].as_ref()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_cell_is_empty_and_text_is_quoted() {
        let rows = [(1u64, Some(0.5)), (2, None)];
        let found = |row: &(u64, Option<f64>)| row.1.map(|value| Estimate { value, half_width: Some(0.25) });
        let columns = Rows::of(&rows)
            .text("name", |row| format!("a, {}", row.0))
            .count("n", |row| row.0)
            .estimate("mean", "_ns", found)
            .truth("met", |row| row.1.map(|_| true))
            .end();
        let mut file = Vec::new();
        write(&columns, &mut file).unwrap();
        let text =
            "name,n,mean_ns,mean_low_ns,mean_high_ns,met\n\"a, 1\",1,0.5,0.25,0.75,true\n\"a, 2\",2,,,,\n";
        assert_eq!(String::from_utf8(file).unwrap(), text);
    }
}
