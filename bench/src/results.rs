//! `roost-bench results`: writes `benches/RESULTS.md` from `benches/results.toml` and the raw data
//! below `benches/runs/`.

use anyhow::{Context as _, Result, ensure};
use report::exit::usage;
use serde::Deserialize;
use serde_json::Value;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Write the table of results from the raw data
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  roost-bench results                  from the root of the repository")]
pub struct Args {
    /// The folder with results.toml and runs/
    #[arg(value_name = "DIR", default_value = "benches")]
    benches: PathBuf,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Results {
    intro: String,
    closing: String,
    row: Vec<Row>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    metric: String,
    #[serde(default)]
    target: String,
    /// Each `{}` is one of the values.
    result: String,
    verdict: String,
    #[serde(default)]
    values: Vec<Number>,
    /// The files that have the data; the values are in the first.
    #[serde(default)]
    raw: Vec<String>,
    /// From 1; without it the file is one JSON value.
    line: Option<usize>,
    machine: String,
    command: String,
    note: String,
}

/// A number out of the raw data.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Number {
    /// A JSON pointer.
    key: String,
    digits: usize,
    #[serde(default = "one")]
    factor: f64,
}

fn one() -> f64 {
    1.0
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let page = page(&args.benches).map_err(|error| usage(format!("{error:#}")))?;
    let path = args.benches.join("RESULTS.md");
    fs::write(&path, page).with_context(|| format!("writing {}", path.display()))?;
    Ok(ExitCode::SUCCESS)
}

fn page(benches: &Path) -> Result<String> {
    let path = benches.join("results.toml");
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let results: Results = toml::from_str(&text).with_context(|| format!("reading {}", path.display()))?;
    let runs = benches.join("runs");
    let mut page = format!(
        "# Results\n\n{}\n\n| metric | target | result | met | raw data | machine | command | note |\n\
         |---|---|---|---|---|---|---|---|\n",
        results.intro
    );
    let mut notes: Vec<&str> = Vec::new();
    for row in &results.row {
        let note = notes.iter().position(|note| *note == row.note).unwrap_or_else(|| {
            notes.push(&row.note);
            notes.len() - 1
        });
        let told = row.told(&runs).with_context(|| format!("the row `{}`", row.metric))?;
        let raw = row.raw(&runs)?;
        let Row { metric, target, verdict, machine, command, .. } = row;
        let _ = writeln!(
            page,
            "| {metric} | {target} | {told} | {verdict} | {raw} | {machine} | {command} | {} |",
            note + 1
        );
    }
    page += "\n## Notes\n\n";
    for (number, note) in notes.iter().enumerate() {
        let _ = writeln!(page, "{}. {}", number + 1, note.replace('\n', "\n   "));
    }
    let _ = writeln!(page, "\n{}", results.closing);
    Ok(page)
}

impl Row {
    fn told(&self, runs: &Path) -> Result<String> {
        let mut parts = self.result.split("{}");
        let mut told = parts.next().unwrap_or_default().to_owned();
        let parts: Vec<&str> = parts.collect();
        let (wanted, named) = (parts.len(), self.values.len());
        ensure!(wanted == named, "{wanted} values in `{}`, {named} are named", self.result);
        if wanted == 0 {
            return Ok(told);
        }
        let file = self.raw.first().context("values without a file of raw data")?;
        let text = fs::read_to_string(runs.join(file)).with_context(|| file.clone())?;
        let json = match self.line {
            Some(line) => {
                text.lines().nth(line.saturating_sub(1)).with_context(|| format!("no line {line}"))?
            }
            None => &text,
        };
        let data: Value = serde_json::from_str(json).with_context(|| file.clone())?;
        for (part, value) in parts.iter().zip(&self.values) {
            let found = data.pointer(&value.key).and_then(Value::as_f64);
            let found = found.with_context(|| format!("{file}: no number at {}", value.key))?;
            let _ = write!(told, "{:.*}{part}", value.digits, value.factor * found);
        }
        Ok(told)
    }

    fn raw(&self, runs: &Path) -> Result<String> {
        if self.raw.is_empty() {
            return Ok("no raw data kept".to_owned());
        }
        let mut links = Vec::new();
        for file in &self.raw {
            ensure!(runs.join(file).is_file(), "{file}: there is no such file of raw data");
            links.push(format!("[{}](runs/{file})", file.rsplit('/').next().unwrap_or_default()));
        }
        Ok(links.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(row: &str) -> Result<String> {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("runs")).unwrap();
        fs::write(folder.path().join("runs/a.jsonl"), "{\"at\": [0.5]}\n{\"at\": [0.25]}\n").unwrap();
        let row = format!(
            "intro = \"\"\nclosing = \"\"\n[[row]]\nmetric = \"time\"\nverdict = \"met\"\nmachine = \"m\"\n\
             command = \"c\"\nnote = \"n\"\n{row}"
        );
        fs::write(folder.path().join("results.toml"), row).unwrap();
        page(folder.path())
    }

    #[test]
    fn the_page_is_as_generated() {
        let benches = Path::new(env!("CARGO_MANIFEST_DIR")).join("../benches");
        let kept = fs::read_to_string(benches.join("RESULTS.md")).unwrap();
        assert!(kept == page(&benches).unwrap(), "run `roost-bench results` in the root of the repository");
    }

    #[test]
    fn no_cell_of_the_page_is_a_paragraph() {
        let benches = Path::new(env!("CARGO_MANIFEST_DIR")).join("../benches");
        let text = fs::read_to_string(benches.join("results.toml")).unwrap();
        for row in toml::from_str::<Results>(&text).unwrap().row {
            for cell in [&row.metric, &row.target, &row.result, &row.verdict] {
                assert!(cell.len() <= 80, "{cell}");
            }
        }
    }

    #[test]
    fn a_value_is_the_number_of_the_raw_data() {
        let value = "raw = [\"a.jsonl\"]\nline = 2\nvalues = [{ key = \"/at/0\", digits = 1, factor = 100 }]";
        let page = made(&format!("result = \"{{}} %\"\n{value}")).unwrap();
        assert!(page.contains("| 25.0 % | met | [a.jsonl](runs/a.jsonl) |"), "{page}");
        let wrong = made(&format!("result = \"{{}} %\"\n{}", value.replace("/at/0", "/at/1"))).unwrap_err();
        assert!(format!("{wrong:#}").contains("no number at /at/1"), "{wrong:#}");
    }

    #[test]
    fn a_result_without_raw_data_says_so() {
        let page = made("result = \"1 s\"").unwrap();
        assert!(page.contains("| 1 s | met | no raw data kept |"), "{page}");
        assert!(made("result = \"1 s\"\nraw = [\"gone.jsonl\"]").is_err());
    }
}
