//! Reading another program's metrics page: Prometheus' text format, and OpenMetrics, which is
//! nearly the same.
//!
//! ```text
//!   # HELP http_requests_total ...                             a comment: skipped
//!   http_requests_total{method="get",code="200"} 1027 1395066363000
//!   `------ name -----' `------- labels -------' value `- timestamp or exemplar: skipped
//! ```
//!
//! Only samples are read. Types and units are in comments, and pages are often without them. A line
//! that is no sample is passed over: the caller asks for names, and one that is missing is the
//! caller's to tell. Nothing here panics, whatever the page holds; a property test sees to it.

use std::borrow::Cow;

#[derive(Clone, Debug, PartialEq)]
pub struct Sample<'a> {
    /// As the line begins, with `_total`, `_bucket` and the like.
    pub name: &'a str,
    pub labels: Vec<(&'a str, Cow<'a, str>)>,
    /// May be infinite or no number.
    pub value: f64,
}

impl Sample<'_> {
    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels.iter().find(|(label, _)| *label == name).map(|(_, value)| value.as_ref())
    }
}

pub fn samples(page: &str) -> impl Iterator<Item = Sample<'_>> {
    page.lines().filter_map(sample)
}

fn sample(line: &str) -> Option<Sample<'_>> {
    let line = line.trim_start();
    let (name, rest) = line.split_at(line.find(|c: char| !is_of_name(c)).unwrap_or(line.len()));
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let rest = rest.trim_start();
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(inside) => labels(inside)?,
        None => (Vec::new(), rest),
    };
    let value = rest.split_ascii_whitespace().next()?.parse().ok()?;
    Some(Sample { name, labels, value })
}

type Labels<'a> = Vec<(&'a str, Cow<'a, str>)>;

/// The text before the closing brace, and the rest after it.
fn labels(mut text: &str) -> Option<(Labels<'_>, &str)> {
    let mut labels = Vec::new();
    loop {
        text = text.trim_start_matches([' ', '\t', ',']);
        if let Some(rest) = text.strip_prefix('}') {
            return Some((labels, rest));
        }
        let (name, rest) = text.split_once('=')?;
        let inside = rest.trim_start().strip_prefix('"')?;
        let end = end_of_value(inside)?;
        labels.push((name.trim_end(), unescaped(&inside[..end])));
        text = &inside[end + 1..];
    }
}

/// Where the quote is that ends a value.
fn end_of_value(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => return Some(at),
            _ => {}
        }
    }
    None
}

fn unescaped(text: &str) -> Cow<'_, str> {
    if !text.contains('\\') {
        return text.into();
    }
    let mut value = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (c, c == '\\') {
            (_, true) => value.push(chars.next().map_or('\\', |next| if next == 'n' { '\n' } else { next })),
            _ => value.push(c),
        }
    }
    value.into()
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == ':'
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn only(line: &str) -> Option<Sample<'_>> {
        samples(line).next()
    }

    #[test]
    fn a_line_is_a_name_its_labels_and_a_value() {
        let line = r#"http_requests_total{method="post", path="C:\\a \"b\",}\n"} 1027 1395066363000"#;
        let sample = only(line).unwrap();
        assert_eq!((sample.name, sample.value), ("http_requests_total", 1027.0));
        assert_eq!(sample.label("method"), Some("post"));
        assert_eq!(sample.label("path"), Some("C:\\a \"b\",}\n"));
        assert_eq!(sample.label("code"), None);
        let bare = only("up 1 # {trace=\"x\"} 0.5").unwrap();
        assert!(bare.labels.is_empty() && bare.value == 1.0);
        assert_eq!(only("a{} +Inf").unwrap().value, f64::INFINITY);
        assert!(only("a{le=\"1\",} NaN").unwrap().value.is_nan());
    }

    #[test]
    fn what_is_no_sample_is_passed_over() {
        for line in [
            "",
            "# HELP a b",
            "a",
            "a b",
            "1a 2",
            "a{",
            "a{b",
            "a{b=c} 1",
            "a{b=\"c} 1",
            "{x=\"y\"} 1",
            "<html>",
        ] {
            assert_eq!(only(line), None, "{line}");
        }
        let page = "# TYPE a counter\na 1\n\nnonsense\r\na{x=\"y\"} 2\r\n# EOF\n";
        assert_eq!(samples(page).map(|sample| sample.value).sum::<f64>(), 3.0);
    }

    proptest! {
        #[test]
        fn no_page_makes_it_panic(page in "\\PC*", odd in "[a-z{}\",=\\\\ \n#0-9é]{0,80}") {
            samples(&page).count();
            samples(&odd).count();
        }

        #[test]
        fn what_was_written_is_read(
            name in "[a-z_:][a-z0-9_:]{0,20}",
            text in "\\PC{0,20}",
            value in -1e9..1e9,
        ) {
            let escaped = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let line = format!("{name}{{of=\"{escaped}\",to=\"x\"}} {value}");
            let sample = only(&line).unwrap();
            prop_assert_eq!((sample.name, sample.value), (name.as_str(), value));
            prop_assert_eq!(sample.label("of"), Some(text.as_str()));
        }
    }
}
