//! The folder `papers/`: a scenario for each figure, the papers' claims, and the table of
//! ESTIMATEs.
//!
//! ```text
//!   papers/estimates.toml       unpublished quantities, one table for all figures
//!   papers/headlines.toml       the papers' claims, in figures; where Roost's own policy is tried
//!   papers/printed.toml         other numbers that they print
//!   papers/corrections.toml     corrections of the scenarios, each with its source
//!   papers/PAPER/FIGURE.toml    a figure's scenario
//!   papers/PAPER/base.toml      keys that a paper's figures share
//! ```

use super::claim::Claim;
use super::contest::Contest;
use super::corrections::Correction;
use anyhow::Result;
use report::exit::usage;
use serde::Deserialize;
use sim::Document;
use sim::scenario::{Estimates, Figure};
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// A paper whose figures are simulated.
#[derive(Clone, Copy, Debug)]
pub struct Paper {
    /// As the command line and the folders call it.
    pub name: &'static str,
    pub short: &'static str,
    /// Its authors, title and place.
    pub cited: &'static str,
}

/// All of them, in the order in which they build on each other.
pub const PAPERS: [Paper; 5] = [
    Paper {
        name: "carb",
        short: "CARB",
        cited: "Zhan, Azimi, Kanev, Brooks, Reda: CARB: A C-State Power Management Arbiter For \
                Latency-Critical Workloads (CAL 2017)",
    },
    Paper {
        name: "tradeoffs",
        short: "Tradeoffs",
        cited: "Kanev, Hazelwood, Wei, Brooks: Tradeoffs between Power Management and Tail Latency in \
                Warehouse-Scale Applications (IISWC 2014)",
    },
    Paper {
        name: "peafowl",
        short: "Peafowl",
        cited: "Asyabi, Bestavros, Sharafzadeh, Zhu: Peafowl: In-application CPU Scheduling to Reduce Power \
                Consumption of In-memory Key-Value Stores (SoCC 2020)",
    },
    Paper {
        name: "cpu-sleeps",
        short: "CPU sleeps",
        cited: "Zhu, Zhu, Wu, Shen, Shen, Wang: Software Engagement with Sleeping CPUs (HotOS 2015)",
    },
    Paper {
        name: "hurry-up",
        short: "Hurry-up",
        cited: "Medeiros, Amorim, Petrucci: Profile-guided Frequency Scaling for Latency-Critical Search \
                Workloads (2020)",
    },
];

