//! Folders inside a folder: made, locked, given to another user.

use super::{SafeFolder, TRIES, doubt, failed, open_at, own_user, unforeseen};
use crate::SafeError;
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;

impl SafeFolder {
    /// A folder in it, made with the bits `mode` if it is not there. One that is there must be this
    /// user's.
    pub fn folder(&self, name: &str, mode: u32) -> Result<Self, SafeError> {
        let path = self.path.join(name);
        let failed = failed(&path);
        let made = match rustix::fs::mkdirat(&self.place, name, Mode::from_raw_mode(mode)) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(cause) => return Err(failed(cause)),
        };
        let place =
            open_at(&self.place, OsStr::new(name), OFlags::PATH | OFlags::DIRECTORY).map_err(&failed)?;
        let about = rustix::fs::fstat(&place).map_err(&failed)?;
        if about.st_uid != own_user() {
            return Err(SafeError::Unsafe { path, why: format!("it belongs to user {}", about.st_uid) });
        }
        let folder = Self { doubt: self.doubt.clone().or_else(|| doubt(&path, &about)), place, path };
        if made {
            // The mask of this process may have removed bits.
            let open = folder.readable()?;
            rustix::fs::fchmod(open, Mode::from_raw_mode(mode)).map_err(failed)?;
        }
        Ok(folder)
    }

    /// A new folder in it; an error where the name is taken.
    pub fn new_folder(&self, name: impl AsRef<OsStr>, mode: u32) -> Result<(), SafeError> {
        let name = name.as_ref();
        let made = rustix::fs::mkdirat(&self.place, name, Mode::from_raw_mode(mode));
        made.map_err(failed(&self.path.join(name)))
    }

    /// A folder in it with an unpredictable name that begins with `prefix`.
    pub fn fresh_folder(&self, prefix: &str, mode: u32) -> Result<Self, SafeError> {
        for _ in 0..TRIES {
            let name = format!("{prefix}{:016x}", unforeseen());
            match rustix::fs::mkdirat(&self.place, &name, Mode::from_raw_mode(0o700)) {
                Ok(()) => {
                    let folder = self.folder(&name, mode)?;
                    let open = folder.readable()?;
                    rustix::fs::fchmod(open, Mode::from_raw_mode(mode)).map_err(failed(&folder.path))?;
                    return Ok(folder);
                }
                Err(Errno::EXIST) => {}
                Err(cause) => return Err(failed(&self.path.join(name))(cause)),
            }
        }
        Err(failed(&self.path)(Errno::EXIST))
    }

    /// The same, locked (`flock`) for as long as the second lives: [`Self::left_folders`] passes it
    /// over.
    pub fn held_folder(&self, prefix: &str, mode: u32) -> Result<(Self, OwnedFd), SafeError> {
        for _ in 0..TRIES {
            let folder = self.fresh_folder(prefix, mode)?;
            // Until it was locked, another process could take it for one that was left, and remove
            // it.
            if let Some(held) = self.hold(&folder) {
                return Ok((folder, held));
            }
        }
        Err(failed(&self.path)(Errno::BUSY))
    }

    /// Folders of this user in it that [`Self::held_folder`] made and a killed process left, locked
    /// while they are looked at.
    pub fn left_folders(&self, prefix: &str) -> Vec<(Self, OwnedFd)> {
        let Ok(entries) = self.readable().map_err(|_| Errno::ACCESS).and_then(rustix::fs::Dir::new) else {
            return Vec::new();
        };
        let left = |entry: rustix::fs::DirEntry| {
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            let digits = name.as_bytes().strip_prefix(prefix.as_bytes())?;
            if digits.len() != 16 || !digits.iter().all(u8::is_ascii_hexdigit) {
                return None;
            }
            let place = open_at(&self.place, name, OFlags::PATH | OFlags::DIRECTORY).ok()?;
            let about = rustix::fs::fstat(&place).ok()?;
            let path = self.path.join(name);
            let doubt = self.doubt.clone().or_else(|| doubt(&path, &about));
            let folder = (about.st_uid == own_user()).then_some(Self { place, path, doubt })?;
            let held = self.hold(&folder)?;
            Some((folder, held))
        };
        entries.filter_map(Result::ok).filter_map(left).collect()
    }

    /// Its lock, if no other process has that and it still has its name.
    pub(super) fn hold(&self, folder: &Self) -> Option<OwnedFd> {
        let held = folder.readable().ok()?;
        rustix::fs::flock(&held, FlockOperation::NonBlockingLockExclusive).ok()?;
        let named =
            rustix::fs::statat(&self.place, folder.path.file_name()?, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let about = rustix::fs::fstat(&held).ok()?;
        ((named.st_dev, named.st_ino) == (about.st_dev, about.st_ino)).then_some(held)
    }

    /// A folder in it that `user` alone writes, made if it is not there. We write nothing into it:
    /// its owner chooses its content. An existing one must be that user's.
    pub fn folder_of(&self, name: &str, user: u32, group: u32) -> Result<Self, SafeError> {
        let path = self.path.join(name);
        match rustix::fs::mkdirat(&self.place, name, Mode::from_raw_mode(0o700)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(cause) => return Err(failed(&path)(cause)),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let place = open_at(&self.place, OsStr::new(name), flags).map_err(failed(&path))?;
        let mut about = rustix::fs::fstat(&place).map_err(failed(&path))?;
        if about.st_uid == own_user() && user != own_user() {
            let (uid, gid) = (rustix::fs::Uid::from_raw(user), rustix::fs::Gid::from_raw(group));
            rustix::fs::fchown(&place, Some(uid), Some(gid)).map_err(failed(&path))?;
            about.st_uid = user;
        }
        if about.st_uid != user || about.st_mode & 0o022 != 0 {
            return Err(SafeError::Unsafe { path, why: format!("it is not user {user}'s alone; remove it") });
        }
        let doubt = (user != own_user()).then(|| (path.clone(), format!("it belongs to user {user}")));
        Ok(Self { doubt: self.doubt.clone().or(doubt), place, path })
    }

    /// A folder in it of any user, to take names away there.
    pub fn inner(&self, name: impl AsRef<OsStr>) -> Result<Self, SafeError> {
        let name = name.as_ref();
        let path = self.path.join(name);
        let place = open_at(&self.place, name, OFlags::PATH | OFlags::DIRECTORY).map_err(failed(&path))?;
        let about = rustix::fs::fstat(&place).map_err(failed(&path))?;
        let doubt = self.doubt.clone().or_else(|| doubt(&path, &about));
        Ok(Self { place, path, doubt })
    }
}
