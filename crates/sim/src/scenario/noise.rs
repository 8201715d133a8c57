//! `[[server.noise]]`: how often, how long, and where.

use super::{Document, NoiseTable, ScenarioError};
use crate::engine::{Noise, NoiseOn};
use machine::Duration;

impl Document {
    pub(super) fn noise(
        &self,
        key: &str,
        table: &NoiseTable,
        mean_rate: Option<f64>,
        cpus: usize,
    ) -> Result<Noise, ScenarioError> {
        let length = self.sampler(&format!("{key}.length"), &table.length)?;
        let every = match (table.every, table.per_request) {
            (Some(every), None) if !every.0.is_zero() => every.0,
            (Some(_), None) => return Err(self.wrong(key, "every = 0", "give the mean gap, such as 1ms")),
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
                Duration::from_nanos((gap_s * 1e9).max(1.0) as u64)
            }
            (None, Some(share)) => {
                let fix = "give a number above 0, such as 0.5: one for two requests";
                return Err(self.wrong(&format!("{key}.per_request"), share.to_string(), fix));
            }
            (Some(_), Some(_)) | (None, None) => {
                let problem = "it needs either `every` or `per_request`";
                return Err(self.wrong(key, problem, "give one of the two"));
            }
        };
        if table.deferrable && table.on == NoiseOn::Scheduled {
            let fix = "leave one of the two out: quiescence holds back `each` and `any`";
            return Err(self.wrong(key, "on = \"scheduled\" and deferrable = true", fix));
        }
        Ok(Noise { every, length, on: table.on, deferrable: table.deferrable })
    }
}
