//! Where root leaves files in a folder of another user, who has planted links there. What cannot be
//! had here is said, and the test passes.

use crate::fixture::{ConfigFile, ROOST, Server, is_installed, repository, skipped};
use crate::governing::{Memcached, cannot};
use linux::EndsWithParent as _;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const NOBODY: u32 = 65534;

/// A folder of the user `nobody`, and next to it one that only root may write.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new(test: &str) -> Option<Self> {
        if fs::metadata("/proc/self").unwrap().uid() != 0 || !is_installed("setpriv") {
            skipped(test, "only root has other users, and needs setpriv to be one");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let place = Self { folder };
        fs::create_dir(place.theirs("")).unwrap();
        chown(place.theirs(""), Some(NOBODY), Some(NOBODY)).unwrap();
        fs::create_dir(place.roots()).unwrap();
        fs::set_permissions(place.roots(), fs::Permissions::from_mode(0o700)).unwrap();
        fs::write(place.secret(), SECRET).unwrap();
        fs::set_permissions(place.secret(), fs::Permissions::from_mode(0o600)).unwrap();
        Some(place)
    }

    fn theirs(&self, name: &str) -> PathBuf {
        self.folder.path().join("theirs").join(name)
    }

    fn roots(&self) -> PathBuf {
        self.folder.path().join("roots")
    }

    fn secret(&self) -> PathBuf {
        self.roots().join("secret")
    }

    /// A link of the user `nobody`, and the folders above it.
    fn plant(&self, name: &str, target: &Path) -> PathBuf {
        let link = self.theirs(name);
        let script = r#"mkdir -p "$(dirname "$1")" && ln -sfn "$0" "$1""#;
        let planted = Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", script])
            .args([target, &link])
            .status();
        assert!(planted.unwrap().success());
        link
    }

    fn is_untouched(&self, what: &str) {
        let about = fs::metadata(self.secret()).unwrap();
        assert_eq!((about.uid(), about.mode() & 0o777), (0, 0o600), "{what}: root's file was given away");
        assert_eq!(fs::read_to_string(self.secret()).unwrap(), SECRET, "{what}: root's file was written");
        let names = fs::read_dir(self.roots()).unwrap().map(|file| file.unwrap().file_name());
        assert_eq!(names.collect::<Vec<_>>(), ["secret"], "{what}: something was put among root's files");
    }

    /// Runs it, where a link lies in its way. It does not go through; it may refuse, and says then
    /// what is to be done.
    fn meets_a_link(&self, what: &str, arguments: &[&str]) -> Output {
        let done = roost(arguments);
        self.is_untouched(what);
        done
    }
}

const SECRET: &str = "root's own\n";

