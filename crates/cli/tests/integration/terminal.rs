//! A terminal on which a command runs; at its other end, `script` of util-linux.

use crate::fixture::{ConfigFile, ROOST, is_installed, skipped};
use linux::EndsWithParent as _;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// A command on it that runs.
pub struct Terminal {
    folder: tempfile::TempDir,
    child: Child,
    /// Open, so that its watcher is not taken for gone.
    _keys: ChildStdin,
    shown: Receiver<Vec<u8>>,
    text: Vec<u8>,
}

pub struct Left {
    pub code: i32,
    /// All that was written to the terminal.
    pub text: String,
    /// Its settings are those of before, and so is its screen.
    pub is_given_back: bool,
}

/// Longer than a busy machine takes.
const PATIENCE: Duration = Duration::from_secs(120);

impl Terminal {
    /// `roost` with these arguments, in which there is no quote; nothing where there is no
    /// `script`.
    pub fn start(test: &str, arguments: &[&str]) -> Option<Self> {
        if !is_installed("script") {
            skipped(test, "util-linux's script, which makes a terminal, is not installed");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let words: Vec<String> = arguments.iter().map(|word| format!("'{word}'")).collect();
        let lines = format!(
            "cd '{}'\nstty cols 100 rows 30\nstty -g > before\n\
             sh -c 'echo $$ > pid.new; mv pid.new pid; exec \"$0\" \"$@\"' '{ROOST}' {}\n\
             echo $? > code\nstty -g > after\n",
            folder.path().display(),
            words.join(" ")
        );
        let file = folder.path().join("run.sh");
        fs::write(&file, lines).unwrap();
        let mut child = Command::new("script")
            .args(["-qfc", &format!("sh {}", file.display()), "/dev/null"])
            .env("TERM", "xterm-256color")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .ends_with_parent()
            .spawn()
            .unwrap();
        let (keys, mut screen) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (sender, shown) = channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(length @ 1..) = screen.read(&mut bytes) {
                if sender.send(bytes[..length].to_vec()).is_err() {
                    return;
                }
            }
        });
        Some(Self { folder, child, _keys: keys, shown, text: Vec::new() })
    }

    pub fn until(&mut self, what: &str) -> &mut Self {
        let patience = Instant::now() + PATIENCE;
        while !String::from_utf8_lossy(&self.text).contains(what) {
            match self.shown.recv_timeout(patience.saturating_duration_since(Instant::now())) {
                Ok(bytes) => self.text.extend(bytes),
                Err(error) => panic!("no {what:?} ({error}): {:?}", String::from_utf8_lossy(&self.text)),
            }
        }
        self
    }

    /// True if it ended before it took the terminal's screen.
    pub fn ends_without_a_screen(&mut self) -> bool {
        while !String::from_utf8_lossy(&self.text).contains(TAKEN) {
            match self.shown.recv_timeout(PATIENCE) {
                Ok(bytes) => self.text.extend(bytes),
                Err(_) => return true,
            }
        }
        false
    }

    pub fn pid(&self) -> u32 {
        loop {
            if let Ok(text) = fs::read_to_string(self.folder.path().join("pid")) {
                return text.trim().parse().unwrap();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn left(mut self) -> Left {
        while let Ok(bytes) = self.shown.recv_timeout(PATIENCE) {
            self.text.extend(bytes);
        }
        self.child.wait().unwrap();
        let read = |name: &str| fs::read_to_string(self.folder.path().join(name)).unwrap();
        let text = String::from_utf8_lossy(&self.text).into_owned();
        let last = |what: &str| text.rfind(what);
        let is_given_back = read("before") == read("after")
            && last(TAKEN).is_none_or(|taken| last(GIVEN).is_some_and(|given| given > taken))
            && last(HIDDEN).is_none_or(|hidden| last(SHOWN).is_some_and(|shown| shown > hidden));
        Left { code: read("code").trim().parse().unwrap(), is_given_back, text }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The alternate screen, and the cursor.
const TAKEN: &str = "\x1b[?1049h";
const GIVEN: &str = "\x1b[?1049l";
const HIDDEN: &str = "\x1b[?25l";
const SHOWN: &str = "\x1b[?25h";

/// What a program calls itself to type a title into another's terminal and ring its bell.
const EVIL: &str = "\x1b]0;pwned\x07";

/// Nothing of it reaches a terminal as it is.
#[track_caller]
fn is_harmless(text: &str) {
    assert!(!text.contains("\x1b]0;") && !text.contains('\x07') && !text.contains('\u{9b}'), "{text:?}");
}

/// Where a program's name is what its file is called.
fn evil_program(folder: &Path) -> std::path::PathBuf {
    let program = folder.join(EVIL);
    std::os::unix::fs::symlink(ROOST, &program).unwrap();
    program
}

/// A store whose process and whose policy have such names: its port and its number.
fn evil_store(folder: &Path) -> crate::fixture::Server {
    let mut command = Command::new(evil_program(folder));
    command.args(["serve", "--port", "0", "--idle-actuator", "none", "--memory-limit", "64m"]);
    crate::fixture::Server::start_command(&mut command)
}

fn said(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn a_process_with_an_escape_sequence_for_a_name_is_named_without_one() {
    let folder = tempfile::tempdir().unwrap();
    let store = evil_store(folder.path());
    let (pid, out) = (store.pid().to_string(), folder.path().join("out"));
    let out = out.to_str().unwrap();
    let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
    assert_eq!(comm.trim_end(), EVIL, "the kernel has it as it is");
    let observe = ["observe", "--pid", &pid, "--out", out];
    let text = said(Command::new(ROOST).args(observe).args(["--for", "1s"]));
    is_harmless(&text);
    let text = said(Command::new(ROOST).args(["hot", "--for", "1s", "--pid", &pid, "--out", out]));
    is_harmless(&text);
    assert!(text.contains("\\u001b]0;pwned"), "{text}");
    // A view on the alternate screen, which draws every cell by itself.
    let live = [&observe[..], &["--for", "10m", "--live"]].concat();
    let Some(mut terminal) = Terminal::start("observe --live", &live) else { return };
    if terminal.ends_without_a_screen() {
        return skipped("observe --live", "sleeps cannot be watched here");
    }
    terminal.until("pwned");
    crate::fixture::signal(terminal.pid(), "TERM");
    is_harmless(&terminal.left().text);
}

#[test]
fn a_store_that_lies_about_itself_steers_no_terminal() {
    let store = crate::fixture::Server::start(&["--memory-limit", "64m", "--policy", "all-awake"]);
    let mut client = store.connect();
    let status = client.ask("stats roost-json");
    // JSON writes ESC out, and C1's CSI as it is.
    let lie = "\\u001b]0;pwned\\u0007\u{9b}2J";
    let lying = status.replace("\"policy\":\"all-awake\"", &format!("\"policy\":\"{lie}\""));
    assert_ne!(lying, status, "{status}");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let lying = lying.clone();
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let mut line = String::new();
                while matches!(reader.read_line(&mut line), Ok(1..)) {
                    line.clear();
                    if std::io::Write::write_all(&mut &stream, format!("{lying}\r\nEND\r\n").as_bytes())
                        .is_err()
                    {
                        return;
                    }
                }
            });
        }
    });
    for flags in [&[][..], &["--json"][..]] {
        let text = said(Command::new(ROOST).args(["top", &address]).args(flags));
        assert!(text.contains("pwned"), "{text}");
        is_harmless(&text);
    }
    let Some(mut terminal) = Terminal::start("top", &["top", &address]) else { return };
    terminal.until("pwned");
    crate::fixture::signal(terminal.pid(), "TERM");
    is_harmless(&terminal.left().text);
}

