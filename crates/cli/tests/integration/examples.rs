//! Examples of `--help` that are short and harmless really run, in the order in which they stand
//! there. That all others parse is a unit test of the command line.

use crate::fixture::{ROOST, repository};
use std::os::unix::fs::symlink;
use std::process::Command;

/// The command whose help has them, and the lines to run.
const SHORT: [(&str, &[&str]); 2] = [
    (
        "doctor",
        &[
            "roost doctor",
            "roost doctor --json",
            "roost doctor --record machine.txt",
            "roost doctor --root machine.txt",
        ],
    ),
    ("sim run", &["roost sim run scenarios/mmk.toml"]),
];

#[test]
fn short_examples_of_the_help_run() {
    let folder = tempfile::tempdir().unwrap();
    symlink(repository().join("scenarios"), folder.path().join("scenarios")).unwrap();
    for (command, lines) in SHORT {
        let help = Command::new(ROOST).args(command.split(' ')).arg("--help").output().unwrap();
        let help = String::from_utf8(help.stdout).unwrap();
        for line in lines {
            assert!(help.lines().any(|other| other.trim() == *line), "`{line}` is not in\n{help}");
            let script = format!("roost() {{ '{ROOST}' \"$@\"; }}\n{line}");
            let output =
                Command::new("bash").args(["-ec", &script]).current_dir(folder.path()).output().unwrap();
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(0), "{line}: {stderr}");
            assert!(!output.stdout.is_empty(), "{line} prints something");
        }
    }
}
