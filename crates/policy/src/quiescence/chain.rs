//! A small machine on which critical threads wait for third parties, which may ask the background
//! before they answer.
//!
//! ```text
//!   critical  works --asks--> third party, which waits for a while --asks--> background, computes a little
//!      ^------------------- answers <----------- or answers at once <---------------'
//! ```
//!
//! The policy sees the driver's part of it: that a critical thread waits for the network, and that
//! it goes on. The third party's own requests are not told. Each critical thread and each
//! background group has a CPU of its own.

use super::{
    Event, GroupId, Nature, Params, Quiescence, QuiescenceCommand, Role, Site, Task, TaskId, Verdict, Waits,
};
use machine::{Duration, Instant};

/// One step of the machine: 100 us.
pub(super) const STEP: Duration = Duration::from_micros(100);
const CRITICAL: GroupId = GroupId(1);
/// The number of the first background group.
pub(super) const BACKGROUND: u32 = 2;

/// The steps of a critical thread, again and again.
#[derive(Clone, Debug)]
pub(super) struct Program {
    pub work: u64,
    /// The waits of it, one after the other.
    pub parts: Vec<Part>,
    /// Each part of the third parties' time lasts up to so many steps longer.
    pub jitter: u64,
}

/// The work of a third party before it answers or asks the next one.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part {
    /// For so long it waits for something elsewhere.
    Elsewhere(u64),
    /// It asks this background group, which computes for so long.
    Asks { group: usize, steps: u64 },
}

/// The work of a background group of its own accord.
#[derive(Clone, Copy, Debug)]
pub(super) struct Own {
    /// Longest burst; the shortest is a fifth of it.
    pub burst: u64,
    /// Share of the time that it would run.
    pub load: f64,
}

struct Asker {
    task: Task,
    program: Program,
    /// Of its work, while it works.
    works: u64,
    /// The part that it waits for.
    part: usize,
    /// Of that part.
    left: u64,
    began: u64,
}

struct Group {
    own: Own,
    is_frozen: bool,
    work: u64,
    sleep: u64,
}

pub(super) struct Chain {
    pub policy: Quiescence,
    waits: Waits,
    askers: Vec<Asker>,
    groups: Vec<Group>,
    /// True if commands are carried out.
    obeys: bool,
    /// The cost of each freeze and each thaw, in steps of a CPU.
    cost: u64,
    freezer: u64,
    step: u64,
    idle: Duration,
    seed: u64,
    /// Of each critical thread: the end of each cycle and its length, in steps.
    pub cycles: Vec<Vec<(u64, u64)>>,
    pub frozen_steps: u64,
}

impl Chain {
    pub fn new(params: Params, programs: &[Program], owns: &[Own], seed: u64) -> Self {
        let background =
            (0..owns.len() as u32).map(|number| (GroupId(BACKGROUND + number), Role::Background));
        let roles = [(CRITICAL, Role::Critical)].into_iter().chain(background);
        let mut policy = Quiescence::new(params, roles);
        let askers: Vec<Asker> = (0..)
            .zip(programs)
            .map(|(number, program)| Asker {
                task: Task { id: TaskId(100 + number), group: CRITICAL },
                program: program.clone(),
                works: program.work.max(1),
                part: 0,
                left: 0,
                began: 0,
            })
            .collect();
        for asker in &askers {
            policy.handle_event(Instant::ZERO, &Event::Unblock { task: asker.task });
        }
        let groups = owns.iter().map(|&own| Group { own, is_frozen: false, work: 0, sleep: 1 }).collect();
        Self {
            policy,
            waits: Waits::default(),
            cycles: vec![Vec::new(); askers.len()],
            askers,
            groups,
            obeys: true,
            cost: 1,
            freezer: 0,
            step: 0,
            idle: Duration::ZERO,
            seed,
            frozen_steps: 0,
        }
    }

    pub fn never_freezing(mut self) -> Self {
        self.obeys = false;
        self
    }

    pub fn now(&self) -> Instant {
        Instant::ZERO + STEP * self.step
    }

