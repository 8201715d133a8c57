//! The books of the store agree with those of the policies.

use super::{Place, Store};
use machine::WorkerId;

impl Store {
    /// Every open connection is with exactly one worker or on its way, every worker that serves is
    /// active.
    pub fn check(&self) {
        let mut found = vec![0; self.clients.len()];
        for (worker, entry) in self.entries.iter().enumerate() {
            for (slot, client) in entry.slots.iter().enumerate() {
                let Some(client) = *client else { continue };
                found[client] += 1;
                let place = Place::At { worker, slot: slot as u32 };
                assert_eq!(self.clients[client].place, place, "the books agree");
            }
            let here = entry.slots.iter().flatten().count();
            assert_eq!(here, entry.policy.connections() as usize, "the policy counts its connections");
        }
        for (client, state) in self.clients.iter().enumerate() {
            let expected = i32::from(matches!(state.place, Place::At { .. }));
            assert_eq!(found[client], expected, "client {client} is {:?}", state.place);
        }
        assert!(self.active.len() >= usize::from(self.params.min_active), "some worker is awake");
    }

    /// After quiet: no connection flies, workers that serve are active and no others but the
    /// minimum.
    pub fn check_settled(&self) {
        self.check();
        assert!(
            self.clients.iter().all(|client| client.place != Place::Flying),
            "no connection is lost on the way"
        );
        for (id, entry) in (0..).map(WorkerId).zip(&self.entries) {
            let serves = entry.policy.connections() > 0;
            assert!(!serves || self.active.contains(&id), "{id} serves but is inactive");
        }
        assert_eq!(
            self.active,
            self.scheduling.active().into_iter().collect(),
            "the commands tell the state"
        );
    }
}
