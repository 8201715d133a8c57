//! The kernel features that a program needs, asked of the kernel itself: distributions bring
//! features back to old releases, so a version number proves little.

use libbpf_rs::btf::{Btf, types};
use libbpf_rs::{ProgramType, ReferencesType as _, libbpf_sys};
use std::os::fd::{FromRawFd as _, OwnedFd};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// The fourth argument of `sched_switch`: the state in which the thread stops.
    StateOfPrevious,
    /// Atomic operations that return the earlier value.
    FetchingAtomics,
    /// `bpf_get_current_task_btf`.
    TypedTask,
    /// `bpf_timer_init` and its kin.
    Timers,
    /// A timer that stays on its CPU: the kernel answers when one is started.
    PinnedTimers,
    /// `bpf_get_attach_cookie`.
    Cookies,
    /// Programs that user space runs by a call.
    Calls,
}

impl Need {
    /// In words, with the release in which Linux got it.
    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::StateOfPrevious => "the fourth argument of sched_switch (Linux 5.18)",
            Self::FetchingAtomics => "atomic operations that fetch (Linux 5.12)",
            Self::TypedTask => "the helper bpf_get_current_task_btf (Linux 5.11)",
            Self::Timers => "timers of BPF (Linux 5.15)",
            Self::PinnedTimers => "a timer that stays on its CPU (Linux 6.7)",
            Self::Cookies => "cookies of uprobes (Linux 5.15)",
            Self::Calls => "programs of the type syscall (Linux 5.14)",
        }
    }

    /// False if the kernel reports that it lacks this. A feature that cannot be asked for counts as
    /// present: then the refusal is reported in the kernel's own words.
    pub(super) fn is_met(self) -> bool {
        let helper = |id| ProgramType::Kprobe.is_helper_supported(id).unwrap_or(true);
        match self {
            Self::StateOfPrevious => arguments_of_sched_switch().is_none_or(|count| count >= 4),
            Self::FetchingAtomics => fetches(),
            Self::TypedTask => helper(libbpf_sys::BPF_FUNC_get_current_task_btf),
            Self::Timers => helper(libbpf_sys::BPF_FUNC_timer_init),
            Self::PinnedTimers => true,
            Self::Cookies => helper(libbpf_sys::BPF_FUNC_get_attach_cookie),
            Self::Calls => ProgramType::Syscall.is_supported().unwrap_or(true),
        }
    }
}

/// The needs of the program of that name beyond Linux 5.10.
const fn needs(program: &str) -> &'static [Need] {
    match program.as_bytes() {
        b"threads" => &[Need::StateOfPrevious],
        b"activity" => &[Need::FetchingAtomics],
        b"waits" => &[Need::StateOfPrevious, Need::FetchingAtomics, Need::TypedTask],
        b"alarms" => &[Need::Timers, Need::FetchingAtomics, Need::Calls],
        b"functions" => &[Need::Cookies, Need::FetchingAtomics],
        _ => &[],
    }
}

/// The needs of the program that this kernel does not meet.
pub(super) fn lacking(program: &str) -> Vec<Need> {
    needs(program).iter().copied().filter(|need| !need.is_met()).collect()
}

/// By the kernel's own description of its types; the first parameter is not the event's.
fn arguments_of_sched_switch() -> Option<usize> {
    let kernel = Btf::from_vmlinux().ok()?;
    let event: types::Typedef<'_> = kernel.type_by_name("btf_trace_sched_switch")?;
    let pointer = types::Ptr::try_from(event.referenced_type()).ok()?;
    let function = types::FuncProto::try_from(pointer.referenced_type()).ok()?;
    function.len().checked_sub(1)
}

/// Loads the smallest program that has such an operation.
fn fetches() -> bool {
    let instruction = |code: u8, registers: u8, offset: i16, immediate: i32| {
        let [a, b] = offset.to_ne_bytes();
        let [c, d, e, f] = immediate.to_ne_bytes();
        u64::from_ne_bytes([code, registers, a, b, c, d, e, f])
    };
    const FETCH_ADD: i32 = 0x01;
    let program = [
        // r0 = 1; *(u64 *)(r10 - 8) = r0; r0 = fetch_add(r10 - 8, r0); exit
        instruction(0xb7, 0x00, 0, 1),
        instruction(0x7b, 0x0a, -8, 0),
        instruction(0xdb, 0x0a, -8, FETCH_ADD),
        instruction(0x95, 0x00, 0, 0),
    ];
    // SAFETY: an instruction of BPF has eight bytes, laid out as above; name and licence end with a
    // zero; no options are given.
    let descriptor = unsafe {
        libbpf_sys::bpf_prog_load(
            ProgramType::SocketFilter as u32,
            c"fetches".as_ptr(),
            c"GPL".as_ptr(),
            program.as_ptr().cast(),
            program.len() as _,
            std::ptr::null_mut(),
        )
    };
    if descriptor >= 0 {
        // SAFETY: the kernel has just given it to us, and nothing else has it.
        drop(unsafe { OwnedFd::from_raw_fd(descriptor) });
    }
    descriptor >= 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probes::BpfError;

    #[test]
    fn a_program_loads_where_its_needs_are_met_and_the_lack_is_named_where_not() {
        use crate::probes::{AlarmProgram, ThreadProgram, WaitProgram};
        let cpus = crate::allowed_cpus().unwrap();
        let loaded: [(&str, Result<(), BpfError>); 3] = [
            ("threads", ThreadProgram::load(std::process::id()).map(drop)),
            ("waits", WaitProgram::load(&cpus, false).map(drop)),
            ("alarms", AlarmProgram::load().map(drop)),
        ];
        for (name, loaded) in loaded {
            let lacks = lacking(name);
            match loaded {
                Ok(()) => assert_eq!(lacks, [], "{name} loads"),
                Err(BpfError::Lacking { lacks: told, .. }) => {
                    println!("{name} lacks {told}");
                    assert!(lacks.iter().all(|need| told.contains(need.words())), "{name}: {told}");
                }
                Err(error) if error.is_lack() => println!("SKIPPED: {error}"),
                Err(error) => panic!("{name}: {error}"),
            }
        }
    }
}
