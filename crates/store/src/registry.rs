//! The connected clients, for `stats conns`. Written when a connection opens, moves or closes,
//! never for a request.

use machine::{ConnId, WorkerId};
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(crate) struct Registry {
    connections: BTreeMap<ConnId, Entry>,
}

#[derive(Debug)]
struct Entry {
    peer: String,
    home: WorkerId,
    worker: WorkerId,
}

impl Registry {
    pub(crate) fn opened(&mut self, id: ConnId, peer: String, home: WorkerId, worker: WorkerId) {
        self.connections.insert(id, Entry { peer, home, worker });
    }

    pub(crate) fn moved(&mut self, id: ConnId, home: WorkerId, worker: WorkerId) {
        if let Some(entry) = self.connections.get_mut(&id) {
            (entry.home, entry.worker) = (home, worker);
        }
    }

    /// Returns the peer of the connection that has closed.
    pub(crate) fn closed(&mut self, id: ConnId) -> Option<String> {
        self.connections.remove(&id).map(|entry| entry.peer)
    }

    pub(crate) fn describe(&self, emit: &mut dyn FnMut(&str, &str)) {
        for (id, entry) in &self.connections {
            emit(&format!("{}:addr", id.0), &entry.peer);
            emit(&format!("{}:worker", id.0), &entry.worker.0.to_string());
            emit(&format!("{}:home", id.0), &entry.home.0.to_string());
        }
    }
}
