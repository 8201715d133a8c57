//! Finding a service's hot function: the measurements for `roost hot`, from which `policy::hot`
//! concludes. (This crate decides nothing and does not know that one.)
//!
//! ```text
//!   1. profile   JVM: async-profiler   native: perf     --> stacks: per thread, the functions on it, counted
//!   2. threads   which of them serve requests           --> each function's share of their CPU time
//!   3. count     JVM: the agent        native: uprobes  --> calls of a few functions, and how long each took
//! ```
//!
//! Terms:
//! - A *pool* is all threads whose names differ in their numbers alone.
//! - *Request pools* are those that were seen in a socket's reads, and those that hold a tenth or
//!   more of the CPU time that the service's own code takes: where one thread reads and another
//!   works, as in Netty's servers, both serve requests.
//! - A *function* is a method of the server's own, or a function with a name in a file with code:
//!   not the JDK's, not the kernel's, and nothing that has no name or is made anew in each run.
//!
//! Invariants: nothing of the service is changed except for the seconds of counting, and that ends
//! by itself, even if a process died meanwhile. A profiler's output is a stranger's: any bytes are
//! a profile or an error.

mod counted;
mod energy;
mod jvm;
mod native;
mod profile;
mod stacks;

pub use counted::{CountError, Counted, CountedState, Times, read_counts};
pub use energy::{ClockMeasured, clocks, measure};
pub use jvm::{Jvm, JvmError, count_calls, profile_jvm, remove_left_runs};
pub use native::{NativeError, Unwinding, count_functions, profile_native};
pub use profile::{Pool, Profile, Seen};
pub use stacks::{Frame, Stack, StackError, Stacks, read_async_profiler, read_perf_script};
