//! The two sides of work stealing: a worker that offers connections, and one that serves them.
//!
//! `policy::stealing` says how many turns a worker keeps; the others are offered only while an active
//! worker sleeps on another CPU, so at little load nothing is.

use super::{BELL, TOGETHER, Worker};
use crate::connection::Turn;
use crate::mailbox::Mailbox;
use crate::offers::{Offer, Returned};
use crate::shared::{Mail, Shared};
use machine::{Instant, WorkerId};
use policy::stealing::Stealing;
use rustix::event::epoll;

/// A worker's own state of stealing, whichever side it is on.
pub(super) struct Lending {
    keeping: Stealing,
    /// Connections that are offered or served by others.
    lent: usize,
    /// On their way into or out of the list; empty between turns.
    offers: Vec<Offer>,
}

impl Lending {
    pub(super) fn new(keeping: Stealing) -> Self {
        Self { keeping, lent: 0, offers: Vec::new() }
    }
}

impl Worker {
    /// Offers those of the connections with events that this worker does not come to soon, and takes
    /// them out of `events`.
    pub(super) fn offer(&mut self, events: &mut Vec<epoll::Event>, ready_since: Instant) {
        let Some(lending) = &mut self.lending else { return };
        let kept = lending.keeping.kept();
        if events.len() <= kept || self.draining {
            return;
        }
        let shared = &*self.shared;
        let mut thieves = shared.idle_thieves(self.id).peekable();
        if thieves.peek().is_none() {
            return;
        }
        let mut seen = 0;
        let (connections, offers) = (&mut self.connections, &mut lending.offers);
        events.retain(|event| {
            seen += 1;
            let slot = event.data.u64();
            let is_offered = seen > kept
                && slot != BELL
                && connections.get(slot as usize).is_some_and(|c| c.is_plain() && !c.is_watching());
            if is_offered {
                let connection = connections.lend(slot as usize);
                offers.push(Offer { slot: slot as u32, connection, ready_since });
            }
            !is_offered
        });
        let offered = offers.len();
        if offered > 0 {
            lending.lent += offered;
            shared.offers.put(self.id, offers);
            // Each may take as many as this one keeps.
            for thief in thieves.take(offered.div_ceil(kept)) {
                shared.port(thief).mailbox.nudge();
            }
        }
    }

    /// Serves the offers that no other worker has taken.
    pub(super) fn serve_offered(
        &mut self,
        mailbox: &Mailbox<Mail>,
        letters: &mut Vec<Mail>,
        mut now: Instant,
    ) {
        let mut events: Vec<epoll::Event> = Vec::new();
        while let Some(lending) = &mut self.lending
            && lending.lent > 0
        {
            let most = lending.keeping.kept().min(TOGETHER);
            self.shared.offers.take_back(self.id, most, &mut lending.offers);
            lending.lent -= lending.offers.len();
            let Some(ready_since) = lending.offers.first().map(|offer| offer.ready_since) else { break };
            events.clear();
            for Offer { slot, connection, .. } in lending.offers.drain(..) {
                self.connections.put_back(slot as usize, connection);
                let data = epoll::EventData::new_u64(u64::from(slot));
                events.push(epoll::Event { flags: epoll::EventFlags::IN, data });
            }
            now = self.take_turns(&events, now, ready_since);
            self.open_letters(mailbox, letters);
        }
    }

    /// Whether connections are in thieves' hands or on their way back.
    pub(super) fn has_lent(&self) -> bool {
        self.lending.as_ref().is_some_and(|lending| lending.lent > 0)
    }

    /// Whether another worker's requests wait for one that has nothing to do.
    pub(super) fn may_steal(&self) -> bool {
        self.lending.is_some()
            && !self.draining
            && self.shared.offers.may_steal(self.id)
            && self.shared.offers.are_any(|owner| !self.shared.share_a_cpu(owner, self.id))
    }

