//! The processes of `roost-bench stage`: `roost stage` as the proxy and this program as the
//! stand-in. They end when this is dropped.

use crate::product::{own, roost};
use anyhow::{Context as _, Result};
use linux::EndsWithParent as _;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub struct Running {
    child: Child,
    pub address: String,
}

impl Running {
    /// Starts a program with these arguments, and waits until it says where it listens.
    fn start(program: &Path, arguments: &[String]) -> Result<Self> {
        let child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .ends_with_parent()
            .spawn()
            .context("starting a process of the bench")?;
        let mut running = Self { child, address: String::new() };
        let mut reader = BufReader::new(running.child.stdout.take().context("its output")?);
        let mut line = String::new();
        reader.read_line(&mut line).context("reading where it listens")?;
        let address = line.trim().strip_prefix("listening on ");
        running.address =
            address.with_context(|| format!("it said {line:?} and not where it listens"))?.to_owned();
        // Read on, so that it never writes into a closed pipe.
        std::thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
        Ok(running)
    }

    /// The stand-in, with these service times.
    pub fn service(arguments: &[&str]) -> Result<Self> {
        let all = ["stage-service"].iter().chain(arguments);
        Self::start(&own()?, &all.map(|argument| (*argument).to_owned()).collect::<Vec<_>>())
    }

    pub fn proxy(servers: &[&str], arguments: &[&str]) -> Result<Self> {
        let mut all = vec!["stage".to_owned(), "--listen".to_owned(), "127.0.0.1:0".to_owned()];
        for server in servers {
            all.extend(["--to".to_owned(), format!("http://{server}")]);
        }
        all.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        Self::start(&roost()?, &all)
    }

    /// A proxy that holds nothing.
    pub fn plain_proxy(servers: &[&str], arguments: &[&str]) -> Result<Self> {
        let file = tempfile::NamedTempFile::new()?;
        std::fs::write(file.path(), "hold = false\n")?;
        let path = file.path().to_str().context("a folder of UTF-8")?;
        // It has read the file when it listens.
        Self::proxy(servers, &[arguments, &["--config", path]].concat())
    }

    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Ends it in the middle of whatever it does.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let asked = Instant::now();
        while asked.elapsed() < PATIENCE {
            match self.child.try_wait() {
                Ok(None) => std::thread::sleep(Duration::from_millis(5)),
                _ => return,
            }
        }
        self.kill();
    }
}

/// A proxy that drains may take this long.
const PATIENCE: Duration = Duration::from_secs(12);
