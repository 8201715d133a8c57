//! Folders and files where another user may write, opened so that no other user chooses the content
//! written, read or run.
//!
//! Roost often runs as root and writes where others can write as well: below `/tmp` and `/dev/shm`,
//! into the working directory of the user of `sudo`, into a folder that a service's own user has. A
//! path is a promise of that other user: between two system calls `out/summary.json` may become a
//! link to `/etc/shadow`. So a folder is opened once, component by component, and everything after
//! that goes by its descriptor.
//!
//! Terms:
//! - *Trusted*: a folder that, with all folders above it, belongs to root or to this user, and in
//!   which no other user may rename or replace a file: not writable by group or others, or sticky.
//!   Files that root executes or believes lie in such a folder ([`SafeFolder::trusted`]). In any
//!   other folder root may still leave results, through the rest of this module.
//! - *Named*: a file that the user gave (`--output FILE`). [`SafeFolder::named`] follows a link in
//!   the last place as it does those on the way: root's own into `/var/log`, and none in a folder
//!   of another user's.
//!
//!
//! Invariants:
//! - A link of another user is never followed, and in a folder that is not trusted root follows
//!   none at all.
//! - A file is made under a name that was free (`O_EXCL`), or is a regular file of this user with
//!   one name, or is not opened for writing. It takes its final name whole, after `fsync`, and the
//!   folder is brought to the disk after that. Devices, own pipes and own descriptors (`/dev/null`,
//!   `/dev/stdout`) are written to where they are.
//! - A killed run's half-written file goes away with the next file that is replaced there.
//! - A file of another user is read only for the caller that names that owner, without waiting (a
//!   FIFO is refused) and never more of it than the caller allows.

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::hash::{BuildHasher as _, Hasher as _};
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Component, Path, PathBuf};

/// Why a file or folder was not opened.
#[derive(Debug, thiserror::Error)]
pub enum SafeError {
    /// Another user could choose its content.
    #[error("{path}: {why}", path = path.display())]
    Unsafe {
        /// The path.
        path: PathBuf,
        /// The other user, and the means.
        why: String,
    },
    /// The system refused.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl SafeError {
    /// As the standard library's, for callers whose errors are those.
    pub fn into_io(self) -> io::Error {
        match self {
            Self::Io { source, .. } => source,
            Self::Unsafe { .. } => io::Error::new(io::ErrorKind::PermissionDenied, self.to_string()),
        }
    }

    /// The kernel's error, where there is one.
    pub fn kind(&self) -> io::ErrorKind {
        match self {
            Self::Io { source, .. } => source.kind(),
            Self::Unsafe { .. } => io::ErrorKind::PermissionDenied,
        }
    }
}

/// A folder, held by its descriptor.
#[derive(Debug)]
pub struct SafeFolder {
    /// Of the kind `O_PATH`: a folder that may be passed through, and not listed, serves as well.
    place: OwnedFd,
    path: PathBuf,
    /// The first folder on the way that is not trusted, and why.
    doubt: Option<(PathBuf, String)>,
}

impl SafeFolder {
    /// The folder at `path`, which is there.
    pub fn open(path: &Path) -> Result<Self, SafeError> {
        Self::walk(path, None)
    }

    /// The folder at `path`; it and those above it are made, with the bits `mode`, where they are
    /// not there.
    pub fn make(path: &Path, mode: u32) -> Result<Self, SafeError> {
        Self::walk(path, Some(mode))
    }

    /// The folder that holds the file `path`, and the file's name in it. Made with the bits `mode`,
    /// if given.
    pub fn of_file(path: &Path, mode: Option<u32>) -> Result<(Self, OsString), SafeError> {
        let name = path.file_name().ok_or_else(|| SafeError::Io {
            path: path.to_owned(),
            source: io::Error::new(io::ErrorKind::InvalidInput, "this is no file's name"),
        })?;
        let parent = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        Ok((Self::walk(parent, mode)?, name.to_owned()))
    }

