//! The files whose code a process runs: its program and its libraries, from `/proc/PID/maps`.
//!
//! A path there is the process's own: in a container it names another file than the same path here.
//! So files are opened below `/proc/PID/root`, which is the process's own view.

use crate::root::{FileError, Root};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The files of which process `pid` may execute a part, in the process's own paths.
pub fn code_files(root: &Root, pid: u32) -> Result<BTreeSet<String>, FileError> {
    Ok(root.text(&format!("proc/{pid}/maps"))?.lines().filter_map(code_file).map(str::to_owned).collect())
}

/// The file that a user means by a path, or by a file's name alone; the program itself first.
pub fn code_file_named(files: &BTreeSet<String>, wanted: &str) -> Option<String> {
    let by_name = || files.iter().find(|file| Path::new(file).file_name().is_some_and(|name| name == wanted));
    files.get(wanted).or_else(by_name).cloned()
}

/// The path by which this process can open it.
pub fn seen_from_here(root: &Root, pid: u32, file: &str) -> PathBuf {
    root.path(&format!("proc/{pid}/root{file}"))
}

/// `START-END PERMISSIONS OFFSET DEVICE INODE PATH`; a path may hold spaces, and a deleted file has
/// no name any more.
fn code_file(line: &str) -> Option<&str> {
    let mut rest = line;
    let mut field = || {
        let (word, after) = rest.split_once(' ')?;
        rest = after.trim_start_matches(' ');
        Some(word)
    };
    let (_range, permissions) = (field()?, field()?);
    let (_offset, _device, _inode) = (field()?, field()?, field()?);
    let is_file = rest.starts_with('/') && !rest.ends_with(" (deleted)");
    (permissions.contains('x') && is_file).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_with_code_are_found_whatever_their_names_hold() {
        let of = |line| code_file(line);
        assert_eq!(
            of("7f00-7f10 r-xp 00001000 08:01 42                  /opt/a b/lib.so"),
            Some("/opt/a b/lib.so")
        );
        for nothing in [
            "7f00-7f10 r--p 00001000 08:01 42 /lib/x.so",
            "7f00-7f10 r-xp 00000000 00:00 0 [vdso]",
            "7f00-7f10 r-xp 00000000 08:01 7 /gone (deleted)",
            "7f00-7f10 r-xp 00000000 00:00 0",
            "",
        ] {
            assert_eq!(of(nothing), None, "{nothing}");
        }
    }

    #[test]
    fn this_program_is_found_by_path_and_by_name_and_can_be_opened() {
        let root = Root::system();
        let me = std::process::id();
        let files = code_files(&root, me).unwrap();
        let own = std::env::current_exe().unwrap();
        let path = own.to_str().unwrap();
        assert_eq!(code_file_named(&files, path).as_deref(), Some(path));
        assert_eq!(
            code_file_named(&files, own.file_name().unwrap().to_str().unwrap()).as_deref(),
            Some(path)
        );
        assert_eq!(code_file_named(&files, "nothing-of-that-name"), None);
        assert!(std::fs::File::open(seen_from_here(&root, me, path)).is_ok());
    }
}
