//! `roost generate`: manual pages and completions, made from the same definitions as `--help`, so
//! they never disagree with it.

use crate::exit::usage;
use crate::run_folder;
use anyhow::{Context as _, Result};
use clap::{Command, CommandFactory as _, ValueEnum};
use clap_complete::Shell;
use os::SafeFolder;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Write the manual pages, or the script with which a shell completes commands and options
#[derive(clap::Args, Debug)]
#[command(after_help = include_str!("../help/generate.txt"))]
pub struct Generate {
    /// Manual pages, or the script of one of these shells
    #[arg(value_enum)]
    what: What,
    /// Of man the folder for `roost.1`, `roost-govern.1` and so on; of a shell the file for its
    /// script [default: standard output]
    #[arg(value_name = "PATH", required_if_eq("what", "man"))]
    to: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum What {
    Man,
    Bash,
    Elvish,
    Fish,
    Powershell,
    Zsh,
}

pub fn generate(args: &Generate) -> Result<ExitCode> {
    let shell = match args.what {
        What::Man => {
            let folder = args.to.as_ref().context("the folder is required")?;
            man(folder)?;
            return Ok(ExitCode::SUCCESS);
        }
        What::Bash => Shell::Bash,
        What::Elvish => Shell::Elvish,
        What::Fish => Shell::Fish,
        What::Powershell => Shell::PowerShell,
        What::Zsh => Shell::Zsh,
    };
    let script = completions(shell)?;
    match &args.to {
        Some(file) => run_folder::write_named(file, "`roost generate SHELL FILE`", &script)?,
        None => crate::table::print(&script)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes a page for each command into `folder`.
fn man(folder: &Path) -> Result<()> {
    SafeFolder::make(folder, 0o777).map_err(|cause| {
        let cause = cause.into_io();
        usage(format!(
            "cannot make {}: {cause}\nhint: name another folder: roost generate man DIR",
            folder.display()
        ))
    })?;
    let mut whole = command().disable_help_subcommand(true);
    whole.build();
    pages(&whole, folder)
}

fn pages(command: &Command, folder: &Path) -> Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        pages(below, folder)?;
    }
    let name = clap_mangen::Man::new(command.clone()).get_filename();
    run_folder::write(folder, &name, |file| page(command, file))
}

/// A page whose text below the options is in the sections that readers of manuals look for.
fn page(command: &Command, file: &mut dyn Write) -> io::Result<()> {
    let page = clap_mangen::Man::new(command.clone());
    page.render_title(file)?;
    page.render_name_section(file)?;
    page.render_synopsis_section(file)?;
    page.render_description_section(file)?;
    page.render_options_section(file)?;
    if command.has_subcommands() {
        page.render_subcommands_section(file)?;
    }
    for (name, text) in sections(&below_the_options(command)) {
        writeln!(file, ".SH \"{name}\"\n.nf")?;
        text.lines().try_for_each(|line| writeln!(file, "{}", escaped(line)))?;
        writeln!(file, ".fi")?;
    }
    if command.get_version().is_some() {
        page.render_version_section(file)?;
    }
    Ok(())
}

/// Examples, exit status, files: the text that `--help` has below the options.
pub fn below_the_options(command: &Command) -> String {
    let text = command.get_after_long_help().or(command.get_after_help());
    text.map(ToString::to_string).unwrap_or_default()
}

/// The sections of a text below the options: `Examples:` and its like stand on a line of their own;
/// other paragraphs are notes.
fn sections(text: &str) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = Vec::new();
    for paragraph in text.trim().split("\n\n") {
        let headed = paragraph.split_once(":\n").filter(|(name, _)| SECTIONS.contains(name));
        let (name, text) = headed.unwrap_or(("Notes", paragraph));
        all.push((name.to_uppercase(), text.to_owned()));
    }
    let order = |name: &str| SECTIONS.iter().position(|other| other.to_uppercase() == name);
    all.sort_by_key(|(name, _)| order(name).unwrap_or(SECTIONS.len()));
    all
}