    /// The folder and the name of a file that the user named: a link of that name is followed where
    /// one on the way would be.
    pub fn named(path: &Path) -> Result<(Self, OsString), SafeError> {
        let mut path = path.to_owned();
        for _ in 0..LINKS {
            let (folder, name) = Self::of_file(&path, None)?;
            let next = folder.path.join(&name);
            let link = match open_at(&folder.place, &name, OFlags::PATH) {
                Ok(link) => link,
                Err(Errno::NOENT) => return Ok((folder, name)),
                Err(cause) => return Err(failed(&next)(cause)),
            };
            let about = rustix::fs::fstat(&link).map_err(failed(&next))?;
            if FileType::from_raw_mode(about.st_mode) != FileType::Symlink || folder.holds_descriptors()? {
                return Ok((folder, name));
            }
            if own_user() == 0 && folder.doubt.is_some() || !is_ours(&about) {
                let why = "it is a link that another user may have made: name the file itself".to_owned();
                return Err(SafeError::Unsafe { path: next, why });
            }
            let target = rustix::fs::readlinkat(&link, "", Vec::new()).map_err(failed(&next))?;
            path = folder.path.join(OsString::from_vec(target.into_bytes()));
        }
        Err(failed(&path)(Errno::LOOP))
    }

    /// The file that the user named, emptied; made if there is none.
    pub fn begin(path: &Path, mode: u32) -> Result<File, SafeError> {
        let (folder, name) = Self::named(path)?;
        folder.sink(&name)?.map_or_else(|| folder.overwrite(&name, mode), Ok)
    }

    /// The file that the user named, to be added to; made if there is none. A file that another
    /// user could take away is refused to root.
    pub fn keep(path: &Path, mode: u32) -> Result<File, SafeError> {
        let (folder, name) = Self::named(path)?;
        if let Some(sink) = folder.sink(&name)? {
            return Ok(sink);
        }
        if let Some((path, why)) = folder.doubt.as_ref().filter(|_| own_user() == 0) {
            let why = format!(
                "{why}: the file could be taken away there; name one in a folder that only root can write"
            );
            return Err(SafeError::Unsafe { path: path.clone(), why });
        }
        folder.append(&name, mode)
    }

