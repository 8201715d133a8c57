//! The folder for locks, journals and holders' sockets, and the conditions for trusting its
//! content.
//!
//! A journal tells root where to write, and a lock names a process to ask. So both are trusted only
//! where no other user can have made them: the folder belongs to this user or to root, is no link,
//! and no other user may write in it; a file in it belongs to this user or to root, is a regular
//! file and no link. All of this is checked through an open descriptor, which cannot be exchanged
//! meanwhile.
//!
//! | user | folder |
//! |---|---|
//! | root | `/run/roost` |
//! | another | `/run/roost` if its own; else `$XDG_RUNTIME_DIR/roost`, or `/run/user/UID/roost` |
//! | a made-up machine | `run/roost` below its root |
//!
//! A user's runs and root's do not know of each other: root should not govern settings that a user
//! may write.
//!
//! Others may pass through the folder (0711), to the sockets at which a daemon answers them. They
//! can neither list it nor open it, so they cannot hold a lock on it.

use crate::lock::LockError;
use crate::root::Root;
use rustix::fs::{Mode, OFlags, fchmod, fstat};
use rustix::process::geteuid;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Where locks and journals are kept, below the root.
pub(crate) const RUN_FOLDER: &str = "run/roost";

/// The folder for this user. It may not exist.
pub fn run_place(root: &Root) -> PathBuf {
    let shared = root.path(RUN_FOLDER);
    let user = geteuid();
    if user.is_root() || *root != Root::system() {
        return shared;
    }
    if fs::symlink_metadata(&shared).is_ok_and(|folder| folder.uid() == user.as_raw()) {
        return shared;
    }
    let own = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    own.unwrap_or_else(|| PathBuf::from(format!("/run/user/{}", user.as_raw()))).join("roost")
}

/// The folder, made if need be, and fit to be trusted.
pub fn run_folder(root: &Root) -> Result<PathBuf, LockError> {
    let path = run_place(root);
    if let Some(parent) = path.parent().filter(|_| *root != Root::system()) {
        // `/run` itself exists on every machine; a bare test root may lack it.
        #[expect(
            clippy::disallowed_methods,
            reason = "below a root that a test has made, never the machine's"
        )]
        let _ = fs::create_dir_all(parent);
    }
    match DirBuilder::new().mode(0o711).create(&path) {
        Err(cause) if cause.kind() != io::ErrorKind::AlreadyExists => {
            Err(LockError::Unavailable { path, cause })
        }
        _ => {
            check(&path)?;
            Ok(path)
        }
    }
}

/// Refuses a folder in which another user could have put a file. A folder of ours that others may
/// look into, as systemd makes it by default, is closed to them.
pub(crate) fn check(path: &Path) -> Result<(), LockError> {
    let refused = |why: String| LockError::Unsafe { path: path.to_owned(), why };
    let unavailable = |cause: io::Error| LockError::Unavailable { path: path.to_owned(), cause };
    let about = fs::symlink_metadata(path).map_err(unavailable)?;
    if about.is_symlink() {
        return Err(refused("is a link".to_owned()));
    }
    if !about.is_dir() {
        let cause = io::Error::from(io::ErrorKind::NotADirectory);
        return Err(LockError::Unavailable { path: path.to_owned(), cause });
    }
    if let Some(why) = foreign(about.uid()) {
        return Err(refused(why));
    }
    let own = about.uid() == geteuid().as_raw();
    if about.mode() & 0o066 != 0 && own {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder =
            rustix::fs::open(path, flags, Mode::empty()).map_err(|cause| unavailable(cause.into()))?;
        let now = fstat(&folder).map_err(|cause| unavailable(cause.into()))?;
        if (now.st_dev, now.st_ino) != (about.dev(), about.ino()) {
            return Err(refused("was exchanged just now".to_owned()));
        }
        if about.mode() & 0o022 != 0 {
            return Err(refused(format!("may be written by others (mode {:04o})", about.mode() & 0o7777)));
        }
        let mode = Mode::from_raw_mode((about.mode() & 0o711) as rustix::fs::RawMode);
        fchmod(&folder, mode).map_err(|cause| unavailable(cause.into()))?;
    } else if about.mode() & 0o022 != 0 {
        return Err(refused(format!("may be written by others (mode {:04o})", about.mode() & 0o7777)));
    }
    Ok(())
}

/// Why this owner is not trusted.
fn foreign(owner: u32) -> Option<String> {
    (owner != 0 && owner != geteuid().as_raw()).then(|| format!("belongs to user {owner}"))
}

/// Opens a file in that folder, never through a link, and without waiting for the other end of a
/// file that is not regular.
pub(crate) fn open_in(options: &mut OpenOptions, path: &Path) -> Result<File, OpenInError> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    match options.custom_flags(flags.bits() as i32).open(path) {
        Ok(file) => {
            let about = file.metadata().map_err(OpenInError::Failed)?;
            match distrust(&about) {
                Some(why) => Err(OpenInError::Unsafe(why)),
                None => Ok(file),
            }
        }
        Err(cause) if fs::symlink_metadata(path).is_ok_and(|file| file.is_symlink()) => {
            drop(cause);
            Err(OpenInError::Unsafe("is a link".to_owned()))
        }
        Err(cause) => Err(OpenInError::Failed(cause)),
    }
}

fn distrust(about: &Metadata) -> Option<String> {
    if !about.is_file() {
        return Some("is no regular file".to_owned());
    }
    foreign(about.uid()).or_else(|| {
        (about.mode() & 0o022 != 0)
            .then(|| format!("may be written by others (mode {:04o})", about.mode() & 0o7777))
    })
}

/// A file that was not opened.
#[derive(Debug)]
pub(crate) enum OpenInError {
    /// It is not to be trusted: the reason.
    Unsafe(String),
    Failed(io::Error),
}
