//! Serving: turns, transfers and reports of the workers.

use super::*;

impl Store {
    pub(super) fn request(&mut self, client: usize) {
        let lump = self.clients[client].lump as usize;
        self.clients[client].pending.extend(std::iter::repeat_n(self.now, lump));
        if let Place::At { worker, .. } = self.clients[client].place {
            self.make_ready(client, worker);
        }
    }

    pub(super) fn make_ready(&mut self, client: usize, worker: usize) {
        let entry = &mut self.entries[worker];
        if !entry.ready.contains(&client) {
            entry.ready.push_back(client);
        }
        if self.stalled_until > self.now {
            self.at(self.stalled_until, Event::Serve { worker });
        } else if !self.entries[worker].serving {
            self.begin_serving(worker);
        }
    }

    pub(super) fn begin_serving(&mut self, worker: usize) {
        let Some(&client) = self.entries[worker].ready.front() else { return };
        self.entries[worker].serving = true;
        let state = &self.clients[client];
        let cost = state.cost.unwrap_or(self.service_time);
        let in_turn = state.pending.len().min(TURN_REQUESTS);
        let work = (cost * in_turn as u64).scale(self.entries[worker].stolen);
        self.entries[worker].in_turn = in_turn;
        self.entries[worker].worked += work;
        self.entries[worker].turn = work;
        if work.is_zero() {
            self.serve(worker);
        } else {
            self.after(work, Event::Serve { worker });
        }
    }

    pub(super) fn serve(&mut self, worker: usize) {
        let was_serving = std::mem::replace(&mut self.entries[worker].serving, false);
        if !was_serving {
            // The end of a stall.
            return self.begin_serving(worker);
        }
        let Some(client) = self.entries[worker].ready.pop_front() else { return };
        let Place::At { worker: at, slot } = self.clients[client].place else {
            return self.begin_serving(worker);
        };
        assert_eq!(at, worker, "only those who are here are ready here");
        let in_turn = self.entries[worker].in_turn.min(self.clients[client].pending.len());
        let requests: Vec<Instant> = self.clients[client].pending.drain(..in_turn).collect();
        if !self.clients[client].pending.is_empty() {
            self.entries[worker].ready.push_back(client);
        }
        self.clients[client].served += requests.len() as u64;
        let now = self.now;
        self.entries[worker].latencies.extend(requests.iter().map(|&since| now.since(since)));
        let busy = self.entries[worker].turn;
        let input = WorkerInput::Served { slot, requests: requests.len() as u32, busy };
        if let WorkerOutput::Verdict(Verdict::Send { target, why }) = self.tell_worker(worker, input) {
            assert_ne!(target.index(), worker, "no connection is sent to where it is");
            self.send(worker, slot, target.index(), why);
        }
        self.begin_serving(worker);
    }

    pub(super) fn send(&mut self, source: usize, slot: u32, target: usize, why: Why) {
        let client = self.entries[source].slots[slot as usize].expect("a connection that is here is sent");
        let WorkerOutput::Departure(departure) =
            self.tell_worker(source, WorkerInput::Departure { slot, sent: true })
        else {
            unreachable!("a departure is the answer")
        };
        assert_eq!(departure.conn, ConnId(client as u64));
        if why.is_sent_home() {
            assert_eq!(WorkerId(target as u16), departure.home, "only home");
        }
        self.forget(source, slot, client);
        if self.lose_transfers > 0 {
            self.lose_transfers -= 1;
            self.clients[client].place = Place::Closed;
        } else {
            self.clients[client].place = Place::Flying;
            self.after(TRANSFER, Event::Land { client, source, target, why, departure });
        }
        self.released(source);
    }

    pub(super) fn depart_for_good(&mut self, client: usize, worker: usize, slot: u32) {
        self.tell_worker(worker, WorkerInput::Departure { slot, sent: false });
        self.forget(worker, slot, client);
        self.clients[client].place = Place::Closed;
        let home = self.clients[client].home.index();
        if home != worker {
            self.after(MESSAGE, Event::Letter { worker: home, order: Order::ClosedAway });
        }
        self.released(worker);
    }

    pub(super) fn released(&mut self, worker: usize) {
        if self.entries[worker].policy.connections() == 0 {
            let released = SchedulingInput::Released(WorkerId(worker as u16));
            self.after(MESSAGE, Event::Notice(released));
        }
    }

    pub(super) fn forget(&mut self, worker: usize, slot: u32, client: usize) {
        let entry = &mut self.entries[worker];
        entry.slots[slot as usize] = None;
        entry.ready.retain(|&ready| ready != client);
        if entry.ready.is_empty() && self.service_time.is_zero() {
            entry.serving = false;
        }
    }

    pub(super) fn arrive(&mut self, client: usize, worker: usize, load: ConnectionLoad) {
        let slots = &mut self.entries[worker].slots;
        let slot = slots.iter().position(Option::is_none).unwrap_or(slots.len());
        if slot == slots.len() {
            slots.push(None);
        }
        slots[slot] = Some(client);
        let slot = slot as u32;
        self.clients[client].place = Place::At { worker, slot };
        let (conn, home) = (ConnId(client as u64), self.clients[client].home);
        self.tell_worker(worker, WorkerInput::Arrival { slot, conn, home, load });
        if !self.clients[client].pending.is_empty() {
            self.make_ready(client, worker);
        }
    }

    pub(super) fn report(&mut self) {
        let mut reading = Reading::default();
        let mut all = Vec::new();
        for worker in 0..self.entries.len() {
            let entry = &mut self.entries[worker];
            let mut latencies = std::mem::take(&mut entry.latencies);
            let busy = Ratio::of(std::mem::take(&mut entry.worked), self.params.report_period);
            latencies.sort_unstable();
            let tail = percentile(&latencies, 0.99);
            let sample = Sample { busy, tail, requests: latencies.len() as u32 };
            all.extend(latencies);
            let output = self.tell_worker(worker, WorkerInput::Report(sample));
            let WorkerOutput::Report { reading: report, movable } = output else { unreachable!("a report") };
            reading.workers.push(report);
            let worker = WorkerId(worker as u16);
            self.tell_scheduling(SchedulingInput::Movable { worker, movable });
        }
        all.sort_unstable();
        let mean = all.iter().copied().sum::<Duration>() / (all.len() as u64).max(1);
        reading.service = ServiceReading {
            rate: Some(Rate::of(all.len() as u64, self.params.report_period)),
            mean: Some(mean).filter(|_| !all.is_empty()),
            p95: percentile(&all, 0.95),
            p99: percentile(&all, 0.99),
            tail: None,
        };
        self.readings.clone_from(&reading.workers);
        let output = self.tell_scheduling(SchedulingInput::Reading(reading));
        let guidance = output.guidance.expect("after a reading there is guidance");
        for worker in 0..self.entries.len() {
            self.after(MESSAGE, Event::Letter { worker, order: Order::Guidance(guidance) });
        }
        self.after(self.params.report_period, Event::Report);
    }
}

fn percentile(sorted: &[Duration], share: f64) -> Option<Duration> {
    let last = sorted.len().checked_sub(1)?;
    Some(sorted[(last as f64 * share).ceil() as usize])
}
