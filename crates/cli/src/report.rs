//! `roost report`: the page of a run, made again from its folder; a page that a script wrote as
//! JSON; or the page of an archive of `roost prove --kit`.

use crate::exit::usage;
use crate::run_folder;
#[cfg(target_os = "linux")]
use crate::stage;
use anyhow::{Context as _, Result};
use report::figures::Page;
use report::run::{FRAMES, ReadError, Run};
use report::terminal;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use study::kit;

/// Make the HTML page of a recorded run, and print its figures
#[derive(clap::Args, Debug)]
#[command(after_help = include_str!("../help/report.txt"))]
pub struct Args {
    /// The run's folder, a page's figures as JSON, or an archive of `roost prove --kit`
    #[arg(value_name = "DIR|PAGE.json|FILE.tar.gz")]
    folder: PathBuf,

    /// Write the page to this file instead
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// Print the results as JSON instead of tables
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    if args.folder.is_file() {
        return draw(args, &args.folder);
    }
    let page = args.folder.join(run_folder::PAGE);
    #[cfg(target_os = "linux")]
    if stage::is_run(&args.folder) {
        return stage::report(&args.folder, args.out.as_deref(), args.json);
    }
    if page.is_file() && !args.folder.join(FRAMES).is_file() {
        return draw(args, &page);
    }
    let run = Run::read(&args.folder).map_err(|error| match error {
        ReadError::NotARun { .. } => usage(error),
        error => error.into(),
    })?;
    if !args.folder.join(FRAMES).is_file() {
        return Err(usage(format!(
            "{0} has no {1} and no {FRAMES}: there is no page to make\n\nhint: run the command \
             again; a sweep that was ended early is finished by \
             `roost sim sweep --out {0}`",
            args.folder.display(),
            run_folder::PAGE
        )));
    }
    let at = write(args, &run.page(), &args.folder.join(run_folder::REPORT))?;
    if args.json {
        let summary = run.summary.context("the run was cut off: it has no summary")?;
        crate::json::print(1, &summary)?;
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

/// Makes the page of figures that are there as JSON, or of an archive.
fn draw(args: &Args, from: &Path) -> Result<ExitCode> {
    let shown = from.display();
    let mut bytes = Vec::new();
    let file = std::fs::File::open(from).map_err(|cause| usage(format!("{shown}: {cause}")))?;
    // An archive says its kind in its first bytes; none of ours is as long as a page may be.
    (&file).take(2).read_to_end(&mut bytes).map_err(|cause| usage(format!("{shown}: {cause}")))?;
    let longest = if kit::Archive::is_one(&bytes) { kit::SIZE_MAX } else { u64::MAX };
    (&file).take(longest).read_to_end(&mut bytes).map_err(|cause| usage(format!("{shown}: {cause}")))?;
    let page = if kit::Archive::is_one(&bytes) {
        let archive = kit::Archive::read(&bytes);
        archive.map_err(|why| usage(format!("{shown} is no archive of roost prove --kit: {why}")))?.page()
    } else {
        let text = String::from_utf8(bytes).map_err(|_| {
            usage(format!("{shown} is neither a page's figures as JSON nor an archive of roost prove --kit"))
        })?;
        Page::read(&text).map_err(|cause| {
            usage(format!(
                "{shown} is no page: {cause}; docs/formats.md says how one is written (\"A page's \
                 figures\")"
            ))
        })?
    };
    let at = write(args, &page, &from.with_file_name(run_folder::REPORT))?;
    if args.json {
        println!("{}", page.json());
    } else {
        println!("{}", terminal::page(&page));
        println!("page: {}", at.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes the page to its place, or to that of `--out`.
fn write(args: &Args, page: &Page, place: &Path) -> Result<PathBuf> {
    let place = args.out.as_deref().unwrap_or(place);
    run_folder::write_named(place, "--out", &page.html())?;
    Ok(place.to_owned())
}
