//! Boot parameters about idle states, frequencies and CPUs.
//!
//! Half of all vanished C-states were sent away by a word on the kernel's command line that a
//! latency guide recommended years ago. Only words with a known meaning are shown: the rest of the
//! line is private, and may hold addresses and passwords.

use crate::root::{Gaps, Root};
use serde::Serialize;

/// A word of the kernel's command line that changes sleep, speed, or the choice of CPUs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BootWord {
    /// As it stands there: `intel_idle.max_cstate=1`.
    pub word: String,
    pub does: &'static str,
}

/// By the beginning of a word. The first match counts, so the special stands before the general.
const MEANINGS: [(&str, &str); 35] = [
    ("idle=poll", "idle CPUs spin: no idle state is ever taken"),
    ("idle=halt", "idle CPUs take HLT alone: no deeper state"),
    ("idle=nomwait", "idle states are not entered by MWAIT, so intel_idle is off"),
    ("idle=", "another idle routine"),
    ("nohlt", "idle CPUs spin: no idle state is ever taken"),
    ("cpuidle.off=1", "no cpuidle: idle CPUs take the architecture's default halt"),
    ("cpuidle.governor=", "chooses the governor of idle states"),
    ("intel_idle.max_cstate=0", "intel_idle is off; acpi_idle may take its place"),
    ("intel_idle.max_cstate=", "no deeper state than this number by intel_idle"),
    ("intel_idle.states_off=", "these states start forbidden"),
    ("intel_idle.", "changes how intel_idle builds its table"),
    ("processor.max_cstate=", "no deeper state than this number by acpi_idle"),
    ("processor.nocst", "acpi_idle ignores the firmware's table of states"),
    ("processor.", "changes how ACPI's idle states are used"),
    ("haltpoll.", "changes how long the guest polls before it halts"),
    ("cpuidle_haltpoll.", "changes when the guest polls before it halts"),
    ("intel_pstate=", "the mode of intel_pstate"),
    ("amd_pstate=", "the mode of amd-pstate"),
    ("amd_pstate.", "changes how amd-pstate works"),
    ("amd_prefcore=", "whether the better cores are preferred"),
    ("cpufreq.off=", "no cpufreq: the clocks are the firmware's affair"),
    ("cpufreq.default_governor=", "chooses the governor of clocks"),
    ("isolcpus=", "the scheduler keeps off these CPUs"),
    ("nohz_full=", "no tick on these CPUs while one task runs"),
    ("nohz=off", "the tick goes on in idleness: no sleep is longer than one"),
    ("rcu_nocbs=", "RCU's callbacks are kept off these CPUs"),
    ("nosmt", "hyperthreads are off"),
    ("maxcpus=", "so many CPUs are started"),
    ("nr_cpus=", "so many CPUs at most"),
    ("tsc=", "changes trust in the clock"),
    ("highres=off", "no high-resolution timers: wake-ups fall on the tick"),
    ("cgroup_no_v1=", "these controllers are for cgroup v2"),
    ("systemd.unified_cgroup_hierarchy=", "which cgroup version systemd uses"),
    ("lockdown=", "may forbid MSRs and BPF"),
    ("preempt=", "when the kernel may be preempted"),
];

/// The words with a meaning, in their order.
pub fn boot_words(root: &Root, gaps: &mut Gaps) -> Vec<BootWord> {
    meaningful(&gaps.text(root, "proc/cmdline").unwrap_or_default())
}

/// The words of `line` that have a meaning here. Words after `--` are for the first process, not
/// for the kernel.
pub fn meaningful(line: &str) -> Vec<BootWord> {
    let known = |word: &str| {
        let (_, does) = MEANINGS.iter().find(|(begins, _)| match begins.ends_with(['=', '.']) {
            true => word.starts_with(begins),
            false => word == *begins,
        })?;
        Some(BootWord { word: word.to_owned(), does })
    };
    line.split_ascii_whitespace().take_while(|word| *word != "--").filter_map(known).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_words_with_a_meaning_are_shown() {
        let line =
            "root=/dev/sda1 intel_idle.max_cstate=1 password=secret idle=poll nosmt quiet -- idle=halt";
        let words: Vec<String> = meaningful(line).into_iter().map(|word| word.word).collect();
        assert_eq!(words, ["intel_idle.max_cstate=1", "idle=poll", "nosmt"]);
    }

    #[test]
    fn the_special_meaning_comes_before_the_general() {
        let does = |word: &str| meaningful(word)[0].does;
        assert!(does("intel_idle.max_cstate=0").contains("acpi_idle"));
        assert!(does("intel_idle.max_cstate=2").contains("deeper"));
        assert!(does("idle=poll").contains("spin"));
        assert!(meaningful("nosmtx xidle=poll").is_empty());
    }
}
