//! The product's program: benches measure it as a child process, and it puts the machine back.

use anyhow::{Context as _, Result};
use report::exit::usage;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

static NAMED: OnceLock<PathBuf> = OnceLock::new();

/// From now on [`roost`] gives this file.
pub fn name(roost: PathBuf) {
    let _ = NAMED.set(roost);
}

/// The file of `roost`: as named, or beside this program, or in PATH.
pub fn roost() -> Result<PathBuf> {
    let own = own()?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    found(NAMED.get().map(PathBuf::as_path), &own, std::env::split_paths(&path))
}

/// This program's own file, of which benches start parts.
pub fn own() -> Result<PathBuf> {
    std::env::current_exe().context("this program's own file")
}

fn found(named: Option<&Path>, own: &Path, path: impl Iterator<Item = PathBuf>) -> Result<PathBuf> {
    if let Some(named) = named {
        let file = std::path::absolute(named)?;
        return match file.is_file() {
            true => Ok(file),
            false => Err(usage(format!("--roost {}: there is no such file", named.display()))),
        };
    }
    let folders = own.parent().map(Path::to_owned).into_iter().chain(path);
    folders.map(|folder| folder.join("roost")).find(|file| file.is_file()).ok_or_else(|| {
        usage(
            "roost is neither beside this program nor in PATH\n\
             hint: cargo build --release -p roost, or name the file with --roost PATH",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn roost_is_the_named_file_or_beside_or_in_path_in_this_order() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["beside", "path", "named"] {
            fs::create_dir(at(name)).unwrap();
        }
        let own = at("beside/roost-bench");
        let look = |named: Option<&Path>| found(named, &own, [at("empty"), at("path")].into_iter());
        let error = look(None).unwrap_err().to_string();
        assert!(error.contains("--roost PATH"), "{error}");
        fs::write(at("path/roost"), "").unwrap();
        assert_eq!(look(None).unwrap(), at("path/roost"));
        fs::write(at("beside/roost"), "").unwrap();
        assert_eq!(look(None).unwrap(), at("beside/roost"));
        let error = look(Some(&at("named/roost"))).unwrap_err().to_string();
        assert!(error.contains("no such file"), "{error}");
        fs::write(at("named/roost"), "").unwrap();
        assert_eq!(look(Some(&at("named/roost"))).unwrap(), at("named/roost"));
    }
}
