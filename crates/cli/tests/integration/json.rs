//! Each command that ends by itself prints one JSON document with `--json`, and nothing else on
//! its standard output.

use crate::fixture::{ConfigFile, IdleLimits, ROOST, Server, repository, signal, skipped};
use crate::waking::Planner;
use linux::EndsWithParent as _;
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// They print a line for each epoch or change while they run.
const LINES: [&str; 3] = ["daemon", "govern hurry-up", "quiesce"];

/// They print no figures: a server's first line, a script, files.
const NONE: [&str; 2] = ["serve", "generate"];

/// Needs a service with a hot function; its own tests read the document.
const ELSEWHERE: &str = "hot";

/// All commands below `command` that have no others below them or can run without them.
fn commands(command: &str, all: &mut Vec<(String, String)>) {
    let help = Command::new(ROOST).args(command.split_whitespace()).arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let section = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    for line in section.take_while(|line| line.starts_with("  ")) {
        // A description that goes on stands further to the right.
        if let Some(name) = line.strip_prefix("  ").filter(|rest| !rest.starts_with(' '))
            && let Some(name) = name.split(' ').next().filter(|name| *name != "help")
        {
            commands(format!("{command} {name}").trim_start(), all);
        }
    }
    let runs = !help.contains(&format!("Usage: roost {command} <COMMAND>")) && !command.is_empty();
    if runs {
        all.push((command.to_owned(), help));
    }
}

/// What was checked.
struct Documents(BTreeSet<String>);

impl Documents {
    /// Runs `command` and takes its standard output for a document with a `format`.
    fn check(&mut self, command: &str, rest: &[&str]) -> Value {
        self.check_as_it_is(command, &[rest, &["--json"]].concat())
    }

    /// The same of a command whose `--json` stands elsewhere.
    fn check_as_it_is(&mut self, command: &str, rest: &[&str]) -> Value {
        let output = Command::new(ROOST).args(command.split(' ')).args(rest).output().unwrap();
        let stdout = String::from_utf8(output.stdout).unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        let document: Value = serde_json::from_str(&stdout)
            .unwrap_or_else(|error| panic!("{command} {rest:?}: {error}: {stdout}\n{stderr}"));
        assert!(document["format"].is_u64(), "{command}: {stdout}");
        self.0.insert(command.to_owned());
        document
    }
}

/// A process that is told to end when this goes.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        if self.0.try_wait().is_ok_and(|status| status.is_none()) {
            signal(self.0.id(), "TERM");
            let _ = self.0.wait();
        }
    }
}

