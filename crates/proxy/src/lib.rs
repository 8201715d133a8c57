//! The staged-burst proxy: requests to a server wait here and go in together, so that the server's
//! CPUs sleep together between two bursts (the CPU sleeps paper, section 3, "Staged Bursts").
//!
//! The problem: a server that gets a hundred requests a second works ten milliseconds here and ten
//! there, and no CPU sleeps long enough to sleep deeply. Its clients would wait half a second
//! without noticing. The approach: a reverse proxy in front of unmodified servers. It reads a
//! request whole, asks `policy::staging` for its release time, and passes it on then. The policy
//! learns from the answers how long a burst takes, and releases requests early enough for the goal.
//! Parsing and writing of HTTP/1.1 and HTTP/2 is hyper's, TLS is rustls's.
//!
//! ```text
//!   client --listener--> request: checked, read whole --> Ticket --held--> Stage, Timetable
//!                           |                                |                |
//!                           | never staged                   | client gone:   | released: at the
//!                           |                                | withdrawn      | period, in danger,
//!                           v                                v                v full
//!                         Backend, safe retries --> Pool of connections --> server --> answer --> client
//!                                                                                        |
//!                                                              completed: the tail is learned
//! ```
//!
//! Terms. A *server* is one back end with a stage of its own; servers that match a request equally
//! well are each other's *replicas*. A *class* of requests has a deadline of its own, or is never
//! staged. A *ticket* is a request's place on the stage: a client that drops it early has left, and
//! the stage forgets it.
//!
//! Invariants:
//! - A request that was accepted is answered once: with the server's answer, or with an error of
//!   our own that says why. Only an answer that breaks off after its beginning was passed on ends
//!   with its connection.
//! - A request is sent again only where that cannot do its work twice: it never left us, or its
//!   method is idempotent (RFC 9110, 9.2.2), and in both cases nothing of an answer was passed on.
//! - Bodies in memory are bounded, one and all of them; a body beyond that is refused at once (413, 503)
//!   and not held.
//! - A request is sent on with a frame of our own: one length, one host, no header that concerns a
//!   connection (RFC 9110, 7.6.1), so that server and proxy cannot disagree about where a request
//!   ends.
//! - A server that answers is asked nothing by us: health is learned from requests, and only one
//!   that failed is knocked at until it is back. A check every second would be a wake-up every
//!   second.
//! - On the way out everything held goes at once, and accepted clients are answered, within
//!   [`Limits::drain`].

mod answer;
mod backend;
mod body;
mod budget;
mod config;
mod connections;
mod headers;
mod history;
mod paced;
mod pool;
mod proxy;
mod request;
mod routes;
mod shared;
mod stage;
mod status;
mod timetable;
mod tls;
mod tunnel;

pub use config::{Class, Config, ConfigError, Health, Limits, Period, Server, Tls};
pub use paced::Paced;
pub use proxy::{Proxy, StartError};
pub use stage::{Burst, Why};
pub use status::{ClassStatus, Counts, ServerStatus, Status, Times};
