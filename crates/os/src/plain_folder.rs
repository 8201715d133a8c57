//! Folders where this user's own files lie, by their paths: where Roost never runs as root.

use crate::SafeError;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

/// A folder, as its namesake on Linux; `mode` has a meaning where the system has Unix's permissions.
#[derive(Debug)]
pub struct SafeFolder {
    path: PathBuf,
}

impl SafeFolder {
    /// The folder at `path`, which is there.
    pub fn open(path: &Path) -> Result<Self, SafeError> {
        match fs::metadata(path) {
            Ok(about) if about.is_dir() => Ok(Self { path: path.to_owned() }),
            Ok(_) => Err(failed(path)(io::ErrorKind::NotADirectory.into())),
            Err(cause) => Err(failed(path)(cause)),
        }
    }

    /// The folder at `path`; it and those above it are made where they are not there.
    pub fn make(path: &Path, _mode: u32) -> Result<Self, SafeError> {
        fs::create_dir_all(path).map_err(failed(path))?;
        Ok(Self { path: path.to_owned() })
    }

    /// The file that the user named, emptied; made if there is none.
    pub fn begin(path: &Path, _mode: u32) -> Result<File, SafeError> {
        File::create(path).map_err(failed(path))
    }

    /// The file that the user named; it takes its name when it is whole.
    pub fn write(
        path: &Path,
        mode: u32,
        write: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> Result<(), SafeError> {
        let name = path.file_name().ok_or_else(|| failed(path)(io::ErrorKind::InvalidInput.into()))?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Self::open(folder)?.replace(name, mode, write)
    }

    /// Itself: the folders of this user are trusted.
    pub fn trusted(self) -> Result<Self, SafeError> {
        Ok(self)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// True if the name is taken, by anything.
    pub fn has(&self, name: impl AsRef<OsStr>) -> bool {
        fs::symlink_metadata(self.path.join(name.as_ref())).is_ok()
    }

    pub fn remove(&self, name: impl AsRef<OsStr>) -> Result<(), SafeError> {
        let path = self.path.join(name.as_ref());
        fs::remove_file(&path).map_err(failed(&path))
    }

    /// A new folder in it; an error where the name is taken.
    pub fn new_folder(&self, name: impl AsRef<OsStr>, _mode: u32) -> Result<(), SafeError> {
        let path = self.path.join(name.as_ref());
        fs::create_dir(&path).map_err(failed(&path))
    }

    /// The file of that name, to be read and written from its beginning; made if there is none.
    pub fn update(&self, name: impl AsRef<OsStr>, _mode: u32) -> Result<File, SafeError> {
        let path = self.path.join(name.as_ref());
        let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        opened.map_err(failed(&path))
    }

    /// The same, to be written and emptied.
    pub fn overwrite(&self, name: impl AsRef<OsStr>, mode: u32) -> Result<File, SafeError> {
        Self::begin(&self.path.join(name.as_ref()), mode)
    }

    /// Writes a file that takes its name when it is whole; it replaces an earlier one.
    pub fn replace(
        &self,
        name: impl AsRef<OsStr>,
        mode: u32,
        write: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> Result<(), SafeError> {
        let path = self.path.join(name.as_ref());
        let mut draft = draft(mode).tempfile_in(&self.path).map_err(failed(&path))?;
        write(draft.as_file_mut()).and_then(|()| draft.as_file().sync_all()).map_err(failed(&path))?;
        draft.persist(&path).map(drop).map_err(|error| failed(&path)(error.error))
    }
}

/// A file of this process's own, under a name that it will not keep.
fn draft(mode: u32) -> tempfile::Builder<'static, 'static> {
    let mut draft = tempfile::Builder::new();
    draft.prefix(".").suffix(".new");
    #[cfg(unix)]
    draft.permissions(std::os::unix::fs::PermissionsExt::from_mode(mode));
    #[cfg(not(unix))]
    let _ = mode;
    draft
}

fn failed(path: &Path) -> impl Fn(io::Error) -> SafeError + use<> {
    let path = path.to_owned();
    move |source| SafeError::Io { path: path.clone(), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn a_file_takes_its_name_when_it_is_whole() {
        let place = tempfile::tempdir().unwrap();
        let folder = SafeFolder::make(&place.path().join("a/b"), 0o777).unwrap();
        folder.replace("one", 0o666, |file| file.write_all(b"first")).unwrap();
        let lost = folder.replace("one", 0o666, |file| {
            file.write_all(b"second")?;
            Err(io::ErrorKind::StorageFull.into())
        });
        assert_eq!(lost.unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(fs::read_to_string(folder.path().join("one")).unwrap(), "first");
        folder.replace("one", 0o666, |file| file.write_all(b"third")).unwrap();
        assert_eq!(fs::read_to_string(folder.path().join("one")).unwrap(), "third");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no draft is left");
        folder.new_folder("one", 0o777).unwrap_err();
        assert!(SafeFolder::open(&folder.path().join("one")).is_err());
    }
}
