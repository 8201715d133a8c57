//! `[[server.noise]]`: how often, how long, and where.

use super::{Document, NoiseTable, ScenarioError, Server};
use crate::engine::{Follows, Noise, NoiseOn};
use machine::Duration;
use workload::{Distribution, Sampler};

impl Document {
    /// All work that is not the service's.
    pub(super) fn noises(
        &self,
        server: &Server,
        mean_rate: Option<f64>,
        cpus: usize,
    ) -> Result<Vec<Noise>, ScenarioError> {
        let key = |place: usize| format!("server.noise.{place}");
        let all = server.noise.iter().enumerate();
        let noises: Vec<Noise> = all
            .map(|(place, table)| self.noise(&key(place), table, mean_rate, cpus))
            .collect::<Result<_, _>>()?;
        let senders = noises.iter().enumerate().filter(|(_, noise)| noise.follows.is_some_and(|it| it.sends));
        for (before, (place, _)) in senders.enumerate() {
            let key = format!("{}.sends", key(place));
            if before > 0 {
                return Err(self.wrong(&key, "true for a second thread", "let one thread send"));
            }
            if server.clients.is_some() {
                let fix = "leave out server.clients, or set sends = false";
                return Err(self.wrong(&key, "true beside server.clients, which send themselves", fix));
            }
        }
        Ok(noises)
    }

    fn noise(
        &self,
        key: &str,
        table: &NoiseTable,
        mean_rate: Option<f64>,
        cpus: usize,
    ) -> Result<Noise, ScenarioError> {
        if table.deferrable && table.on == NoiseOn::Scheduled {
            let fix = "leave one of the two out: quiescence holds back `each` and `any`";
            return Err(self.wrong(key, "on = \"scheduled\" and deferrable = true", fix));
        }
        let (every, length, follows) = match table.after_request {
            Some(awake) => {
                let length = self.follower(key, table, awake.0)?;
                (Duration::ZERO, length, Some(Follows { sends: table.sends }))
            }
            None if table.sends => {
                let problem = "true of work that requests do not wake";
                return Err(self.wrong(&format!("{key}.sends"), problem, "give after_request too"));
            }
            None => {
                let Some(length) = &table.length else {
                    let fix = "give it, or after_request in its place";
                    return Err(self.wrong(&format!("{key}.length"), "missing", fix));
                };
                let length = self.sampler(&format!("{key}.length"), length)?;
                (self.gap(key, table, &length, mean_rate, cpus)?, length, None)
            }
        };
        Ok(Noise { every, length, follows, on: table.on, deferrable: table.deferrable })
    }

    /// The work of a thread from a request on, if no other one comes.
    fn follower(&self, key: &str, table: &NoiseTable, awake: Duration) -> Result<Sampler, ScenarioError> {
        if table.every.is_some() || table.per_request.is_some() || table.length.is_some() {
            let problem = "it has after_request, and a gap or a length besides";
            return Err(self.wrong(key, problem, "leave out every, per_request and length"));
        }
        let key = format!("{key}.after_request");
        if table.on != NoiseOn::Scheduled {
            let problem = "requests wake a thread, and this is none";
            return Err(self.wrong(&key, problem, "set on = \"scheduled\""));
        }
        if awake.is_zero() {
            return Err(self.wrong(&key, "0", "give the CPU time after a request, such as 40us"));
        }
        self.sampler(&key, &Distribution::Deterministic { mean: awake })
    }

    fn gap(
        &self,
        key: &str,
        table: &NoiseTable,
        length: &Sampler,
        mean_rate: Option<f64>,
        cpus: usize,
    ) -> Result<Duration, ScenarioError> {
        match (table.every, table.per_request) {
            (Some(every), None) if !every.0.is_zero() => Ok(every.0),
            (Some(_), None) => Err(self.wrong(key, "every = 0", "give the mean gap, such as 1ms")),
            (None, Some(share)) if share > 0.0 && share.is_finite() => {
                let Some(rate) = mean_rate else {
                    let problem = "clients that wait have no rate beforehand";
                    return Err(self.wrong(&format!("{key}.per_request"), problem, "give `every` instead"));
                };
                let gap_s = 1.0 / (rate * share);
                let gap_s = match table.on {
                    NoiseOn::Each => gap_s * cpus as f64,
                    NoiseOn::Any => gap_s,
                    // It sleeps for the rest; one that has too much to do never sleeps.
                    NoiseOn::Scheduled => gap_s - length.mean().as_secs_f64(),
                };
                Ok(Duration::from_nanos((gap_s * 1e9).max(1.0) as u64))
            }
            (None, Some(share)) => {
                let fix = "give a number above 0, such as 0.5: one for two requests";
                Err(self.wrong(&format!("{key}.per_request"), share.to_string(), fix))
            }
            (Some(_), Some(_)) | (None, None) => {
                let problem = "it needs either `every` or `per_request`";
                Err(self.wrong(key, problem, "give one of the two, or after_request"))
            }
        }
    }
}
