//! System calls by number: the object that a thread blocked in one waits for, and whether a call
//! can end another thread's wait.
//!
//! Numbers from `arch/x86/entry/syscalls/syscall_64.tbl` and `include/uapi/asm-generic/unistd.h`. A
//! number that is not here counts as a wait for something else, and as a call that wakes no thread:
//! the careful answer to both.

/// It waits for the object of its first argument, a descriptor.
pub(super) const ON_DESCRIPTOR: u32 = 1;
/// It waits for any of several things.
pub(super) const ON_MANY: u32 = 2;
/// It waits for another thread, of its own process if the futex is private.
pub(super) const ON_FUTEX: u32 = 3;
/// It waits for a time.
pub(super) const ON_TIME: u32 = 4;
/// Its caller may end others' waits.
const CAN_WAKE: u32 = 16;

/// For this architecture. Empty on an unknown one: then every wait is one for something else.
pub(super) fn table() -> impl Iterator<Item = (u32, u32)> {
    CLASSES.iter().flat_map(|&(class, numbers)| numbers.iter().map(move |&number| (number, class)))
}

pub(super) fn class_of(number: u32) -> u32 {
    table().find(|&(known, _)| known == number).map_or(0, |(_, class)| class & !CAN_WAKE)
}

#[cfg(target_arch = "x86_64")]
const CLASSES: &[(u32, &[u32])] = &[
    // read, pread64, readv, accept, recvfrom, recvmsg, fsync, fdatasync, accept4, preadv, recvmmsg,
    // preadv2
    (ON_DESCRIPTOR, &[0, 17, 19, 43, 45, 47, 74, 75, 288, 295, 299, 327]),
    // write, pwrite64, writev, connect, sendto, sendmsg, pwritev, sendmmsg, pwritev2
    (ON_DESCRIPTOR | CAN_WAKE, &[1, 18, 20, 42, 44, 46, 296, 307, 328]),
    // poll, select, epoll_wait, pselect6, ppoll, epoll_pwait, epoll_pwait2
    (ON_MANY, &[7, 23, 232, 270, 271, 281, 441]),
    // io_uring_enter
    (ON_MANY | CAN_WAKE, &[426]),
    // futex; futex_waitv does not show whether it is private
    (ON_FUTEX | CAN_WAKE, &[202]),
    // nanosleep, clock_nanosleep
    (ON_TIME, &[35, 230]),
    // close, sendfile, shutdown, clone, fork, vfork, exit, kill, semop, msgsnd, rt_sigqueueinfo,
    // tkill, semtimedop, exit_group, tgkill, mq_timedsend, splice, tee, vmsplice,
    // pidfd_send_signal, clone3, futex_wake, futex_requeue
    (
        CAN_WAKE,
        &[
            3, 40, 48, 56, 57, 58, 60, 62, 65, 69, 129, 200, 220, 231, 234, 242, 275, 276, 278, 424, 435,
            454, 456,
        ],
    ),
];

#[cfg(target_arch = "aarch64")]
const CLASSES: &[(u32, &[u32])] = &[
    // read, readv, pread64, preadv, fsync, fdatasync, accept, recvfrom, recvmsg, accept4, recvmmsg,
    // preadv2
    (ON_DESCRIPTOR, &[63, 65, 67, 69, 82, 83, 202, 207, 212, 242, 243, 286]),
    // write, writev, pwrite64, pwritev, connect, sendto, sendmsg, sendmmsg, pwritev2
    (ON_DESCRIPTOR | CAN_WAKE, &[64, 66, 68, 70, 203, 206, 211, 269, 287]),
    // epoll_pwait, pselect6, ppoll, epoll_pwait2
    (ON_MANY, &[22, 72, 73, 441]),
    (ON_MANY | CAN_WAKE, &[426]),
    (ON_FUTEX | CAN_WAKE, &[98]),
    // nanosleep, clock_nanosleep
    (ON_TIME, &[101, 115]),
    // close, sendfile, splice, tee, vmsplice, exit, exit_group, kill, tkill, tgkill,
    // rt_sigqueueinfo, mq_timedsend, msgsnd, semtimedop, semop, shutdown, clone, pidfd_send_signal,
    // clone3, futex_wake, futex_requeue
    (
        CAN_WAKE,
        &[57, 71, 75, 76, 77, 93, 94, 129, 130, 131, 138, 182, 189, 192, 193, 210, 220, 424, 435, 454, 456],
    ),
];

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const CLASSES: &[(u32, &[u32])] = &[];
