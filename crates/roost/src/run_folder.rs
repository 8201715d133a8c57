//! Files of a run's folder that are whole or not there: written under another name, then renamed.

use crate::exit::usage;
use anyhow::{Context as _, Result};
use report::run::{RunInfo, utc};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write as _};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Makes the folder of a run, and its parents.
pub fn create(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).map_err(|cause| {
        usage(format!("cannot make {}: {cause}; name another folder with --out", folder.display()))
    })
}

/// Writes one file: until `content` is all there, the name is not taken.
pub fn write(
    folder: &Path,
    name: &str,
    content: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> Result<()> {
    let (path, partial) = (folder.join(name), folder.join(format!(".{name}.partial")));
    let whole = || -> io::Result<()> {
        let mut file = BufWriter::new(File::create(&partial)?);
        content(&mut file)?;
        file.flush()?;
        fs::rename(&partial, &path)
    };
    let written = whole();
    if written.is_err() {
        // What is left of it helps nobody; that it cannot be removed either changes nothing about the error.
        let _ = fs::remove_file(&partial);
    }
    written
        .with_context(|| format!("cannot write {}; free some space or name another folder", path.display()))
}

/// Removes files of an earlier run, so that no reader mixes two.
pub fn remove(folder: &Path, names: &[&str]) -> Result<()> {
    for name in names {
        let path = folder.join(name);
        match fs::remove_file(&path) {
            Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
                return Err(cause)
                    .with_context(|| format!("cannot remove {} of an earlier run", path.display()));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Now, as run folders write it.
pub fn started() -> Result<String> {
    Ok(utc(SystemTime::now().duration_since(UNIX_EPOCH).context("the clock")?.as_secs()))
}

/// Writes `run.toml`.
pub fn write_info(folder: &Path, info: &RunInfo) -> Result<()> {
    let text = toml::to_string(info).context("run.toml")?;
    write(folder, INFO, |file| file.write_all(text.as_bytes()))
}

/// Writes the page, and says where.
pub fn write_report(folder: &Path, page: &str) -> Result<String> {
    write(folder, REPORT, |file| file.write_all(page.as_bytes()))?;
    Ok(format!("report: {}", folder.join(REPORT).display()))
}

/// What was run.
pub const INFO: &str = "run.toml";
/// The page.
pub const REPORT: &str = "report.html";