fn roost(arguments: &[&str]) -> Output {
    let mut command = Command::new(ROOST);
    command.args(arguments).current_dir(repository()).stdin(Stdio::null()).ends_with_parent();
    command.output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A regular file of root's own.
fn is_roots(path: &Path) {
    let about = fs::symlink_metadata(path).unwrap();
    assert!(about.is_file() && about.uid() == 0, "{}: {about:?}", path.display());
}

#[test]
fn a_file_that_root_names_goes_through_no_link_of_a_strangers() {
    let Some(place) = Place::new("files that options name") else { return };
    let store = Server::start(&["--memory-limit", "64m"]);
    let server = format!("127.0.0.1:{}", store.port);
    let page = place.folder.path().join("page.json");
    fs::write(&page, PAGE).unwrap();
    let at = |name: &str| place.theirs(name);
    let (recording, html, log) = (at("machine.txt"), at("a.html"), at("load.hdr"));
    let load = ["load", &server, "--rate", "100", "--warmup", "0s", "--for", "1s"];
    let commands: [(&Path, Vec<&str>); 3] = [
        (&recording, vec!["doctor", "--record", text(&recording)]),
        (&html, vec!["report", text(&page), "--out", text(&html)]),
        (&log, [&load[..], &["--hdr", text(&log)]].concat()),
    ];
    for (file, arguments) in commands {
        let name = file.file_name().unwrap().to_str().unwrap();
        place.plant(name, &place.secret());
        let done = place.meets_a_link(name, &arguments);
        assert!(!done.status.success(), "{name}");
        assert!(said(&done).contains("name the file itself"), "{name}: {}", said(&done));
        // Without the link root leaves its result there.
        fs::remove_file(file).unwrap();
        let done = roost(&arguments);
        let told = said(&done);
        assert!(file.exists() && !told.contains("link"), "{name}: {told}");
        is_roots(file);
    }
    // A device stays one.
    let done = roost(&["report", text(&page), "--out", "/dev/null"]);
    assert!(done.status.success(), "{}", said(&done));
    let null = fs::symlink_metadata("/dev/null").unwrap();
    assert!(!null.is_file() && !null.is_symlink());
    let done = roost(&["doctor", "--record", "/dev/stdout"]);
    assert!(String::from_utf8_lossy(&done.stdout).contains("proc/"), "{}", said(&done));
}

#[test]
fn a_runs_folder_is_filled_through_no_link_of_a_strangers() {
    let Some(place) = Place::new("folders of runs") else { return };
    let server = crate::staging::server();
    let (pages, sweep, stage) = (place.theirs("man"), place.theirs("sweep"), place.theirs("stage"));
    let scenario = "scenarios/mmk.toml";
    let axes = ["--set", "run.utilisation=0.2,0.4", "--set", "run.requests=1k"];
    let sweeps = [&["sim", "sweep", scenario, "--out", text(&sweep)], &axes[..]].concat();
    let commands: [(&str, Vec<&str>); 3] = [
        ("man/roost.1", vec!["generate", "man", text(&pages)]),
        ("sweep/cells.jsonl", sweeps),
        (
            "stage/readings.jsonl",
            vec!["stage", "--listen", "127.0.0.1:0", "--to", &server, "--for", "1s", "--out", text(&stage)],
        ),
    ];
    for (name, arguments) in commands {
        let link = place.plant(name, &place.secret());
        let done = place.meets_a_link(name, &arguments);
        // Pages are replaced whole, and a link with them; what grows is refused.
        if done.status.success() {
            is_roots(&link);
        } else {
            assert!(said(&done).contains("is a link"), "{name}: {}", said(&done));
        }
    }
    // A folder that is a link is refused as one.
    place.plant("way", &place.roots());
    let way = place.theirs("way/run");
    let done = place.meets_a_link("way", &["generate", "man", text(&way)]);
    assert!(said(&done).contains("name the folder itself"), "{}", said(&done));
}

#[test]
fn a_store_puts_socket_and_state_through_no_link_of_a_strangers() {
    let Some(place) = Place::new("files of a store") else { return };
    place.plant("way", &place.roots());
    for (option, kind, file) in [("--listen", "unix:", "way/store.sock"), ("--state", "", "way/state")] {
        let file = format!("{kind}{}", text(&place.theirs(file)));
        let arguments = ["serve", "--port", "0", "--memory-limit", "64m", "--idle-actuator", "none"];
        let mut command = Command::new(ROOST);
        command.args(arguments).args([option, &file]).stdin(Stdio::null()).ends_with_parent();
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut first = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
        if !first.is_empty() {
            child.kill().unwrap();
        }
        let done = child.wait_with_output().unwrap();
        place.is_untouched(option);
        assert_eq!(first, "", "{option}: it serves");
        assert!(said(&done).contains("name the folder itself"), "{option}: {}", said(&done));
    }
    // In the folder itself it listens, and only root may connect.
    let socket = place.theirs("store.sock");
    let at = format!("unix:{}", text(&socket));
    let server = Server::start(&["--memory-limit", "64m", "--listen", "127.0.0.1", "--listen", &at]);
    assert_eq!(fs::metadata(&socket).unwrap().mode() & 0o777, 0o600);
    assert!(std::os::unix::net::UnixStream::connect(&socket).is_ok());
    assert_eq!(server.terminate().0, Some(0));
    assert!(!socket.exists());
}

#[test]
fn an_audit_lies_where_nobody_can_take_it_away() {
    let Some(place) = Place::new("the audit") else { return };
    if cannot("the audit") {
        return;
    }
    let service = Memcached::start(place.folder.path());
    let (port, socket) = (service.port.to_string(), place.folder.path().join("govern.sock"));
    let audit = |file: &Path| {
        let govern = ["govern", "--port", &port, "--json", "--for", "1s", "--socket", text(&socket)];
        let config = ConfigFile::new(&format!("audit = {:?}", text(file)));
        place.meets_a_link("--audit", &[&govern[..], &["--config", &config]].concat())
    };
    let link = place.plant("audit.jsonl", &place.secret());
    let done = audit(&link);
    assert!(said(&done).contains("name the file itself"), "{}", said(&done));
    let done = audit(&place.theirs("other.jsonl"));
    assert!(said(&done).contains("in a folder that only root can write"), "{}", said(&done));
    assert!(!place.theirs("other.jsonl").exists());
}

/// A page's figures, as a script writes them.
const PAGE: &str = r#"{"title": "A page"}"#;
