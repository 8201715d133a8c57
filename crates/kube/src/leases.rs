//! Services held at the daemon's control socket, a connection for each.
//!
//! A lease lasts as long as its connection. So a `roost-kube` that ends, in whatever way, leaves
//! nothing governed, and the daemon puts everything back.

use daemon::{Answer, Ask, ControlError, Lease, LeaseRequest, Part, Refusal, ServiceConfig, Status, ask};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug)]
pub struct Leases {
    socket: PathBuf,
    held: BTreeMap<String, (ServiceConfig, Lease)>,
}

impl Leases {
    pub fn at(socket: PathBuf) -> Self {
        Self { socket, held: BTreeMap::new() }
    }

    /// The services that are held, by the pod's uid.
    pub fn held(&self) -> BTreeMap<String, ServiceConfig> {
        self.held.iter().map(|(uid, (service, _))| (uid.clone(), service.clone())).collect()
    }

    /// Waits until the daemon has taken hold of the service, or says why not.
    pub fn take(&mut self, uid: &str, service: &ServiceConfig) -> Result<Result<(), Refusal>, ControlError> {
        let part = Part { services: vec![service.clone()], ..Part::default() };
        Ok(LeaseRequest::connect(&self.socket)?.take(&part)?.map(|lease| {
            self.held.insert(uid.to_owned(), (service.clone(), lease));
        }))
    }

    pub fn leave(&mut self, uid: &str) {
        self.held.remove(uid);
    }

    /// The pods whose lease the daemon has ended.
    pub fn lost(&mut self) -> Vec<String> {
        let lost = self.held.extract_if(.., |_, (_, lease)| lease.is_over_within(Duration::ZERO));
        lost.map(|(uid, _)| uid).collect()
    }

    pub fn states(&self) -> Result<States, ControlError> {
        match ask(&self.socket, &Ask::Status)? {
            Answer::Status { governed, waiting, .. } => Ok(States {
                governed: governed.into_iter().map(|status| (status.name.clone(), status)).collect(),
                waiting: waiting.into_iter().collect(),
            }),
            other => Err(ControlError::Foreign { path: self.socket.clone(), cause: format!("{other:?}") }),
        }
    }
}

/// The daemon's services by name: those that are governed, and the reasons of those that wait.
#[derive(Debug, Default)]
pub struct States {
    pub governed: BTreeMap<String, Status>,
    pub waiting: BTreeMap<String, String>,
}
