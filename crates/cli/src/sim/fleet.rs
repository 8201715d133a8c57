//! `roost sim fleet`: servers behind a root, whose tail is that of the slowest leaf.
//!
//! ```text
//!   summary.rs    the tables at the end
//!   page.rs       report.html
//! ```

mod page;
mod summary;

use super::options::{self, Checked, Options};
use super::page::Facts;
use super::progress::Progress;
use super::results::Results;
use super::{folder, print};
use crate::exit::{Exit, usage};
use crate::table;
use anyhow::Result;
use sim::Document;
use sim::fleet::Fleet;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use study::fleet::FleetResults;
use toml::Value;

/// Simulate many servers behind a root that asks several for each request and waits for the slowest
///
/// Every server is simulated in full, under its own policies, with its share of the root's
/// requests.
#[derive(clap::Args, Debug)]
#[command(after_help = include_str!("../../help/sim-fleet.txt"))]
pub struct Args {
    /// The scenario file; one without a fleet table needs --set 'fleet={servers=100,fanout=100}'
    #[arg(value_name = "SCENARIO")]
    scenario: Option<PathBuf>,
    #[command(flatten)]
    options: Options,
    /// Folder for the run [default: runs/sim-NAME-DATE-TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let document = document(args)?;
    let contestants = options::contestants(&document)?;
    let scenario = document.scenario().map_err(usage)?;
    let fleets: Vec<Fleet> = (contestants.iter())
        .map(|contestant| Fleet::new(contestant, scenario.run.seed).map_err(usage))
        .collect::<Result<_>>()?;
    let checked: Vec<Checked> = contestants.into_iter().map(options::task).collect::<Result<_>>()?;
    let started = folder::started()?;
    let place = options::folder(args.out.as_deref(), &document, &started, FANOUTS)?.make()?;
    let progress =
        Progress::new(fleets.iter().map(|fleet| fleet.servings() as usize).sum(), args.options.json);
    let outcomes = fleets
        .iter()
        .map(|fleet| fleet.run(args.options.threads(), || progress.done(fleet.name())).map_err(usage))
        .collect::<Result<_>>()?;
    progress.end();
    let about = Results::new(&document, &checked, Vec::new(), None);
    let results = FleetResults::new(&about, scenario.goal, outcomes);
    let json = serde_json::to_string_pretty(&results)?;
    folder::clear(&place, &[])?;
    folder::write(&place, folder::OUTCOMES, |file| writeln!(file, "{json}"))?;
    folder::write_table(&place, folder::SUMMARY, &results.summary())?;
    folder::write_table(&place, FANOUTS, &results.fanouts())?;
    folder::write_table(&place, GROUPS, &results.groups())?;
    folder::write_table(&place, folder::POINTS, &results.points())?;
    let info = folder::info(&document, folder::name_of(&place), about.title.clone(), started)?;
    folder::write_report(&place, &page::page(&Facts::new(&info, &about, &scenario), &results))?;
    folder::write_info(&place, &info)?;
    if args.options.json {
        print(&format!("{json}\n"))?;
    } else {
        let columns = table::columns();
        let tables = summary::of_fleets(&results, columns);
        let foundations = super::summary::foundations(&about, columns);
        print(&format!("{tables}{foundations}\nfolder: {}\n", place.display()))?;
    }
    let missed =
        results.fleets.iter().any(|fleet| fleet.goal.as_ref().is_some_and(|goal| goal.met == Some(false)));
    Ok(if missed { Exit::GoalMissed.into() } else { ExitCode::SUCCESS })
}

/// The scenario with the changes of the command line.
fn document(args: &Args) -> Result<Document> {
    let document =
        args.options.changed(args.scenario.as_deref(), "a fleet takes one value", "quote a value")?;
    if !document.table().contains_key("fleet") {
        return Err(usage(format!(
            "{}: fleet: the scenario has no fleet\n\nhint: --set 'fleet={{servers=100,fanout=100}}', or a \
             table [fleet] with servers and fanout; one server is `roost sim run`",
            document.path().display()
        )));
    }
    let mut document = args.options.complete(document)?;
    if !args.options.policies.is_empty() {
        // --policy names whole fleets.
        document = document.with("fleet.policies", &Value::Array(Vec::new())).map_err(usage)?;
    }
    Ok(document)
}

