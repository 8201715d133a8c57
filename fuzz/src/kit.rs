//! Any bytes are an archive of `roost prove --kit` or are refused with the reason. One that is
//! accepted has a page, stays the same when it is written again, and gives a whole row of the table
//! of the hardware. A search would hardly find a checksum, so bytes that are no gzip are packed here:
//! a text as its files, each after a line `== NAME`, and others as the tar.

use std::io::Write as _;
use study::kit::{Archive, seen};

pub fn run(bytes: &[u8]) {
    let packed = match std::str::from_utf8(bytes).ok().and_then(|text| text.strip_prefix(NEXT)) {
        Some(text) => gzip(&tar_of(text)),
        None if Archive::is_one(bytes) => bytes.to_vec(),
        None => gzip(bytes),
    };
    let Ok(archive) = Archive::read(&packed) else { return };
    let mut again = Vec::new();
    archive.write(&mut again).expect("memory");
    assert_eq!(Archive::read(&again).expect("what was read is written so that it reads"), archive);
    let page = archive.page();
    assert!(!page.html().is_empty());
    let table = seen::document(&[("a".to_owned(), archive)]);
    let cells = |line: &str| line.matches('|').count();
    assert!(table.lines().filter(|line| line.starts_with("| ")).all(|line| cells(line) == 3), "{table}");
}

const NEXT: &str = "== ";

fn tar_of(text: &str) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for file in text.split("\n== ") {
        let (name, content) = file.split_once('\n').unwrap_or((file, ""));
        let mut header = tar::Header::new_ustar();
        let length = name.len().min(100);
        header.as_mut_bytes()[..length].copy_from_slice(&name.as_bytes()[..length]);
        header.set_size(content.len() as u64);
        header.set_cksum();
        tar.append(&header, content.as_bytes()).expect("memory");
    }
    tar.into_inner().expect("memory")
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(bytes).expect("memory");
    gzip.finish().expect("memory")
}