    /// The file that the user named; it takes its name when it is whole.
    pub fn write(
        path: &Path,
        mode: u32,
        write: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> Result<(), SafeError> {
        let (folder, name) = Self::named(path)?;
        match folder.sink(&name)? {
            None => folder.replace(&name, mode, write),
            Some(mut sink) => {
                write(&mut sink).map_err(|source| SafeError::Io { path: path.to_owned(), source })
            }
        }
    }

    /// Itself, if only root and this user can choose its content.
    pub fn trusted(self) -> Result<Self, SafeError> {
        match self.doubt {
            None => Ok(self),
            Some((path, why)) => Err(SafeError::Unsafe { path, why }),
        }
    }

    /// Its path, for messages and for programs that get it.
    pub fn path(&self) -> &Path {
        &self.path
    }

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
    fn hold(&self, folder: &Self) -> Option<OwnedFd> {
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

    /// The owner.
    pub fn owner(&self) -> Result<u32, SafeError> {
        Ok(rustix::fs::fstat(&self.place).map_err(failed(&self.path))?.st_uid)
    }

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
    fn sink(&self, name: &OsStr) -> Result<Option<File>, SafeError> {
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
    fn holds_descriptors(&self) -> Result<bool, SafeError> {
        let of = |path: &str| rustix::fs::stat(path).map(|other| (other.st_dev, other.st_ino)).ok();
        let own = rustix::fs::fstat(&self.place).map_err(failed(&self.path))?;
        let own = Some((own.st_dev, own.st_ino));
        Ok(of("/proc/self/fd") == own || of("/proc/thread-self/fd") == own)
    }

    fn own_file(&self, name: &OsStr, flags: OFlags, mode: u32) -> Result<File, SafeError> {
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
    fn draft(&self, name: &OsStr, mode: u32) -> Result<(OsString, File), SafeError> {
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
    pub(crate) fn remove_if_left(&self, name: impl AsRef<OsStr>) -> Result<(), Errno> {
        let name = name.as_ref();
        let file = open_at(&self.place, name, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?;
        let about = rustix::fs::fstat(&file)?;
        is_plain(&self.path, &about, own_user()).map_err(|_| Errno::PERM)?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        rustix::fs::unlinkat(&self.place, name, AtFlags::empty())
    }

    /// A regular file with one name that belongs to `owner`, and no more than `most` bytes of it.
    pub fn read_of(&self, name: impl AsRef<OsStr>, owner: u32, most: u64) -> Result<Vec<u8>, SafeError> {
        let name = name.as_ref();
        let path = self.path.join(name);
        let file = match open_at(&self.place, name, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY) {
            Err(Errno::LOOP) => return Err(SafeError::Unsafe { path, why: LINK.into() }),
            other => File::from(other.map_err(failed(&path))?),
        };
        let about = rustix::fs::fstat(&file).map_err(failed(&path))?;
        is_plain(&path, &about, owner)?;
        let mut bytes = Vec::new();
        let read = file.take(most.saturating_add(1)).read_to_end(&mut bytes);
        read.map_err(|source| SafeError::Io { path: path.clone(), source })?;
        if bytes.len() as u64 > most {
            return Err(SafeError::Unsafe { path, why: format!("it has more than {most} bytes") });
        }
        Ok(bytes)
    }

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
            if UnixStream::connect(self.by_descriptor(name)).is_ok() {
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
    fn by_descriptor(&self, name: &OsStr) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.place.as_raw_fd())).join(name)
    }

    /// True if the name is taken, by anything.
    pub fn has(&self, name: impl AsRef<OsStr>) -> bool {
        rustix::fs::statat(&self.place, name.as_ref(), AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    /// Takes a name away; a link's own, not that of its target.
    pub fn remove(&self, name: impl AsRef<OsStr>) -> Result<(), SafeError> {
        let name = name.as_ref();
        rustix::fs::unlinkat(&self.place, name, AtFlags::empty()).map_err(failed(&self.path.join(name)))
    }

    /// Renames `from` to `to`, and replaces an earlier `to`.
    pub fn rename(&self, from: impl AsRef<OsStr>, to: impl AsRef<OsStr>) -> Result<(), SafeError> {
        let (from, to) = (from.as_ref(), to.as_ref());
        let renamed = rustix::fs::renameat(&self.place, from, &self.place, to);
        renamed.map_err(failed(&self.path.join(from)))
    }

    /// Takes an empty folder of that name away.
    pub fn remove_folder(&self, name: impl AsRef<OsStr>) -> Result<(), SafeError> {
        let name = name.as_ref();
        rustix::fs::unlinkat(&self.place, name, AtFlags::REMOVEDIR).map_err(failed(&self.path.join(name)))
    }

    /// The same folder, by a descriptor that allows more than passing through.
    fn readable(&self) -> Result<OwnedFd, SafeError> {
        open_at(&self.place, OsStr::new("."), OFlags::RDONLY | OFlags::DIRECTORY).map_err(failed(&self.path))
    }

    fn walk(path: &Path, make: Option<u32>) -> Result<Self, SafeError> {
        let absolute =
            std::path::absolute(path).map_err(|source| SafeError::Io { path: path.to_owned(), source })?;
        let top = || rustix::fs::open("/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        let mut place = top().map_err(failed(Path::new("/")))?;
        let mut about = rustix::fs::fstat(&place).map_err(failed(Path::new("/")))?;
        let mut at = PathBuf::from("/");
        let mut doubted = doubt(&at, &about);
        let mut left: VecDeque<OsString> = names(&absolute).collect();
        let mut links = 0;
        while let Some(name) = left.pop_front() {
            let next = at.join(&name);
            let failed = failed(&next);
            let opened = match (open_at(&place, &name, OFlags::PATH), make) {
                (Err(Errno::NOENT), Some(mode)) => {
                    match rustix::fs::mkdirat(&place, &name, Mode::from_raw_mode(mode)) {
                        Ok(()) | Err(Errno::EXIST) => open_at(&place, &name, OFlags::PATH),
                        Err(cause) => Err(cause),
                    }
                }
                (opened, _) => opened,
            };
            let opened = opened.map_err(&failed)?;
            let found = rustix::fs::fstat(&opened).map_err(&failed)?;
            match FileType::from_raw_mode(found.st_mode) {
                FileType::Symlink => {
                    let ours = is_ours(&found);
                    if !ours || own_user() == 0 && doubted.is_some() {
                        let maker = if ours { about.st_uid } else { found.st_uid };
                        let why =
                            format!("it is a link that user {maker} may have made: name the folder itself");
                        return Err(SafeError::Unsafe { path: next, why });
                    }
                    links += 1;
                    if links > LINKS {
                        return Err(failed(Errno::LOOP));
                    }
                    let target = rustix::fs::readlinkat(&opened, "", Vec::new()).map_err(&failed)?;
                    let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
                    if target.is_absolute() {
                        place = top().map_err(&failed)?;
                        about = rustix::fs::fstat(&place).map_err(&failed)?;
                        at = PathBuf::from("/");
                    }
                    for name in names(&target).rev() {
                        left.push_front(name);
                    }
                }
                FileType::Directory => {
                    (place, about) = (opened, found);
                    if name == ".." {
                        at.pop();
                    } else {
                        at = next;
                    }
                    doubted = doubted.or_else(|| doubt(&at, &about));
                }
                _ => return Err(failed(Errno::NOTDIR)),
            }
        }
        Ok(Self { place, path: at, doubt: doubted })
    }
}

fn names(path: &Path) -> impl DoubleEndedIterator<Item = OsString> + '_ {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    })
}

fn open_at(folder: &OwnedFd, name: &OsStr, flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(folder.as_fd(), name, flags, Mode::empty())
}

fn failed(path: &Path) -> impl Fn(Errno) -> SafeError + use<> {
    let path = path.to_owned();
    move |cause| SafeError::Io { path: path.clone(), source: cause.into() }
}

/// Why a folder is not trusted, if it is not.
fn doubt(path: &Path, about: &Stat) -> Option<(PathBuf, String)> {
    let why = if about.st_uid != 0 && about.st_uid != own_user() {
        format!("it belongs to user {}", about.st_uid)
    } else if about.st_mode & STICKY != 0 {
        // Others may add to it; they may not replace its content, and each file has an owner of its
        // own.
        return None;
    } else if about.st_mode & 0o002 != 0 {
        "every user may write there".to_owned()
    } else if about.st_mode & 0o020 != 0 && about.st_gid != 0 {
        format!("group {} may write there", about.st_gid)
    } else {
        return None;
    };
    Some((path.to_owned(), why))
}

fn is_ours(about: &Stat) -> bool {
    about.st_uid == 0 || about.st_uid == own_user()
}

fn is_plain(path: &Path, about: &Stat, owner: u32) -> Result<(), SafeError> {
    let why = if FileType::from_raw_mode(about.st_mode) != FileType::RegularFile {
        "it is no regular file".to_owned()
    } else if about.st_uid != owner {
        format!("it belongs to user {}, and not to {owner}", about.st_uid)
    } else if about.st_nlink != 1 {
        "it has several names".to_owned()
    } else {
        return Ok(());
    };
    Err(SafeError::Unsafe { path: path.to_owned(), why })
}

/// `.NAME.`, sixteen hexadecimal digits and `.new`.
fn is_draft(name: &OsStr) -> bool {
    let inside = name.as_bytes().strip_prefix(b".").and_then(|name| name.strip_suffix(DRAFT.as_bytes()));
    let Some((digits, dot)) = inside.and_then(|inside| {
        let (rest, digits) = inside.split_at_checked(inside.len().checked_sub(16)?)?;
        Some((digits, rest.last()?))
    }) else {
        return false;
    };
    *dot == b'.' && digits.iter().all(u8::is_ascii_hexdigit)
}

fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// A number that another process cannot guess: the standard library seeds its maps by the kernel's
/// random numbers.
fn unforeseen() -> u64 {
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

/// The end of the name of a file that is not whole yet.
const DRAFT: &str = ".new";
const STICKY: u32 = 0o1000;
const LINKS: u32 = 40;
const TRIES: u32 = 16;
const LINK: &str = "it is a link, which is not followed";

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Write as _;
    use std::os::unix::fs::{MetadataExt as _, chown, symlink};

    /// Another user's folder, where this process may make one.
    fn of_nobody(folder: &Path) -> bool {
        fs::create_dir(folder).unwrap();
        own_user() == 0 && chown(folder, Some(65534), Some(65534)).is_ok()
    }

    #[test]
    fn a_link_that_takes_the_place_of_a_file_is_replaced_and_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let secret = folder.path().join("secret");
        fs::write(&secret, "root's").unwrap();
        let place = SafeFolder::open(folder.path()).unwrap();
        symlink(&secret, folder.path().join("out")).unwrap();
        for refused in [place.append("out", 0o600), place.overwrite("out", 0o600), place.create("out", 0o600)]
        {
            refused.unwrap_err();
        }
        place.read_of("out", own_user(), 100).unwrap_err();
        place.replace("out", 0o644, |file| file.write_all(b"new")).unwrap();
        assert_eq!(fs::read_to_string(&secret).unwrap(), "root's");
        let out = fs::symlink_metadata(folder.path().join("out")).unwrap();
        assert_eq!((out.is_file(), out.mode() & 0o777), (true, 0o644));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "no draft is left");
    }

    #[test]
    fn what_could_not_be_written_whole_leaves_the_old_one() {
        let folder = tempfile::tempdir().unwrap();
        let place = SafeFolder::open(folder.path()).unwrap();
        place.replace("a", 0o600, |file| file.write_all(b"old")).unwrap();
        let error = place.replace("a", 0o600, |file| {
            file.write_all(b"half")?;
            Err(io::Error::other("full"))
        });
        assert!(error.unwrap_err().to_string().contains("full"));
        assert_eq!(place.read_of("a", own_user(), 100).unwrap(), b"old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_a_killed_run_wrote_half_of_goes_and_what_is_being_written_stays() {
        let folder = tempfile::tempdir().unwrap();
        let place = SafeFolder::open(folder.path()).unwrap();
        fs::write(folder.path().join(".a.0123456789abcdef.new"), "ha").unwrap();
        fs::write(folder.path().join(".b.fedcba9876543210.new"), "").unwrap();
        // These are no drafts of ours.
        let others = [
            ".a.0123456789abcde.new",
            ".0123456789abcdef.new",
            "a.0123456789abcdef.new",
            ".a.0123456789abcdeg.new",
        ];
        others.iter().for_each(|name| fs::write(folder.path().join(name), "kept").unwrap());
        let drafts = || {
            let names = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
            names.filter(|name| is_draft(name)).count()
        };
        assert_eq!(drafts(), 2);
        place
            .replace("a", 0o600, |file| {
                assert_eq!(drafts(), 1, "its own");
                // As another process would that replaces a file there.
                SafeFolder::open(folder.path())
                    .unwrap()
                    .replace("b", 0o600, |file| file.write_all(b"b"))
                    .unwrap();
                file.write_all(b"whole")
            })
            .unwrap();
        assert_eq!(drafts(), 0);
        assert_eq!(place.read_of("a", own_user(), 100).unwrap(), b"whole");
        assert!(others.iter().all(|name| fs::read_to_string(folder.path().join(name)).unwrap() == "kept"));
    }

    #[test]
    fn a_reader_sees_the_old_file_or_the_new_one_and_nothing_between() {
        let folder = tempfile::tempdir().unwrap();
        let place = SafeFolder::open(folder.path()).unwrap();
        let text = |byte: u8| vec![byte; 1 << 16];
        place.replace("a", 0o600, |file| file.write_all(&text(0))).unwrap();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                (1..=200_u8).for_each(|byte| {
                    place.replace("a", 0o600, |file| file.write_all(&text(byte))).unwrap();
                });
            });
            while !writer.is_finished() {
                let seen = fs::read(folder.path().join("a")).unwrap();
                assert!(seen.len() == 1 << 16 && seen.iter().all(|byte| *byte == seen[0]));
            }
        });
    }

    #[test]
    fn files_of_several_names_pipes_and_long_ones_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let place = SafeFolder::open(folder.path()).unwrap();
        fs::write(folder.path().join("one"), "12345").unwrap();
        place.append("one", 0o600).unwrap();
        assert_eq!(place.read_of("one", own_user(), 5).unwrap(), b"12345");
        assert!(place.read_of("one", own_user(), 4).unwrap_err().to_string().contains("more than 4"));
        place.read_of("one", own_user() + 1, 5).unwrap_err();
        fs::hard_link(folder.path().join("one"), folder.path().join("two")).unwrap();
        assert!(place.overwrite("one", 0o600).unwrap_err().to_string().contains("several names"));
        assert_eq!(fs::read_to_string(folder.path().join("one")).unwrap(), "12345");
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        place.append("pipe", 0o600).unwrap_err();
        assert!(place.read_of("pipe", own_user(), 5).unwrap_err().to_string().contains("no regular file"));
    }

