//! The tasks that cores work on.

use workload::Job;

/// A piece of CPU work, for one core.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Task {
    /// When the request that it belongs to was due, in nanoseconds.
    pub arrived_ns: u64,
    /// Time of computing, at the nominal clock.
    pub compute_ns: u64,
    /// Waiting for memory, whatever the clock.
    pub memory_ns: u64,
    /// Place of its request among those of several pieces; [`WHOLE`] if this piece is all of it.
    pub request: u32,
    pub connection: u32,
    /// The core that it was meant for when it arrived, where that is settled then.
    pub core: u16,
    pub class: u8,
    /// The name of its request at the root of a fleet.
    pub ticket: u32,
}

impl Task {
    /// All of a request that arrives.
    #[inline]
    pub fn of(job: &Job) -> Self {
        Self {
            arrived_ns: job.at.as_nanos(),
            compute_ns: job.compute.as_nanos(),
            memory_ns: job.memory.as_nanos(),
            request: WHOLE,
            connection: job.connection,
            core: 0,
            class: job.class,
            ticket: job.index as u32,
        }
    }
}

/// The request is this one task.
pub const WHOLE: u32 = u32::MAX;

/// A request of several pieces: shards that run side by side, or phases with a device between them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pieces {
    /// Number of pieces still to be done.
    pub left: u16,
    /// The core that its thread lives on, where it has one.
    pub core: u16,
    pub class: u8,
    /// Its connection, or its client's number.
    pub connection: u32,
    /// The name that the root of a fleet knows it by.
    pub ticket: u32,
    /// The time when the request was due.
    pub arrived_ns: u64,
    /// Computing of the pieces that are done, and their waiting for memory.
    pub done_ns: [u64; 2],
    /// The work that is left after the device answers.
    pub compute_ns: u64,
    /// The same, memory's share.
    pub memory_ns: u64,
    /// Its shards have answered, and it is in its second round.
    pub fetches: bool,
    /// How many phases of it are over.
    pub phase: u8,
    /// Time in which it waited for the device and held no core.
    pub device_ns: u64,
    /// It will call the device when its last shard has answered.
    pub calls: bool,
}

/// Requests of several pieces in flight: places are reused, so memory follows the number in the
/// system.
#[derive(Clone, Debug, Default)]
pub struct InPieces {
    requests: Vec<Pieces>,
    free: Vec<u32>,
}

impl InPieces {
    /// Keeps a request and returns its place.
    pub fn insert(&mut self, pieces: Pieces) -> u32 {
        match self.free.pop() {
            Some(place) => {
                self.requests[place as usize] = pieces;
                place
            }
            None => {
                self.requests.push(pieces);
                (self.requests.len() - 1) as u32
            }
        }
    }

    /// How many phases are over of the request of a task.
    #[inline]
    pub fn phase(&self, request: u32) -> u8 {
        if request == WHOLE { 0 } else { self.requests[request as usize].phase }
    }

    pub fn get_mut(&mut self, place: u32) -> &mut Pieces {
        &mut self.requests[place as usize]
    }

    /// It is done; its place is free.
    pub fn remove(&mut self, place: u32) -> Pieces {
        self.free.push(place);
        self.requests[place as usize]
    }
}
