use super::files::is_draft;
use super::*;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};

/// Another user's folder, where this process may make one.
fn of_nobody(folder: &Path) -> bool {
    fs::create_dir(folder).unwrap();
    own_user() == 0 && chown(folder, Some(65534), Some(65534)).is_ok()
}

#[test]
fn a_link_that_takes_the_place_of_a_file_is_replaced_and_not_followed() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    fs::write(&secret, "root's").unwrap();
    let place = SafeFolder::open(folder.path()).unwrap();
    symlink(&secret, folder.path().join("out")).unwrap();
    for refused in [place.append("out", 0o600), place.overwrite("out", 0o600), place.create("out", 0o600)] {
        refused.unwrap_err();
    }
    place.read_of("out", own_user(), 100).unwrap_err();
    place.replace("out", 0o644, |file| file.write_all(b"new")).unwrap();
    assert_eq!(fs::read_to_string(&secret).unwrap(), "root's");
    let out = fs::symlink_metadata(folder.path().join("out")).unwrap();
    assert_eq!((out.is_file(), out.mode() & 0o777), (true, 0o644));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "no draft is left");
}

#[test]
fn what_could_not_be_written_whole_leaves_the_old_one() {
    let folder = tempfile::tempdir().unwrap();
    let place = SafeFolder::open(folder.path()).unwrap();
    place.replace("a", 0o600, |file| file.write_all(b"old")).unwrap();
    let error = place.replace("a", 0o600, |file| {
        file.write_all(b"half")?;
        Err(io::Error::other("full"))
    });
    assert!(error.unwrap_err().to_string().contains("full"));
    assert_eq!(place.read_of("a", own_user(), 100).unwrap(), b"old");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn what_a_killed_run_wrote_half_of_goes_and_what_is_being_written_stays() {
    let folder = tempfile::tempdir().unwrap();
    let place = SafeFolder::open(folder.path()).unwrap();
    fs::write(folder.path().join(".a.0123456789abcdef.new"), "ha").unwrap();
    fs::write(folder.path().join(".b.fedcba9876543210.new"), "").unwrap();
    // These are no drafts of ours.
    let others = [
        ".a.0123456789abcde.new",
        ".0123456789abcdef.new",
        "a.0123456789abcdef.new",
        ".a.0123456789abcdeg.new",
    ];
    others.iter().for_each(|name| fs::write(folder.path().join(name), "kept").unwrap());
    let drafts = || {
        let names = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| is_draft(name)).count()
    };
    assert_eq!(drafts(), 2);
    place
        .replace("a", 0o600, |file| {
            assert_eq!(drafts(), 1, "its own");
            // As another process would that replaces a file there.
            SafeFolder::open(folder.path())
                .unwrap()
                .replace("b", 0o600, |file| file.write_all(b"b"))
                .unwrap();
            file.write_all(b"whole")
        })
        .unwrap();
    assert_eq!(drafts(), 0);
    assert_eq!(place.read_of("a", own_user(), 100).unwrap(), b"whole");
    assert!(others.iter().all(|name| fs::read_to_string(folder.path().join(name)).unwrap() == "kept"));
}

#[test]
fn a_reader_sees_the_old_file_or_the_new_one_and_nothing_between() {
    let folder = tempfile::tempdir().unwrap();
    let place = SafeFolder::open(folder.path()).unwrap();
    let text = |byte: u8| vec![byte; 1 << 16];
    place.replace("a", 0o600, |file| file.write_all(&text(0))).unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            (1..=200_u8).for_each(|byte| {
                place.replace("a", 0o600, |file| file.write_all(&text(byte))).unwrap();
            });
        });
        while !writer.is_finished() {
            let seen = fs::read(folder.path().join("a")).unwrap();
            assert!(seen.len() == 1 << 16 && seen.iter().all(|byte| *byte == seen[0]));
        }
    });
}