    /// Serves some turns for another worker, if any are offered.
    pub(super) fn steal(&mut self) {
        if !self.may_steal() {
            return;
        }
        let Some(lending) = &mut self.lending else { return };
        let (shared, stolen) = (&*self.shared, &mut lending.offers);
        let most = lending.keeping.kept().min(TOGETHER);
        let may_help = |owner| !shared.share_a_cpu(owner, self.id);
        let Some(owner) = shared.offers.steal(self.id, may_help, most, stolen) else { return };
        // The last is served first, and shall be the oldest.
        stolen.reverse();
        let mut errand = Errand { shared, owner, offers: stolen };
        let mut began = shared.now();
        while let Some(Offer { connection, .. }) = errand.offers.last_mut() {
            let context = shared.turn_context(self.id, connection.id, began);
            let (requests, turn) = connection.take_turn(&mut self.scratch, &context);
            let served_at = shared.now();
            errand.send_back(requests, turn, (began, served_at));
            began = served_at;
        }
    }

    /// Follows the end of a turn that another worker took.
    pub(super) fn take_in(&mut self, returned: Returned) {
        let Returned { offer: Offer { slot, connection, ready_since }, requests, turn, busy, served_at } =
            returned;
        let Some(lending) = &mut self.lending else { return };
        lending.lent -= 1;
        let (id, is_last) = (connection.id, lending.lent == 0);
        self.connections.put_back(slot as usize, connection);
        let now = self.shared.now();
        // The response was there before the letter was opened.
        let ready_since = ready_since + now.since(served_at);
        self.settle(slot, (requests, turn), false, ready_since, (now, busy));
        if self.draining && self.connections.get(slot as usize).is_some_and(|c| c.id == id && !c.is_held()) {
            self.drain_connection(slot);
        }
        if is_last {
            self.transfer_due(now);
        }
    }

    /// A turn has taken so long; the next are expected to.
    pub(super) fn note_turn(&mut self, busy: machine::Duration) {
        if let Some(lending) = &mut self.lending {
            lending.keeping.handle_turn(busy);
        }
    }
}

/// Connections in a thief's hands. They go back whatever happens: a worker that stops waits for them.
struct Errand<'a> {
    shared: &'a Shared,
    owner: WorkerId,
    offers: &'a mut Vec<Offer>,
}

impl Errand<'_> {
    /// Sends the last connection back to its worker.
    fn send_back(&mut self, requests: u32, turn: Turn, (began, served_at): (Instant, Instant)) {
        let Some(mut offer) = self.offers.pop() else { return };
        let connection = &mut offer.connection;
        // All else wakes its worker: it has to do something about it.
        let may_wait =
            turn == Turn::Idle && !connection.look_at_rest(served_at) && connection.stalled_since().is_none();
        let busy = served_at.since(began);
        let letter = Mail::Returned(Returned { offer, requests, turn, busy, served_at });
        let mailbox = &self.shared.port(self.owner).mailbox;
        if may_wait {
            mailbox.leave(letter);
        } else {
            mailbox.post(letter);
        }
    }
}

