//! The places of one process's threads, and the use of each CPU: by the program in the kernel
//! (`probes::threads`), or, where the kernel refuses it, by each thread's `stat`, kept open.
//!
//! | | the program | the files |
//! |---|---|---|
//! | a look at one thread | a load | a system call, 3 us |
//! | use of a CPU | known | not known |
//! | a CPU that begins to work | kicks | does not report |
//!
//! Invariants: a thread that has ended has no place; an unknown fact is `None`, never a guess.

use crate::probes::{BpfError, Notifier, ThreadProgram};
use crate::processes::threads;
use machine::CpuId;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadPlace {
    /// The CPU where it runs, or ran last.
    pub cpu: CpuId,
    pub state: PlaceState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaceState {
    /// It runs, or waits for its turn.
    Runs,
    /// It waits for something else.
    Waits,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occupant {
    Idle,
    /// It runs this thread of the process.
    Own {
        thread: u32,
    },
    /// It runs something else.
    Other,
}

/// When a CPU shall report, once. The numbers are those of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kick {
    /// Not at all.
    Never = 0,
    /// When it has worked for `probes::KICK_PATIENCE` at a stretch.
    WhenItWorks = 1,
    /// When it is idle.
    WhenItIsIdle = 2,
}

#[derive(Debug)]
pub struct ThreadPlaces {
    process: u32,
    way: Way,
}

#[derive(Debug)]
enum Way {
    Program(Box<ThreadProgram>),
    Files(BTreeMap<u32, File>),
}

impl ThreadPlaces {
    /// Of `process`, none of which is watched yet. Where there is no program, this also says why.
    pub fn open(process: u32) -> (Self, Option<BpfError>) {
        match ThreadProgram::load(process) {
            Ok(program) => (Self { process, way: Way::Program(Box::new(program)) }, None),
            Err(why) => (Self::by_files(process), Some(why)),
        }
    }

    /// By the files alone.
    pub fn by_files(process: u32) -> Self {
        Self { process, way: Way::Files(BTreeMap::new()) }
    }

    /// True if the use of CPUs is known, so idle ones can be told.
    pub fn sees_cpus(&self) -> bool {
        matches!(self.way, Way::Program(_))
    }

    /// Follows this thread from now on. One that has ended is not followed.
    pub fn watch(&mut self, thread: u32) {
        match &mut self.way {
            Way::Program(program) => program.watch(thread),
            Way::Files(files) => {
                if let Ok(file) = File::open(format!("/proc/{}/task/{thread}/stat", self.process)) {
                    files.insert(thread, file);
                }
            }
        }
    }

    pub fn forget(&mut self, thread: u32) {
        match &mut self.way {
            Way::Program(program) => program.forget(thread),
            Way::Files(files) => drop(files.remove(&thread)),
        }
    }

    /// The place of a watched thread; `None` if it is not watched, or has ended.
    pub fn place(&self, thread: u32) -> Option<ThreadPlace> {
        match &self.way {
            Way::Program(program) => program.place(thread),
            Way::Files(files) => threads::place_from(files.get(&thread)?),
        }
    }

    /// The use of a CPU, the calling process aside; `None` if it is not known.
    pub fn occupant(&self, cpu: CpuId) -> Option<Occupant> {
        match &self.way {
            Way::Program(program) => program.occupant(cpu),
            Way::Files(_) => None,
        }
    }

    /// Asks a CPU to kick, in place of its earlier request.
    pub fn ask_kick(&self, cpu: CpuId, kick: Kick) {
        if let Way::Program(program) = &self.way {
            program.ask_kick(cpu, kick);
        }
    }

    /// Calls `heard` at each kick, on a thread of its own, until the notifier is dropped; `None`
    /// where no CPU kicks.
    pub fn hear_kicks(&self, heard: impl FnMut() + Send + 'static) -> io::Result<Option<Notifier>> {
        match &self.way {
            Way::Program(program) => program.hear_kicks(heard).map(Some),
            Way::Files(_) => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_program_the_files_tell_of_threads_and_of_nothing_else() {
        let mut places = ThreadPlaces::by_files(std::process::id());
        let me = u32::try_from(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
        assert_eq!(places.place(me), None);
        places.watch(me);
        assert_eq!(places.place(me).map(|place| place.state), Some(PlaceState::Runs));
        places.watch(u32::MAX);
        assert_eq!(
            (places.place(u32::MAX), places.occupant(CpuId(0)), places.sees_cpus()),
            (None, None, false)
        );
        places.forget(me);
        assert_eq!(places.place(me), None);
        assert!(places.hear_kicks(|| ()).unwrap().is_none());
    }
}
