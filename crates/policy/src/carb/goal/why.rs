//! Why the search wants the workers that it wants.

use machine::{Duration, Rate};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The reason of the present number of workers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    Start,
    Jump {
        before: Rate,
        now: Rate,
    },
    /// The tail was above the goal.
    Missed {
        /// The tail latency of the epoch.
        tail: Duration,
    },
    /// There was room for so long that fewer are tried.
    Room {
        /// The tail that left it.
        tail: Duration,
    },
    /// So many were seen to do at such a load.
    Known,
    /// With all of them the goal was missed as well: fewer are tried.
    TooMany {
        /// How long the tail was with all of them.
        tail: Duration,
    },
    /// No number was seen to keep the goal at this load; this one did best.
    OutOfReach {
        best: Duration,
    },
    Silence,
    /// A person or another controller asked for all of them.
    Asked,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start => f.write_str("the search begins"),
            Self::Jump { before, now } => {
                write!(
                    f,
                    "the rate jumped from {:.0} to {:.0}/s",
                    before.as_per_second(),
                    now.as_per_second()
                )
            }
            Self::Missed { tail } => write!(f, "the goal was missed: {tail}"),
            Self::Room { tail } => write!(f, "there is room: {tail}"),
            Self::Known => f.write_str("so many were seen to do at such a load"),
            Self::TooMany { tail } => {
                write!(f, "all of them miss the goal ({tail}); fewer may sleep less deeply")
            }
            Self::OutOfReach { best } => write!(f, "no number keeps the goal here; the best was {best}"),
            Self::Silence => f.write_str("no requests"),
            Self::Asked => f.write_str("all were asked for"),
        }
    }
}
