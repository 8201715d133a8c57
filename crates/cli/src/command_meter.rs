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
use std::process::{Child, ChildStdout, Command, Stdio};
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
        let ended = child.stdout.take().map_or_else(
            || Err("no output".to_owned()),
            |output| {
                // Its end is that of the command: a child that has left its group may hold it for ever.
                rustix::io::ioctl_fionbio(&output, true).map_err(|cause| cause.to_string())?;
                outcome(&mut child, output)
            },
        );
        end_group(&child);
        let _ = child.wait();
        watts(&String::from_utf8_lossy(&ended?))
    }
}

/// The text of a command that succeeds in time.
fn outcome(child: &mut Child, mut output: ChildStdout) -> Result<Vec<u8>, String> {
    let until = Instant::now() + PATIENCE;
    let mut text = Vec::new();
    loop {
        let ended = child.try_wait().map_err(|cause| cause.to_string())?;
        // Nothing more to read now, or nothing more at all.
        let _ = (&mut output).take(LENGTH_MAX + 1).read_to_end(&mut text);
        if text.len() as u64 > LENGTH_MAX {
            return Err(format!("it printed more than {LENGTH_MAX} bytes"));
        }
        match ended {
            Some(status) if status.success() => return Ok(text),
            Some(status) => return Err(format!("it failed ({status})")),
            None if Instant::now() >= until => return Err(format!("no end after {} s", PATIENCE.as_secs())),
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    }
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
            ("exit 3", "it failed (exit status: 3)"),
            ("kill -9 $$", "signal: 9"),
            ("true", "no number of watts"),
            ("printf '\\377 volts'", "volts`"),
            ("yes 1", "more than 4096 bytes"),
            ("trap '' PIPE; head -c 3000000 /dev/zero; echo 5", "more than 4096 bytes"),
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
        // A child in a session of its own outlives its parent, and keeps its output open.
        let began = Instant::now();
        assert_eq!(told("setsid sleep 20 & echo 7"), Ok(7.0));
        assert!(told("setsid sleep 20; echo 7").unwrap_err().contains("no end"));
        assert!(began.elapsed() < 2 * PATIENCE, "nothing waits for that child");
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
