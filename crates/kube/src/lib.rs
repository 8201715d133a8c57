//! Pods that ask for a latency goal, governed by the daemon of their node.
//!
//! ```text
//!   API server --api--> pods of this node --+                       +--> leases --> roost daemon
//!                       ConfigMap ----------+--> node: wanted, diff -+
//!   cgroups of the kubelet --linux----------+                       +--> Events, status annotation
//! ```
//!
//! Kubernetes schedules, places and keeps state; Roost stays one daemon to a node. `roost-kube` runs
//! beside that daemon, without its rights: it reads pods, holds a lease for each that may be
//! governed, and tells the pod its state.
//!
//! - [`annotations`]: a pod's wish, in its annotations.
//! - [`limits`]: the wishes that a namespace may have.
//! - [`node`]: the services that follow from pods and limits, and the difference to those held.
//! - [`api`]: the few calls of the API server: list, watch, patch, events.
//! - [`watcher`]: a collection, kept up to date while its server comes and goes.
//! - [`leases`]: services held at the daemon's socket.
//! - [`told`]: the words for a pod, and how often they are said.
//!
//! Invariants:
//! - A pod's author is a stranger. A wish chooses among the grants of its namespace, and names no
//!   cgroup, process or file: the cgroup is that of the pod's own uid.
//! - Nothing is governed by a lease that was not asked for in the last reading of the API server; but
//!   while the server is away, the last reading stands.
//! - A refusal is told once, and tried again when something changes, or ever more seldom.

pub mod annotations;
pub mod api;
pub mod leases;
pub mod limits;
pub mod node;
pub mod run;
pub mod told;
pub mod watcher;
