//! The key-value store.

pub mod status;
