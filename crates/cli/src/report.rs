//! `roost report`: the page of a run, made again from its folder; or a page that a script wrote as
//! JSON.

use crate::exit::usage;
use crate::{hot, observe, run_folder, sim, stage};
use anyhow::Result;
use report::figures::Page;
use report::run::{ReadError, Run};
use report::{html, terminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Make the HTML page of a recorded run, and print its figures
#[derive(clap::Args, Debug)]
#[command(after_help = include_str!("../help/report.txt"))]
pub struct Args {
    /// The run's folder, or a page's figures as JSON
    #[arg(value_name = "DIR|PAGE.json")]
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
    if args.folder.is_file() {
        return draw(args);
    }
    if stage::is_run(&args.folder) {
        return stage::report(&args.folder, args.output.as_deref(), args.json);
    }
    check_recorded(&args.folder)?;
    let run = Run::read(&args.folder).map_err(|error| match error {
        ReadError::NotARun { .. } => usage(error),
        error => error.into(),
    })?;
    let page = html::page(&run);
    let at = match &args.output {
        Some(path) => {
            run_folder::write_named(path, "--output", &page)?;
            path.clone()
        }
        None => {
            run_folder::write_report(&args.folder, &page)?;
            args.folder.join(run_folder::REPORT)
        }
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

/// Makes the page of figures that a script wrote.
fn draw(args: &Args) -> Result<ExitCode> {
    let from = args.folder.display();
    if args.json {
        return Err(usage(format!(
            "{from} is a page's figures already, not a run with a summary: leave out --json"
        )));
    }
    let text = std::fs::read_to_string(&args.folder).map_err(|cause| usage(format!("{from}: {cause}")))?;
    let page = Page::read(&text).map_err(|cause| {
        usage(format!(
            "{from} is no page: {cause}; docs/formats.md says how one is written (\"A page's figures\")"
        ))
    })?;
    let at = args.output.clone().unwrap_or_else(|| args.folder.with_file_name(sim::REPORT));
    run_folder::write_named(&at, "--output", &page.html())?;
    println!("page: {}", at.display());
    Ok(ExitCode::SUCCESS)
}

/// Simulations and observations keep no frames: the page for one would be empty, in the place of
/// the page that was made.
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
