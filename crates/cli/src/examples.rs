//! Every example that a reader can paste is pasted here: those of each `--help`, and the shell
//! blocks of README.md, GUIDE.md and all other pages of the site.
//!
//! bash runs them, in a folder where `roost` and all other programs are stand-ins that write their
//! arguments down. So quotes, remarks, pipes and continued lines count as in a shell. Each command
//! line of `roost` must then parse as the real program parses it. The integration tests run those
//! that are short and harmless.

use crate::manual::{below_the_options, command};
use clap::Command;
use std::fs;
use std::path::{Path, PathBuf};

/// `roost` writes its arguments, each with a NUL behind it and one more at the end. All stand-ins are
/// functions: a program that was just written may still be open in a child of another thread, and then
/// it cannot be run.
const STAND_INS: &str = "roost() { printf '%s\\0' \"$@\" '' >> \"$TOLD\"; }\nsudo() { \"$@\"; }\n";

/// Programs besides `roost` that examples call.
const OTHERS: [&str; 27] = [
    "apt",
    "cargo",
    "cat",
    "clang",
    "curl",
    "env",
    "helm",
    "install",
    "ip",
    "java",
    "jq",
    "kubectl",
    "make",
    "memcached",
    "nc",
    "npx",
    "perf",
    "pgrep",
    "pidof",
    "pip",
    "rpm",
    "sha256sum",
    "sleep",
    "ssh-keygen",
    "systemctl",
    "tee",
    "zig",
];

/// Pastes `text` and returns the arguments of each `roost` in it.
fn paste(text: &str) -> Result<Vec<Vec<String>>, String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let others: String = OTHERS.iter().map(|name| format!("{name}() {{ echo 4711; }}\n")).collect();
    let told = folder.path().join("told");
    fs::write(&told, "").unwrap();
    // `kill %1` ends a job of a session; the stand-in has ended by then.
    let script = format!("{STAND_INS}{others}kill() {{ :; }}\nset -e\n{text}\nwait\n");
    let output = std::process::Command::new("/bin/bash")
        .arg("-c")
        .arg(&script)
        .current_dir(folder.path())
        .env_clear()
        .env("PATH", "/no/program")
        .env("TOLD", &told)
        .output()
        .map_err(|error| error.to_string())?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() || !stderr.is_empty() {
        return Err(format!("{}: {stderr}", output.status));
    }
    let told = fs::read_to_string(told).map_err(|error| error.to_string())?;
    let mut all = vec![Vec::new()];
    for word in told.split('\0') {
        if word.is_empty() {
            all.push(Vec::new());
        } else {
            all.last_mut().unwrap().push(word.to_owned());
        }
    }
    all.truncate(all.len().saturating_sub(2));
    Ok(all)
}

/// Pastes `text`, which calls `roost` at least `least` times, and parses all that it calls.
fn check(place: &str, text: &str, least: usize) {
    let calls = paste(text).unwrap_or_else(|error| panic!("{place}: {error}\n{text}"));
    assert!(calls.len() >= least, "{place}: {calls:?}\n{text}");
    for call in calls {
        let whole = std::iter::once("roost".to_owned()).chain(call.iter().cloned());
        if let Err(error) = command().try_get_matches_from(whole) {
            panic!("{place}: roost {call:?}: {error}");
        }
    }
}

fn examples_of(help: &str) -> String {
    let lines = help.lines().skip_while(|line| *line != "Examples:").skip(1);
    lines.take_while(|line| line.starts_with("  ")).map(|line| format!("{line}\n")).collect()
}

fn walk(name: &str, command: &Command, visit: &mut impl FnMut(&str, &Command)) {
    visit(name, command);
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        walk(&format!("{name} {}", below.get_name()), below, visit);
    }
}

fn all_commands(mut visit: impl FnMut(&str, &Command)) {
    let mut whole = command().disable_help_subcommand(true);
    whole.build();
    walk("roost", &whole, &mut visit);
}

#[test]
fn each_example_of_each_help_can_be_pasted() {
    all_commands(|name, command| {
        let help = below_the_options(command);
        let examples = examples_of(&help);
        let calls = examples.lines().filter(|line| line.trim_start().starts_with("roost ")).count();
        assert!(calls > 0, "{name} --help has no example");
        check(name, &examples, calls);
    });
}

/// clap breaks lines that are wider than the terminal, and a broken example cannot be pasted.
#[test]
fn no_line_below_the_options_of_a_help_is_wider_than_a_small_terminal() {
    all_commands(|name, command| {
        let help = below_the_options(command);
        for line in help.lines() {
            assert!(line.chars().count() <= 80, "{name}: {line}");
        }
    });
}

#[test]
fn the_short_help_of_each_command_fits_a_screen() {
    let mut too_long = Vec::new();
    all_commands(|name, command| {
        let help = command.clone().term_width(110).render_help().to_string();
        if help.lines().count() > 50 {
            too_long.push(format!("{name}: {} lines\n{help}", help.lines().count()));
        }
    });
    assert!(too_long.is_empty(), "{}", too_long.join("\n"));
}

/// The pages of the site, journal and all.
fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages =
        ["README.md", "GUIDE.md", "CONTRIBUTING.md", "python/README.md"].map(|name| root.join(name)).to_vec();
    let mut folders = vec![root.join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                folders.push(entry);
            } else if entry.extension().is_some_and(|end| end == "md") {
                pages.push(entry);
            }
        }
    }
    pages
}

#[test]
fn each_shell_block_of_each_page_can_be_pasted() {
    let mut pasted = 0;
    for path in pages() {
        let text = fs::read_to_string(&path).unwrap();
        for (at, block) in text.split("```").enumerate().filter(|(at, _)| at % 2 == 1) {
            let place = format!("{}, block {}", path.display(), at / 2 + 1);
            let lines: String = match block.split_once('\n') {
                Some(("sh", shell)) => shell.to_owned(),
                Some(("console", session)) => session
                    .lines()
                    .filter_map(|line| line.strip_prefix("$ ").map(|line| format!("{line}\n")))
                    .collect(),
                Some(("" | "bash" | "shell", _)) => panic!("{place}: is it sh, console, or text?"),
                _ => continue,
            };
            check(&place, &lines, 0);
            pasted += 1;
        }
    }
    assert!(pasted > 20, "{pasted} blocks");
}
