//! Files that are written in a folder: new ones, appended ones, and those that take their name
//! when they are whole.

use super::{LINK, SafeFolder, TRIES, failed, is_ours, is_plain, open_at, own_user, unforeseen};
use crate::SafeError;
use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self};
use std::os::unix::ffi::OsStrExt as _;

impl SafeFolder {
    /// A new file of that name; an error where the name is taken, by a dangling link too.
    pub fn create(&self, name: impl AsRef<OsStr>, mode: u32) -> Result<File, SafeError> {
        let name = name.as_ref();
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.place, name, flags, Mode::from_raw_mode(mode));
        file.map(File::from).map_err(failed(&self.path.join(name)))
    }

    /// The file of that name, to be added to; made if there is none. An existing one must be a
    /// regular file of this user with this one name.
    pub fn append(&self, name: impl AsRef<OsStr>, mode: u32) -> Result<File, SafeError> {
        self.own_file(name.as_ref(), OFlags::WRONLY | OFlags::APPEND, mode)
    }

    /// The same, to be read and written from its beginning.
    pub fn update(&self, name: impl AsRef<OsStr>, mode: u32) -> Result<File, SafeError> {
        self.own_file(name.as_ref(), OFlags::RDWR, mode)
    }

    /// The same, emptied.
    pub fn overwrite(&self, name: impl AsRef<OsStr>, mode: u32) -> Result<File, SafeError> {
        let name = name.as_ref();
        // Emptied only once its owner is known.
        let file = self.own_file(name, OFlags::WRONLY, mode)?;
        file.set_len(0).map_err(|source| SafeError::Io { path: self.path.join(name), source })?;
        Ok(file)
    }

    /// A file that is written to where it is: a device, a pipe of this user, a descriptor of this
    /// process.
    pub(super) fn sink(&self, name: &OsStr) -> Result<Option<File>, SafeError> {
        let path = self.path.join(name);
        let failed = failed(&path);
        let about = match rustix::fs::statat(&self.place, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(None),
            found => found.map_err(&failed)?,
        };
        let is_descriptor = match FileType::from_raw_mode(about.st_mode) {
            FileType::CharacterDevice => false,
            FileType::Fifo if about.st_uid == own_user() => false,
            FileType::Symlink if is_ours(&about) && self.holds_descriptors()? => true,
            _ => return Ok(None),
        };
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let flags = if is_descriptor { flags } else { flags | OFlags::NOFOLLOW };
        let file = rustix::fs::openat(&self.place, name, flags, Mode::empty()).map_err(&failed)?;
        let now = rustix::fs::fstat(&file).map_err(&failed)?;
        if !is_descriptor && (now.st_dev, now.st_ino) != (about.st_dev, about.st_ino) {
            return Err(SafeError::Unsafe { path, why: "it was exchanged just now".into() });
        }
        let flags = rustix::fs::fcntl_getfl(&file).map_err(&failed)?;
        rustix::fs::fcntl_setfl(&file, flags - OFlags::NONBLOCK).map_err(&failed)?;
        Ok(Some(File::from(file)))
    }

    /// True for the folder of this process's own descriptors, whose links lead to open files.
    pub(super) fn holds_descriptors(&self) -> Result<bool, SafeError> {
        let of = |path: &str| rustix::fs::stat(path).map(|other| (other.st_dev, other.st_ino)).ok();
        let own = rustix::fs::fstat(&self.place).map_err(failed(&self.path))?;
        let own = Some((own.st_dev, own.st_ino));
        Ok(of("/proc/self/fd") == own || of("/proc/thread-self/fd") == own)
    }

    pub(super) fn own_file(&self, name: &OsStr, flags: OFlags, mode: u32) -> Result<File, SafeError> {
        let path = self.path.join(name);
        let flags =
            flags | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(&self.place, name, flags, Mode::from_raw_mode(mode)) {
            Err(Errno::LOOP) => return Err(SafeError::Unsafe { path, why: LINK.into() }),
            other => other.map_err(failed(&path))?,
        };
        let about = rustix::fs::fstat(&file).map_err(failed(&path))?;
        is_plain(&path, &about, own_user())?;
        Ok(File::from(file))
    }

    /// Writes a file that takes its name when it is whole and on the disk; it replaces an earlier
    /// file or link of that name. This process's mask removes some of the bits `mode`.
    pub fn replace(
        &self,
        name: impl AsRef<OsStr>,
        mode: u32,
        write: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> Result<(), SafeError> {
        self.replace_and_keep(name, mode, write).map(drop)
    }

    /// The same, and the file stays open to be added to, locked (`flock`) since before it had its
    /// name.
    pub fn replace_and_keep(
        &self,
        name: impl AsRef<OsStr>,
        mode: u32,
        write: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> Result<File, SafeError> {
        let name = name.as_ref();
        let path = self.path.join(name);
        self.remove_drafts();
        let (draft, mut file) = self.draft(name, mode)?;
        let whole = write(&mut file)
            .and_then(|()| file.sync_all())
            .and_then(|()| Ok(rustix::fs::renameat(&self.place, &draft, &self.place, name)?));
        if let Err(source) = whole {
            let _ = rustix::fs::unlinkat(&self.place, &draft, AtFlags::empty());
            return Err(SafeError::Io { path, source });
        }
        // The name is on the disk only after its folder is. A folder that this user may not list
        // cannot be synced.
        if let Ok(open) = self.readable() {
            let _ = rustix::fs::fsync(open);
        }
        Ok(file)
    }

    /// A locked file under a name that it will not keep.
    pub(super) fn draft(&self, name: &OsStr, mode: u32) -> Result<(OsString, File), SafeError> {
        let path = self.path.join(name);
        for _ in 0..TRIES {
            let mut draft = OsString::from(".");
            draft.push(name);
            draft.push(format!(".{:016x}{DRAFT}", unforeseen()));
            let file = self.create(&draft, mode)?;
            let is_ours = match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                // Until it was locked, another process could take it for one that was left, and
                // remove it.
                Ok(()) => rustix::fs::fstat(&file).map_err(failed(&path))?.st_nlink == 1,
                Err(Errno::WOULDBLOCK) => false,
                Err(cause) => return Err(failed(&path)(cause)),
            };
            if is_ours {
                rustix::fs::fcntl_setfl(&file, OFlags::APPEND).map_err(failed(&path))?;
                return Ok((draft, file));
            }
        }
        Err(failed(&path)(Errno::BUSY))
    }

    /// Takes away the half-written files of killed runs of this user. A draft that is being written
    /// is locked. Failures do no harm.
    pub fn remove_drafts(&self) {
        let Ok(entries) = self.readable().map_err(|_| Errno::ACCESS).and_then(rustix::fs::Dir::new) else {
            return;
        };
        for entry in entries.filter_map(Result::ok) {
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if is_draft(name) {
                let _ = self.remove_if_left(name);
            }
        }
    }

    /// Takes a file of this user's away that no process has locked.
    pub fn remove_if_left(&self, name: impl AsRef<OsStr>) -> Result<(), Errno> {
        let name = name.as_ref();
        let file = open_at(&self.place, name, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?;
        let about = rustix::fs::fstat(&file)?;
        is_plain(&self.path, &about, own_user()).map_err(|_| Errno::PERM)?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        rustix::fs::unlinkat(&self.place, name, AtFlags::empty())
    }
}

/// `.NAME.`, sixteen hexadecimal digits and `.new`.
pub(super) fn is_draft(name: &OsStr) -> bool {
    let inside = name.as_bytes().strip_prefix(b".").and_then(|name| name.strip_suffix(DRAFT.as_bytes()));
    let Some((digits, dot)) = inside.and_then(|inside| {
        let (rest, digits) = inside.split_at_checked(inside.len().checked_sub(16)?)?;
        Some((digits, rest.last()?))
    }) else {
        return false;
    };
    *dot == b'.' && digits.iter().all(u8::is_ascii_hexdigit)
}

/// The end of the name of a file that is not whole yet.
const DRAFT: &str = ".new";
