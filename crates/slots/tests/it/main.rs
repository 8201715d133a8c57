//! Slots between real processes: writers in Rust, C and C++, the shared test vectors, hostile
//! files, the doorbell.

mod bell;
mod hostile;
mod java;
mod jvm;
mod native;
mod python;
mod race;
mod vectors;
mod wake;

/// A folder in memory, as `/run` is, so that no store waits for a disk.
fn memory_folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a temporary folder")
}

fn root() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
