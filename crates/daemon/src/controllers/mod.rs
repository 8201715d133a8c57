//! Controllers: a room for each decision that is carried out on a live machine.

pub mod cores;
pub mod hurry_up;
pub mod quiesce;
pub mod wake;
