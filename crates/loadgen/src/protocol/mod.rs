//! The part of a server's protocol that a lane has to know.
//!
//! A lane is about time: when a request is due, when it was sent, when its answer was whole. The
//! bytes in between belong to a [`Protocol`]: it defines request number n, writes it, and parses
//! the answers. There are two, `items` (of memcached and of Redis) and `http`. They differ in one
//! more thing: which connection carries a request. A client of keys has its connections and each
//! request belongs to one. An HTTP client has a *pool*, takes any connection that is free, and opens
//! a closed one anew when it needs one, as HTTP lets servers close idle connections.

mod http;
mod items;
mod resp;
mod url;

pub use http::Http;
pub use http::answer as http_answer;
pub(crate) use items::store_all;
pub use items::{Dialect, Items};
pub use resp::{Reply as RedisReply, parse as redis_reply};
pub use url::Url;

use crate::lane::Lane;
use crate::{Error, Plan, Preload};
use machine::Duration;
use workload::SpecError;

/// The requests for a server, and so the protocol. Implemented by [`Items`] and [`Http`].
pub trait Asks: Clone + Sync {
    #[doc(hidden)]
    type Protocol: Protocol;

    fn seed(&self) -> u64;

    /// One lane's half of the conversation.
    #[doc(hidden)]
    fn protocol(&self) -> Result<Self::Protocol, SpecError>;

    /// Work to do before the load.
    #[doc(hidden)]
    fn prepare(_plan: &Plan<Self>, _lanes: &mut [Lane<'_, Self>]) -> Result<Option<Preload>, Error> {
        Ok(None)
    }
}

/// A client's half of a conversation; each lane has its own.
#[doc(hidden)]
pub trait Protocol: Clone + Send + Sync {
    /// A request, small enough to be kept until it is answered.
    type Request: Copy + Send;
    /// The state of an answer that is not whole yet.
    type Reading: Default + Send;

    /// Any connection may carry any request, and one that the server closed is made anew when it is
    /// needed.
    const POOLED: bool;

    fn request(&self, index: u64) -> Self::Request;

    /// Which of `count` connections request number `index` is meant for.
    fn connection(&self, index: u64, count: u32) -> u32;

    fn compose(&mut self, request: &Self::Request, out: &mut Vec<u8>);

    /// Takes as much as it can of the answer to `request` from the beginning of `input`, which is
    /// not empty. An error says why this is no answer; the connection is then useless.
    fn take(
        &mut self,
        request: &Self::Request,
        reading: &mut Self::Reading,
        input: &[u8],
    ) -> Result<Taken, String>;

    /// The server closed the connection in the middle of an answer: the answer, if that is how it
    /// ends.
    fn end(&mut self, reading: &mut Self::Reading) -> Option<Answer>;
}

/// The result of reading some bytes.
#[doc(hidden)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taken {
    /// More bytes are needed before any of these can be taken.
    Nothing,
    /// These bytes belong to an answer that is not whole yet; the fault in them, if there is one.
    Part(usize, Option<String>),
    /// These bytes complete the answer.
    Answer(usize, Answer),
}

#[doc(hidden)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub kind: Kind,
    /// How long the server says that it took.
    pub took: Option<Duration>,
    /// The server will close the connection now.
    pub is_last: bool,
}

/// The counted parts of an answer.
#[doc(hidden)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    Hit,
    Miss,
    Stored,
    /// The server's error, in its words.
    Refused(String),
    /// An HTTP status below 400.
    Good,
    /// An HTTP status from 400 on, and how the body begins.
    Status(u16, String),
}

impl From<Kind> for Answer {
    fn from(kind: Kind) -> Self {
        Self { kind, took: None, is_last: false }
    }
}
