//! Corrections of the papers' scenarios, and the effect of each alone.
//!
//! A correction has a source outside Roost and stands in `papers/corrections.toml`. One that is an
//! input of scenarios keeps the values from before, by figure and key: a figure is run again with
//! these and with all other corrections in place, from the same seeds, so that the difference is that
//! correction's own. Every claim of such a figure is printed, those that lose by it included. One
//! that is a change of the simulator has no key and names its commits instead: two builds compare it.

use super::board::Board;
use super::claim::Claim;
use super::library::{Library, Study};
use super::runs::Runs;
use anyhow::Result;
use report::exit::usage;
use serde::{Deserialize, Serialize, Serializer};
use sim::Document;
use study::grid::Planned;
use toml::{Table, Value};

/// A correction, as the file has it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Correction {
    pub id: String,
    pub change: String,
    /// Where it comes from: a paper's words, the authors' data or code, the kernel, a closed form.
    pub source: String,
    /// Claims that it can move; a star at the end stands for any ending.
    pub claims: Vec<String>,
    /// The day, for one that came after the first list.
    #[serde(default)]
    pub date: Option<String>,
    /// Commits of the simulator that carry it, for one without keys.
    #[serde(default)]
    pub commits: Vec<String>,
    /// It changes the printed numbers that ours stand beside, and no run: the reason.
    #[serde(default)]
    pub unit: Option<String>,
    #[serde(default)]
    before: Vec<Before>,
}

/// The values that some figures had before.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Before {
    /// As the command line names them.
    figures: Vec<String>,
    /// In variants whose name has one of these among its parts between commas; without them, in the
    /// scenario.
    #[serde(default)]
    variants: Vec<String>,
    #[serde(default)]
    set: Table,
    #[serde(default)]
    remove: Vec<String>,
}

impl Correction {
    /// It is an input of scenarios, so that its effect can be had from this build.
    pub fn has_keys(&self) -> bool {
        !self.before.is_empty()
    }

    /// The way to see the effect of one without keys: the commands for a copy of this tree without its
    /// commits and the same figures in it; or why no run changes.
    pub fn elsewhere(&self) -> Option<String> {
        if let Some(unit) = &self.unit {
            return Some(format!("no run changes: {unit}"));
        }
        let (id, commits) = (&self.id, self.commits.join(" "));
        (!self.has_keys()).then(|| {
            format!(
                "a change of the simulator, so two builds are compared: `git worktree add --detach \
                 ../without-{id} && git -C ../without-{id} revert --no-edit {commits}` and `cargo run \
                 --release -p papers --manifest-path ../without-{id}/Cargo.toml -- {}`",
                self.papers()
            )
        })
    }

    /// The paper whose claims it can move, or `all`.
    fn papers(&self) -> &str {
        let mut papers = self.claims.iter().map(|claim| match claim.split('-').next() {
            Some("hurry") => "hurry-up",
            Some("sleeps") => "cpu-sleeps",
            word => word.unwrap_or("all"),
        });
        match papers.next() {
            Some(paper) if papers.all(|other| other == paper) => paper,
            _ => "all",
        }
    }

    /// A claim is one of those that it was said to move.
    pub fn expects(&self, claim: &str) -> bool {
        self.claims.iter().any(|named| match named.strip_suffix('*') {
            Some(start) => claim.starts_with(start),
            None => named == claim,
        })
    }

    /// Exactly one of the ways to show its effect.
    pub fn check(&self) -> Result<(), String> {
        let ways = [self.has_keys(), !self.commits.is_empty(), self.unit.is_some()];
        if ways.into_iter().filter(|is_given| *is_given).count() == 1 {
            Ok(())
        } else {
            Err("give one of `before`, the values that figures had, `commits` and `unit`".into())
        }
    }

    /// The scenario of a figure as it was without this correction; `None` if it changes nothing there.
    fn undone(&self, library: &Library, study: &Study) -> Result<Option<Study>> {
        let mut table: Option<Table> = None;
        for before in &self.before {
            let is_meant = (library.select(&before.figures)?.iter())
                .any(|(paper, name)| paper.name == study.paper.name && *name == study.figure.name);
            if is_meant {
                let table = match &mut table {
                    Some(table) => table,
                    none => none.insert(Document::written(study.document.path()).map_err(usage)?),
                };
                let wrong = |problem: String| {
                    usage(format!("papers/corrections.toml: {}: {}: {problem}", self.id, study.name()))
                };
                before.apply(table).map_err(wrong)?;
            }
        }
        let Some(table) = table else { return Ok(None) };
        let text = toml::to_string(&table)?;
        let document = Document::parse(study.document.path(), &text, &library.estimates).map_err(usage)?;
        Ok(Some(Study { document, ..study.clone() }))
    }
}

