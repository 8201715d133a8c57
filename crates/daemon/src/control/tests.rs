use super::*;
use crate::Policy;

fn listening(folder: &Path) -> (Control, PathBuf) {
    let path = folder.join("govern.sock");
    let control = Control::listen(Callers::at(&path), |heard| {
        let Heard::Question(ask, reply) = heard else { return true };
        let answer = match ask {
            Ask::Status => Answer::Status {
                governed: Vec::new(),
                waiting: Vec::new(),
                asked: Vec::new(),
                controllers: Vec::new(),
                lent: None,
                dry_run: true,
            },
            Ask::Lease(part) => Answer::Leased(part.names()),
            Ask::Knobs(request) => match request.check() {
                Ok(()) => Answer::Combined(Combined::default()),
                Err(why) => Answer::Refused(why),
            },
            Ask::Set { service, .. } if service == "cache" => Answer::Done,
            Ask::Set { service, .. } => Answer::Refused(format!("no service {service}")),
        };
        reply.send(answer);
        true
    });
    (control.unwrap(), path)
}

#[test]
fn questions_are_answered_and_the_socket_goes_with_its_daemon() {
    let folder = tempfile::tempdir().unwrap();
    let (control, path) = listening(folder.path());
    assert!(matches!(ask(&path, &Ask::Status), Ok(Answer::Status { dry_run: true, .. })));
    let set = |service: &str| Ask::Set { service: service.into(), set: Set::Pause };
    assert_eq!(ask(&path, &set("cache")).unwrap(), Answer::Done);
    assert!(matches!(ask(&path, &set("x")).unwrap(), Answer::Refused(_)));
    assert!(
        matches!(Control::listen(Callers::at(&path), |_| true), Err(ControlError::Taken { .. })),
        "it lives"
    );
    drop(control);
    assert!(ask(&path, &Ask::Status).unwrap_err().to_string().contains("roost daemon"));
}

#[test]
fn the_file_of_a_policy_comes_with_the_question_of_its_user() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("govern.sock");
    let _control = Control::listen(Callers::at(&path), |heard| {
        let Heard::Question(Ask::Lease(part), reply) = heard else { return true };
        let Policy::Own(own) = &part.services[0].policy else { panic!("{part:?}") };
        reply.send(Answer::Leased(vec![format!("{:?}", own.module().map(wasm::Module::decides))]));
        true
    })
    .unwrap();
    let file = folder.path().join("mine.wasm");
    let asked = |text: &str| {
        std::fs::write(&file, text).unwrap();
        let written = format!("port = 1\npolicy = \"{}\"", file.display());
        let mut service: crate::ServiceConfig = toml::from_str(&written).unwrap();
        let read = service.policy.read("".as_ref());
        (Part { services: vec![service], ..Part::default() }, read)
    };
    let version = r#"(func (export "roost_policy") (result i32) (i32.const 1))"#;
    let module = wat::parse_str(format!(r#"(module (func (export "on_epoch")) {version})"#)).unwrap();
    let (part, read) = asked("no module");
    assert!(read.unwrap_err().contains("mine.wasm"));
    // Without its file the daemon must not look for it by name.
    let take = |part: &Part| LeaseRequest::connect(&path).unwrap().take(part).unwrap();
    std::fs::write(&file, &module).unwrap();
    assert_eq!(take(&part).unwrap().names, ["None"]);
    let mut part = part;
    part.services[0].policy.read("".as_ref()).unwrap();
    assert_eq!(take(&part).unwrap().names, ["Some(Epochs)"]);
    // What the daemon gets is the file's content at that time, and it looks itself.
    std::fs::write(&file, "no module any more").unwrap();
    let refused = take(&part).unwrap_err();
    assert!(refused.message.contains("mine.wasm"), "{refused:?}");
}

#[test]
fn nonsense_is_told() {
    assert!(question("GET / HTTP/1.1").unwrap_err().contains("not understood"));
    assert!(question("").is_err());
    assert!(!question("\"a\\nb\\u001b[2J\"").unwrap_err().contains(char::is_control));
    assert!(question(r#"{"set":{"service":"a","set":"pause","also":1}}"#).is_err());
    assert!(question(r#"{"set":{"service":"a","set":{"goal":"fast"}}}"#).is_err());
    assert!(question(r#"{"set":{"service":"a","set":"pause"}}"#).is_ok());
    assert_eq!(question("\"status\"\n"), Ok(Ask::Status));
}

#[test]
fn a_peer_that_sends_a_byte_now_and_then_keeps_nobody_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let (_control, path) = listening(folder.path());
    let mut slow = UnixStream::connect(&path).unwrap();
    slow.set_read_timeout(Some(StdDuration::from_millis(50))).unwrap();
    let mut answer = [0; 256];
    // Each byte alone is in time; together they are not. Forty are two seconds, far from the
    // four thousand of a line.
    let answered = (0..200).find_map(|_| {
        let _ = slow.write_all(b"x");
        slow.read(&mut answer).ok()
    });
    let answer = String::from_utf8_lossy(&answer[..answered.unwrap()]).into_owned();
    assert!(answer.contains("cannot be read"), "{answer}");
    assert!(ask(&path, &Ask::Status).is_ok());
}

/// Connections of another user, each with a byte of a line that never ends; none if this
/// process may not be another user.
fn strangers(path: &Path, user: u32, count: usize) -> Vec<UnixStream> {
    // The kernel's word on a peer is that on the thread that connected.
    let path = path.to_owned();
    let connecting = std::thread::spawn(move || {
        let user = rustix::process::Uid::from_raw(user);
        rustix::thread::set_thread_res_uid(user, user, user).ok()?;
        let connect = |_| {
            let mut stream = UnixStream::connect(&path).expect("the socket is for all");
            let _ = stream.write_all(b"x");
            stream
        };
        Some((0..count).map(connect).collect())
    });
    connecting.join().unwrap().unwrap_or_default()
}

/// A folder that other users may pass through.
fn open_folder() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o711)).unwrap();
    folder
}

const NOBODY: u32 = 65_534;

#[test]
fn questions_of_root_wait_for_no_stranger() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: needs root, to be another user as well");
        return;
    }
    let folder = open_folder();
    let (_control, path) = listening(folder.path());
    let done = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    // They come again as soon as they are sent away.
    let coming = {
        let (path, done) = (path.clone(), std::sync::Arc::clone(&done));
        std::thread::spawn(move || {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                let held = [NOBODY, 1234].map(|user| strangers(&path, user, 20));
                std::thread::sleep(StdDuration::from_millis(20));
                drop(held);
            }
        })
    };
    let standing = strangers(&path, NOBODY, 40);
    let pause = Ask::Set { service: "cache".into(), set: Set::Pause };
    for _ in 0..20 {
        assert_eq!(ask(&path, &pause).unwrap(), Answer::Done);
        assert!(matches!(ask(&path, &Ask::Status), Ok(Answer::Status { .. })));
    }
    done.store(true, std::sync::atomic::Ordering::Relaxed);
    coming.join().unwrap();
    drop(standing);
}

