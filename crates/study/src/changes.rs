//! The changes of `--set`: `workload.rate=50k`, `run.seed=1,2,3`, `workload.service={ exponential =
//! "20us" }`.

use std::str::FromStr;
use toml::Value;

#[derive(Clone, Debug)]
pub struct Change {
    pub key: String,
    /// Its value, or several where a sweep is meant.
    pub values: Vec<Value>,
}

impl FromStr for Change {
    type Err = String;

    /// `key=value` or `key=value,value`.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |problem: &str| format!("--set {text}: {problem}, such as workload.rate=50k");
        let (key, values) = text.split_once('=').ok_or_else(|| wrong("write KEY=VALUE"))?;
        let key = key.trim();
        if key.is_empty() {
            return Err(wrong("the key is empty; write KEY=VALUE"));
        }
        let root = key.split('.').next().unwrap_or(key);
        if matches!(root, "policies" | "variant" | "sweep" | "figure") {
            return Err(format!(
                "--set {text}: `{root}` says who runs and where\n\nhint: contestants are given with \
                 --policy, axes with --set KEY=VALUE,VALUE of `roost sim sweep`"
            ));
        }
        let values: Vec<Value> = between_commas(values).into_iter().map(parse_value).collect();
        Ok(Self { key: key.to_owned(), values })
    }
}

/// A TOML value, or else the text itself, so that `50k` needs no quotes.
fn parse_value(text: &str) -> Value {
    let text = text.trim();
    let parsed = format!("value = {text}").parse::<toml::Table>();
    let value = parsed.ok().filter(|table| table.len() == 1).and_then(|mut table| table.remove("value"));
    value.unwrap_or_else(|| Value::String(text.to_owned()))
}

/// The parts of a text between commas that stand in no bracket and no quotes.
fn between_commas(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut depth, mut quoted, mut begin) = (0i32, None, 0);
    for (at, c) in text.char_indices() {
        match (quoted, c) {
            (Some(quote), _) if c == quote => quoted = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quoted = Some(c),
            (None, '[' | '{') => depth += 1,
            (None, ']' | '}') => depth -= 1,
            (None, ',') if depth == 0 => {
                parts.push(&text[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[begin..]);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_within_brackets_and_quotes_part_nothing() {
        for (text, parts) in [
            ("10k,20k", &["10k", "20k"][..]),
            ("[1,2],[3]", &["[1,2]", "[3]"]),
            ("{ a = 1, b = 2 }", &["{ a = 1, b = 2 }"]),
            ("\"steps:1,2\",\"steps:3,4\"", &["\"steps:1,2\"", "\"steps:3,4\""]),
            ("it's", &["it's"]),
            ("", &[""]),
        ] {
            assert_eq!(between_commas(text), parts, "{text}");
        }
    }

    #[test]
    fn values_are_toml_or_else_text() {
        assert_eq!(parse_value("2"), Value::Integer(2));
        assert_eq!(parse_value("0.5"), Value::Float(0.5));
        assert_eq!(parse_value("true"), Value::Boolean(true));
        assert_eq!(parse_value("50k"), Value::String("50k".into()));
        assert_eq!(parse_value("\"50k\""), Value::String("50k".into()));
        assert_eq!(parse_value("menu + teo"), Value::String("menu + teo".into()));
        assert!(parse_value("{ exponential = \"10us\" }").is_table());
        // No way to smuggle a second key in.
        assert_eq!(parse_value("1\nother = 2"), Value::String("1\nother = 2".into()));
    }

    #[test]
    fn a_change_has_a_key_and_leaves_contestants_alone() {
        let change: Change = "workload.rate = 10k,20k".parse().unwrap();
        assert_eq!((change.key.as_str(), change.values.len()), ("workload.rate", 2));
        for (text, fix) in
            [("rate", "KEY=VALUE"), ("=1", "KEY=VALUE"), ("policies=menu", "--policy"), ("sweep.x=1", "axes")]
        {
            let error = text.parse::<Change>().unwrap_err();
            assert!(error.contains(fix), "{error}");
        }
    }
}