#[test]
fn a_client_of_the_planner_with_such_a_name_steers_no_terminal() {
    let _limits = crate::fixture::IdleLimits::alone();
    let folder = tempfile::tempdir().unwrap();
    let (socket, out) = (folder.path().join("roost.sock"), folder.path().join("out"));
    let (socket, out) = (socket.to_str().unwrap(), out.to_str().unwrap());
    let file = ConfigFile::new("[wake]\nexit_latency = \"200us\"");
    let wake = ["wake", "--config", &file, "--socket", socket, "--out", out];
    let Some(mut terminal) = Terminal::start("wake", &wake) else { return };
    terminal.until("listening at");
    let began = Instant::now();
    // A name of its own choice, and the one that the kernel knows its process by.
    let client = loop {
        match slots::wake::WakeClient::connect(Path::new(socket), EVIL) {
            Ok(client) => break client,
            Err(error) if began.elapsed() > PATIENCE => {
                return skipped("wake", &format!("no planner answers: {error}"));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    // It has an account once it has asked.
    client.wake(
        &[crate::waking::cpu()],
        client.now() + machine::Duration::from_millis(50),
        machine::Duration::from_millis(5),
    );
    terminal.until("pwned");
    let text = said(Command::new(ROOST).args(["status", "--socket", socket]));
    assert!(text.contains("pwned"), "{text}");
    is_harmless(&text);
    drop(client);
    crate::fixture::signal(terminal.pid(), "TERM");
    is_harmless(&terminal.left().text);
}
