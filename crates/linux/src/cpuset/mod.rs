//! Which CPUs tasks may run on: a service on its own, all others off them.

pub(crate) mod cgroups;
pub(crate) mod confine;
pub(crate) mod isolation;
