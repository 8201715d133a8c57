//! The two predictors as a driver calls them, for calls of one size and one kernel.

use super::{Device, Issued, KernelId, Kernels, Launched, Operation, Prediction, Record};
use machine::Instant;

pub enum Predictor {
    Device(Box<Device>),
    /// The history of a repeated computation.
    Kernels(Box<Kernels>),
}

pub enum Call {
    Issued(Issued),
    Launched(Launched),
}

impl Predictor {
    /// A call of so many bytes begins.
    pub fn handle_call(&mut self, now: Instant, bytes: u64) -> (Call, Option<Prediction>) {
        match self {
            Self::Device(device) => {
                let issued = device.handle_issued(now, Operation::Read, bytes);
                (Call::Issued(issued), issued.prediction)
            }
            Self::Kernels(kernels) => {
                let launched = kernels.handle_launched(now, KernelId(0));
                (Call::Launched(launched), launched.prediction)
            }
        }
    }

    pub fn handle_answer(&mut self, now: Instant, call: &Call) {
        match (self, call) {
            (Self::Device(device), Call::Issued(issued)) => device.handle_completed(now, issued),
            (Self::Kernels(kernels), Call::Launched(launched)) => kernels.handle_done(now, launched),
            _ => {}
        }
    }

    pub fn record(&self) -> Record {
        match self {
            Self::Device(device) => device.record(Operation::Read),
            Self::Kernels(kernels) => kernels.total(),
        }
    }
}