/// A proxy, and the address of its metrics.
fn proxy() -> (Ends, String) {
    let words =
        ["stage", "--to", "http://127.0.0.1:1", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"];
    let mut command = Command::new(ROOST);
    let mut child = command.args(words).stdout(Stdio::piped()).ends_with_parent().spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let at = lines.find_map(|line| Some(line.strip_prefix("metrics on http://")?.to_owned())).unwrap();
    (Ends(child), at.trim_end_matches("/metrics").to_owned())
}

/// A daemon that only watches the service at `port`.
fn daemon(folder: &Path, port: u16) -> Ends {
    let config = folder.join("roost.toml");
    let text = format!(
        "epoch = \"100ms\"\n[[service]]\nname = \"store\"\nport = {port}\ngoal = \"5ms@p99\"\ntelemetry = \"memcached+requests\"\n"
    );
    std::fs::write(&config, text).unwrap();
    let mut command = Command::new(ROOST);
    command
        .args(["daemon", "--dry-run", "--config"])
        .arg(config)
        .arg("--socket")
        .arg(folder.join("roost.sock"));
    Ends(command.stderr(Stdio::null()).ends_with_parent().spawn().unwrap())
}

/// The commands of a running daemon, or why there is none.
fn check_daemon(documents: &mut Documents, folder: &Path, port: u16) -> Result<(), String> {
    let mut daemon = daemon(folder, port);
    let socket = folder.join("roost.sock");
    let socket = ["--socket", socket.to_str().unwrap()];
    let mut patience = 3000;
    loop {
        let status = Command::new(ROOST).args(["status", "--json"]).args(socket).output().unwrap();
        if String::from_utf8_lossy(&status.stdout).contains("\"store\"") {
            break;
        }
        if let Some(ended) = daemon.0.try_wait().unwrap() {
            return Err(format!("the daemon ended with {ended}"));
        }
        patience -= 1;
        assert!(patience > 0, "{}", String::from_utf8_lossy(&status.stderr));
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    documents.check("status", &socket);
    for (command, rest) in
        [("set", &["store", "goal=6ms@p99"][..]), ("pause", &["store"]), ("resume", &["store"])]
    {
        documents.check(command, &[rest, &socket].concat());
    }
    Ok(())
}

#[test]
fn each_command_that_ends_by_itself_prints_one_document() {
    let mut documents = Documents(BTreeSet::new());
    let folder = tempfile::tempdir().unwrap();
    let out = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let scenario = |name: &str| repository().join("scenarios").join(name).to_str().unwrap().to_owned();
    let server = Server::start(&[]);
    let (address, port) = (format!("127.0.0.1:{}", server.port), server.port.to_string());

    documents.check("doctor", &[]);
    let policies = documents.check("policies", &["menu"]);
    assert_eq!(policies["policies"][0]["words"][0]["word"], "menu", "{policies}");
    let machines = documents.check("sim machines", &["tradeoffs-sandybridge"]);
    assert_eq!(machines["machines"][0]["states"][1]["break_even_ns"], 106_000, "{machines}");
    documents.check("restore", &["--root", folder.path().to_str().unwrap()]);
    documents.check("top", &[&address]);
    let load = documents
        .check("load", &[&address, "--rate", "200", "--for", "1s", "--warmup", "0s", "--keys", "100"]);
    assert!(load["latency"]["p99_ns"].is_u64() && load["achieved_per_s"].is_f64(), "{load}");
    documents.check("govern", &["--dry-run", "--port", &port, "--goal", "5ms@p99"]);
    documents.check("observe", &["--port", &port, "--for", "1s", "--out", &out("observe")]);
    let recorded = folder.path().join("recorded");
    std::fs::create_dir(&recorded).unwrap();
    std::fs::write(recorded.join("recording.json"), include_str!("recording.json")).unwrap();
    let plan =
        documents.check("plan", &[recorded.to_str().unwrap(), "--requests", "2000", "--goal", "5ms@p99"]);
    assert!(plan["candidates"][0]["p50_ns"]["value"].is_f64(), "{plan}");
    let mut skip = vec![];
    if let Err(reason) = check_daemon(&mut documents, folder.path(), server.port) {
        skip.extend(["status", "set", "pause", "resume", "prove"]);
        skipped("the documents of a daemon's commands", &reason);
    } else {
        let socket = out("prove.sock");
        let short = ["--port", &port, "--blocks", "8", "--block", "2s", "--", "--socket", &socket];
        // Nothing is asked of the server, so nothing is proven; that is told as well.
        let mut words = short.to_vec();
        words.splice(6..6, ["--json"]);
        let proof = documents.check_as_it_is("prove", &words);
        assert!(proof["verdict"] == "unproven" && proof["pairs_void"] == 4, "{proof}");
    }

    let (_proxy, metrics) = proxy();
    let proxy = documents.check("status", &[&metrics]);
    assert!(proxy["format"] == 1 && proxy["servers"].is_array(), "{proxy}");
    let page = format!("http://{metrics}/metrics");
    documents.check("load", &[&page, "--rate", "20", "--for", "1s", "--warmup", "0s"]);
    let record = ConfigFile::new(&format!("record = {:?}", out("stage")));
    let stage = ["--to", "http://127.0.0.1:1", "--listen", "127.0.0.1:0", "--for", "1s", "--config", &record];
    documents.check("stage", &[&stage[..], &["--out", &out("stage")]].concat());
    documents.check("replay", &[&out("stage")]);
    documents.check("report", &[&out("stage")]);

    let few = ["--set", "run.requests=2k", "--out"];
    for (command, file) in [("sim run", "mmk.toml"), ("sim sweep", "mmk.toml"), ("sim fleet", "fleet.toml")] {
        let mut rest = vec![scenario(file), "--policy".into(), "menu".into()];
        rest.extend(few.map(str::to_owned));
        rest.push(out(&command.replace(' ', "-")));
        match command {
            "sim sweep" => rest.extend(["--set", "machine.cores=4,10"].map(str::to_owned)),
            "sim fleet" => rest.extend(["--set", "fleet={servers=4,fanout=2}"].map(str::to_owned)),
            _ => {}
        }
        documents.check(command, &rest.iter().map(String::as_str).collect::<Vec<_>>());
    }
    // A planner of another test may hold the CPUs.
    let alone = IdleLimits::alone();
    documents.check("demo", &["--phase-length", "3s", "--rounds", "3", "--out", &out("demo")]);
    drop(alone);
    documents.check("report", &[&out("demo")]);

    match Planner::start("") {
        Some(planner) => {
            let socket = planner.socket();
            let socket = ["--socket", socket.to_str().unwrap()];
            documents.check("wake at", &[&["--in", "1ms", "--stay", "1ms"][..], &socket].concat());
            drop(planner);
            let _alone = IdleLimits::alone();
            documents.check("wake", &["--calibrate"]);
        }
        None => {
            skip.extend(["wake", "wake at"]);
            skipped("the documents of roost wake", "no planner here");
        }
    }

    let mut all = Vec::new();
    commands("", &mut all);
    assert!(all.len() > 25, "{all:?}");
    for (command, help) in all {
        let command = command.as_str();
        let has_json = help.contains("--json");
        assert_eq!(has_json, !NONE.contains(&command), "roost {command} has --json");
        let is_left_out = LINES.contains(&command) || NONE.contains(&command) || command == ELSEWHERE;
        assert!(
            is_left_out || skip.contains(&command) || documents.0.contains(command),
            "{command} is checked"
        );
    }
}
