//! sched_ext: a scheduler in BPF, loaded in place of the kernel's own (Linux 6.12).
//!
//! `/sys/kernel/sched_ext/state` is `disabled` without one; `root/ops` has the name of the one that is
//! loaded. It decides where tasks run, and need not keep to the rules of the kernel's own scheduler
//! beyond affinity, which the kernel enforces when a task is dispatched.
//!
//! Source: Documentation/scheduler/sched-ext.rst.

use crate::root::{Gaps, Root};
use serde::Serialize;

const FOLDER: &str = "sys/kernel/sched_ext";

/// A scheduler in BPF that is loaded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SchedExt {
    /// The kernel's word: `enabled`, `enabling` or `disabling`.
    pub state: String,
    /// Its name; `None` where the kernel does not tell it.
    pub name: Option<String>,
    /// It has all normal tasks, and not only those of its class.
    pub has_all: Option<bool>,
}

/// The scheduler that is loaded; `None` without one, and on kernels without sched_ext.
pub fn sched_ext(root: &Root, gaps: &mut Gaps) -> Option<SchedExt> {
    let state = gaps.text(root, &format!("{FOLDER}/state")).filter(|state| state != "disabled")?;
    let name = gaps.text(root, &format!("{FOLDER}/root/ops")).filter(|name| !name.is_empty());
    let has_all = gaps.parse::<u8>(root, &format!("{FOLDER}/switch_all"), "0 or 1").map(|all| all != 0);
    Some(SchedExt { state, name, has_all })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeMachine;

    #[test]
    fn a_loaded_scheduler_is_named_and_none_is_none() {
        let machine = FakeMachine::intel_server(2);
        let told = |machine: &FakeMachine| sched_ext(machine.root(), &mut Gaps::default());
        assert_eq!(told(&machine), None);
        machine.write("sys/kernel/sched_ext/state", "disabled\n");
        assert_eq!(told(&machine), None);
        machine.write("sys/kernel/sched_ext/state", "enabled\n");
        let unnamed = SchedExt { state: "enabled".to_owned(), name: None, has_all: None };
        assert_eq!(told(&machine), Some(unnamed.clone()));
        machine.write("sys/kernel/sched_ext/root/ops", "lavd_1.1.4\n");
        machine.write("sys/kernel/sched_ext/switch_all", "1\n");
        let named = SchedExt { name: Some("lavd_1.1.4".to_owned()), has_all: Some(true), ..unnamed };
        assert_eq!(told(&machine), Some(named));
    }
}
