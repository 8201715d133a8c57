//! The engine's random numbers: a stream of its own for each thing that is drawn.
//!
//! Two policies with one seed so meet the same noise, and clients that pause alike, and requests that
//! are sent to the same cores, however often either policy has something else drawn. The devices and
//! shards of a request are drawn from its number: they do not depend on the requests before it.

use super::Setup;
use workload::Random;

pub(super) struct Chance {
    seed: u64,
    /// The core whose queue a request joins.
    pub dispatch: Random,
    /// The idle core that takes a request from the shared queue.
    pub pick: Random,
    /// The core to which a policy that delays wake-ups sends a request.
    pub route: Random,
    /// How long each wake-up takes.
    pub waking: Random,
    noise: Vec<Random>,
    clients: Vec<Random>,
}

impl Chance {
    pub fn new(setup: &Setup, cpus: usize) -> Self {
        let of = |stream: u64| Random::new(setup.seed, stream);
        let sources: usize = setup.noise.iter().map(|noise| noise.on.sources(cpus)).sum();
        let clients = setup.closed.as_ref().map_or(0, |closed| closed.clients);
        Self {
            seed: setup.seed,
            dispatch: of(DISPATCH),
            pick: of(PICK),
            route: of(ROUTE),
            waking: of(WAKING),
            noise: (0..sources as u64).map(|source| of(NOISE + source)).collect(),
            clients: (0..u64::from(clients)).map(|client| of(CLIENTS + client)).collect(),
        }
    }

    /// Gaps, lengths and places of one source of noise.
    pub fn noise(&mut self, source: usize) -> &mut Random {
        &mut self.noise[source]
    }

    /// The pauses of one client of a closed loop.
    pub fn client(&mut self, client: u32) -> &mut Random {
        &mut self.clients[client as usize]
    }

    /// How long the device takes for this request.
    pub fn device(&self, ticket: u32) -> Random {
        Random::new(self.seed, DEVICE + u64::from(ticket))
    }

    /// How large this request's shards are.
    pub fn shards(&self, ticket: u32) -> Random {
        Random::new(self.seed, SHARDS + u64::from(ticket))
    }
}

/// Streams of a run's seed, far apart.
const DISPATCH: u64 = 0x6469_7370 << 32;
const PICK: u64 = 0x7069_636b << 32;
const WAKING: u64 = 0x7761_6b65 << 32;
const ROUTE: u64 = 0x726f_7574 << 32;
const NOISE: u64 = 0x6e6f_6973 << 32;
const CLIENTS: u64 = 0x636c_6965 << 32;
const DEVICE: u64 = 0x6465_7669 << 32;
const SHARDS: u64 = 0x7368_6172 << 32;
