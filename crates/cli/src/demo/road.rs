//! The main road on the demo's own store: observed, planned, governed as planned, and the prediction
//! beside the measurement.
//!
//! All parts are the commands themselves, run as children, at a constant load. They need root. A part
//! that cannot run here is told with its reason, and the demo goes on without.

use anyhow::{Context as _, Result, anyhow, bail};
use linux::EndsWithParent as _;
use serde_json::Value;
use std::io::Read as _;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Requests per second: little enough for one core.
const RATE: u32 = 2_000;
/// How long the store is watched, ungoverned and governed.
const WATCHED_S: u64 = 6;
/// What the plan predicts, and `roost govern` sets.
const CANDIDATE: &str = "1 core, idle as now";

/// Figures, predicted or measured.
struct Seen {
    p50_us: f64,
    p99_us: f64,
    busy_cpus: f64,
    wakes_per_s: f64,
}

/// The sentence for the summary: the prediction beside the measurement, or why there is none.
pub fn told(stopped: &AtomicBool) -> String {
    match travelled(stopped) {
        Ok(Road { predicted, measured, is_trusted }) => format!(
            "Observed, planned and governed: the store on one core at {RATE} requests/s. p50 {:.0} us told, \
             {:.0} us measured; p99 {:.0} and {:.0} us; CPUs busy {:.2} and {:.2}; wake-ups/s {:.0} and \
             {:.0}.{}",
            predicted.p50_us,
            measured.p50_us,
            predicted.p99_us,
            measured.p99_us,
            predicted.busy_cpus,
            measured.busy_cpus,
            predicted.wakes_per_s,
            measured.wakes_per_s,
            if is_trusted { "" } else { " The plan itself called its figures worth little on this machine." },
        ),
        Err(why) => format!("Observe, plan and govern were left out: {why:#}."),
    }
}

struct Road {
    predicted: Seen,
    measured: Seen,
    /// The plan's model gave back the recorded run.
    is_trusted: bool,
}

fn travelled(stopped: &AtomicBool) -> Result<Road> {
    if !rustix::process::geteuid().is_root() {
        bail!("they need root");
    }
    let folder = tempfile::tempdir().context("a folder for recordings")?;
    // The port is free when it is asked for.
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string();
    let quiet = |arguments: &[&str]| started(arguments, Stdio::null());
    let _store = quiet(&["serve", "--port", &port, "--policy", "all-awake", "--active-idle", "stock"])?;
    pause(stopped, 1)?;
    let target = format!("127.0.0.1:{port}");
    let rate = RATE.to_string();
    let length = format!("{}s", 4 * WATCHED_S + 20);
    let _load = quiet(&["load", &target, "--rate", &rate, "--for", &length, "--spin", "0s", "--json"])?;
    pause(stopped, 1)?;
    eprintln!("roost demo: observing the store at {RATE} requests/s for {WATCHED_S} s");
    let before = folder.path().join("before");
    observed(&port, &before, stopped)?;
    eprintln!("roost demo: simulating what one core would do");
    let plan = finished(&["plan", "--json", "--loads", "1", &before.to_string_lossy()], &[0, 6], stopped)?;
    let plan: Value = serde_json::from_slice(&plan).context("the document of roost plan")?;
    let predicted = predicted(&plan).context(
        "in the plan's model one core does not keep up, since other programs keep this machine busy; a \
         quiet one shows more",
    )?;
    let mut governor = quiet(&["govern", "--port", &port, "--policy", "fixed", "--cores", "1", "--json"])?;
    pause(stopped, 2)?;
    eprintln!("roost demo: governing it so, and observing it again");
    let after = folder.path().join("after");
    observed(&port, &after, stopped)?;
    if let Some(status) = governor.0.try_wait()? {
        bail!("roost govern ended early ({status})");
    }
    let text = std::fs::read_to_string(after.join("recording.json")).context("the second recording")?;
    let measured = measured(&serde_json::from_str(&text)?).context("the second recording has gaps")?;
    let is_trusted = plan["fidelity"]["reasons"].as_array().is_some_and(Vec::is_empty);
    Ok(Road { predicted, measured, is_trusted })
}

