//! The memcached wire protocol on byte slices, both directions: text and meta, as memcached 1.6.45
//! speaks it.
//!
//! The reference is memcached's behaviour, byte for byte, oddities included, because clients were
//! written against the behaviour and not against a text about it. `docs/protocol.md` lists where we
//! differ on purpose; a differential test in `store` compares everything else with a real
//! memcached.
//!
//! ```text
//!   server   bytes -- line::head --> Line -- request::parse --> Request ... reply::* --> bytes
//!   client   client::compose::* --> bytes            bytes -- client::parse --> Answer
//! ```
//!
//! Invariants:
//! - no socket, no clock, no store; nothing allocates except the caller's output vector;
//! - the meaning of a line depends on its bytes alone, never on how the network split them;
//! - every byte string has a meaning: the parsers return refusals, they never panic and never read
//!   past a slice.
//!
//! The binary protocol, deprecated upstream, is recognised by its first byte
//! ([`line::BINARY_MAGIC`]) and refused.

pub mod base64;
pub mod client;
pub mod key;
pub mod line;
pub mod meta;
pub mod number;
pub mod refusal;
pub mod reply;
pub mod request;
mod token;

pub use key::{Escaped, KEY_MAX, MetaKey};
pub use line::{Head, Line, head};
pub use refusal::Refusal;
pub use request::{Request, Topics, parse};