    #[test]
    fn own_links_on_the_way_are_followed_and_another_users_are_not() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("real")).unwrap();
        symlink("real", folder.path().join("link")).unwrap();
        symlink("link", folder.path().join("again")).unwrap();
        symlink("loop", folder.path().join("loop")).unwrap();
        let made = SafeFolder::make(&folder.path().join("again/../again/below"), 0o750).unwrap();
        assert_eq!(made.path(), folder.path().canonicalize().unwrap().join("real/below"));
        SafeFolder::open(&folder.path().join("loop")).unwrap_err();
        SafeFolder::open(&folder.path().join("absent")).unwrap_err();
        let theirs = folder.path().join("theirs");
        if !of_nobody(&theirs) {
            return println!("SKIPPED: only root has another user's folder");
        }
        symlink(folder.path().join("real"), theirs.join("link")).unwrap();
        // Root's own link, and still refused: the folder's owner may have put it there.
        let error = SafeFolder::make(&theirs.join("link/deep"), 0o755).unwrap_err();
        assert!(error.to_string().contains("user 65534 may have made"), "{error}");
        // Without links results may lie there; nothing there is believed.
        let plain = SafeFolder::make(&theirs.join("results"), 0o755).unwrap();
        plain.replace("a", 0o644, |file| file.write_all(b"x")).unwrap();
        let error = plain.trusted().unwrap_err();
        assert!(error.to_string().contains("belongs to user 65534"), "{error}");
    }

    #[test]
    fn a_folder_that_others_may_write_is_not_trusted_unless_it_is_sticky() {
        let folder = tempfile::tempdir().unwrap();
        let at = |mode: u32| {
            fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode)).unwrap();
            SafeFolder::open(folder.path()).unwrap().trusted()
        };
        at(0o711).unwrap();
        at(0o1777).unwrap();
        assert!(at(0o777).unwrap_err().to_string().contains("every user may write"));
        assert!(at(0o702).is_err());
    }

    #[test]
    fn a_socket_takes_the_place_of_a_dead_one_and_of_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let place = SafeFolder::open(folder.path()).unwrap();
        let mode = |name: &str| fs::symlink_metadata(folder.path().join(name)).unwrap().mode() & 0o777;
        let first = place.listen("a", 0o666, 8).unwrap();
        assert_eq!(mode("a"), 0o666);
        assert_eq!(place.listen("a", 0o600, 8).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(first);
        place.listen("a", 0o600, 8).unwrap();
        assert_eq!(mode("a"), 0o600);
        fs::write(folder.path().join("file"), "kept").unwrap();
        symlink(folder.path().join("file"), folder.path().join("link")).unwrap();
        for name in ["file", "link"] {
            assert_eq!(place.listen(name, 0o666, 8).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        }
        assert_eq!(fs::read_to_string(folder.path().join("file")).unwrap(), "kept");
    }

    #[test]
    fn fresh_folders_never_meet_and_one_that_is_given_away_is_not_trusted() {
        let folder = tempfile::tempdir().unwrap();
        let place = SafeFolder::open(folder.path()).unwrap();
        let (one, two) = (place.fresh_folder("x-", 0o711).unwrap(), place.fresh_folder("x-", 0o711).unwrap());
        assert_ne!(one.path(), two.path());
        assert_eq!(fs::metadata(one.path()).unwrap().mode() & 0o777, 0o711);
        one.trusted().unwrap();
        if own_user() == 0 {
            let theirs = two.folder_of("out", 65534, 65534).unwrap();
            assert_eq!(fs::metadata(theirs.path()).unwrap().uid(), 65534);
            two.folder_of("out", 65534, 65534).unwrap();
            // It is taken for no other journal's.
            two.folder("out", 0o700).unwrap_err();
            two.folder_of("out", 65533, 65533).unwrap_err();
            theirs.trusted().unwrap_err();
        }
    }
}