impl Before {
    fn apply(&self, table: &mut Table) -> Result<(), String> {
        if self.variants.is_empty() {
            for (key, value) in &self.set {
                let (place, last) = within(table, key, true)?.ok_or_else(|| format!("{key} is no key"))?;
                place.insert(last.to_owned(), value.clone());
            }
            for key in &self.remove {
                if let Some((place, last)) = within(table, key, false)? {
                    place.remove(last);
                }
            }
            return Ok(());
        }
        let variants = table.get_mut("variant").and_then(Value::as_array_mut).into_iter().flatten();
        let mut found = false;
        for variant in variants.filter_map(Value::as_table_mut) {
            let name = variant.get("name").and_then(Value::as_str).unwrap_or_default();
            if name.split(',').any(|own| self.variants.iter().any(|part| own.trim() == part)) {
                found = true;
                let set = variant.entry("set").or_insert_with(|| Value::Table(Table::new()));
                let set = set.as_table_mut().ok_or("a variant's `set` is no table")?;
                set.extend(self.set.clone());
                self.remove.iter().for_each(|key| drop(set.remove(key)));
            }
        }
        let parts = self.variants.join("` or `");
        if found { Ok(()) } else { Err(format!("no variant has `{parts}` in its name")) }
    }
}

/// The table in which a dotted key stands, and the key's last part.
fn within<'a, 'k>(
    table: &'a mut Table,
    key: &'k str,
    makes: bool,
) -> Result<Option<(&'a mut Table, &'k str)>, String> {
    let (path, last) = key.rsplit_once('.').unwrap_or(("", key));
    let mut place = table;
    for part in path.split('.').filter(|part| !part.is_empty()) {
        if !makes && !place.contains_key(part) {
            return Ok(None);
        }
        let next = place.entry(part).or_insert_with(|| Value::Table(Table::new()));
        place = next.as_table_mut().ok_or_else(|| format!("{key}: `{part}` is a plain value"))?;
    }
    Ok(Some((place, last)))
}

/// A claim with all corrections, and with all but one.
#[derive(Clone, Debug, Serialize)]
pub struct Moved {
    pub claim: String,
    /// The number with all of them; or why there is none.
    pub with: Result<f64, String>,
    pub without: Result<f64, String>,
    /// Whether it is met, with and without.
    pub is_met: [bool; 2],
}

impl Moved {
    pub fn word(&self) -> &'static str {
        match self.is_met {
            [true, true] => "met either way",
            [true, false] => "met by it",
            [false, true] => "lost by it",
            [false, false] => "missed either way",
        }
    }
}

/// The effect of one correction alone.
#[derive(Clone, Debug, Serialize)]
pub struct Effect<'a> {
    #[serde(serialize_with = "id_of")]
    pub correction: &'a Correction,
    /// Claims of the figures that it changes, those that it does not move included.
    pub moved: Vec<Moved>,
}

impl Effect<'_> {
    /// The way to see it, where no run of this build shows it or none was asked for.
    pub fn elsewhere(&self) -> Option<String> {
        let correction = self.correction;
        let asked = || format!("`roost-papers {} --corrections`", correction.papers());
        correction.elsewhere().or_else(|| self.moved.is_empty().then(asked))
    }
}

fn id_of<S: Serializer>(correction: &&Correction, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&correction.id)
}

/// The runs that show the effect of one correction.
pub struct Plan<'a> {
    correction: &'a Correction,
    /// A claim, its board with all corrections, and without this one.
    claims: Vec<(&'a Claim, usize)>,
    boards: Vec<[Board; 2]>,
    /// The figure of each, as a place among those that were given.
    figures: Vec<usize>,
}

impl<'a> Plan<'a> {
    /// In these figures; of their other numbers, in those that the correction names in full. `length`
    /// gives a document the length of the studies'.
    pub fn new(
        library: &'a Library,
        correction: &'a Correction,
        studies: &[(Study, Board)],
        length: impl Fn(&Document) -> Result<Document>,
    ) -> Result<Self> {
        let mut plan = Self { correction, claims: Vec::new(), boards: Vec::new(), figures: Vec::new() };
        for (figure, (study, board)) in studies.iter().enumerate() {
            let mut claims = super::claims(&library.headlines, study);
            let printed = super::claims(&library.printed, study);
            claims.extend(printed.into_iter().filter(|claim| correction.claims.contains(&claim.id)));
            if claims.is_empty() {
                continue;
            }
            if let Some(undone) = correction.undone(library, study)? {
                plan.claims.extend(claims.into_iter().map(|claim| (claim, plan.boards.len())));
                plan.boards.push([board.clone(), Board::new(&length(&undone.document)?)?]);
                plan.figures.push(figure);
            }
        }
        Ok(plan)
    }

