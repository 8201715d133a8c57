//! The memcached-compatible store: workers that serve connections, and a director that decides how
//! many of them stay awake.
//!
//! Follow a request: [`acceptor`](self) takes the connection, a worker reads from it (`worker`,
//! `connection`), the [`session`] parses and executes it against the [`store`]. Follow a decision:
//! workers report, the `director` asks `policy`, and orders travel back through mailboxes
//! (`shared`, `mailbox`).
//!
//! The thread picture is in `director`, the request path in `worker`, moving a connection in
//! `connection`.

pub mod config;
pub mod session;
pub mod status;
pub mod store;

mod acceptor;
mod buffer;
mod connection;
mod director;
mod holding;
mod inspect;
pub mod kept;
mod learned;
mod limits;
mod mailbox;
mod offers;
mod parameters;
mod recording;
mod registry;
mod reports;
mod rests;
mod running;
mod shared;
mod slots;
mod tally;
mod threads;
mod view;
mod worker;

pub use acceptor::ListenError;
pub use config::{Config, Limits, Listen, Log, Nic, Policy};
pub use holding::Stage;
pub use inspect::Inspector;
pub use kept::ItemsError;
pub use learned::{StateError, learned_limits};
pub use parameters::{Parameters, ParametersError};
pub use rests::Rests;
pub use running::{Server, StartError};
pub use store::StoreConfig;
pub use threads::workers_cpu;
