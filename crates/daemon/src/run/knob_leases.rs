//! Idle limits that another process asks for over its connection to the control socket: a store,
//! say.
//!
//! Properties:
//! - However the process ends, its connection closes, and then the others' requests are in force.
//! - Each request takes the place of the last one over the same connection.
//! - Root and the daemon's user may ask: a limit affects all processes of a CPU. How many
//!   connections a user has is bounded by the control socket.

use super::leases::is_own;
use super::{Answer, Asker, Daemon, Refusal, Reply, StartError};
use linux::LimitState;
use linux::arbiter::request::{Combined, RefusedCpus, Request};
use linux::arbiter::{self, Claim};
use machine::{CpuId, CpuList, IdleLimit};
use std::collections::BTreeMap;

/// A process's requests for the knobs for as long as it is connected.
pub(super) struct KnobLease {
    asker: arbiter::Asker,
    idle: BTreeMap<CpuId, IdleLimit>,
}

impl Daemon {
    /// Takes up a request, or says why not.
    pub(super) fn combine(&mut self, request: Request, reply: Reply) {
        let answer = match self.combined(request, reply.lease(), reply.asker()) {
            Ok(combined) => Answer::Combined(combined),
            Err(refusal) => {
                self.end_knobs(reply.lease());
                Answer::NotLeased(refusal)
            }
        };
        reply.send(answer);
    }

    fn combined(&mut self, request: Request, lease: u64, peer: Asker) -> Result<Combined, Refusal> {
        request.check().map_err(Refusal::usage)?;
        self.may_limit(peer.user)?;
        let idle: BTreeMap<CpuId, IdleLimit> =
            request.idle.iter().flat_map(|idle| idle.cpus.0.iter().map(|&cpu| (cpu, idle.limit))).collect();
        let cpus = CpuList(idle.keys().copied().collect());
        let is_new = !self.knob_leases.contains_key(&lease);
        let asker = arbiter::Asker { lease, process: peer.process, name: request.asker };
        let kept = self.knob_leases.entry(lease).or_insert(KnobLease { asker, idle: BTreeMap::new() });
        let asker = kept.asker.clone();
        let before = std::mem::replace(&mut kept.idle, idle.clone());
        let limits = &self.arbiter.idle;
        limits.hold(asker.clone(), &cpus).map_err(StartError::from)?;
        for &cpu in before.keys().filter(|cpu| !idle.contains_key(cpu)) {
            limits.limit(asker.clone(), cpu, IdleLimit::None);
        }
        let mut refused: Vec<RefusedCpus> = Vec::new();
        for (cpu, limit) in idle {
            let LimitState::Refused { reason: why } = limits.limit(asker.clone(), cpu, limit) else {
                continue;
            };
            if limits.is_pending(cpu) {
                continue;
            }
            match refused.iter_mut().find(|known| known.why == why) {
                Some(known) => drop(known.cpus.0.insert(cpu)),
                None => refused.push(RefusedCpus { cpus: CpuList([cpu].into()), why }),
            }
        }
        // Where the register is not to be had, nothing is parked either.
        let claimed =
            self.arbiter.active.claim(asker.clone(), &Claim { active: request.active, ..Claim::default() });
        if let Err(why) = claimed {
            self.say_once(&why);
        }
        if is_new {
            self.say(&format!("{}: heard for {peer} while it is connected", asker.name));
        }
        Ok(Combined { refused })
    }

    /// Withdraws the requests of that connection.
    pub(super) fn end_knobs(&mut self, lease: u64) {
        if let Some(KnobLease { asker, .. }) = self.knob_leases.remove(&lease) {
            self.arbiter.withdraw(&asker);
            self.say(&format!("{}: asks for nothing any more", asker.name));
        }
    }

    fn may_limit(&self, user: u32) -> Result<(), Refusal> {
        if self.dry_run {
            return Err(Refusal::held("the daemon that runs only shows what it would do (--dry-run)"));
        }
        if is_own(user) {
            return Ok(());
        }
        Err(Refusal::held(format!(
            "an idle limit affects all processes of a CPU, so it is not user {user}'s to ask \
             for\nhint: use sudo"
        )))
    }
}
