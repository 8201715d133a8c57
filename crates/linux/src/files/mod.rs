//! Files as root may touch them: folders that no stranger can swap under us, files read again and
//! again through one descriptor, and logs of a bounded size.

pub(crate) mod persistent;
pub(crate) mod rotating_log;
pub(crate) mod safe_folder;
