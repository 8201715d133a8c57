//! Users of the store, as memcached's `-Y` has them.
//!
//! A file has a line `USER:PASSWORD` for each. A client's first command is a `set` of any key, whose value is
//! `USER PASSWORD`: the answer is `STORED`, and from then on the connection is served as any other. The
//! password is plain text on the wire and in the file, so it keeps strangers on a trusted network
//! from each other's caches, and no more.
//!
//! Invariants:
//! - A connection that has not said a pair of the file changes nothing and learns nothing of the items.
//! - All pairs are compared over the length that was said, so the time tells the number of pairs and
//!   nothing of a password's letters.
//! - No other user may write the file, or the name by which it is found.

use linux::{SafeError, SafeFolder};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

/// The pairs of a file, which may be read again while the store serves.
#[derive(Debug)]
pub struct Users {
    path: PathBuf,
    pairs: RwLock<Vec<Pair>>,
}

#[derive(Clone, PartialEq, Eq)]
struct Pair {
    user: Vec<u8>,
    password: Vec<u8>,
}

impl std::fmt::Debug for Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:(not shown)", String::from_utf8_lossy(&self.user))
    }
}

/// Why a file of users is not taken.
#[derive(Debug, thiserror::Error)]
pub enum UsersError {
    #[error(transparent)]
    Unsafe(#[from] SafeError),
    #[error("{path}: other users may write it\nhint: chmod go-w {path}", path = path.display())]
    Writable { path: PathBuf },
    #[error("{path}: line {line}: write USER:PASSWORD, without a space in USER", path = path.display())]
    Malformed { path: PathBuf, line: usize },
    #[error("{path}: it names no user, so no client could be served", path = path.display())]
    Nobody { path: PathBuf },
}

impl Users {
    pub fn load(path: &Path) -> Result<Self, UsersError> {
        Ok(Self { path: path.to_owned(), pairs: RwLock::new(read(path)?) })
    }

    /// Reads the file again; one that is wrong changes nothing. Connections that are served stay so.
    pub fn reload(&self) -> Result<(), UsersError> {
        let pairs = read(&self.path)?;
        *self.pairs.write().unwrap_or_else(PoisonError::into_inner) = pairs;
        Ok(())
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the file has this pair: `USER PASSWORD`. `None` if it is none.
    pub(super) fn knows(&self, said: &[u8]) -> Option<bool> {
        let space = memchr::memchr(b' ', said)?;
        let (user, password) = (&said[..space], &said[space + 1..]);
        let pairs = self.pairs.read().unwrap_or_else(PoisonError::into_inner);
        let is = |pair: &Pair| is_same(&pair.user, user) & is_same(&pair.password, password);
        Some(pairs.iter().fold(false, |found, pair| found | is(pair)))
    }
}

/// Compares all bytes, whether or not one differs.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    let differ = one.iter().zip(other).fold(0, |differ, (a, b)| differ | (a ^ b));
    std::hint::black_box(differ) == 0 && one.len() == other.len()
}

/// A longer file is none of users.
const LONGEST: u64 = 1 << 20;

fn read(path: &Path) -> Result<Vec<Pair>, UsersError> {
    let (folder, name) = SafeFolder::named(path)?;
    let folder = folder.trusted()?;
    let about = std::fs::metadata(path).map_err(|source| SafeError::Io { path: path.to_owned(), source })?;
    if about.mode() & 0o022 != 0 {
        return Err(UsersError::Writable { path: path.to_owned() });
    }
    let owner = if about.uid() == 0 { 0 } else { rustix::process::geteuid().as_raw() };
    let text = folder.read_of(&name, owner, LONGEST)?;
    let mut pairs = Vec::new();
    for (line, text) in text.split(|&byte| byte == b'\n').enumerate() {
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        if text.is_empty() {
            continue;
        }
        let colon = memchr::memchr(b':', text).filter(|&colon| colon > 0 && !text[..colon].contains(&b' '));
        let Some(colon) = colon else {
            return Err(UsersError::Malformed { path: path.to_owned(), line: line + 1 });
        };
        pairs.push(Pair { user: text[..colon].to_vec(), password: text[colon + 1..].to_vec() });
    }
    if pairs.is_empty() {
        return Err(UsersError::Nobody { path: path.to_owned() });
    }
    Ok(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users");
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        (folder, path)
    }

    #[test]
    fn pairs_are_known_whole_and_anew_after_a_reload() {
        let (_folder, path) = file("shop:open sesame\r\n\nother:x:y");
        let users = Users::load(&path).unwrap();
        for (said, known) in [
            (&b"shop open sesame"[..], Some(true)),
            (b"other x:y", Some(true)),
            (b"shop open", Some(false)),
            (b"shop open sesame!", Some(false)),
            (b"shop x:y", Some(false)),
            (b" open sesame", Some(false)),
            (b"shop ", Some(false)),
            (b"shop", None),
            (b"", None),
        ] {
            assert_eq!(users.knows(said), known, "{:?}", String::from_utf8_lossy(said));
        }
        assert!(!format!("{users:?}").contains("sesame"));
        fs::write(&path, "shop:new\n").unwrap();
        users.reload().unwrap();
        assert_eq!((users.knows(b"shop new"), users.knows(b"other x:y")), (Some(true), Some(false)));
        fs::write(&path, "no pair\n").unwrap();
        assert!(users.reload().is_err());
        assert_eq!(users.knows(b"shop new"), Some(true), "a wrong file changes nothing");
    }

    #[test]
    fn a_file_that_is_wrong_is_refused_with_its_line() {
        for (text, told) in [
            ("", "names no user"),
            ("shop:x\nother\n", "line 2: write USER:PASSWORD"),
            (":x\n", "line 1"),
            ("a b:x\n", "without a space"),
        ] {
            let (_folder, path) = file(text);
            let error = Users::load(&path).unwrap_err().to_string();
            assert!(error.contains(told) && error.contains("users"), "{text:?}: {error}");
        }
        let (folder, path) = file("shop:x\n");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o620)).unwrap();
        assert!(Users::load(&path).unwrap_err().to_string().contains("chmod go-w"));
        assert!(Users::load(&folder.path().join("none")).unwrap_err().to_string().contains("none"));
    }
}
