//! The figures of each, and whether they agree.

use serde::Serialize;
use sim::statistics::Interval;
use std::fmt;

/// One figure of one queue, by all who found it.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub case: String,
    pub figure: &'static str,
    pub unit: &'static str,
    /// In closed form, where there is one.
    pub exact: Option<f64>,
    pub ours: Interval,
    /// The other simulator's, if it ran.
    pub other: Option<Interval>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Table {
    pub format: u32,
    pub date: String,
    pub machine: String,
    /// How many each of our runs has.
    pub requests: u64,
    /// The version of SimPy, if it ran.
    pub simpy: Option<String>,
    pub rows: Vec<Row>,
}

impl Row {
    /// Ours agrees with everything that there is to compare it with.
    pub fn agrees(&self) -> bool {
        let exact = self.exact.map(|exact| Interval { estimate: exact, half_width: 0.0 });
        exact.iter().chain(&self.other).all(|other| agree(&self.ours, other))
    }

    fn text(&self, value: f64) -> String {
        match self.unit {
            "%" => format!("{:.2} %", value * 100.0),
            unit => format!("{value:.3} {unit}"),
        }
    }

    fn interval_text(&self, found: &Interval) -> String {
        let (off, text) = (found.half_width, self.text(found.estimate));
        match self.unit {
            "%" => format!("{text} ± {:.2}", off * 100.0),
            _ => format!("{text} ± {off:.3}"),
        }
    }
}

/// They differ by no more than chance would have them.
fn agree(a: &Interval, b: &Interval) -> bool {
    // Of figures without any chance, such as the power of a core that always does the same, the
    // rounding is left.
    let rounding = 1e-6 * a.estimate.abs();
    (a.estimate - b.estimate).abs() <= 2.0 * a.half_width.hypot(b.half_width) + rounding
}

impl Table {
    /// The page with this table between its markers.
    pub fn in_page(&self, page: &str) -> Result<String, String> {
        let missing =
            |marker: &str| format!("no line `{marker}`\n\nhint: the table goes between two of them");
        let from = page.find(FROM).ok_or_else(|| missing(FROM))? + FROM.len();
        let to = page[from..].find(TO).ok_or_else(|| missing(TO))? + from;
        Ok(format!("{}\n{self}{}", &page[..from], &page[to..]))
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let simpy =
            self.simpy.as_ref().map_or("without SimPy".to_owned(), |version| format!("SimPy {version}"));
        let disagree = self.rows.iter().filter(|row| !row.agrees()).count();
        let compared = self.rows.iter().flat_map(|row| [row.exact.is_some(), row.other.is_some()]);
        let mut head = String::new();
        let about = format!(
            "{}, {}; ten runs of {} requests each, {simpy}. {} comparisons, {} disagree.",
            self.date,
            self.machine,
            self.requests,
            compared.filter(|is_there| *is_there).count(),
            if disagree == 0 { "none".to_owned() } else { disagree.to_string() }
        );
        report::table::wrap(&mut head, "", &about, 100);
        writeln!(f, "{head}")?;
        writeln!(f, "| queue | figure | closed form | Roost | SimPy | |")?;
        writeln!(f, "|---|---|---|---|---|---|")?;
        for row in &self.rows {
            writeln!(
                f,
                "| {} | {} | {} | {} | {} | {} |",
                row.case,
                row.figure,
                row.exact.map_or("-".to_owned(), |exact| row.text(exact)),
                row.interval_text(&row.ours),
                row.other.as_ref().map_or("-".to_owned(), |other| row.interval_text(other)),
                if row.agrees() { "agree" } else { "DISAGREE" }
            )?;
        }
        Ok(())
    }
}

/// The lines between which the page keeps the table.
const FROM: &str = "<!-- cross-check: `make cross-check` writes this -->";
const TO: &str = "<!-- cross-check ends -->";

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> Row {
        let ours = Interval { estimate: 12.0, half_width: 0.1 };
        let other = Some(Interval { estimate: 12.2, half_width: 0.2 });
        Row { case: "M/M/1 0.5".to_owned(), figure: "mean", unit: "us", exact: Some(12.1), ours, other }
    }

    #[test]
    fn results_agree_within_chance() {
        assert!(row().agrees());
        assert!(!Row { exact: Some(12.3), ..row() }.agrees());
        let far = Some(Interval { estimate: 13.0, half_width: 0.1 });
        assert!(!Row { other: far, ..row() }.agrees());
        assert!(Row { exact: None, other: None, ..row() }.agrees());
        let certain = Interval { estimate: 12.1, half_width: 0.0 };
        assert!(Row { ours: certain, ..row() }.agrees());
    }

    #[test]
    fn the_table_goes_between_its_markers() {
        let table = Table {
            format: 1,
            date: "today".to_owned(),
            machine: "here".to_owned(),
            requests: 7,
            simpy: None,
            rows: vec![row()],
        };
        let page = table.in_page(&format!("before\n{FROM}\nold\n{TO}\nafter\n")).unwrap();
        assert!(page.starts_with("before\n") && page.ends_with("after\n") && !page.contains("old"), "{page}");
        assert!(
            page.contains("| M/M/1 0.5 | mean | 12.100 us | 12.000 us ± 0.100 | 12.200 us ± 0.200 | agree |")
        );
        assert_eq!(table.in_page(&page).unwrap(), page);
        assert!(table.in_page("nothing").unwrap_err().contains("no line"));
    }
}
