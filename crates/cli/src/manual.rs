//! `roost man` and `roost completions`: made from the same definitions as `--help`, so they never
//! disagree with it.

use crate::run_folder;
use anyhow::{Context as _, Result};
use clap::{Command, CommandFactory as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Write the manual pages, one for each command
#[derive(clap::Args, Debug)]
#[command(after_help = include_str!("../help/man.txt"))]
pub struct Man {
    /// The folder for `roost.1`, `roost-govern.1` and so on
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Print the script with which a shell completes commands and options
#[derive(clap::Args, Debug)]
#[command(after_help = include_str!("../help/completions.txt"))]
pub struct Completions {
    /// The shell
    #[arg(value_enum)]
    shell: clap_complete::Shell,
}

pub fn man(args: &Man) -> Result<ExitCode> {
    let folder = &args.folder;
    run_folder::create(folder)?;
    let mut whole = command().disable_help_subcommand(true);
    whole.build();
    pages(&whole, folder)?;
    Ok(ExitCode::SUCCESS)
}

fn pages(command: &Command, folder: &Path) -> Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        pages(below, folder)?;
    }
    let page = clap_mangen::Man::new(command.clone());
    run_folder::write(folder, &page.get_filename(), |file| page.render(file))
}

pub fn completions(args: &Completions) -> Result<ExitCode> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut command(), "roost", &mut text);
    crate::table::print(&String::from_utf8(text).context("completions are text")?)?;
    Ok(ExitCode::SUCCESS)
}

pub fn command() -> Command {
    crate::Cli::command()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_and_completes() {
        let folder = tempfile::tempdir().unwrap();
        man(&Man { folder: folder.path().to_owned() }).unwrap();
        let govern = std::fs::read_to_string(folder.path().join("roost-govern.1")).unwrap();
        assert!(govern.contains("500us") && govern.contains("goal"), "{govern}");
        for subcommand in command().get_subcommands() {
            let page = folder.path().join(format!("roost-{}.1", subcommand.get_name()));
            assert!(page.is_file(), "{}", page.display());
        }
    }

    #[test]
    fn the_definitions_of_all_commands_agree_with_themselves() {
        command().debug_assert();
    }
}
