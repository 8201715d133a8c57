//! A slot file is the service user's, and the governor may be root. So reading it ends, harms
//! nothing and names the fault, for any contents. `fuzz/src/slots.rs` does the last of these for as
//! long as one likes.

use crate::{memory_folder, root};
use machine::Duration;
use proptest::prelude::*;
use slots::{Reader, ReaderError, Writer, WriterError, WriterOptions};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;

/// Everything that can be asked of a file.
fn ask_all(path: &Path) -> Result<(), ReaderError> {
    let mut reader = Reader::open(path)?;
    for _ in 0..2 {
        assert!(reader.look()?.len() <= reader.slot_count() as usize);
        assert!(reader.methods()?.len() <= 64);
        reader.failures()?;
        reader.events()?;
        reader.sleep(Some(Duration::from_nanos(1)))?;
        reader.enable(slots::Enable::On)?;
    }
    let _ = (reader.identity().is_alive(), reader.writer().len());
    Ok(())
}

#[test]
fn what_is_no_slot_file_is_refused_in_a_line_that_names_the_fix() {
    let folder = memory_folder();
    let path = folder.path().join("slots");
    fs::write(&path, vec![b'x'; 100_000]).unwrap();
    let said = Reader::open(&path).unwrap_err().to_string();
    assert!(said.contains("ROOSTHOT") && said.contains("`file=`"), "{said}");
    fs::write(&path, "short").unwrap();
    assert!(Reader::open(&path).unwrap_err().to_string().contains("5 bytes"));
    fs::remove_file(&path).unwrap();
    symlink(root().join("testdata/slots/nested.bin"), &path).unwrap();
    assert!(matches!(Reader::open(&path), Err(ReaderError::Io { .. })), "a link is not followed");
    fs::remove_file(&path).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RWXU).unwrap();
    assert!(Reader::open(&path).unwrap_err().to_string().contains("no regular file"));

    let mut bytes = fs::read(root().join("testdata/slots/nested.bin")).unwrap();
    bytes[8] = 9;
    fs::remove_file(&path).unwrap();
    fs::write(&path, bytes).unwrap();
    let said = Reader::open(&path).unwrap_err().to_string();
    assert!(said.contains("format 9") && said.contains("a test") && said.contains("format 1"), "{said}");
}

#[test]
fn a_file_that_another_user_has_put_there_first_does_not_speak_for_the_service() {
    let folder = crate::memory_folder();
    let path = folder.path().join("slots");
    let _writer = slots::Writer::create(&path, &["a::b"], slots::WriterOptions::default()).unwrap();
    ask_all(&path).unwrap();
    fs::hard_link(&path, folder.path().join("other name")).unwrap();
    assert!(Reader::open(&path).unwrap_err().to_string().contains("several names"));
    fs::remove_file(folder.path().join("other name")).unwrap();
    if std::os::unix::fs::chown(&path, Some(65534), None).is_err() {
        return println!("SKIPPED: only root has another user's file");
    }
    let said = Reader::open(&path).unwrap_err().to_string();
    assert!(said.contains("belongs to user 65534") && said.contains("to user 0"), "{said}");
}

#[test]
fn a_file_cut_short_under_the_reader_is_an_error() {
    let folder = memory_folder();
    let path = folder.path().join("slots");
    fs::copy(root().join("testdata/slots/events.bin"), &path).unwrap();
    let mut reader = Reader::open(&path).unwrap();
    for length in [36_900, 5000, 200, 0] {
        OpenOptions::new().write(true).open(&path).unwrap().set_len(length).unwrap();
        let said = reader.look().map(|slots| slots.len()).unwrap_err().to_string();
        assert!(said.contains("cut short"), "{said}");
        assert!(matches!(reader.sleep(None), Err(ReaderError::Truncated { .. })));
    }
    assert!(reader.bell().ring().is_err());
    assert!(reader.enable(slots::Enable::Off).is_err());
    assert_eq!(fs::metadata(&path).unwrap().len(), 0, "nothing was written beyond the end");
}

#[test]
fn a_file_that_cannot_be_made_says_where_and_why() {
    let missing = Path::new("/nonexistent/folder/slots");
    let said = Writer::create(missing, &["m"], WriterOptions::default()).unwrap_err().to_string();
    assert!(said.contains("/nonexistent/folder/slots") && said.contains("writable"), "{said}");
    let folder = memory_folder();
    let path = folder.path().join("slots");
    for (slots, events) in [(0, 0), (20_000, 0), (1, 3), (1, 1 << 21)] {
        let options = WriterOptions { slots, events, ..WriterOptions::default() };
        assert!(matches!(Writer::create(&path, &["m"], options), Err(WriterError::OutOfRange { .. })));
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left behind");
}

#[test]
fn a_file_in_use_is_left_to_its_process_and_an_old_one_is_replaced() {
    let folder = memory_folder();
    let path = folder.path().join("slots");
    let mut sleeper = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let stat = fs::read_to_string(format!("/proc/{}/stat", sleeper.id())).unwrap();
    let started = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(19).unwrap().parse().unwrap();
    let identity = slots::Identity { pid: sleeper.id(), started, ..slots::Identity::own() };
    Writer::create(&path, &["m"], WriterOptions { identity, ..WriterOptions::default() }).unwrap();
    let said = Writer::create(&path, &["m"], WriterOptions::default()).unwrap_err().to_string();
    assert!(said.contains(&format!("process {}", sleeper.id())), "{said}");
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    Writer::create(&path, &["m"], WriterOptions::default()).unwrap();
    assert_eq!(Reader::open(&path).unwrap().identity(), slots::Identity::own());
}

#[test]
fn a_thread_that_ends_gives_its_slot_back() {
    let folder = memory_folder();
    let path = folder.path().join("slots");
    let writer =
        Writer::create(&path, &["m"], WriterOptions { slots: 2, ..WriterOptions::default() }).unwrap();
    for _ in 0..10 {
        std::thread::scope(|scope| {
            scope.spawn(|| drop(writer.register().enter(writer.method(0).unwrap())));
        });
    }
    let mut reader = Reader::open(&path).unwrap();
    assert_eq!((reader.look().unwrap().len(), reader.failures().unwrap().no_slot), (0, 0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn damage_anywhere_is_survived(
        vector in prop::sample::select(vec!["nested", "full", "events"]),
        damage in prop::collection::vec(
            (prop_oneof![0usize..300, 4096usize..4120, 36_864usize..37_200], any::<u64>()), 0..12),
        length in prop::option::of(0u64..40_000),
    ) {
        let folder = memory_folder();
        let path = folder.path().join("slots");
        fs::copy(root().join(format!("testdata/slots/{vector}.bin")), &path).unwrap();
        let file: File = OpenOptions::new().write(true).open(&path).unwrap();
        for (at, word) in damage {
            // Small numbers are the ones that get far.
            let word = if word % 2 == 0 { word % 70 } else { word };
            file.write_all_at(&word.to_le_bytes(), at as u64).unwrap();
        }
        if let Some(length) = length {
            file.set_len(length).unwrap();
        }
        if let Err(error) = ask_all(&path) {
            let said = error.to_string();
            prop_assert!(said.contains("slots") && !said.contains('\n'), "{}", said);
        }
    }
}
