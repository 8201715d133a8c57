//! A frequency domain's bounds and its governor.
//!
//! **Bounds** are requests: since Linux 5.4 a write to `scaling_max_freq` is one vote among those
//! of the firmware, the thermal driver and others. The file shows the outcome, which another thread
//! of the kernel works out a moment later. So a write is followed by polling for up to 50 ms; the
//! text after that is the outcome. (The user's own vote before ours cannot be read. Where another
//! vote is stricter just then, its outcome is put back.)
//!
//! **A governor** takes its settings with it when it is replaced: on most drivers they are its
//! alone and begin anew with their defaults. So the text of this knob is the governor's name and
//! all its settings, `schedutil rate_limit_us=2000`, and writing such a text sets them again.

use super::file::FileKnob;
use crate::cpufreq::FOLDER;
use crate::root::{FileError, Root};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The kernel's time to bring a bound up to date.
const DEFERRED_MAX: Duration = Duration::from_millis(50);

/// Between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(crate) struct BoundKnob(FileKnob);

impl BoundKnob {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self(FileKnob::new(path))
    }

    pub(crate) fn read(&mut self) -> Result<String, FileError> {
        self.0.read()
    }

    /// Writes `value` and returns the text after the kernel has had its time.
    pub(crate) fn write(&mut self, value: &str) -> Result<String, FileError> {
        let first = self.0.write(value)?;
        settled(first, value, || self.0.read())
    }
}

/// Polls until `value` is read or the time is over; returns the last text. The last look begins
/// after that time, so a delay between two looks never returns an old text.
fn settled(
    mut reads: String,
    value: &str,
    mut read: impl FnMut() -> Result<String, FileError>,
) -> Result<String, FileError> {
    let until = Instant::now() + DEFERRED_MAX;
    let mut is_over = false;
    while reads != value && !is_over {
        std::thread::sleep(LOOK_AGAIN);
        is_over = Instant::now() >= until;
        reads = read()?;
    }
    Ok(reads)
}

#[derive(Debug)]
pub(crate) struct GovernorKnob {
    root: Root,
    /// The folder of its domain.
    policy: String,
    file: FileKnob,
}

impl GovernorKnob {
    pub(crate) fn new(root: &Root, path: &str) -> Self {
        let policy = path.rsplit_once('/').map_or(path, |(folder, _)| folder).to_owned();
        Self { root: root.clone(), policy, file: FileKnob::new(root.path(path)) }
    }

    /// Its name, and its settings in order of name.
    pub(crate) fn read(&mut self) -> Result<String, FileError> {
        let mut text = self.file.read()?;
        let Some(folder) = self.settings_of(&text) else { return Ok(text) };
        for setting in self.root.names(&folder)? {
            // A setting that cannot be read cannot be put back; the others still can.
            if let Ok(value) = self.root.text(&format!("{folder}/{setting}"))
                && !value.contains(char::is_whitespace)
                && self.root.may_write(&format!("{folder}/{setting}")) != Some(false)
            {
                text += &format!(" {setting}={value}");
            }
        }
        Ok(text)
    }

    /// Makes the first word the governor and the others its settings.
    pub(crate) fn write(&mut self, text: &str) -> Result<String, FileError> {
        let mut words = text.split(' ');
        let name = words.next().unwrap_or_default();
        self.file.write(name)?;
        if let Some(folder) = self.settings_of(name) {
            for (setting, value) in words.filter_map(|word| word.split_once('=')) {
                let path = format!("{folder}/{setting}");
                // The journal is followed nowhere else.
                if setting.contains('/') || self.root.text(&path).is_ok_and(|now| now == value) {
                    continue;
                }
                FileKnob::new(self.root.path(&path)).write(value)?;
            }
        }
        self.read()
    }

    /// The folder of a governor's settings: its domain's own, or that of all domains; the driver
    /// decides.
    fn settings_of(&self, governor: &str) -> Option<String> {
        let is_name = !governor.is_empty() && governor.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let candidates = [format!("{}/{governor}", self.policy), format!("{FOLDER}/{governor}")];
        candidates.into_iter().find(|folder| is_name && self.root.path(folder).is_dir())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeMachine;

    const POLICY: &str = "sys/devices/system/cpu/cpufreq/policy0";

    #[test]
    fn a_bound_that_the_kernel_takes_up_late_is_waited_for() {
        let taken_up = Instant::now() + DEFERRED_MAX / 4;
        let mut looks_after = 0;
        let reads = settled("2600000".to_owned(), "1400000", || {
            if Instant::now() < taken_up {
                return Ok("2600000".to_owned());
            }
            looks_after += 1;
            Ok("1400000".to_owned())
        });
        assert_eq!((reads.unwrap().as_str(), looks_after), ("1400000", 1));
    }

    #[test]
    fn who_is_held_up_between_two_looks_looks_once_more() {
        let time_is_over = Instant::now() + DEFERRED_MAX;
        let reads = settled("2600000".to_owned(), "1400000", || {
            if Instant::now() >= time_is_over {
                return Ok("1400000".to_owned());
            }
            std::thread::sleep(2 * DEFERRED_MAX);
            Ok("2600000".to_owned())
        });
        assert_eq!(reads.unwrap(), "1400000");
    }

    #[test]
    fn a_bound_that_the_kernel_makes_another_is_what_it_made_of_it() {
        let began = Instant::now();
        let reads = settled("2600000".to_owned(), "1500000", || Ok("1400000".to_owned()));
        assert_eq!(reads.unwrap(), "1400000");
        assert!(began.elapsed() >= DEFERRED_MAX);
    }

    #[test]
    fn a_governor_comes_back_with_its_settings() {
        let machine = FakeMachine::intel_server(1);
        machine.write(&format!("{POLICY}/scaling_governor"), "schedutil\n");
        machine.write(&format!("{POLICY}/schedutil/rate_limit_us"), "2000\n");
        let mut knob = GovernorKnob::new(machine.root(), &format!("{POLICY}/scaling_governor"));
        let before = knob.read().unwrap();
        assert_eq!(before, "schedutil rate_limit_us=2000");
        assert_eq!(knob.write("userspace").unwrap(), "userspace");
        // The kernel's default, when the governor begins anew.
        machine.write(&format!("{POLICY}/schedutil/rate_limit_us"), "10000\n");
        assert_eq!(knob.write(&before).unwrap(), before);
        assert_eq!(machine.read(&format!("{POLICY}/schedutil/rate_limit_us")), "2000");
    }

    #[test]
    fn settings_that_all_domains_share_are_found_as_well() {
        let machine = FakeMachine::intel_server(1);
        machine.write(&format!("{POLICY}/scaling_governor"), "ondemand\n");
        machine.write(&format!("{FOLDER}/ondemand/up_threshold"), "80\n");
        machine.write(&format!("{FOLDER}/ondemand/io_is_busy"), "1\n");
        let mut knob = GovernorKnob::new(machine.root(), &format!("{POLICY}/scaling_governor"));
        assert_eq!(knob.read().unwrap(), "ondemand io_is_busy=1 up_threshold=80");
        // A journal that was tampered with leads nowhere.
        machine.write("sys/secret", "1\n");
        knob.write("ondemand ../../../../../../secret=2").unwrap();
        assert_eq!(machine.read("sys/secret"), "1");
        machine.write(&format!("{POLICY}/scaling_governor"), "../..\n");
        assert_eq!(knob.read().unwrap(), "../..");
    }
}
