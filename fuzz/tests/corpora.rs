//! Every input of `corpus/` goes through its door: right ones, nasty ones, and those that a fuzzer
//! once found.

use roost_fuzz::TARGETS;
use std::collections::BTreeSet;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the repository")
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let paths = entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    let mut paths: Vec<_> = paths.collect();
    paths.sort();
    paths
}

#[test]
fn every_door_stands_what_is_kept_for_it() {
    let mut failed = Vec::new();
    for target in TARGETS {
        let kept = files(&root().join("fuzz/corpus").join(target.name));
        assert!(!kept.is_empty(), "nothing is kept for {}", target.name);
        let others = target.more.map(|folder| files(&root().join(folder))).unwrap_or_default();
        println!("{}: {} inputs", target.name, kept.len() + others.len());
        for path in kept.into_iter().chain(others) {
            let bytes = fs::read(&path).unwrap();
            if catch_unwind(AssertUnwindSafe(|| (target.run)(&bytes))).is_err() {
                failed.push(path);
            }
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}

#[test]
fn every_door_has_a_program_a_folder_and_a_place_in_the_list() {
    let names: BTreeSet<String> = TARGETS.iter().map(|target| target.name.to_owned()).collect();
    let here = root().join("fuzz");
    let stems = |folder: &str| -> BTreeSet<String> {
        let entries = fs::read_dir(here.join(folder)).unwrap().map(|entry| entry.unwrap().path());
        entries.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect()
    };
    assert_eq!(stems("corpus"), names);
    assert_eq!(stems("fuzz_targets"), names);
    let manifest = fs::read_to_string(here.join("Cargo.toml")).unwrap();
    for name in names {
        assert!(manifest.contains(&format!("\nname = \"{name}\"\n")), "{name} is no [[bin]]");
    }
}
