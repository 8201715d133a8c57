//! A Unix socket with a name: taken over from a process that died, left to one that lives, removed by who made it.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// The name of a socket that this process listens at, removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Place(PathBuf);

/// Listens at `path`, which whoever may by `mode` can connect to. The folder is made if it is not there.
pub(crate) fn listen(path: &Path, mode: u32) -> io::Result<(UnixListener, Place)> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let listener = match UnixListener::bind(path) {
        // The dead leave their sockets; the living answer at them.
        Err(cause) if cause.kind() == io::ErrorKind::AddrInUse && UnixStream::connect(path).is_err() => {
            fs::remove_file(path)?;
            UnixListener::bind(path)?
        }
        other => other?,
    };
    let place = Place(path.to_owned());
    fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    Ok((listener, place))
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dead_make_room_and_the_living_do_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("below").join("a.sock");
        let (listener, place) = listen(&path, 0o600).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(listen(&path, 0o666).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert!(UnixStream::connect(&path).is_ok(), "the second has left the first its socket");
        // As after a SIGKILL: nobody listens, and the name is there.
        drop(listener);
        std::mem::forget(place);
        let (_listener, place) = listen(&path, 0o666).unwrap();
        drop(place);
        assert!(!path.exists());
    }
}