fn predicted(plan: &Value) -> Option<Seen> {
    let rows = plan["candidates"].as_array()?;
    let row = rows.iter().find(|row| row["name"] == CANDIDATE)?;
    Some(Seen {
        p50_us: row["p50_ns"]["value"].as_f64()? / 1e3,
        p99_us: row["p99_ns"]["value"].as_f64()? / 1e3,
        busy_cpus: row["busy_cpus"].as_f64()?,
        wakes_per_s: row["wakes_per_s"].as_f64()?,
    })
}

fn measured(recording: &Value) -> Option<Seen> {
    let value = |part: &str, key: &str| recording[part][key]["value"].as_f64();
    Some(Seen {
        p50_us: value("responses", "p50_us")?,
        p99_us: value("responses", "p99_us")?,
        busy_cpus: value("sleeps", "busy_cpus")?,
        wakes_per_s: value("sleeps", "wakes_per_s")?,
    })
}

fn observed(port: &str, out: &Path, stopped: &AtomicBool) -> Result<()> {
    let length = format!("{WATCHED_S}s");
    let out = out.to_string_lossy();
    finished(&["observe", "--json", "--port", port, "--for", &length, "--out", &out], &[0], stopped)?;
    Ok(())
}

/// A command that is told to end, and waited for: `roost govern` puts back on SIGTERM.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = rustix::process::kill_process(
            rustix::process::Pid::from_child(&self.0),
            rustix::process::Signal::TERM,
        );
        let _ = self.0.wait();
    }
}

fn started(arguments: &[&str], stdout: Stdio) -> Result<Ends> {
    let mut command = Command::new(std::env::current_exe().context("the path of this program")?);
    command.args(arguments).stdin(Stdio::null()).stdout(stdout).stderr(Stdio::null()).ends_with_parent();
    Ok(Ends(command.spawn().with_context(|| format!("starting roost {}", arguments[0]))?))
}

/// The standard output of a command that ends with one of these codes.
fn finished(arguments: &[&str], codes: &[i32], stopped: &AtomicBool) -> Result<Vec<u8>> {
    let mut child = started(arguments, Stdio::piped())?;
    let mut pipe = child.0.stdout.take().context("its output")?;
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        pipe.read_to_end(&mut text).map(|_| text)
    });
    let status = loop {
        if let Some(status) = child.0.try_wait()? {
            break status;
        }
        pause(stopped, 0)?;
    };
    if !status.code().is_some_and(|code| codes.contains(&code)) {
        bail!("roost {} ended with {status}", arguments[0]);
    }
    reader.join().map_err(|_| anyhow!("reading the output of roost {}", arguments[0]))?.context("its output")
}

/// So many seconds, a tenth at the least; an error if the demo is stopped.
fn pause(stopped: &AtomicBool, seconds: u64) -> Result<()> {
    for _ in 0..(10 * seconds).max(1) {
        if stopped.load(Ordering::Relaxed) {
            bail!("the demo was stopped");
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_in_both_documents() {
        let plan = serde_json::json!({ "candidates": [
            { "name": "2 cores, idle as now", "p50_ns": { "value": 1 } },
            { "name": CANDIDATE, "p50_ns": { "value": 21_000.0 }, "p99_ns": { "value": 90_000.0 },
              "busy_cpus": 0.5, "wakes_per_s": 900.0 },
        ] });
        assert_eq!(predicted(&plan).map(|seen| seen.p50_us), Some(21.0));
        let unstable = serde_json::json!({ "candidates": [{ "name": CANDIDATE, "busy_cpus": 1.3 }] });
        assert!(predicted(&unstable).is_none(), "a model that does not keep up has no tail");
        let recording = serde_json::json!({
            "responses": { "p50_us": { "value": 20.0 }, "p99_us": { "value": 80.0 } },
            "sleeps": { "busy_cpus": { "value": 0.4 } },
        });
        assert!(measured(&recording).is_none(), "a gap is no zero");
    }

    #[test]
    fn a_stopped_demo_waits_for_nothing() {
        assert!(pause(&AtomicBool::new(true), 60).is_err());
    }
}
