//! A Unix socket with a name: taken over from a process that died, left to one that lives, removed
//! by who made it.

use linux::{SafeError, SafeFolder};
use std::ffi::OsString;
use std::io;
use std::os::unix::net::UnixListener;
use std::path::Path;

/// The name of a socket that this process listens at, removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    folder: SafeFolder,
    name: OsString,
}

/// Listens at `path`; `mode` decides which users can connect. The folder is made if it is not
/// there.
pub(crate) fn listen(path: &Path, mode: u32) -> io::Result<(UnixListener, Place)> {
    let (folder, name) = SafeFolder::of_file(path, Some(0o755)).map_err(SafeError::into_io)?;
    let listener = folder.listen(&name, mode, BACKLOG).map_err(SafeError::into_io)?;
    Ok((listener, Place { folder, name }))
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = self.folder.remove(&self.name);
    }
}

/// Peers that the kernel connects while the daemon is busy: one that is one too many waits, and
/// does not fail.
const BACKLOG: i32 = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_file_that_has_the_name_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        fs::write(&path, "another's").unwrap();
        listen(&path, 0o666).unwrap_err();
        assert_eq!(fs::read_to_string(&path).unwrap(), "another's");
    }

    #[test]
    fn the_dead_make_room_and_the_living_do_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("below").join("a.sock");
        let (listener, place) = listen(&path, 0o600).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(listen(&path, 0o666).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert!(UnixStream::connect(&path).is_ok(), "the second has left the first its socket");
        // As after a SIGKILL: no process listens, and the name is there.
        drop(listener);
        std::mem::forget(place);
        let (_listener, place) = listen(&path, 0o666).unwrap();
        drop(place);
        assert!(!path.exists());
    }
}
