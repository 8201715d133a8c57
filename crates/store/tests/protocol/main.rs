//! The protocol from end to end, against a real store: bytes in, bytes out.
//!
//! - `exchanges`: a table of requests and the answers that they must get, put to a session and to a
//!   real memcached.
//! - `differential`: random streams, cut at random places, put to both; the answers are compared
//!   byte for byte, after the few replacements that `compare` states.
//! - `splits`: the pieces of the bytes, and the number of interruptions of a session, change
//!   nothing.
//! - `together`: a whole server, and many clients at once.
//!
//! The memcached is the one that `ROOST_MEMCACHED` names, or `memcached` on the path; without one
//! the comparisons are skipped and say so. `ROOST_DIFFERENTIAL_ADDR=127.0.0.1:11211` compares
//! memcached with a running server at that address instead of a session in this process.
//! `ROOST_DIFFERENTIAL_SCRIPTS=1000` runs so many random streams, `ROOST_DIFFERENTIAL_SEED=7`
//! begins at that seed.

mod compare;
mod differential;
mod dump;
mod endpoint;
mod events;
mod exchanges;
mod script;
mod splits;
mod statistics;
mod together;
mod users;
