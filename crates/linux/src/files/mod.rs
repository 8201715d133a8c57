//! Files for a process that may run as root: folders that no stranger can swap, files read again
//! and again through one descriptor, and logs of a bounded size.

pub(crate) mod connect;
pub(crate) mod persistent;
pub(crate) mod rotating_log;
pub(crate) mod safe_folder;
