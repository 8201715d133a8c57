//! A session's results.

/// The result of a call to [`Session::serve`](super::Session::serve).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// Bytes of the input that are done with.
    pub consumed: usize,
    /// Requests served, each key of a retrieval counted as one.
    pub requests: u32,
    pub next: Next,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// More bytes. Of those not consumed and those to come, the request that they begin needs
    /// `wanted` in all; zero if that cannot be told.
    Read { wanted: usize },
    /// The output is over the high-water mark: write it first.
    Write,
    /// Another call, now or after other connections have had their turns: as many requests are
    /// served as were allowed, or one that may have taken long.
    Yield,
    /// Nothing more: write the rest and close.
    Close,
}

/// Why a session ends, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ending {
    /// The client said `quit`.
    #[error("the client quit")]
    Quit,
    /// A client of the binary protocol.
    #[error(
        "a client speaks memcached's binary protocol, which upstream has deprecated: configure it for the \
         text or the meta protocol"
    )]
    BinaryProtocol,
    /// A line that is too long for any command that may be long.
    #[error("a client sent more than 2048 bytes without a newline that are no list of keys")]
    LineTooLong,
    /// A client of another kind altogether.
    #[error("a client speaks HTTP; this port speaks the memcached protocol")]
    Http,
}

impl Ending {
    /// The endings that an operator hears of: the client was not meant for this port.
    pub(crate) const FAULTS: [Self; 3] = [Self::BinaryProtocol, Self::LineTooLong, Self::Http];
}
