//! `roost plan`: the effect of each policy on a recorded service, before anything is touched.
//!
//! ```text
//!   options.rs    the arguments
//!   source.rs     a recording that is there, or one that is made first
//!   simulate.rs   the recorded run, every policy, every load
//!   results.rs    the JSON document and the run's folder
//!   table.rs      the tables
//!   layers.rs     the best as layers of scx_layered
//!   page.rs       report.html
//! ```
//!
//! The model is `sim::plan`; docs/plan.md has its formulas and their sources.

mod layers;
mod options;
mod page;
mod results;
mod simulate;
mod source;
mod table;

pub use options::Args;
pub use source::SCENARIO;

use crate::exit::{Exit, coded};
use crate::table::{columns, print};
use anyhow::Result;
use sim::plan::Choice;
use std::process::ExitCode;

pub fn run(args: &Args) -> Result<ExitCode> {
    let source = source::Source::of(args)?;
    let place = results::folder(args, &source)?;
    let plan = simulate::plan(args, &source)?;
    let document = results::Document::of(args, &source, &plan);
    let layers = args.form.map(|layers::Form::ScxLayered| layers::layers(&source, &plan)).transpose();
    let written =
        results::write(&place, &source, &document, &plan, layers.as_ref().ok().and_then(Option::as_deref))?;
    if args.json {
        crate::json::print(results::FORMAT, &document)?;
    } else {
        let text = table::text(&document, columns());
        print(&format!("{text}scenario: {}\n{written}\n", source.scenario_path.display()))?;
    }
    if let Err(why) = layers {
        let told = format!("no {} for scx_layered: {why}", layers::LAYERS);
        let missed = matches!(plan.choice, Choice::NoneKeeps { .. });
        return Err(coded(if missed { Exit::GoalMissed } else { Exit::Usage }, told));
    }
    Ok(match plan.choice {
        _ if !plan.fidelity.is_worth_something() => Exit::Invalid.into(),
        Choice::NoneKeeps { .. } => Exit::GoalMissed.into(),
        Choice::Best(_) | Choice::NoGoal => ExitCode::SUCCESS,
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use sim::plan::{Recording, candidates};

    /// Each line is one that `roost` takes, and whose configuration holds.
    #[test]
    fn the_printed_lines_can_be_typed() {
        let text = include_str!("../../tests/integration/recording.json");
        let mut recording = Recording::read(text).unwrap();
        recording.machine.clocks_khz = vec![800_000, 2_000_000];
        let goal = Some("500us@p99".parse().unwrap());
        let lines: Vec<String> =
            candidates(&recording, 4, "--port 11211", goal).into_iter().filter_map(|one| one.line).collect();
        assert!(lines.len() > 4, "{lines:?}");
        for line in lines {
            let args = crate::govern::Args::try_parse_from(line.split(' '))
                .unwrap_or_else(|error| panic!("{line}: {error}"));
            args.governing.configuration().unwrap_or_else(|error| panic!("{line}: {error:#}"));
        }
    }
}