/// Response times by number of leaves waited for.
const FANOUTS: &str = "fanouts.csv";
const GROUPS: &str = "groups.csv";

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use study::columns::{self, Columns};

    const PLAIN: &str = "
        goal = \"1ms@p99\"
        policies = [\"menu\", \"poll\"]
        [machine]
        preset = \"xeon-silver-4116\"
        sockets = 1
        cores = 2
        threads = 1
        [workload]
        service = { exponential = \"10us\" }
        deadline = \"50us\"
        [run]
        utilisation = 0.3
        samples = 8
        requests = 3000";

    fn plain() -> Document {
        Document::parse(Path::new("plain.toml"), PLAIN, &Default::default()).unwrap()
    }

    fn results() -> FleetResults {
        let fleet: toml::Table = "servers = 12\nfanout = 12".parse().unwrap();
        let document = plain().with("fleet", &Value::Table(fleet)).unwrap();
        let contestants = options::contestants(&document).unwrap();
        let run = |contestant| Fleet::new(contestant, 1).unwrap().run(2, || ()).unwrap();
        let outcomes = contestants.iter().map(run).collect();
        let checked: Vec<Checked> =
            contestants.into_iter().map(|contestant| options::task(contestant).unwrap()).collect();
        let about = Results::new(&document, &checked, Vec::new(), None);
        FleetResults::new(&about, document.scenario().unwrap().goal, outcomes)
    }

    #[test]
    fn files_have_a_row_for_each_thing_and_a_cell_for_each_column() {
        let results = results();
        let rows = |table: Columns| {
            let mut file = Vec::new();
            columns::write(&table, &mut file).unwrap();
            // The reader refuses rows that are longer or shorter than the first.
            let mut reader = csv::Reader::from_reader(&file[..]);
            let rows: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
            (reader.headers().unwrap().clone(), rows)
        };
        let (heads, summary) = rows(results.summary());
        assert_eq!(summary.len(), 2);
        let cell = |name: &str| heads.iter().position(|head| head == name).map(|at| &summary[0][at]);
        assert_eq!(
            (cell("contestant"), cell("fanout"), cell("goal_met")),
            (Some("menu"), Some("12"), Some("true"))
        );
        let root = results.fleets[0].outcome.root().unwrap().p99_ns.unwrap().value;
        assert_eq!(cell("p99_ns").and_then(|cell| cell.parse().ok()), Some(root));
        // Of 1, 10 and 12 leaves.
        assert_eq!(rows(results.fanouts()).1.len(), 2 * 3);
        assert_eq!(rows(results.groups()).1.len(), 2);
        assert_eq!(rows(results.points()).1.len(), 2 * 8);
        let json = serde_json::to_value(&results).unwrap();
        assert_eq!(json["fleets"][1]["contestant"], "poll");
        assert_eq!(json["fleets"][1]["goal"]["goal"], "1ms@p99");
    }

    #[test]
    fn people_read_the_root_the_tail_and_the_verdict() {
        let text = summary::of_fleets(&results(), 100);
        for words in [
            "12 servers, each request asks 12",
            "the tail at scale",
            "p99.9",
            "met: poll: ",
            "missed deadlines",
        ] {
            assert!(text.contains(words), "no {words} in\n{text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= 110), "{text}");
    }

    #[test]
    fn the_page_has_the_tail_by_number_of_leaves() {
        let results = results();
        let json = page::page(&Facts::default(), &results).json();
        for words in ["The tail at scale", "leaves waited for", "slowest of 10", "Over time"] {
            assert!(json.contains(words), "no {words}");
        }
        assert!(!json.contains("NaN"));
    }
}
