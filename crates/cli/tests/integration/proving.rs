//! `roost prove` on a real memcached: blocks in turn, and the machine as it was after each of its
//! ends.

use crate::fixture::{IdleLimits, ROOST, signal, trace_events, trace_read_back};
use crate::governing::{Load, Memcached, cannot};
use linux::EndsWithParent as _;
use serde_json::Value;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A proof of a memcached that is kept on one core in its governed blocks.
struct Proof {
    child: Child,
    _limits: Option<IdleLimits>,
}

/// Words of `roost govern`, after `--`.
const ONE_CORE: [&str; 4] = ["--policy", "fixed", "--cores", "1"];

impl Proof {
    fn start(folder: &Path, server: &Memcached, flags: &[&str], governing: &[&str]) -> Self {
        let limits = Some(IdleLimits::shared());
        Self { _limits: limits, ..Self::alone(folder, server, flags, governing) }
    }

    /// For a test that has the idle limits alone: any other proof that begins puts back all that a dead
    /// one left.
    fn alone(folder: &Path, server: &Memcached, flags: &[&str], governing: &[&str]) -> Self {
        let mut command = Command::new(ROOST);
        // With this seed the first block is governed.
        command.args(["prove", "--port", &server.port.to_string(), "--like", "1000%", "--seed", "873752"]);
        command.args(flags).arg("--out").arg(folder.join("run"));
        command.arg("--").args(governing).arg("--socket").arg(folder.join("s"));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Self { child: command.ends_with_parent().spawn().expect("roost starts"), _limits: None }
    }

    /// Its exit code and its words on both streams.
    fn end(mut self) -> (Option<i32>, String) {
        let mut said = String::new();
        self.child.stdout.take().expect("piped").read_to_string(&mut said).expect("text");
        self.child.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
        (self.child.wait().expect("it ends").code(), said)
    }
}

fn all_cpus() -> usize {
    linux::allowed_cpus().expect("CPUs").0.len()
}