    fn random(&mut self, below: u64) -> u64 {
        // Knuth's MMIX.
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33) % below.max(1)
    }

    fn tell(&mut self, event: &Event) {
        let now = self.now();
        self.policy.handle_idle(self.idle);
        self.policy.handle_event(now, event);
        self.obey();
    }

    fn obey(&mut self) {
        while let Some(command) = self.policy.poll_command() {
            if !self.obeys {
                continue;
            }
            self.freezer += self.cost;
            let (group, is_frozen) = match command {
                QuiescenceCommand::Freeze(group) => (group, true),
                QuiescenceCommand::Thaw(group) => (group, false),
            };
            self.groups[(group.0 - BACKGROUND) as usize].is_frozen = is_frozen;
        }
    }

    /// Draws the length of the part, and enters it.
    fn enter(&mut self, asker: usize, part: usize) {
        let jitter = self.askers[asker].program.jitter;
        let jitter = self.random(jitter + 1);
        let this = &mut self.askers[asker];
        this.part = part;
        this.left = match this.program.parts[part] {
            Part::Elsewhere(steps) => steps + jitter,
            Part::Asks { steps, .. } => steps,
        }
        .max(1);
    }

    fn one_step(&mut self) {
        let mut is_idle = self.freezer == 0;
        self.freezer = self.freezer.saturating_sub(1);
        // Each group serves the first request, and else does its own work.
        let mut served = vec![None; self.groups.len()];
        for (number, asker) in self.askers.iter().enumerate() {
            if asker.works == 0
                && let Part::Asks { group, .. } = asker.program.parts[asker.part]
                && !self.groups[group].is_frozen
            {
                served[group].get_or_insert(number);
            }
            is_idle &= asker.works == 0;
        }
        for (number, served) in served.iter().enumerate() {
            let group = &self.groups[number];
            let runs = !group.is_frozen && (served.is_some() || group.work > 0);
            is_idle &= !runs;
            self.frozen_steps += u64::from(group.is_frozen);
            if served.is_none() && runs {
                self.groups[number].work -= 1;
            }
            // Time to sleep passes for the frozen too; work that is due runs later.
            let group = &mut self.groups[number];
            if group.work == 0 && group.own.load > 0.0 {
                group.sleep = group.sleep.saturating_sub(1);
                if group.sleep == 0 {
                    let Own { burst, load } = group.own;
                    let length = (burst / 5 + self.random(burst * 4 / 5)).max(1);
                    self.groups[number].work = length;
                    self.groups[number].sleep = (length as f64 * (1.0 - load) / load) as u64 + 1;
                }
            }
        }
        if is_idle {
            self.idle += STEP;
        }
        self.step += 1;
        if self.policy.poll_timeout().is_some_and(|due| due <= self.now()) {
            let now = self.now();
            self.policy.handle_idle(self.idle);
            self.policy.handle_timeout(now);
            self.obey();
        }
        for number in 0..self.askers.len() {
            self.advance(number, &served);
        }
    }

    fn advance(&mut self, number: usize, served: &[Option<usize>]) {
        let now = self.now();
        let asker = &mut self.askers[number];
        if asker.works > 0 {
            asker.works -= 1;
            if asker.works > 0 {
                return;
            }
            let (task, length) = (asker.task, self.step - asker.began);
            asker.began = self.step;
            self.cycles[number].push((self.step, length));
            self.enter(number, 0);
            let site = Site { group: CRITICAL, nature: Nature::Io, place: number as u64 };
            let on = self.waits.began(now, task.id, site);
            self.tell(&Event::Block { task, on });
            return;
        }
        match asker.program.parts[asker.part] {
            Part::Asks { group, .. } if served[group] != Some(number) => return,
            _ => asker.left -= 1,
        }
        if asker.left > 0 {
            return;
        }
        let next = asker.part + 1;
        if next < asker.program.parts.len() {
            self.enter(number, next);
            return;
        }
        asker.works = asker.program.work.max(1);
        let task = asker.task;
        self.waits.ended(now, task.id, None);
        self.tell(&Event::Unblock { task });
    }

    pub fn run(&mut self, seconds: u64) -> Verdict {
        for _ in 0..seconds * 10_000 {
            self.one_step();
        }
        self.policy.verdict()
    }

    /// Of the cycles of one critical thread that ended since then: p50, p99, and how many.
    pub fn figures(&self, asker: usize, since_s: u64) -> (u64, u64, usize) {
        let cycles = &self.cycles[asker];
        let mut lengths: Vec<u64> =
            cycles.iter().filter(|(end, _)| *end >= since_s * 10_000).map(|(_, length)| *length).collect();
        lengths.sort_unstable();
        let rank = |quantile: f64| lengths[((lengths.len() as f64 * quantile).ceil() as usize).max(1) - 1];
        (rank(0.5), rank(0.99), lengths.len())
    }
}