const SECTIONS: [&str; 4] = ["Examples", "Shapes", "Exit status", "Files"];

/// A line that roff prints as it is.
fn escaped(line: &str) -> String {
    let text = line.replace('\\', "\\e").replace('-', "\\-");
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}

fn completions(shell: Shell) -> Result<String> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command(), "roost", &mut text);
    String::from_utf8(text).context("completions are text")
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
        man(folder.path()).unwrap();
        let govern = std::fs::read_to_string(folder.path().join("roost-govern.1")).unwrap();
        assert!(govern.contains("500us") && govern.contains("goal"), "{govern}");
        for subcommand in command().get_subcommands() {
            let page = folder.path().join(format!("roost-{}.1", subcommand.get_name()));
            assert!(page.is_file(), "{}", page.display());
        }
    }

    #[test]
    fn each_shell_has_its_script_on_standard_output_or_in_a_file() {
        let folder = tempfile::tempdir().unwrap();
        for what in What::value_variants() {
            let to = folder.path().join(format!("{what:?}"));
            generate(&Generate { what: *what, to: Some(to.clone()) }).unwrap();
            match what {
                What::Man => assert!(to.join("roost.1").is_file()),
                _ => assert!(std::fs::read_to_string(to).unwrap().contains("hurry-up"), "{what:?}"),
            }
        }
        let parsed =
            |words: &[&str]| command().try_get_matches_from([&["roost", "generate"], words].concat());
        parsed(&["zsh"]).unwrap();
        let error = parsed(&["man"]).unwrap_err();
        assert!(error.exit_code() == 2 && error.to_string().contains("PATH"), "{error}");
        parsed(&["csh"]).unwrap_err();
    }

    #[test]
    fn examples_exit_status_and_files_are_sections_of_a_page() {
        let folder = tempfile::tempdir().unwrap();
        man(folder.path()).unwrap();
        let page = std::fs::read_to_string(folder.path().join("roost-restore.1")).unwrap();
        let heads: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix(".SH ")).collect();
        let told: Vec<&str> = heads.iter().map(|head| head.trim_matches('"')).collect();
        let own = ["EXAMPLES", "EXIT STATUS", "FILES"];
        assert!(told.windows(3).any(|three| three == own) && !told.contains(&"EXTRA"), "{told:?}");
        let (_, examples) = page.split_once(".SH \"EXAMPLES\"\n.nf\n").unwrap();
        assert!(examples.contains("\n  roost restore \\-\\-json\n"), "{examples}");
        assert_eq!(escaped(".x \\"), "\\&.x \\e");
    }

    /// The reference of all commands, as Markdown.
    fn reference() -> String {
        fn add(text: &mut String, command: &mut Command) {
            let help = command.render_long_help().to_string();
            let lines: String = help.lines().map(|line| format!("{}\n", line.trim_end())).collect();
            *text += &format!("\n## {}\n```text\n{lines}```\n", command.get_bin_name().unwrap_or("roost"));
            for below in command.get_subcommands_mut().filter(|below| !below.is_hide_set()) {
                add(text, below);
            }
        }
        let mut whole = super::command().disable_help_subcommand(true).term_width(100);
        whole.build();
        let mut text = format!(
            "# Commands of roost\n\n`{MAKE}` makes this page of `--help`.\n\
             `roost generate man DIR` writes manual pages.\n"
        );
        add(&mut text, &mut whole);
        text
    }

    const MAKE: &str = "ROOST_WRITE=1 cargo test -p roost --bin roost the_reference";

    #[test]
    fn the_reference_of_commands_is_that_of_the_help() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/cli.md");
        let made = reference();
        if std::env::var_os("ROOST_WRITE").is_some() {
            std::fs::write(&path, &made).unwrap();
        }
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(kept == made, "docs/reference/cli.md is stale: {MAKE}");
    }

    #[test]
    fn the_definitions_of_all_commands_agree_with_themselves() {
        command().debug_assert();
    }
}
