//! The outcome as a table for people.

use crate::{Outcome, Part, Progress};
use std::fmt;

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut row = |name: &str, text: String| writeln!(f, "{name:<12} {text}");
        match self.offered {
            Some(offered) => {
                row("rate", format!("offered {offered}, achieved {} over {}", self.achieved, self.measured))?
            }
            None => row("rate", format!("achieved {} over {} (closed loop)", self.achieved, self.measured))?,
        }
        let l = &self.latency;
        row(
            "latency",
            format!("{:>8} {:>8} {:>8} {:>8} {:>8} {:>8}", "p50", "p90", "p99", "p99.9", "p99.99", "max"),
        )?;
        row("", format!("{:>8} {:>8} {:>8} {:>8} {:>8} {:>8}", l.p50, l.p90, l.p99, l.p999, l.p9999, l.max))?;
        let doubtful = self.stands.doubtful();
        if !doubtful.is_empty() {
            let marks = self.stands.named().map(|(_, stands)| if stands { "" } else { "late" });
            row("", marks.map(|mark| format!("{mark:>8}")).join(" ").trim_end().to_owned())?;
            let o = &self.latency_without_own;
            let figures =
                format!("{:>8} {:>8} {:>8} {:>8} {:>8} {:>8}", o.p50, o.p90, o.p99, o.p999, o.p9999, o.max);
            row("without own", figures)?;
            let text = format!(
                "{}: over a tenth of it is the generator's own lateness, so it does not describe the server",
                doubtful.join(", ")
            );
            row("not to trust", text)?;
        }
        if self.took.count > 0 {
            let t = &self.took;
            let row_of =
                format!("{:>8} {:>8} {:>8} {:>8} {:>8} {:>8}", t.p50, t.p90, t.p99, t.p999, t.p9999, t.max);
            row("took", format!("{row_of}  in whole ms, says the server ({} answers)", t.count))?;
        }
        let c = &self.counts;
        let answers = if c.good + c.client_errors + c.server_errors > 0 {
            format!("{} good", c.good)
        } else {
            format!("{} hits, {} misses, {} stored", c.hits, c.misses, c.stored)
        };
        row("requests", format!("{} sent, {} answered: {answers}", c.sent, c.answered))?;
        let wrong = [
            (c.refused - c.client_errors - c.server_errors, "refused by the server"),
            (c.client_errors, "with HTTP status 4xx"),
            (c.server_errors, "with HTTP status 5xx"),
            (c.timed_out, "timed out"),
            (c.corrupt, "wrong values"),
            (c.lost, "lost with their connection"),
            (c.unanswered, "unanswered at the end"),
            (c.unsent, "never sent"),
        ];
        let wrong: Vec<String> = wrong
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        row("errors", if wrong.is_empty() { "none".to_owned() } else { wrong.join(", ") })?;
        if c.backlogged > 0 {
            row(
                "backlogged",
                format!("{} requests waited for a connection with room for them", c.backlogged),
            )?;
        }
        if self.connections_renewed > 0 {
            row("connections", format!("{} made anew", self.connections_renewed))?;
        }
        if let Some(preload) = &self.preload {
            let text = format!(
                "{} stored in {}, {} of {} found again",
                preload.stored, preload.took, preload.hits, preload.checked
            );
            row("preload", text)?;
        }
        if self.offered.is_some() {
            let d = &self.lateness;
            row(
                "sent late",
                format!(
                    "p50 {}, p99 {}, max {}; {} by more than a tenth of the p99",
                    d.p50, d.p99, d.max, self.late
                ),
            )?;
        }
        let threads: Vec<String> = self
            .threads
            .iter()
            .map(|thread| match thread.cpu {
                Some(cpu) => format!("{} on {cpu}", thread.busy),
                None => thread.busy.to_string(),
            })
            .collect();
        let per_request = self.cpu_time() / c.answered.max(1);
        row("own CPU", format!("{} ({}), {per_request} per request", self.cpu_time(), threads.join(", ")))?;
        for remark in &self.remarks {
            row("note", remark.clone())?;
        }
        for reason in &self.invalid_because {
            row("INVALID", reason.clone())?;
        }
        Ok(())
    }
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>6.1}s", self.at.as_secs_f64())?;
        if let Some(offered) = self.offered {
            write!(f, "  offered {offered:>8}")?;
        }
        let l = &self.latency;
        write!(
            f,
            "  achieved {:>8}  p50 {:>7}  p99 {:>7}  p99.9 {:>7}",
            self.achieved, l.p50, l.p99, l.p999
        )?;
        write!(f, "  errors {}", self.counts.errors())?;
        if self.counts.good == 0 {
            write!(f, "  misses {}", self.counts.misses)?;
        }
        if self.offered.is_some() {
            write!(f, "  late p99 {}", self.lateness_p99)?;
        }
        match self.part {
            Part::Warmup => f.write_str("  (warm-up)"),
            Part::Measured => Ok(()),
            Part::Drain => f.write_str("  (last answers)"),
        }
    }
}