impl Drop for Errand<'_> {
    fn drop(&mut self) {
        // Only a turn that ended in a panic leaves any here: the connection that had it, and those behind.
        let mut turn = Turn::Closed;
        while !self.offers.is_empty() {
            let now = self.shared.now();
            self.send_back(0, turn, (now, now));
            turn = Turn::Idle;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::{Connection, Socket};
    use crate::inspect::Inspector;
    use crate::kept::Clock;
    use crate::store::Store;
    use crate::{Config, Policy, Server};
    use machine::{ConnId, CpuId, Duration};
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;
    use std::sync::Arc;

    const PATIENCE: std::time::Duration = std::time::Duration::from_secs(300);

    /// Two workers that steal, and clients of theirs, 32 for each; `None`, and said, on a single CPU.
    fn stealing() -> Option<(Server, Vec<TcpStream>)> {
        let cpus: Vec<CpuId> = linux::allowed_cpus().unwrap().0.into_iter().take(2).collect();
        if cpus.len() < 2 {
            println!("SKIPPED: a single CPU, on which no other worker can help");
            return None;
        }
        let config =
            Config { steal_after: Some(Duration::ZERO), ..Config::on_loopback(cpus, Policy::AllAwake) };
        let server = Server::start(config, || {}).unwrap();
        let clients = (0..64).map(|_| {
            let client = TcpStream::connect(server.addresses()[0]).unwrap();
            client.set_read_timeout(Some(PATIENCE)).unwrap();
            client
        });
        let clients = clients.collect();
        Some((server, clients))
    }

    fn stolen(server: &Server) -> u64 {
        server.status().workers.iter().map(|worker| worker.stolen).sum()
    }

    /// Each client counts by requests that may go to either worker, some within one turn and some in
    /// two pieces: the answers are all there and in order.
    #[test]
    fn answers_keep_their_order_while_turns_are_stolen() {
        let Some((server, mut clients)) = stealing() else { return };
        for (n, client) in clients.iter_mut().enumerate() {
            write!(client, "set c{n} 0 0 1\r\n0\r\n").unwrap();
            client.read_exact(&mut [0; 8]).unwrap();
        }
        let began = std::time::Instant::now();
        let mut count = 0_u64;
        while stolen(&server) < 200 {
            assert!(began.elapsed() < PATIENCE, "{} turns stolen in {count} rounds", stolen(&server));
            // Of one worker: the other has nothing to do.
            let some = clients.iter_mut().enumerate().skip(count as usize % 2).step_by(2);
            let mut some: Vec<_> = some.collect();
            for (n, client) in &mut some {
                let request = format!("incr c{n} 1\r\nincr c{n} 1\r\n");
                let (first, last) = request.as_bytes().split_at(4 + *n % (request.len() - 4));
                client.write_all(first).unwrap();
                client.write_all(last).unwrap();
            }
            count += 1;
            let times = count.div_ceil(2);
            for (n, client) in &mut some {
                let expected = format!("{}\r\n{}\r\n", 2 * times - 1, 2 * times);
                let mut answer = vec![0; expected.len()];
                client.read_exact(&mut answer).unwrap();
                assert_eq!(String::from_utf8_lossy(&answer), expected, "client {n}");
            }
        }
        server.stop().unwrap();
    }

    /// Clients that go, and a server that stops, leave no connection behind in another worker's hands.
    #[test]
    fn a_server_stops_while_turns_are_stolen() {
        for round in 0..20 {
            let Some((server, mut clients)) = stealing() else { return };
            for client in &mut clients {
                client.write_all(&b"get key\r\n".repeat(50)).unwrap();
            }
            // Some go before they have their answers.
            clients.truncate(64 - round);
            server.stop().unwrap();
            for mut client in clients {
                let mut answers = Vec::new();
                client.read_to_end(&mut answers).unwrap();
                assert_eq!(answers, b"END\r\n".repeat(answers.len() / 5), "round {round}");
            }
        }
    }

    /// A thief that panics sends all back: one to be closed, and those that it had not come to.
    #[test]
    fn a_thief_that_panics_keeps_no_connection() {
        let cpus = linux::allowed_cpus().unwrap().0.into_iter().take(1).collect();
        let config = Config::on_loopback(cpus, Policy::AllAwake);
        let store = Store::new(config.store).unwrap();
        let inspector = Arc::new(Inspector::new(&config, &[]));
        let period = Duration::from_millis(100);
        let shared = Shared::new(store, Clock::begun(), &config, period, inspector).unwrap();
        let offer = |slot: u32| {
            let (socket, _) = std::os::unix::net::UnixStream::pair().unwrap();
            let socket = Socket::Plain(socket.into());
            let connection = Box::new(Connection::new(socket, ConnId(u64::from(slot)), WorkerId(0)));
            Offer { slot, connection, ready_since: shared.now() }
        };
        let mut offers: Vec<Offer> = (0..3).map(offer).collect();
        let thief = std::panic::AssertUnwindSafe(|| {
            let _errand = Errand { shared: &shared, owner: WorkerId(0), offers: &mut offers };
            panic!("in a turn");
        });
        std::panic::catch_unwind(thief).unwrap_err();
        let mut letters = Vec::new();
        shared.port(WorkerId(0)).mailbox.collect(&mut letters);
        let ends: Vec<(u32, Turn)> = letters
            .iter()
            .map(|letter| match letter {
                Mail::Returned(returned) => (returned.offer.slot, returned.turn),
                _ => panic!("another letter"),
            })
            .collect();
        assert_eq!(ends, [(2, Turn::Closed), (1, Turn::Idle), (0, Turn::Idle)]);
    }
}
