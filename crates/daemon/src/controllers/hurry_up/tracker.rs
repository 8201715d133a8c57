//! The observed slots, threads and CPUs, as the policy's `Happened`.
//!
//! ```text
//!   slots::Reader --> threads inside, since when -----+
//!   linux::NamespacedThreads --> their numbers here --+--> Happened: changes since the last look
//!   linux::ThreadPlaces --> their CPUs, idle CPUs ----+
//! ```
//!
//! A slot holds a thread's last write, and threads die without writing. So a slot marks a thread as
//! *inside* only while the thread lives, and only if the thread is old enough to have begun the
//! call. Any other slot is *dead*: its thread is gone for the policy, and it does not disturb the
//! reader's sleep.
//!
//! What always holds: only threads that are inside are asked for their place. A slot without a
//! number, or with one of no thread of this service, is passed over. No allocation follows the
//! length that a stranger's number gives.

use linux::{HostThread, Kick, NamespacedThreads, Occupant, PlaceState, ThreadPlace, ThreadPlaces};
use machine::{CpuId, CpuList, Duration, Instant};
use policy::frequency::hurry_up::{Happened, ThreadId, Work};
use slots::{Activity, Reader, ReaderError, Slot};
use std::collections::BTreeMap;

#[derive(Debug)]
pub(super) struct EventTracker {
    pub(super) reader: Reader,
    pub(super) threads: NamespacedThreads,
    pub(super) places: ThreadPlaces,
    slots: BTreeMap<u32, Seen>,
    cpus: BTreeMap<CpuId, Option<Work>>,
    /// Which threads of the service are its runtime's own, and when that was asked.
    of_runtime: BTreeMap<u32, (bool, Instant)>,
    /// Idle CPUs are not asked whether they are.
    supposes_work: bool,
}

/// A slot at the last look.
#[derive(Clone, Copy, Debug)]
struct Seen {
    claims: u32,
    tid: u32,
    /// `None`: no thread of this number was found.
    thread: Option<HostThread>,
    sequence: u32,
    is_inside: bool,
    /// Its thread has ended, and left it so.
    is_dead: bool,
    place: Option<ThreadPlace>,
    /// So often its thread was looked for in vain, in this call.
    searches: u8,
    /// When its thread was last known to live by `/proc`.
    lived: Instant,
}

/// How the threads of HotSpot's collectors, and the one that stops all threads, call themselves (as
/// much as the kernel keeps of it).
const RUNTIME: [&str; 11] = [
    "GC Thread#",
    "ParGC Thread#",
    "Gang worker#",
    "G1 ",
    "CMS ",
    "ZWorker",
    "ZDriver",
    "RuntimeWorker#",
    "Shenandoah",
    "VM Thread",
    "Concurrent Mark",
];

/// A thread not found in this many looks is none of this service, or has died: it causes no more
/// wake-ups.
const SEARCHES_MAX: u8 = 10;

/// A thread that waits inside is looked for in `/proc` so often.
const DOUBT_AFTER: Duration = Duration::from_secs(1);

/// A thread's number may be another's later, which calls itself otherwise.
const ASK_NAME_AGAIN: Duration = Duration::from_secs(10);

/// The kernel tells when a thread began in ticks of a hundredth of a second; by so much it may seem
/// younger than it is.
const TICK: Duration = Duration::from_millis(10);

impl EventTracker {
    pub(super) fn new(
        reader: Reader,
        threads: NamespacedThreads,
        places: ThreadPlaces,
        cpus: &CpuList,
    ) -> Self {
        Self {
            reader,
            threads,
            places,
            slots: BTreeMap::new(),
            cpus: cpus.0.iter().map(|&cpu| (cpu, None)).collect(),
            of_runtime: BTreeMap::new(),
            supposes_work: false,
        }
    }

    /// The changes since the last look.
    pub(super) fn look(&mut self, now: Instant) -> Result<Vec<Happened>, ReaderError> {
        let mut happened = Vec::new();
        let slots = self.reader.look()?.to_vec();
        let mut left: BTreeMap<u32, Seen> = std::mem::take(&mut self.slots);
        for slot in &slots {
            let Some(tid) = slot.tid else { continue };
            let same = left.remove(&slot.index).filter(|seen| (seen.claims, seen.tid) == (slot.claims, tid));
            let mut seen = match same {
                Some(seen) => seen,
                None => Seen {
                    claims: slot.claims,
                    tid,
                    thread: None,
                    sequence: slot.sequence,
                    is_inside: false,
                    is_dead: false,
                    place: None,
                    searches: 0,
                    lived: now,
                },
            };
            self.follow(now, slot, &mut seen, &mut happened);
            self.slots.insert(slot.index, seen);
        }
        for seen in left.into_values() {
            self.let_go(&seen, &mut happened);
        }
        for cpu in self.cpus.keys().copied().collect::<Vec<_>>() {
            let work = self.work(now, cpu);
            if self.cpus.insert(cpu, Some(work)) != Some(Some(work)) {
                happened.push(Happened::Works { cpu, work });
            }
        }
        Ok(happened)
    }

