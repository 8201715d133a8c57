//! The examples are policies, and their modules are those of the committed sources.

use std::path::Path;
use std::process::Command;
use wasm::{Decides, Module};

#[test]
fn each_example_is_a_policy() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    for (name, decides) in [("carb", Decides::Epochs), ("deepest", Decides::Idle), ("ladder", Decides::Idle)]
    {
        let module = Module::read(&folder.join(name).with_extension("wasm")).expect(name);
        assert_eq!(module.decides(), decides, "{name}");
    }
    let listed = std::fs::read_to_string(folder.join("SOURCES")).unwrap();
    for line in listed.lines().filter(|line| !line.starts_with('#')) {
        let (sum, file) = line.split_once("  ").expect("sum and file");
        let told = Command::new("cksum").arg(file).current_dir(&folder).output().expect("coreutils");
        let told = String::from_utf8(told.stdout).unwrap();
        assert!(told.starts_with(&format!("{sum} ")), "{file} was changed: run scripts/wasm");
    }
}
