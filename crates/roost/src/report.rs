//! `roost report`: the page of a run, made again from its folder.

use crate::exit::usage;
use crate::{hot, observe, sim};
use anyhow::{Context as _, Result};
use report::run::{Run, RunWriter};
use report::{html, terminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Make the HTML page of a recorded run, and print its figures
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    roost report runs/demo-20261120                  writes runs/demo-20261120/report.html\n  \
    roost report runs/demo-20261120 --output a.html  writes the page elsewhere\n  \
    roost report runs/demo-20261120 --json           the summary for a machine; writes the page too")]
pub struct Args {
    /// The run's folder
    #[arg(value_name = "DIR")]
    folder: PathBuf,

    /// Write the page to this file instead
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Print the summary as JSON instead of tables
    #[arg(long)]
    json: bool,
}

/// Does it.
pub fn run(args: &Args) -> Result<ExitCode> {
    check_recorded(&args.folder)?;
    let run = Run::read(&args.folder)?;
    let page = html::page(&run);
    let at = match &args.output {
        Some(path) => {
            std::fs::write(path, page).with_context(|| {
                format!("cannot write {}; name another file with --output", path.display())
            })?;
            path.clone()
        }
        None => RunWriter::report(&args.folder, &page)?,
    };
    if args.json {
        println!("{}", serde_json::to_string_pretty(&run.summary)?);
    } else {
        println!("{}\n", run.info.title);
        if let Some(summary) = &run.summary {
            println!("{}", terminal::outcome(summary));
        }
        for remark in &run.remarks {
            println!("{remark}");
        }
        println!("page: {}", at.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// Simulations and observations keep no frames: the page for one would be empty, in the place of the page that was made.
fn check_recorded(folder: &Path) -> Result<()> {
    let Some(maker) = sim::maker(folder).or_else(|| observe::maker(folder)).or_else(|| hot::maker(folder))
    else {
        return Ok(());
    };
    let (place, page) = (folder.display(), folder.join(sim::REPORT));
    let hint = if page.is_file() {
        format!("open {}", page.display())
    } else if maker == "roost sim sweep" {
        format!("`roost sim sweep --resume {place}` finishes it and makes its page")
    } else {
        "run the command again, without --no-report if it was there".to_owned()
    };
    let state = if page.is_file() { "its report.html is complete" } else { "it has no report.html" };
    Err(usage(format!(
        "{place} was made by `{maker}` and has no recording to make a page of; {state}\n\nhint: {hint}"
    )))
}
