//! Files read again and again through one descriptor, and logs of a bounded size.

pub(crate) mod persistent;
pub(crate) mod rotating_log;