#[test]
fn files_of_several_names_pipes_and_long_ones_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let place = SafeFolder::open(folder.path()).unwrap();
    fs::write(folder.path().join("one"), "12345").unwrap();
    place.append("one", 0o600).unwrap();
    assert_eq!(place.read_of("one", own_user(), 5).unwrap(), b"12345");
    assert!(place.read_of("one", own_user(), 4).unwrap_err().to_string().contains("more than 4"));
    place.read_of("one", own_user() + 1, 5).unwrap_err();
    fs::hard_link(folder.path().join("one"), folder.path().join("two")).unwrap();
    assert!(place.overwrite("one", 0o600).unwrap_err().to_string().contains("several names"));
    assert_eq!(fs::read_to_string(folder.path().join("one")).unwrap(), "12345");
    let pipe = folder.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    place.append("pipe", 0o600).unwrap_err();
    assert!(place.read_of("pipe", own_user(), 5).unwrap_err().to_string().contains("no regular file"));
}

#[test]
fn own_links_on_the_way_are_followed_and_another_users_are_not() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("real")).unwrap();
    symlink("real", folder.path().join("link")).unwrap();
    symlink("link", folder.path().join("again")).unwrap();
    symlink("loop", folder.path().join("loop")).unwrap();
    let made = SafeFolder::make(&folder.path().join("again/../again/below"), 0o750).unwrap();
    assert_eq!(made.path(), folder.path().canonicalize().unwrap().join("real/below"));
    SafeFolder::open(&folder.path().join("loop")).unwrap_err();
    SafeFolder::open(&folder.path().join("absent")).unwrap_err();
    let theirs = folder.path().join("theirs");
    if !of_nobody(&theirs) {
        return println!("SKIPPED: only root has another user's folder");
    }
    symlink(folder.path().join("real"), theirs.join("link")).unwrap();
    // Root's own link, and still refused: the folder's owner may have put it there.
    let error = SafeFolder::make(&theirs.join("link/deep"), 0o755).unwrap_err();
    assert!(error.to_string().contains("user 65534 may have made"), "{error}");
    // Without links results may lie there; nothing there is believed.
    let plain = SafeFolder::make(&theirs.join("results"), 0o755).unwrap();
    plain.replace("a", 0o644, |file| file.write_all(b"x")).unwrap();
    let error = plain.trusted().unwrap_err();
    assert!(error.to_string().contains("belongs to user 65534"), "{error}");
}

#[test]
fn a_folder_that_others_may_write_is_not_trusted_unless_it_is_sticky() {
    let folder = tempfile::tempdir().unwrap();
    let at = |mode: u32| {
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode)).unwrap();
        SafeFolder::open(folder.path()).unwrap().trusted()
    };
    at(0o711).unwrap();
    at(0o1777).unwrap();
    assert!(at(0o777).unwrap_err().to_string().contains("every user may write"));
    assert!(at(0o702).is_err());
}

#[test]
fn a_socket_takes_the_place_of_a_dead_one_and_of_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let place = SafeFolder::open(folder.path()).unwrap();
    let mode = |name: &str| fs::symlink_metadata(folder.path().join(name)).unwrap().mode() & 0o777;
    let first = place.listen("a", 0o666, 8).unwrap();
    assert_eq!(mode("a"), 0o666);
    assert_eq!(place.listen("a", 0o600, 8).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    drop(first);
    place.listen("a", 0o600, 8).unwrap();
    assert_eq!(mode("a"), 0o600);
    fs::write(folder.path().join("file"), "kept").unwrap();
    symlink(folder.path().join("file"), folder.path().join("link")).unwrap();
    for name in ["file", "link"] {
        assert_eq!(place.listen(name, 0o666, 8).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    }
    assert_eq!(fs::read_to_string(folder.path().join("file")).unwrap(), "kept");
}

#[test]
fn fresh_folders_never_meet_and_one_that_is_given_away_is_not_trusted() {
    let folder = tempfile::tempdir().unwrap();
    let place = SafeFolder::open(folder.path()).unwrap();
    let (one, two) = (place.fresh_folder("x-", 0o711).unwrap(), place.fresh_folder("x-", 0o711).unwrap());
    assert_ne!(one.path(), two.path());
    assert_eq!(fs::metadata(one.path()).unwrap().mode() & 0o777, 0o711);
    one.trusted().unwrap();
    if own_user() == 0 {
        let theirs = two.folder_of("out", 65534, 65534).unwrap();
        assert_eq!(fs::metadata(theirs.path()).unwrap().uid(), 65534);
        two.folder_of("out", 65534, 65534).unwrap();
        // It is taken for no other journal's.
        two.folder("out", 0o700).unwrap_err();
        two.folder_of("out", 65533, 65533).unwrap_err();
        theirs.trusted().unwrap_err();
    }
}
