//! The answers of memcached 1.6.45 to commands that it refuses.

/// A refusal, by its line. `CLIENT_ERROR` names the fault in the request, `SERVER_ERROR` says that
/// the request was right and the server could not carry it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Refusal {
    #[error("ERROR")]
    UnknownCommand,
    /// Too few words, a key of more than 250 bytes, a length that is none.
    #[error("CLIENT_ERROR bad command line format")]
    BadFormat,
    /// Words behind the key of a deletion.
    #[error("CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]")]
    BadDelete,
    /// The value is not followed by `\r\n` where its length says.
    #[error("CLIENT_ERROR bad data chunk")]
    BadChunk,
    /// The expiry of `touch`, `gat` or `flush_all` is no number of 32 bits.
    #[error("CLIENT_ERROR invalid exptime argument")]
    BadExpiry,
    /// The amount of `incr` or `decr` is no number of 64 bits.
    #[error("CLIENT_ERROR invalid numeric delta argument")]
    BadAmount,
    /// `incr`, `decr` or `ma` on a value that is no number.
    #[error("CLIENT_ERROR cannot increment or decrement non-numeric value")]
    NotANumber,
    /// A value larger than the server takes.
    #[error("SERVER_ERROR object too large for cache")]
    TooLarge,
    #[error("SERVER_ERROR out of memory storing object")]
    OutOfMemory,
    /// No memory for the changed number.
    #[error("SERVER_ERROR out of memory")]
    OutOfMemoryChanging,
    /// No memory for the number that `ma` would create.
    #[error("SERVER_ERROR Out of memory allocating new item")]
    OutOfMemoryCreating,
    /// More than 20 words in a meta command.
    #[error("CLIENT_ERROR options flags are too long")]
    TooManyFlags,
    #[error("CLIENT_ERROR duplicate flag")]
    DuplicateFlag,
    /// A flag that no meta command knows.
    #[error("CLIENT_ERROR invalid flag")]
    UnknownFlag,
    /// `ma` does not say which of the two it was.
    #[error("CLIENT_ERROR invalid or duplicate flag")]
    BadArithmeticFlag,
    /// The key is not the Base64 that flag `b` promises.
    #[error("CLIENT_ERROR error decoding key")]
    BadBase64,
    /// A flag's number is missing or none.
    #[error("CLIENT_ERROR bad token in command line format")]
    BadFlagNumber,
    /// The start value of `ma`.
    #[error("CLIENT_ERROR invalid numeric initial value")]
    BadInitial,
    /// The amount of `ma`.
    #[error("CLIENT_ERROR invalid numeric delta value")]
    BadDelta,
    /// An opaque of more than 32 bytes, its letter included.
    #[error("CLIENT_ERROR opaque token too long")]
    OpaqueTooLong,
    /// The mode of `ms`.
    #[error("CLIENT_ERROR invalid mode for ms M token")]
    BadSetMode,
    /// The mode of `ma`.
    #[error("CLIENT_ERROR invalid mode for ma M token")]
    BadArithmeticMode,
    /// A client may not stop the server (memcached without `-A`).
    #[error("SERVER_ERROR: shutdown not enabled")]
    NoShutdown,
    /// There are no slabs to reassign (memcached with `-o no_slab_reassign`).
    #[error("CLIENT_ERROR slab reassignment disabled")]
    NoSlabs,
    /// Clients may not list the items (memcached with `-X`).
    #[error("ERROR metadump not allowed")]
    NoMetaDump,
    #[error("ERROR key dump not allowed")]
    NoKeyDump,
    #[error("BADCLASS invalid class id")]
    BadClass,
    /// There is no crawler to steer (memcached with `-o no_lru_crawler`).
    #[error("CLIENT_ERROR lru crawler disabled")]
    NoCrawler,
    /// Clients may not watch events (memcached with `-W`).
    #[error("CLIENT_ERROR watch commands not allowed")]
    NoWatch,
    #[error("WATCHER_TOO_MANY log watcher limit reached")]
    TooManyWatchers,
    /// No memory for the events of another watcher.
    #[error("WATCHER_FAILED failed to add log watcher")]
    WatcherFailed,
    /// The memory limit cannot have that value.
    #[error("MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust")]
    NoMemoryLimitChange,
    /// No statistics by key prefix (memcached with `-X`).
    #[error("CLIENT_ERROR stats detail not allowed")]
    NoStatsDetail,
}
