//! Windows: they keep a CPU from sleeping for some microseconds, again and again, besides the
//! requests for its idle limit. A window is one write ([`crate::IdleControl`]'s windows).

use super::idle::IdleLimits;
use machine::CpuId;

/// The window of one CPU. It is closed at first and when it is dropped.
#[derive(Debug)]
pub struct IdleWindow {
    cpu: CpuId,
    limits: IdleLimits,
    is_open: bool,
}

impl IdleLimits {
    /// Opens a closed window on one of these CPUs, one for each CPU. The error is the reason why
    /// there is none.
    pub fn window(&self, cpu: CpuId) -> Result<IdleWindow, String> {
        self.held().knob(cpu).ok_or_else(|| not_held(cpu))?.prepare_window(cpu)?;
        Ok(IdleWindow { cpu, limits: self.clone(), is_open: false })
    }
}

fn not_held(cpu: CpuId) -> String {
    format!("the idle limit of {cpu} is not held here")
}

impl IdleWindow {
    pub fn cpu(&self) -> CpuId {
        self.cpu
    }

    /// True between an opening and a closing.
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// The CPU polls instead of sleeping, from the next time that it goes idle.
    pub fn open(&mut self) -> Result<(), String> {
        self.set(true)
    }

    /// The CPU sleeps as the requests allow.
    pub fn close(&mut self) -> Result<(), String> {
        self.set(false)
    }

    fn set(&mut self, open: bool) -> Result<(), String> {
        if self.is_open == open {
            return Ok(());
        }
        let mut held = self.limits.held_soon();
        held.knob(self.cpu).ok_or_else(|| not_held(self.cpu))?.set_window(self.cpu, open)?;
        self.is_open = open;
        Ok(())
    }
}

impl Drop for IdleWindow {
    fn drop(&mut self) {
        // A CPU that is not held any more was put back.
        let _ = self.close();
        if let Some(control) = self.limits.held().knob(self.cpu) {
            control.end_windows(self.cpu);
        }
    }
}