#[test]
fn a_stranger_is_answered_beside_its_own_stalled_connections_and_changes_nothing() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: needs root, to be another user as well");
        return;
    }
    let folder = open_folder();
    let (_control, path) = listening(folder.path());
    let stalled = strangers(&path, NOBODY, 60);
    let answered = |question: &'static [u8]| {
        let path = path.clone();
        let asking = std::thread::spawn(move || {
            let user = rustix::process::Uid::from_raw(NOBODY);
            rustix::thread::set_thread_res_uid(user, user, user).unwrap();
            let mut stream = UnixStream::connect(&path).unwrap();
            stream.write_all(question).unwrap();
            let mut answer = String::new();
            BufReader::new(stream).read_line(&mut answer).unwrap();
            answer
        });
        asking.join().unwrap()
    };
    assert!(answered(b"\"status\"\n").contains("dry_run"));
    assert!(answered(b"{\"set\":{\"service\":\"cache\",\"set\":\"pause\"}}\n").contains("denied"));
    drop(stalled);
}

#[test]
fn strangers_wait_for_a_daemon_that_is_busy_and_root_gets_its_turn_first() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: needs root, to be another user as well");
        return;
    }
    let folder = open_folder();
    let path = folder.path().join("govern.sock");
    let (sender, heard) = std::sync::mpsc::channel();
    let hear = move |heard| match heard {
        Heard::Question(ask, reply) => sender.send((ask, reply)).is_ok(),
        Heard::LeaseEnded(_) => true,
    };
    let _control = Control::listen(Callers::at(&path), hear).unwrap();
    let stranger = |count: usize| {
        let path = path.clone();
        std::thread::spawn(move || {
            let user = rustix::process::Uid::from_raw(NOBODY);
            rustix::thread::set_thread_res_uid(user, user, user).unwrap();
            let streams: Vec<_> = (0..count)
                .map(|_| {
                    let mut stream = UnixStream::connect(&path).unwrap();
                    stream.write_all(b"\"status\"\n").unwrap();
                    stream
                })
                .collect();
            streams
        })
        .join()
        .unwrap()
    };
    // Six questions of a stranger, of which the daemon has one in hand, and then one of root.
    let waiting = stranger(6);
    let (_, first) = heard.recv_timeout(StdDuration::from_secs(60)).unwrap();
    assert_eq!(first.asker().user, NOBODY);
    let asking = {
        let path = path.clone();
        std::thread::spawn(move || ask(&path, &Ask::Set { service: "cache".into(), set: Set::Pause }))
    };
    // The next that the daemon hears is root's, though five came before it.
    let (asked, reply) = heard.recv_timeout(StdDuration::from_secs(60)).unwrap();
    assert!(matches!(asked, Ask::Set { .. }), "{asked:?}");
    assert_eq!((reply.asker().user, reply.asker().process), (0, std::process::id()));
    reply.send(Answer::Done);
    assert_eq!(asking.join().unwrap().unwrap(), Answer::Done);
    drop((first, waiting));
}

#[test]
fn a_peer_that_never_ends_its_line_is_cut_off() {
    let folder = tempfile::tempdir().unwrap();
    let (_control, path) = listening(folder.path());
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.write_all(&vec![b'x'; 5000]).unwrap();
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).unwrap();
    assert!(answer.contains("not understood"), "{answer}");
}
