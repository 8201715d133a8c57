//! Any bytes are a slot file or are refused in one line that names the file; reading one that is accepted comes to an
//! end, and tells of no more threads than the file has room for.
//!
//! The test vectors make a good beginning: `cargo +nightly fuzz run slots fuzz/corpus/slots testdata/slots`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use machine::Duration;
use slots::{Enable, Reader, ReaderError};
use std::path::{Path, PathBuf};

fn ask_all(path: &Path) -> Result<(), ReaderError> {
    let mut reader = Reader::open(path)?;
    for _ in 0..2 {
        assert!(reader.look()?.len() <= reader.slot_count() as usize);
        assert!(reader.methods()?.len() <= 64);
        reader.failures()?;
        reader.events()?;
        reader.sleep(Some(Duration::from_nanos(1)))?;
        reader.enable(Enable::On)?;
    }
    Ok(())
}

fuzz_target!(|bytes: &[u8]| {
    let path: PathBuf = std::env::temp_dir().join(format!("roost-fuzz-{}.slots", std::process::id()));
    std::fs::write(&path, bytes).expect("a temporary file");
    if let Err(error) = ask_all(&path) {
        let said = error.to_string();
        assert!(said.contains("roost-fuzz") && !said.contains('\n'), "{said}");
    }
});