    pub fn runs(&self) -> Vec<&Planned> {
        self.runs_by_figure().into_iter().map(|(_, planned)| planned).collect()
    }

    /// Each with the figure that it is of, as a place among those that were given.
    pub fn runs_by_figure(&self) -> Vec<(usize, &Planned)> {
        let sides = self.claims.iter().flat_map(|&(claim, at)| {
            self.boards[at].iter().map(move |board| (claim, self.figures[at], board))
        });
        let runs = sides.flat_map(|(claim, figure, board)| {
            let places = claim.needs(board).unwrap_or_default();
            places.into_iter().map(move |place| (figure, &board.places[place].planned))
        });
        runs.collect()
    }

    /// Whether each of its boards has other runs without it; `None` if it has none.
    #[cfg(test)]
    pub fn changes_all(&self) -> Option<bool> {
        let digests = |board: &Board| -> Vec<String> {
            board.places.iter().map(|place| place.planned.key.scenario.clone()).collect()
        };
        let differ = |[with, without]: &[Board; 2]| digests(with) != digests(without);
        (!self.boards.is_empty()).then(|| self.boards.iter().all(differ))
    }

    /// From runs that have been made.
    pub fn effect(&self, runs: &Runs) -> Effect<'a> {
        let value = |claim: &Claim, board: &Board| {
            let outcomes: Vec<_> = board.places.iter().map(|place| runs.of(&place.planned)).collect();
            claim.evaluate(board, &outcomes).map(|found| found.value)
        };
        let moved = |(claim, at): &(&Claim, usize)| {
            let [with, without] = &self.boards[*at];
            let (with, without) = (value(claim, with), value(claim, without));
            let is_met = [&with, &without].map(|value| value.as_ref().is_ok_and(|&value| claim.holds(value)));
            Moved { claim: claim.id.clone(), with, without, is_met }
        };
        Effect { correction: self.correction, moved: self.claims.iter().map(moved).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn before(text: &str) -> Before {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn values_from_before_are_set_and_new_keys_taken_away() {
        let text = "[machine]\npreset = \"a\"\n[server.nic]\nreceive = \"3us\"\n[[variant]]\nname = \"low, x\"\n\
                    [variant.set]\n\"workload.rate\" = 4\n[[variant]]\nname = \"high, x\"";
        let mut table: Table = text.parse().unwrap();
        let undo = "figures = []\nremove = [\"server.nic\", \"no.such.key\"]\n\
                    set.\"machine.cstate.C3.exit_latency\" = \"80us\"";
        before(undo).apply(&mut table).unwrap();
        before("figures = []\nvariants = [\"low\"]\nset.\"workload.rate\" = 5").apply(&mut table).unwrap();
        assert_eq!(table["machine"]["cstate"]["C3"]["exit_latency"].as_str(), Some("80us"));
        assert!(table["server"].get("nic").is_none());
        assert_eq!(table["variant"][0]["set"]["workload.rate"].as_integer(), Some(5));
        assert!(table["variant"][1].get("set").is_none(), "another variant stays as it is");
        let missing = before("figures = []\nvariants = [\"mid\"]").apply(&mut table);
        assert_eq!(missing.unwrap_err(), "no variant has `mid` in its name");
    }

    #[test]
    fn a_correction_has_keys_or_commits() {
        let correction = |rest: &str| -> Correction {
            let head = "id = \"a\"\nchange = \"b\"\nsource = \"c\"\nclaims = [\"carb-*\", \"sleeps-x\"]\n";
            toml::from_str(&format!("{head}{rest}")).unwrap()
        };
        let of_simulator = correction("commits = [\"12aaa6a6\"]");
        of_simulator.check().unwrap();
        let commands = of_simulator.elsewhere().unwrap();
        assert!(commands.contains("revert --no-edit 12aaa6a6") && commands.contains("-- all`"), "{commands}");
        assert!(of_simulator.expects("carb-slow-p95") && !of_simulator.expects("sleeps-xy"));
        let of_scenarios = correction("[[before]]\nfigures = [\"carb\"]");
        of_scenarios.check().unwrap();
        assert!(of_scenarios.elsewhere().is_none());
        assert!(correction("").check().is_err());
        assert!(correction("commits = [\"1\"]\n[[before]]\nfigures = [\"carb\"]").check().is_err());
    }
}
