//! A Unix socket in a folder.

use super::{SafeFolder, failed, open_at, own_user};
use crate::SafeError;
use crate::connect_within;
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::ffi::OsStr;
use std::io::{self};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::Duration;

impl SafeFolder {
    /// Listens at a Unix socket of that name, with the permissions `mode`. A dead listener's socket
    /// gives way; any other file of the name does not.
    pub fn listen(
        &self,
        name: impl AsRef<OsStr>,
        mode: u32,
        backlog: i32,
    ) -> Result<UnixListener, SafeError> {
        let name = name.as_ref();
        let path = self.path.join(name);
        let failed_io = |source| SafeError::Io { path: path.clone(), source };
        let of = || rustix::fs::statat(&self.place, name, AtFlags::SYMLINK_NOFOLLOW);
        if let Ok(about) = of() {
            if FileType::from_raw_mode(about.st_mode) != FileType::Socket {
                return Err(failed_io(io::Error::new(
                    io::ErrorKind::AlreadyExists,
                    "something that is no socket has that name: name another, or remove it",
                )));
            }
            let reached = connect_within(&self.by_descriptor(name), Duration::ZERO);
            if reached.is_ok() || reached.is_err_and(|error| error.kind() == io::ErrorKind::TimedOut) {
                return Err(failed_io(io::ErrorKind::AddrInUse.into()));
            }
            self.remove(name)?;
        }
        let kind = SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, kind, None);
        let socket = socket.map_err(failed(&path))?;
        // The file takes the socket's mode: there is no moment with wider permissions.
        rustix::fs::fchmod(&socket, Mode::from_raw_mode(mode)).map_err(failed(&path))?;
        // Where another user could exchange the folder, by its descriptor; else by the name that
        // `ss` shall show.
        let at = match self.doubt {
            None => path.clone(),
            Some(_) => self.by_descriptor(name),
        };
        let address = SocketAddrUnix::new(&at).map_err(failed(&path))?;
        rustix::net::bind(&socket, &address).map_err(failed(&path))?;
        let bound = open_at(&self.place, name, OFlags::PATH).map_err(failed(&path))?;
        let about = rustix::fs::fstat(&bound).map_err(failed(&path))?;
        if FileType::from_raw_mode(about.st_mode) != FileType::Socket || about.st_uid != own_user() {
            return Err(SafeError::Unsafe { path, why: "it was replaced as it was made".into() });
        }
        // This process's mask may have removed bits.
        let by_descriptor = format!("/proc/self/fd/{}", bound.as_raw_fd());
        std::fs::set_permissions(by_descriptor, std::fs::Permissions::from_mode(mode)).map_err(failed_io)?;
        rustix::net::listen(&socket, backlog).map_err(failed(&path))?;
        Ok(UnixListener::from(socket))
    }

    /// A path that leads into this folder, wherever its own path leads by now.
    pub(super) fn by_descriptor(&self, name: &OsStr) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.place.as_raw_fd())).join(name)
    }
}