    fn follow(&mut self, now: Instant, slot: &Slot, seen: &mut Seen, happened: &mut Vec<Happened>) {
        let is_same_call = seen.is_inside && seen.sequence == slot.sequence;
        let passed = slot.sequence.wrapping_sub(seen.sequence) > 1;
        if slot.sequence != seen.sequence {
            seen.searches = 0;
        }
        seen.sequence = slot.sequence;
        let entered = match slot.activity {
            Activity::Inside { since, .. } => Some(since),
            // It is inside now and then: never for long.
            Activity::Moving => Some(now),
            Activity::Outside { last } => {
                if let (true, Some(thread)) = (seen.is_inside, seen.thread) {
                    // A later call's length is no length of this one.
                    let length = last.filter(|_| !passed);
                    happened.push(Happened::Left { thread: ThreadId(thread.number), length });
                    seen.is_inside = false;
                }
                if let (true, Some(length)) = (passed, last) {
                    happened.push(Happened::Passed { length });
                }
                return;
            }
        };
        let since = entered.expect("outside has returned");
        if seen.is_dead {
            return;
        }
        if seen.thread.is_none() {
            if seen.searches >= SEARCHES_MAX {
                return;
            }
            let Some(thread) = self.threads.find(now, seen.tid) else {
                seen.searches += 1;
                return;
            };
            seen.is_dead = !is_old_enough(thread, since);
            if seen.is_dead {
                return;
            }
            seen.thread = Some(thread);
            self.places.watch(thread.number);
        }
        let Some(thread) = seen.thread else { return };
        let place = self.places.place(thread.number);
        let waits = place.is_some_and(|place| place.state == PlaceState::Waits);
        // A thread that waits for ever may have died unobserved. It is looked up now and then,
        // since no event will tell.
        let is_doubtful = waits && now.since(seen.lived) >= DOUBT_AFTER;
        if is_doubtful {
            seen.lived = now;
        }
        let Some(place) = place.filter(|_| !is_doubtful || self.threads.has(thread)) else {
            self.let_go(seen, happened);
            seen.is_dead = true;
            seen.is_inside = false;
            return;
        };
        let id = ThreadId(thread.number);
        if seen.place != Some(place) {
            seen.place = Some(place);
            let runs = place.state == PlaceState::Runs;
            happened.push(Happened::Placed { thread: id, cpu: Some(place.cpu), runs });
        }
        if !is_same_call || slot.activity == Activity::Moving {
            seen.is_inside = true;
            happened.push(Happened::Entered { thread: id, at: since });
        }
    }

    /// The thread has ended, or gave its slot back.
    fn let_go(&mut self, seen: &Seen, happened: &mut Vec<Happened>) {
        let Some(thread) = seen.thread else { return };
        // It may have given one slot back and taken another.
        let has_another = self.slots.values().any(|other| other.thread == Some(thread) && !other.is_dead);
        if !seen.is_dead && !has_another {
            self.places.forget(thread.number);
            happened.push(Happened::Gone { thread: ThreadId(thread.number) });
        }
    }

    /// From now on every CPU counts as busy, or as its observed state.
    pub(super) fn suppose_work(&mut self, supposed: bool) {
        self.supposes_work = supposed;
    }

    fn work(&mut self, now: Instant, cpu: CpuId) -> Work {
        match self.places.occupant(cpu) {
            Some(Occupant::Idle) if self.supposes_work => Work::Other,
            Some(Occupant::Idle) => Work::Idle,
            Some(Occupant::Own { thread }) if self.is_of_runtime(now, thread) => Work::Runtime,
            // An unknown state may be work.
            Some(Occupant::Own { .. } | Occupant::Other) | None => Work::Other,
        }
    }

    fn is_of_runtime(&mut self, now: Instant, thread: u32) -> bool {
        if let Some((answer, asked)) = self.of_runtime.get(&thread)
            && now.since(*asked) < ASK_NAME_AGAIN
        {
            return *answer;
        }
        let name = self.threads.command(thread).unwrap_or_default();
        let answer = is_runtime_name(&name);
        if self.of_runtime.len() >= slots::SLOTS_MAX as usize {
            self.of_runtime.clear();
        }
        self.of_runtime.insert(thread, (answer, now));
        answer
    }

    /// Sleeps until a thread enters, a bell rings or `until` comes. Calls already seen do not
    /// disturb it.
    pub(super) fn sleep(&mut self, timeout: Option<Duration>) -> Result<slots::Woken, ReaderError> {
        let seen = &self.slots;
        let is_known = |slot: &Slot| {
            // A state that cannot be followed counts as known.
            slot.tid.is_none()
                || seen.get(&slot.index).is_some_and(|seen| {
                    let is_same = (seen.claims, Some(seen.tid)) == (slot.claims, slot.tid);
                    let is_followed = seen.is_inside || seen.is_dead || seen.thread.is_none();
                    is_same && is_followed && (seen.is_dead || seen.sequence == slot.sequence)
                })
        };
        self.reader.sleep_beside(is_known, timeout)
    }

    /// True if a thread is inside that was not found yet, and is worth another search.
    pub(super) fn has_strangers(&self) -> bool {
        let is_one = |seen: &Seen| seen.sequence % 2 == 1 && seen.thread.is_none() && !seen.is_dead;
        self.slots.values().any(|seen| is_one(seen) && seen.searches < SEARCHES_MAX)
    }

    /// Asks every CPU to tell when it does something else than now.
    pub(super) fn ask_kicks(&self) {
        for (&cpu, &work) in &self.cpus {
            let kick = if work == Some(Work::Idle) { Kick::WhenItWorks } else { Kick::WhenItIsIdle };
            self.places.ask_kick(cpu, kick);
        }
    }

    pub(super) fn ask_no_kicks(&self) {
        self.cpus.keys().for_each(|&cpu| self.places.ask_kick(cpu, Kick::Never));
    }
}

fn is_runtime_name(name: &str) -> bool {
    RUNTIME.iter().any(|prefix| name.starts_with(prefix))
}

/// A thread that began after the call is another one that got its number.
fn is_old_enough(thread: HostThread, since: Instant) -> bool {
    thread.began_at().as_nanos() <= (since + TICK + TICK).as_nanos()
}
