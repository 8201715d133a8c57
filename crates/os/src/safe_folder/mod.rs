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
//! - *Named*: a file that the user gave (`--out FILE`). [`SafeFolder::named`] follows a link in
//!   the last place as it does those on the way: root's own into `/var/log`, and none in a folder
//!   of another user's.
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

mod files;
mod folders;
mod socket;

use crate::SafeError;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::hash::{BuildHasher as _, Hasher as _};
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Component, Path, PathBuf};

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

    pub fn owner(&self) -> Result<u32, SafeError> {
        Ok(rustix::fs::fstat(&self.place).map_err(failed(&self.path))?.st_uid)
    }

    /// A regular file with one name that belongs to `owner`, and no more than `most` bytes of it.
    pub fn read_of(&self, name: impl AsRef<OsStr>, owner: u32, most: u64) -> Result<Vec<u8>, SafeError> {
        let name = name.as_ref();
        let path = self.path.join(name);
        let file = self.open_of(name, owner)?;
        let mut bytes = Vec::new();
        let read = file.take(most.saturating_add(1)).read_to_end(&mut bytes);
        read.map_err(|source| SafeError::Io { path: path.clone(), source })?;
        if bytes.len() as u64 > most {
            return Err(SafeError::Unsafe { path, why: format!("it has more than {most} bytes") });
        }
        Ok(bytes)
    }

    /// The same file, to be read.
    pub fn open_of(&self, name: impl AsRef<OsStr>, owner: u32) -> Result<File, SafeError> {
        let name = name.as_ref();
        let path = self.path.join(name);
        let file = match open_at(&self.place, name, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY) {
            Err(Errno::LOOP) => return Err(SafeError::Unsafe { path, why: LINK.into() }),
            other => File::from(other.map_err(failed(&path))?),
        };
        let about = rustix::fs::fstat(&file).map_err(failed(&path))?;
        is_plain(&path, &about, owner)?;
        Ok(file)
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

    /// The same, and the disk knows it.
    pub fn remove_for_good(&self, name: impl AsRef<OsStr>) -> Result<(), SafeError> {
        self.remove(name)?;
        rustix::fs::fsync(self.readable()?).map_err(failed(&self.path))
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

fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// A number that another process cannot guess: the standard library seeds its maps by the kernel's
/// random numbers.
fn unforeseen() -> u64 {
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

const STICKY: u32 = 0o1000;
const LINKS: u32 = 40;
const TRIES: u32 = 16;
const LINK: &str = "it is a link, which is not followed";

#[cfg(test)]
mod tests;
