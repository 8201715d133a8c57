//! Keeping a CPU from sleeping for some microseconds, again and again, as one of those who ask for its idle limit.
//!
//! On a CPU that this process holds, a window is one write ([`crate::IdleControl`]'s windows); on one that another process holds it
//! is a question over a connection of its own, some tens of microseconds, and that process combines it with what the others ask.

use super::desk::Handle;
use super::idle::IdleHolder;
use super::lease::Lease;
use super::per_cpu::Shared;
use super::wire::{Answer, Ask};
use crate::cpuidle::control::{IdleControl, LimitState};
use machine::{CpuId, Duration, IdleLimit};

/// The window of one CPU: closed at first, and when it is dropped.
#[derive(Debug)]
pub struct IdleWindow {
    cpu: CpuId,
    means: Means,
    is_open: bool,
}

#[derive(Debug)]
enum Means {
    /// Held by this process.
    Own(Handle<Shared<IdleControl>>),
    /// Held by another.
    Asked(Lease),
}

impl IdleHolder {
    /// A window on one of these CPUs; why not, if not. One for each CPU.
    pub fn window(&self, cpu: CpuId) -> Result<IdleWindow, String> {
        if let Some(own) = self.own.iter().find(|own| own.cpus.0.contains(&cpu)) {
            let handle = own.desk.handle();
            handle.held().knob.as_mut().ok_or("it is about to end")?.prepare_window(cpu)?;
            return Ok(IdleWindow { cpu, means: Means::Own(handle), is_open: false });
        }
        let (_, lease) = self
            .leases
            .iter()
            .find(|(cpus, _)| cpus.0.contains(&cpu))
            .ok_or_else(|| format!("{cpu} is held by nobody now"))?;
        let own = Lease::open(lease.socket.clone(), lease.holder.clone(), &self.name)
            .map_err(|cause| format!("{cpu} is held by {}, which does not answer: {cause}", lease.holder))?;
        Ok(IdleWindow { cpu, means: Means::Asked(own), is_open: false })
    }
}

impl IdleWindow {
    /// Which CPU.
    pub fn cpu(&self) -> CpuId {
        self.cpu
    }

    /// True between an opening and a closing.
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// The process that holds the CPU, where that is another.
    pub fn asked_of(&self) -> Option<&str> {
        match &self.means {
            Means::Own(_) => None,
            Means::Asked(lease) => Some(&lease.holder),
        }
    }

    /// The CPU polls instead of sleeping from its next idling on.
    pub fn open(&mut self) -> Result<(), String> {
        self.set(true)
    }

    /// It sleeps as all the others who ask let it.
    pub fn close(&mut self) -> Result<(), String> {
        self.set(false)
    }

    fn set(&mut self, open: bool) -> Result<(), String> {
        if self.is_open == open {
            return Ok(());
        }
        match &mut self.means {
            Means::Own(handle) => {
                handle.held_soon().knob.as_mut().ok_or("it is about to end")?.set_window(self.cpu, open)?;
            }
            Means::Asked(lease) => {
                let limit = if open { IdleLimit::ExitLatency(Duration::ZERO) } else { IdleLimit::None };
                match lease.ask(Ask::Idle { cpu: self.cpu, limit }) {
                    Ok(Answer::Idle(LimitState::Refused { reason }) | Answer::Refused(reason)) => {
                        return Err(reason);
                    }
                    Ok(_) => {}
                    Err(cause) => return Err(format!("{} does not answer: {cause}", lease.holder)),
                }
            }
        }
        self.is_open = open;
        Ok(())
    }
}

impl Drop for IdleWindow {
    fn drop(&mut self) {
        // A holder that has gone has put everything back.
        let _ = self.close();
        if let Means::Own(handle) = &self.means
            && let Some(control) = &mut handle.held().knob
        {
            control.end_windows(self.cpu);
        }
    }
}