/// Waits until the server is kept on one CPU, as in a governed block.
fn until_governed(server: &Memcached) {
    let began = Instant::now();
    let one_each = || server.place().0.values().all(|cpus| !cpus.contains(['-', ',']));
    while !one_each() {
        assert!(began.elapsed() < Duration::from_secs(30), "no governed block: {:?}", server.place());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// True if a busy host ended epochs late, or none in time: those blocks are void, and the proof says
/// so.
fn held_up(said: &str) -> bool {
    let late = ["its epochs ended late", "no epoch ended after the settling time"];
    let is_held_up = late.iter().any(|why| said.contains(&format!("does not count: {why}")))
        || said.contains("no reading of it ended in the part that counts");
    if is_held_up {
        eprintln!("SKIPPED the figures of a proof: this host held some of its blocks up");
    }
    is_held_up
}

fn summary(folder: &Path) -> Value {
    let text = fs::read_to_string(folder.join("run/summary.json")).expect("a summary");
    serde_json::from_str(&text).expect("JSON")
}

fn blocks(folder: &Path) -> Vec<Value> {
    let text = fs::read_to_string(folder.join("run/blocks.jsonl")).expect("blocks");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn blocks_take_turns_and_the_service_is_found_as_it_was() {
    if cannot("a proof") {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let server = Memcached::start(folder.path());
    let before = server.place();
    let _load = Load::on(server.port);
    let trace = folder.path().join("prove.pftrace");
    let flags = ["--blocks", "8", "--block", "2s", "--meter", "echo 7", "--price", "0.30/kWh"];
    let flags = [&flags[..], &["--perfetto", trace.to_str().expect("UTF-8")]].concat();
    let proof = Proof::start(folder.path(), &server, &flags, &ONE_CORE);
    until_governed(&server);
    // No other command may change the measured service.
    let socket = folder.path().join("s");
    let second = Command::new(ROOST)
        .args(["prove", "--port", &server.port.to_string(), "--", "--socket"])
        .arg(&socket)
        .output()
        .expect("roost runs");
    let told = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(second.status.code() == Some(4) && told.contains("roost prove"), "{told}");
    let lease = Command::new(ROOST)
        .args(["govern", "--port", &server.port.to_string(), "--socket"])
        .arg(&socket)
        .output()
        .expect("roost runs");
    let told = String::from_utf8_lossy(&lease.stderr).into_owned();
    assert!(!lease.status.success() && told.contains("end it first"), "{told}");
    let (code, said) = proof.end();
    assert_eq!(server.place(), before);
    assert!(said.contains("block 8 of 8") && said.contains("8 blocks of 2.00s"), "{said}");
    if held_up(&said) {
        assert!(matches!(code, Some(0 | 6)), "{said}");
        return;
    }
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("No difference of power was found") && said.contains("measured by echo 7"),
        "{said}"
    );
    let blocks = blocks(folder.path());
    let cores = |block: &Value| block["figures"]["cores"].as_f64().expect("cores");
    for block in &blocks {
        let expected = if block["treatment"] == "governed" { 1.0 } else { all_cpus() as f64 };
        assert!((cores(block) - expected).abs() < 1e-9, "{block}");
        assert!(block["figures"]["tail_ns"].as_f64() > Some(0.0) && block["void"].is_null(), "{block}");
    }
    let summary = summary(folder.path());
    assert_eq!(
        (&summary["format"], &summary["pairs"], &summary["seed"]),
        (&1.into(), &4.into(), &873_752.into())
    );
    let report = Command::new(ROOST).arg("report").arg(folder.path().join("run")).output().expect("it runs");
    assert!(report.status.success(), "{report:?}");
    let Some(found) = trace_read_back(&trace) else { return };
    let named = |word: &str| {
        trace_events(&found, "TYPE_SLICE_BEGIN")
            .filter(|event| event["track"] == "blocks" && event["name"].as_str().unwrap().ends_with(word))
            .count()
    };
    assert_eq!((named(", governed"), named(", ungoverned")), (4, 4), "{found}");
    assert!(found["counters"]["watts echo 7"] == "W" && found["counters"]["rate"] == "requests/s");
    assert!(trace_events(&found, "TYPE_SLICE_BEGIN").any(|event| event["name"] == "active"), "{found}");
    let verdict = trace_events(&found, "TYPE_INSTANT").last().expect("the verdict");
    assert!(verdict["name"].as_str().unwrap().contains("No difference of power"), "{verdict}");
}

#[test]
fn every_signal_in_a_governed_block_puts_back_and_leaves_the_verdict_so_far() {
    if cannot("the end of a proof") {
        return;
    }
    for name in ["INT", "TERM", "HUP"] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let server = Memcached::start(folder.path());
        let before = server.place();
        let proof = Proof::start(folder.path(), &server, &["--blocks", "8", "--block", "60s"], &ONE_CORE);
        until_governed(&server);
        signal(proof.child.id(), name);
        let (code, said) = proof.end();
        assert_eq!(code, Some(0), "SIG{name}: {said}");
        assert_eq!(server.place(), before, "SIG{name}");
        let summary = summary(folder.path());
        assert_eq!((&summary["end"], &summary["verdict"]), (&"stopped".into(), &"unproven".into()));
        assert!(blocks(folder.path()).iter().all(|block| block["void"].is_string()), "SIG{name}");
    }
}

#[test]
fn restore_puts_back_what_a_killed_proof_left() {
    if cannot("a killed proof") {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let server = Memcached::start(folder.path());
    let before = server.place();
    let _alone = IdleLimits::alone();
    let proof = Proof::alone(folder.path(), &server, &["--blocks", "8", "--block", "60s"], &ONE_CORE);
    until_governed(&server);
    signal(proof.child.id(), "KILL");
    let _ = proof.end();
    assert_ne!(server.place(), before);
    let restore = Command::new(ROOST).arg("restore").output().expect("roost runs");
    assert!(restore.status.success(), "{restore:?}");
    assert_eq!(server.place(), before);
}

#[test]
fn a_goal_that_governed_blocks_miss_twice_is_told_and_no_saving_is() {
    if cannot("a goal that is missed") {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let server = Memcached::start(folder.path());
    let _load = Load::on(server.port);
    let flags = ["--blocks", "8", "--block", "2s", "--goal", "1us@p90"];
    let (code, said) = Proof::start(folder.path(), &server, &flags, &[]).end();
    assert_eq!(code, Some(5), "{said}");
    assert!(said.contains("MISSED: the goal of 1.00us@p90"), "{said}");
    let summary = summary(folder.path());
    assert_eq!((&summary["verdict"], &summary["end"]), (&"missed".into(), &"missed".into()));
    let is_early = summary["blocks"].as_u64() <= Some(4) || held_up(&said);
    assert!(summary["watts_saved"].is_null() && is_early, "{summary}");
}

#[test]
fn a_service_that_ends_half_way_leaves_the_verdict_on_the_blocks_so_far() {
    if cannot("a service that ends") {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let server = Memcached::start(folder.path());
    let proof = Proof::start(folder.path(), &server, &["--blocks", "8", "--block", "4s"], &ONE_CORE);
    until_governed(&server);
    signal(server.pid(), "KILL");
    let (code, said) = proof.end();
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("the service has ended") && said.contains("Nothing is proven"), "{said}");
    let summary = summary(folder.path());
    assert!(summary["end"]["broken"].is_string(), "{summary}");
    assert!(blocks(folder.path()).last().is_some_and(|block| block["void"].is_string()));
    let page = fs::read_to_string(folder.path().join("run/page.json")).expect("a page");
    assert!(page.contains("of 8 blocks"), "{page}");
}

#[test]
fn a_full_disk_costs_the_files_and_not_the_verdict() {
    if cannot("a proof on a full disk") {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let server = Memcached::start(folder.path());
    let _load = Load::on(server.port);
    let before = server.place();
    let _limits = IdleLimits::shared();
    // One page is left there, for run.toml; a namespace takes the file system away with itself.
    let script = "set -e; mount -t tmpfs -o size=64k none \"$1\"; head -c 61440 /dev/zero > \"$1/fill\"
        code=0; \"$2\" prove --port \"$3\" --like 1000% --blocks 8 --block 2s --out \"$1/run\" \\
            -- --policy fixed --cores 1 --socket \"$4\" || code=$?
        cat \"$1/run/run.toml\"; [ ! -s \"$1/run/blocks.jsonl\" ]; exit $code";
    let disk = folder.path().join("disk");
    fs::create_dir(&disk).expect("a folder");
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", script, "sh"])
        .arg(&disk)
        .args([ROOST, &server.port.to_string()])
        .arg(folder.path().join("s"))
        .output()
        .expect("unshare runs");
    let [said, told] =
        [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    // On a quiet machine one core for two makes a difference, on a busy one none.
    let compared = if held_up(&told) { "pairs of blocks compared" } else { "4 pairs of blocks compared" };
    assert!(said.contains(compared) && said.contains("power"), "{said}\n{told}");
    assert!(told.contains("block 8 of 8") && told.contains("No space left on device"), "{told}");
    assert!(told.contains("free some space or name another folder"), "{told}");
    // Blocks that do not count leave no whole verdict.
    let code = output.status.code();
    assert!(code == Some(1) || held_up(&told) && code == Some(6), "{code:?}: {told}");
    assert_eq!(server.place(), before);
}

#[test]
fn a_meter_that_fails_half_way_is_told_with_its_reason() {
    if cannot("a proof whose meter fails") {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let server = Memcached::start(folder.path());
    let _load = Load::on(server.port);
    let watts = folder.path().join("watts");
    fs::write(&watts, "7\n").expect("a file");
    let meter = format!("cat '{}'", watts.display());
    let flags = ["--blocks", "8", "--block", "2s", "--meter", &meter];
    let proof = Proof::start(folder.path(), &server, &flags, &ONE_CORE);
    until_governed(&server);
    fs::remove_file(&watts).expect("it is there");
    let (code, said) = proof.end();
    assert_eq!(code, Some(6), "{said}");
    assert!(said.contains("not known: it failed (exit status: 1)"), "{said}");
    assert!(said.contains("hint: mend --meter"), "{said}");
    let last = blocks(folder.path()).pop().expect("a block");
    let reason = &last["missing"][format!("watts {meter}")];
    assert!(reason == "it failed (exit status: 1)" && last["figures"]["cores"].is_f64(), "{last}");
}

#[test]
fn a_proof_that_cannot_prove_says_how_another_one_could() {
    if cannot("a proof without requests") {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let server = Memcached::start(folder.path());
    // Nothing is asked of it.
    let flags = ["--blocks", "8", "--block", "2s"];
    let (code, said) = Proof::start(folder.path(), &server, &flags, &ONE_CORE).end();
    assert_eq!(code, Some(6), "{said}");
    assert!(said.contains("no requests were seen") && said.contains("hint: send it requests"), "{said}");
    // No epoch of a second would end in the part that counts.
    let flags = ["--blocks", "8", "--block", "1s"];
    let (code, said) = Proof::start(folder.path(), &server, &flags, &ONE_CORE).end();
    assert!(code == Some(2) && said.contains("hint: write --block 3.00s"), "{code:?} {said}");
}

/// A Prometheus server that answers its questions in turn, the last answer for ever.
fn prometheus(values: &'static [&'static str]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = format!("http://{}/api/v1/query?query=", listener.local_addr().expect("it is bound"));
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let stream = stream.expect("a client");
            let mut lines = BufReader::new(&stream).lines().map(|line| line.expect("text"));
            let line = lines.next().expect("a question");
            assert!(line.contains("?query=x%5B") && line.contains("s%5D&time="), "{line}");
            lines.find(String::is_empty).expect("an end");
            let value = values[number.min(values.len() - 1)];
            let body = format!(
                r#"{{"status":"success","data":{{"resultType":"vector","result":[{{"metric":{{}},"value":[1,"{value}"]}}]}}}}"#
            );
            let head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length:";
            write!(&stream, "{head} {}\r\n\r\n{body}", body.len()).expect("it listens");
        }
    });
    at
}

#[test]
fn the_tail_of_the_clients_is_a_figure_and_a_block_without_it_loses_nothing_else() {
    if cannot("a proof with the clients' own tail") {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let server = Memcached::start(folder.path());
    let _load = Load::on(server.port);
    // The first answer is to the try before the run.
    let url = prometheus(&["0.001", "0.002", "NaN", "0.004"]) + "x[$__range]";
    let flags = ["--blocks", "10", "--block", "2s", "--client-tail", &url];
    let (code, said) = Proof::start(folder.path(), &server, &flags, &ONE_CORE).end();
    if held_up(&said) {
        return;
    }
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("client tail 2.00 ms") && said.contains("client tail 4.00 ms"), "{said}");
    assert!(said.contains("client tail not known: the query gives NaN, no time"), "{said}");
    let blocks = blocks(folder.path());
    let tails: Vec<&Value> = blocks.iter().map(|block| &block["figures"]["client_tail_ns"]).collect();
    assert!(
        tails[0] == 2e6 && tails[1].is_null() && tails[2..].iter().all(|&tail| *tail == 4e6),
        "{tails:?}"
    );
    assert!(blocks[1]["missing"]["client_tail_ns"].is_string() && blocks[1]["void"].is_null());
    let summary = summary(folder.path());
    let changes = summary["changes"].as_array().expect("changes");
    let change = changes.iter().find(|change| change["figure"] == "client_tail_ns").expect("it");
    assert!(change["pairs"] == 4 && change["change"] == 0.0 && change["low"].is_f64(), "{change}");
    assert_eq!(summary["pairs"], 5);
}

#[test]
fn a_killed_proof_leaves_the_verdict_on_its_blocks() {
    if cannot("a proof that is killed between blocks") {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let server = Memcached::start(folder.path());
    let before = server.place();
    let _load = Load::on(server.port);
    let proof = Proof::start(folder.path(), &server, &["--blocks", "40", "--block", "2s"], &ONE_CORE);
    let began = Instant::now();
    let known = || fs::read_to_string(folder.path().join("run/blocks.jsonl")).unwrap_or_default();
    while known().lines().count() < 3 {
        assert!(began.elapsed() < Duration::from_secs(240), "no blocks");
        std::thread::sleep(Duration::from_millis(10));
    }
    signal(proof.child.id(), "KILL");
    let (_, said) = proof.end();
    let restore = Command::new(ROOST).arg("restore").output().expect("roost runs");
    assert!(restore.status.success(), "{restore:?}");
    assert_eq!(server.place(), before);
    let summary = summary(folder.path());
    let is_whole = summary["pairs"] == 1 || held_up(&said);
    assert!(summary["end"] == "stopped" && is_whole, "{summary}");
    let report = Command::new(ROOST).arg("report").arg(folder.path().join("run")).output().expect("it runs");
    assert!(report.status.success(), "{report:?}");
}

#[test]
fn a_proof_that_is_held_up_for_a_while_goes_on() {
    if cannot("a proof that is held up") {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let server = Memcached::start(folder.path());
    let _load = Load::on(server.port);
    let before = server.place();
    let proof = Proof::start(folder.path(), &server, &["--blocks", "8", "--block", "4s"], &ONE_CORE);
    until_governed(&server);
    // As a paused virtual machine, or one with more work than CPUs.
    signal(proof.child.id(), "STOP");
    std::thread::sleep(Duration::from_secs(7));
    signal(proof.child.id(), "CONT");
    let (code, said) = proof.end();
    assert!(said.contains("block 8 of 8") && !said.contains("the service has ended"), "{code:?} {said}");
    assert_eq!(server.place(), before);
}
