//! Any bytes are a slot file or are refused in one line that names the file; reading one that is
//! accepted comes to an end, and tells of no more threads than the file has room for.

use crate::file_of;
use machine::Duration;
use slots::{Enable, Reader, ReaderError};
use std::fs::File;
use std::path::Path;

fn ask_all(file: File) -> Result<(), ReaderError> {
    let mut reader = Reader::from_file(file, Path::new("any.slots"))?;
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

pub fn run(bytes: &[u8]) {
    if let Err(error) = ask_all(file_of(bytes)) {
        let said = error.to_string();
        assert!(said.contains("any.slots") && !said.contains('\n'), "{said}");
    }
}