#[derive(Debug)]
pub struct Library {
    root: PathBuf,
    pub estimates: Estimates,
    /// The same as a tree, with reasons and ranges.
    table: Table,
    pub headlines: Vec<Claim>,
    /// Other numbers and directions that the papers print.
    pub printed: Vec<Claim>,
    /// Where Roost's own policy is tried.
    pub contests: Vec<Contest>,
    /// Corrections of the scenarios; none if the folder has no such file.
    pub corrections: Vec<Correction>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Corrections {
    correction: Vec<Correction>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Headlines {
    headline: Vec<Claim>,
    #[serde(default)]
    contest: Vec<Contest>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Prints {
    printed: Vec<Claim>,
}

#[derive(Clone, Debug)]
pub struct Study {
    pub paper: Paper,
    pub figure: Figure,
    pub document: Document,
}

impl Study {
    /// `carb/4`.
    pub fn name(&self) -> String {
        format!("{}/{}", self.paper.name, self.figure.name)
    }

    pub fn assumptions(&self) -> Vec<String> {
        self.document.scenario().map(|scenario| scenario.assumptions).unwrap_or_default()
    }

    /// The ESTIMATEs that its scenario names, each once.
    pub fn estimates(&self) -> Vec<String> {
        let mut estimates = self.document.estimates().to_vec();
        estimates.sort();
        estimates.dedup();
        estimates
    }
}

impl Library {
    /// Reads the folder: the one that is named, or `papers` here or in a folder above.
    pub fn open(root: Option<&Path>) -> Result<Self> {
        let root = match root {
            Some(root) => root.to_owned(),
            None => find()?,
        };
        let path = root.join("estimates.toml");
        if !path.is_file() {
            let (root, hint) = (root.display(), "name the folder `papers` of the repository");
            return Err(usage(format!(
                "{root}: no folder of papers: it has no estimates.toml\n\nhint: {hint}"
            )));
        }
        let estimates = Estimates::read(&path).map_err(usage)?;
        let table = read(&path)?;
        let path = root.join("headlines.toml");
        let Headlines { headline: headlines, contest: contests } = read(&path)?;
        let Prints { printed } = read(&root.join("printed.toml"))?;
        let all: Vec<&Claim> = headlines.iter().chain(&printed).collect();
        for (at, claim) in all.iter().enumerate() {
            let wrong = |problem: &str| usage(format!("{}: {}: {problem}", root.display(), claim.id));
            claim.check().map_err(|problem| wrong(&problem))?;
            if all[..at].iter().any(|other| other.id == claim.id) {
                return Err(wrong("there are two of this id"));
            }
        }
        let path = root.join("corrections.toml");
        let corrections = if path.is_file() { read::<Corrections>(&path)?.correction } else { Vec::new() };
        for correction in &corrections {
            let wrong = |problem| usage(format!("{}: {}: {problem}", path.display(), correction.id));
            correction.check().map_err(wrong)?;
        }
        Ok(Self { root, estimates, table, headlines, printed, contests, corrections })
    }

    /// The ESTIMATEs whose values live in presets: key, preset, and where in it.
    pub fn in_presets(&self) -> Vec<(String, String, String)> {
        let mut found = Vec::new();
        collect(&self.table, "", &mut |key, entry| {
            let text = |name: &str| entry.get(name).and_then(Value::as_str).map(str::to_owned);
            found.extend(
                text("preset").zip(text("place")).map(|(preset, place)| (key.to_owned(), preset, place)),
            );
        });
        found
    }

    /// A claim or another number, by its name.
    pub fn claim(&self, id: &str) -> Option<&Claim> {
        self.headlines.iter().chain(&self.printed).find(|claim| claim.id == id)
    }

    /// A source outside Roost has taken an ESTIMATE's place: no figure uses it any more.
    pub fn is_replaced(&self, wanted: &str) -> bool {
        self.replaced().iter().any(|(key, _)| key == wanted)
    }

    /// The ESTIMATEs that have been replaced, and the source of each.
    pub fn replaced(&self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        collect(&self.table, "", &mut |key, entry| {
            if let Some(source) = entry.get("replaced_by").and_then(Value::as_str) {
                found.push((key.to_owned(), source.to_owned()));
            }
        });
        found
    }

    /// Value, range and reason of an ESTIMATE, as a line.
    pub fn about(&self, wanted: &str) -> String {
        let mut line = wanted.to_owned();
        collect(&self.table, "", &mut |key, entry| {
            if key == wanted {
                let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                let unit =
                    entry.get("unit").and_then(Value::as_str).filter(|unit| *unit != "1").unwrap_or("");
                let value = entry.get("value").map(|value| format!(" = {} {unit}", text(value)));
                let why = entry.get("why").map(text).unwrap_or_default();
                line = format!("{key}{}: {why}", value.unwrap_or_default().trim_end());
            }
        });
        line
    }

    /// Every figure that there is, by paper, in the order of its numbers.
    pub fn names(&self) -> Result<Vec<(Paper, String)>> {
        let mut names = Vec::new();
        for paper in PAPERS {
            let folder = self.root.join(paper.name);
            let listed = std::fs::read_dir(&folder).map_err(|cause| {
                usage(format!(
                    "{}: {cause}\n\nhint: name the folder of papers with --papers",
                    folder.display()
                ))
            })?;
            let mut figures: Vec<String> = listed
                .filter_map(|entry| Some(entry.ok()?.path()))
                .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
                .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
                .filter(|name| name != BASE)
                .collect();
            figures.sort_by_key(|name| (name.parse::<u32>().unwrap_or(u32::MAX), name.clone()));
            names.extend(figures.into_iter().map(|name| (paper, name)));
        }
        Ok(names)
    }

    /// The figures that `wanted` means: `all`, a paper, `PAPER/FIGURE` or `PAPER-FIGURE`, where
    /// `sleeps` is as good as `cpu-sleeps`; each once, in the library's order.
    pub fn select(&self, wanted: &[String]) -> Result<Vec<(Paper, String)>> {
        let all = self.names()?;
        let means = |word: &str, (paper, figure): &(Paper, String)| {
            let of_paper = word
                .strip_prefix(paper.name)
                .or_else(|| word.strip_prefix(paper.name.strip_prefix("cpu-").unwrap_or(paper.name)));
            word == "all"
                || of_paper.is_some_and(|rest| {
                    rest.is_empty() || rest.strip_prefix(['/', '-']) == Some(figure.as_str())
                })
        };
        for word in wanted {
            if !all.iter().any(|name| means(word, name)) {
                let names: Vec<String> =
                    all.iter().map(|(paper, figure)| format!("{}/{figure}", paper.name)).collect();
                let papers = PAPERS.iter().map(|paper| paper.name);
                let candidates = papers.chain(names.iter().map(String::as_str)).chain(["all"]);
                let likely = study::options::nearest(word, candidates);
                let hint = likely.map_or_else(String::new, |name| format!("did you mean `{name}`? "));
                let listed = listed(&all);
                return Err(usage(format!(
                    "no paper or figure is called `{word}`: there are {listed} and all\n\nhint: \
                     {hint}`roost-papers --list` has their titles"
                )));
            }
        }
        Ok(all.into_iter().filter(|name| wanted.iter().any(|word| means(word, name))).collect())
    }

    /// A figure with the ESTIMATEs of `estimates`, which are the library's own or a variation of
    /// them.
    pub fn study(&self, paper: Paper, name: &str, estimates: &Estimates) -> Result<Study> {
        let path = self.root.join(paper.name).join(format!("{name}.toml"));
        let document = Document::read(&path, estimates).map_err(usage)?;
        let figure = document.scenario().map_err(usage)?.figure;
        match figure {
            Some(figure) if figure.paper == paper.name && figure.name == name => {
                Ok(Study { paper, figure, document })
            }
            _ => Err(usage(format!(
                "{}: figure: it is no table with paper = \"{}\" and name = \"{name}\"\n\nhint: add [figure]",
                path.display(),
                paper.name
            ))),
        }
    }
}

/// Tells `each` of every entry: a table with a `why`.
fn collect(table: &Table, prefix: &str, each: &mut impl FnMut(&str, &Table)) {
    for (name, value) in table {
        let Some(inner) = value.as_table() else { continue };
        let key = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        if inner.contains_key("why") {
            each(&key, inner);
        } else {
            collect(inner, &key, each);
        }
    }
}

/// The file of keys that a paper's figures share.
const BASE: &str = "base";

/// A file of the folder with types.
fn read<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T> {
    let wrong = |problem: String| {
        usage(format!("{}: {problem}\n\nhint: name the folder of papers with --papers", path.display()))
    };
    let text = std::fs::read_to_string(path).map_err(|cause| wrong(cause.to_string()))?;
    toml::from_str(&text).map_err(|error| wrong(error.to_string()))
}

/// `papers`, here or above.
fn find() -> Result<PathBuf> {
    let here = std::env::current_dir().map_err(usage)?;
    let found = here
        .ancestors()
        .map(|folder| folder.join("papers"))
        .find(|path| path.join("estimates.toml").is_file());
    found.ok_or_else(|| {
        usage(
            "there is no folder `papers` here or above\n\nhint: go to Roost's repository, or name the \
               folder with --papers",
        )
    })
}

/// The names of figures, each paper's after its own: `carb/1, 2`.
fn listed(names: &[(Paper, String)]) -> String {
    let of_paper = |paper: &Paper| {
        let figures = names.iter().filter(|(of, _)| of.name == paper.name).map(|(_, figure)| figure.as_str());
        let figures: Vec<&str> = figures.collect();
        (!figures.is_empty()).then(|| format!("{}/{}", paper.name, figures.join(", ")))
    };
    PAPERS.iter().filter_map(of_paper).collect::<Vec<_>>().join("; ")
}
