//! A worker's connections, each in a slot whose number the kernel gives back with its events.
//!
//! A connection that another worker serves meanwhile leaves its slot empty; no other gets the slot.

use crate::connection::Connection;
use slab::Slab;
use std::ops::{Index, IndexMut};

#[derive(Default)]
pub(crate) struct Slots(Slab<Option<Box<Connection>>>);

impl Slots {
    pub(crate) fn insert(&mut self, connection: Box<Connection>) -> usize {
        self.0.insert(Some(connection))
    }

    pub(crate) fn get(&self, slot: usize) -> Option<&Connection> {
        self.0.get(slot)?.as_deref()
    }

    pub(crate) fn get_mut(&mut self, slot: usize) -> Option<&mut Connection> {
        self.0.get_mut(slot)?.as_deref_mut()
    }

    /// Takes a connection that is here out for good.
    pub(crate) fn remove(&mut self, slot: usize) -> Box<Connection> {
        self.0.remove(slot).expect(HERE)
    }

    /// Takes a connection that is here out for a while.
    pub(crate) fn lend(&mut self, slot: usize) -> Box<Connection> {
        self.0[slot].take().expect(HERE)
    }

    pub(crate) fn put_back(&mut self, slot: usize, connection: Box<Connection>) {
        self.0[slot] = Some(connection);
    }

    /// Those that are here; lent ones are left out.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &Connection)> {
        self.0.iter().filter_map(|(slot, connection)| Some((slot, connection.as_deref()?)))
    }

    /// Whether it has none, not even one that is lent.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

const HERE: &str = "the connection is here";

impl Index<usize> for Slots {
    type Output = Connection;

    fn index(&self, slot: usize) -> &Connection {
        self.0[slot].as_deref().expect(HERE)
    }
}

impl IndexMut<usize> for Slots {
    fn index_mut(&mut self, slot: usize) -> &mut Connection {
        self.0[slot].as_deref_mut().expect(HERE)
    }
}
