//! The learned graph: which groups took part in answering requests of each type, and how.
//!
//! Marks ([`super::Event`]) follow one request as it goes; they know a helper only once it was
//! reached. A request of the same type mostly goes the same way, so a background group that took
//! part in one of the last [`MEMORY`] requests of a type is left alone from the next one's trigger
//! on, before it is reached. A *type* is the mark by which the driver tells requests apart, such as
//! the port to which they come.

use super::GroupId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How one group reached another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Edge {
    /// It woke one of its threads.
    Wake,
    /// It made one of its processes.
    Fork,
    /// It wrote to a pipe or socket from which that one read.
    Channel,
}

/// An edge as it was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// Number of times that it was seen.
    pub times: u64,
    /// Among the requests of its type, the number of the last one in which it was.
    pub last: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct OfType {
    requests: u64,
    edges: Vec<((GroupId, GroupId, Edge), Seen)>,
}

/// The learned paths, by type of request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Graph {
    types: BTreeMap<u32, OfType>,
}

/// A group that took part in none of so many requests of a type is no longer spared for it. 16
/// (ours).
pub const MEMORY: u64 = 16;
/// Types and edges at a time; later ones are not learned.
const TYPES_MAX: usize = 64;
const EDGES_MAX: usize = 256;

impl Graph {
    /// A request of this type begins. The groups that are likely to take part.
    pub fn begins(&mut self, kind: u32) -> Vec<GroupId> {
        if self.types.len() >= TYPES_MAX && !self.types.contains_key(&kind) {
            return Vec::new();
        }
        let known = self.types.entry(kind).or_default();
        known.requests += 1;
        let from = known.requests.saturating_sub(MEMORY);
        let mut groups: Vec<GroupId> = known
            .edges
            .iter()
            .filter(|(_, seen)| seen.last >= from)
            .flat_map(|((from, to, _), _)| [*from, *to])
            .collect();
        groups.sort();
        groups.dedup();
        groups
    }

    /// A request of this type went from one group to another.
    pub fn reached(&mut self, kind: u32, from: GroupId, to: GroupId, edge: Edge) {
        let Some(known) = self.types.get_mut(&kind).filter(|_| from != to) else { return };
        let last = known.requests;
        match known.edges.binary_search_by_key(&(from, to, edge), |(edge, _)| *edge) {
            Ok(at) => {
                known.edges[at].1.times += 1;
                known.edges[at].1.last = last;
            }
            Err(_) if known.edges.len() >= EDGES_MAX => {}
            Err(at) => known.edges.insert(at, ((from, to, edge), Seen { times: 1, last })),
        }
    }

    /// Every edge: the type, from, to, how.
    pub fn edges(&self) -> impl Iterator<Item = (u32, GroupId, GroupId, Edge, Seen)> + '_ {
        self.types.iter().flat_map(|(&kind, known)| {
            known.edges.iter().map(move |&((from, to, edge), seen)| (kind, from, to, edge, seen))
        })
    }

    /// Each type with its number of requests.
    pub fn requests(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        self.types.iter().map(|(&kind, known)| (kind, known.requests))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: GroupId = GroupId(1);
    const HELPER: GroupId = GroupId(2);

    #[test]
    fn a_helper_of_one_type_is_expected_in_the_next_and_forgotten_in_time() {
        let mut graph = Graph::default();
        assert_eq!(graph.begins(80), []);
        graph.reached(80, SERVER, HELPER, Edge::Channel);
        graph.reached(80, SERVER, SERVER, Edge::Wake);
        graph.reached(443, SERVER, HELPER, Edge::Wake);
        assert_eq!(graph.begins(443), [], "another type");
        for _ in 0..MEMORY {
            assert_eq!(graph.begins(80), [SERVER, HELPER]);
        }
        assert_eq!(graph.begins(80), []);
        assert_eq!(
            graph.edges().count(),
            1,
            "what was not seen to begin, and what stays in a group, is no edge"
        );
        let text = serde_json::to_string(&graph).unwrap();
        assert_eq!(serde_json::from_str::<Graph>(&text).unwrap(), graph);
    }

    #[test]
    fn tables_are_bounded() {
        let mut graph = Graph::default();
        for kind in 0..2 * TYPES_MAX as u32 {
            graph.begins(kind);
            for to in 0..2 * EDGES_MAX as u32 {
                graph.reached(kind, GroupId(9999), GroupId(to), Edge::Wake);
            }
        }
        assert_eq!(graph.requests().count(), TYPES_MAX);
        assert_eq!(graph.edges().count(), TYPES_MAX * EDGES_MAX);
    }
}
