//! `include/roost.h` from C11 and from C++11, compiled by this machine's compiler without a
//! warning.

use crate::vectors::{read, vectors};
use crate::{memory_folder, root};
use machine::Duration;
use slots::{Activity, Reader, Woken};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

fn compile(compiler: &str, standard: &str, source: &str, out: &Path) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/native").join(source);
    let done = Command::new(compiler)
        .args([standard, "-O2", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-pthread", "-D_GNU_SOURCE"])
        .arg("-I")
        .arg(root().join("include"))
        .arg(source)
        .arg("-o")
        .arg(out)
        .output()
        .unwrap_or_else(|error| panic!("{compiler}: {error}; `scripts/setup test` installs it"));
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn c_leaves_the_vectors_bytes() {
    let folder = memory_folder();
    let program = folder.path().join("vectors");
    compile("cc", "-std=c11", "vectors.c", &program);
    for (path, text) in vectors() {
        let made = folder.path().join("made");
        let steps = File::open(&path).unwrap();
        assert!(Command::new(&program).arg(&made).stdin(steps).status().unwrap().success());
        let kept = fs::read(path.with_extension("bin")).unwrap();
        assert!(fs::read(&made).unwrap() == kept, "{}: other bytes", path.display());
        let expected: Vec<_> = text.lines().filter(|line| line.starts_with("expect ")).collect();
        assert_eq!(read(&made), expected, "{}", path.display());
        fs::remove_file(&made).unwrap();
    }
}

#[test]
fn a_server_in_cpp_counts_right_leaves_by_exceptions_and_rings() {
    const PAIRS: u32 = 300_000;
    let folder = memory_folder();
    let (program, path) = (folder.path().join("pairs"), folder.path().join("slots"));
    compile("c++", "-std=c++11", "pairs.cc", &program);
    let mut server = Command::new(&program)
        .arg(&path)
        .arg(PAIRS.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut input, output) = (server.stdin.take().unwrap(), server.stdout.take().unwrap());
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line).unwrap();
    assert_eq!(line, "done\n");
    let mut reader = Reader::open(&path).unwrap();
    assert_eq!(reader.identity().pid, server.id());
    assert!(reader.identity().is_alive());
    let slots = reader.look().unwrap();
    assert!(slots.iter().take(4).all(|slot| slot.sequence == 2 * PAIRS), "{slots:?}");
    assert!(slots.iter().all(|slot| slot.activity == Activity::Outside { last: None }), "{slots:?}");

    // Across processes: the enter rings, and the exit is seen.
    let enter = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(50));
        input.write_all(b"\n").unwrap();
        input
    });
    assert_eq!(reader.sleep(Some(Duration::from_secs(20))).unwrap(), Woken::Entered);
    let inside: Vec<_> = reader
        .look()
        .unwrap()
        .iter()
        .filter(|slot| matches!(slot.activity, Activity::Inside { .. }))
        .copied()
        .collect();
    assert_eq!(inside.len(), 1);
    assert_eq!(inside[0].tid, Some(server.id()));
    drop(enter.join().unwrap());
    assert!(server.wait().unwrap().success());
    assert!(!reader.identity().is_alive());
    assert_eq!(reader.look().unwrap().len(), 4, "the fifth thread gave its slot back");
}
