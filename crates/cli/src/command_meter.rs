//! A meter that is a command: it prints watts.
//!
//! A board's controller or a power strip answers through programs that only its owner knows. The
//! command runs in `sh`, again and again, each time for at most [`PATIENCE`]. Root lends it no
//! rights that it does not need: it runs as the user who typed `sudo`, or else as user 65534, who
//! has none. Only where it fails so and works with root's rights does it keep them, and that is
//! told.

use crate::exit::usage;
use anyhow::Result;
use linux::EndsWithParent as _;
use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A controller on a board takes a second or two.
const PATIENCE: Duration = Duration::from_secs(5);

/// More than this is no number of watts.
const LENGTH_MAX: u64 = 4096;

/// The kernel's user without rights (`/proc/sys/kernel/overflowuid`).
const NOBODY: u32 = 65_534;

#[derive(Clone, Debug)]
pub struct CommandMeter {
    command: String,
    user: Option<(u32, u32)>,
}

impl CommandMeter {
    /// Tries it. The remark is for the operator.
    pub fn open(command: &str) -> Result<(Self, Option<String>)> {
        let with = |user| Self { command: command.to_owned(), user };
        let as_is = with(None);
        if rustix::process::geteuid().is_root() {
            let lesser = with(Some(sudo_user().unwrap_or((NOBODY, NOBODY))));
            if lesser.read().is_ok() {
                return Ok((lesser, None));
            }
        }
        match as_is.read() {
            Ok(_) if rustix::process::geteuid().is_root() => {
                let remark = format!("--meter '{command}' works as root alone, and runs as root");
                Ok((as_is, Some(remark)))
            }
            Ok(_) => Ok((as_is, None)),
            Err(why) => Err(usage(format!(
                "--meter '{command}': {why}\nhint: it has to print the power in watts, such as 215.3, \
                 within {} s",
                PATIENCE.as_secs()
            ))),
        }
    }

    pub fn name(&self) -> String {
        linux::printable_name(&self.command)
    }

    /// The watts that it prints now, or why it prints none.
    pub fn read(&self) -> Result<f64, String> {
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(&self.command).process_group(0).ends_with_parent();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        if let Some((user, group)) = self.user {
            command.uid(user).gid(group).current_dir("/");
        }
        let mut child = command.spawn().map_err(|cause| cause.to_string())?;
        let output = child.stdout.take();
        let reader = std::thread::spawn(move || {
            let mut text = String::new();
            let read = output.map(|output| output.take(LENGTH_MAX).read_to_string(&mut text));
            read.unwrap_or(Ok(0)).map(|_| text)
        });
        let ended = wait(&mut child);
        // A child of its own may hold its output still, and the reader would wait for that.
        end_group(&child);
        let _ = child.wait();
        let text = reader.join().ok().and_then(Result::ok).unwrap_or_default();
        match ended {
            None => Err(format!("no end after {} s", PATIENCE.as_secs())),
            Some(false) => Err("it failed".to_owned()),
            Some(true) => watts(&text),
        }
    }
}

/// Whether it succeeded; nothing if it takes too long.
fn wait(child: &mut Child) -> Option<bool> {
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status.success()),
            Ok(None) => std::thread::sleep(Duration::from_millis(5)),
            Err(_) => return Some(false),
        }
    }
    None
}

fn end_group(child: &Child) {
    if let Some(group) = rustix::process::Pid::from_raw(child.id().cast_signed()) {
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
}

/// The first word, a number with or without its unit.
fn watts(text: &str) -> Result<f64, String> {
    let word = text.split_whitespace().next().unwrap_or_default();
    match word.trim_end_matches(['W', 'w']).parse::<f64>() {
        Ok(watts) if watts.is_finite() && watts >= 0.0 => Ok(watts),
        _ => {
            let shown: String = linux::printable_name(text.trim()).chars().take(40).collect();
            Err(format!("it printed no number of watts, but `{shown}`"))
        }
    }
}

/// The user who typed `sudo`, unless that was root.
fn sudo_user() -> Option<(u32, u32)> {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u32>().ok();
    number("SUDO_UID").filter(|&user| user != 0).zip(number("SUDO_GID"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(command: &str) -> Result<f64, String> {
        CommandMeter { command: command.to_owned(), user: None }.read()
    }

    #[test]
    fn a_number_of_watts_is_taken_and_nothing_else() {
        assert_eq!(told("echo 215.5"), Ok(215.5));
        assert_eq!(told("echo ' 84 W '"), Ok(84.0));
        assert_eq!(told("echo 84 Watts"), Ok(84.0));
        for (command, why) in [
            ("echo many", "`many`"),
            ("echo -5", "no number of watts"),
            ("echo NaN", "no number of watts"),
            ("exit 3", "it failed"),
            ("true", "no number of watts"),
            ("yes 1", "it failed"),
            ("sleep 60", "no end"),
        ] {
            let error = told(command).unwrap_err();
            assert!(error.contains(why), "{command}: {error}");
        }
    }

    #[test]
    fn a_meters_answer_is_its_first_number() {
        assert_eq!(watts("187.5\n"), Ok(187.5));
        assert_eq!(watts("  42W ok"), Ok(42.0));
        for nonsense in ["", "watts 3", "-1", "NaN", "inf"] {
            assert!(watts(nonsense).is_err(), "{nonsense}");
        }
    }

    #[test]
    fn a_command_that_leaves_a_child_does_not_hold_us_up() {
        let began = Instant::now();
        assert_eq!(told("sleep 600 & echo 7"), Ok(7.0));
        assert!(began.elapsed() < PATIENCE, "the child was ended");
    }

    #[test]
    fn root_lends_no_rights_where_none_are_needed() {
        if !rustix::process::geteuid().is_root() {
            println!("SKIPPED: not root");
            return;
        }
        let (meter, remark) = CommandMeter::open("id -u").unwrap();
        assert_ne!(meter.read().unwrap(), 0.0);
        assert_eq!(remark, None);
        let (meter, remark) = CommandMeter::open("[ $(id -u) = 0 ] && echo 5").unwrap();
        assert_eq!(meter.read(), Ok(5.0));
        assert!(remark.unwrap().contains("works as root alone"));
        assert!(CommandMeter::open("echo no").unwrap_err().to_string().contains("such as 215.3"));
    }
}
