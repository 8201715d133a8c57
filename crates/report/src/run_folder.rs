//! Files of a run's folder that are whole or not there: written under another name, then renamed.

use crate::exit::usage;
use crate::figures::Page;
use crate::machine_facts::this_machine;
use crate::run::{RunInfo, utc};
use anyhow::{Context as _, Result};
use os::SafeFolder;
use serde::Serialize;
use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// A kind of run: the names of its folders, and the file that no other kind's folder has.
pub struct Kind {
    /// Such as `wake`.
    pub name: &'static str,
    /// Such as `wake.json`.
    pub mark: &'static str,
}

impl Kind {
    /// Where a run that begins now leaves its page: below `runs`, or in `out`. One that was named
    /// is made now, while an error costs nothing.
    pub fn place(&self, out: Option<&Path>, started: &str) -> Result<Place> {
        let place = Place::of(out, &self.run(started), self.mark)?;
        if out.is_some() {
            place.make()?;
        }
        Ok(place)
    }

    /// The page of a run that begins now. With `json` a program reads the run, and it has a page only
    /// if `out` names a folder.
    pub fn ending(&self, out: Option<&Path>, json: bool) -> Result<Ending> {
        let started = started()?;
        let is_wanted = out.is_some() || !json;
        let place = is_wanted.then(|| self.place(out, &started)).transpose()?;
        Ok(Ending { started, place })
    }

    /// Writes the run's folder, its numbers into the file that marks it, and says where its page is.
    pub fn write(
        &self,
        place: &Path,
        info: &RunInfo,
        numbers: &impl Serialize,
        page: &Page,
    ) -> Result<String> {
        clear(place, &[])?;
        let json = serde_json::to_string(numbers)?;
        write(place, self.mark, |file| writeln!(file, "{json}"))?;
        write_info(place, info)?;
        write_report(place, page)
    }

    /// The `run.toml` of a run by this program, on this machine, without a configuration.
    pub fn info(&self, started: String, title: String, method: &[impl AsRef<str>]) -> RunInfo {
        RunInfo {
            format: RunInfo::FORMAT,
            name: self.run(&started),
            title,
            command: command(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started,
            method: method.iter().map(|line| line.as_ref().to_owned()).collect(),
            machine: this_machine(),
            config: toml::Table::new(),
        }
    }

    fn run(&self, started: &str) -> String {
        format!("{}-{}", self.name, started.replace(" UTC", "").replace([' ', ':'], "-"))
    }
}

/// The page that a run leaves at its end, if one is wanted.
pub struct Ending {
    started: String,
    place: Option<Place>,
}

impl Ending {
    pub fn is_wanted(&self) -> bool {
        self.place.is_some()
    }

    /// Has the page written, once, and says where it is. The run itself succeeded: a full disk does not
    /// make it fail.
    pub fn leave(&mut self, write: impl FnOnce(&Place, String) -> Result<String>) {
        let Some(place) = self.place.take() else { return };
        match write(&place, self.started.clone()) {
            Ok(where_it_is) => eprintln!("{where_it_is}"),
            Err(error) => eprintln!("no page was written: {error:#}"),
        }
    }
}

/// Where a run's folder goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Where a person wants it. An earlier run of the same kind gives way.
    Named(PathBuf),
    /// Below `runs`. No other run has it.
    Own(PathBuf),
}

impl Place {
    /// As named; or `runs/NAME`. A named folder is refused if it has a run, and no file `mark`,
    /// which all runs of this kind have.
    pub fn of(out: Option<&Path>, name: &str, mark: &str) -> Result<Self> {
        let Some(place) = out else { return Ok(Self::Own(Path::new("runs").join(name))) };
        if place.join(INFO).exists() && !place.join(mark).exists() {
            return Err(usage(format!(
                "{} has another kind of run\n\nhint: name another folder with --out",
                place.display()
            )));
        }
        Ok(Self::Named(place.to_owned()))
    }

    /// Makes the folder, and its parents. Of runs that begin in the same second the first has the
    /// name; `-2`, `-3` and so on are appended for the others, however many processes try at once.
    pub fn make(&self) -> Result<PathBuf> {
        let own = match self {
            Self::Named(place) => return create(place).map(|()| place.clone()),
            Self::Own(place) => place,
        };
        let name = own.file_name().unwrap_or_default();
        let above = own.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let folder = SafeFolder::make(above, 0o777).map_err(|cause| not_made(above, &cause.into_io()))?;
        for number in 1..=SAME_SECOND_MAX {
            let mut name = name.to_owned();
            if number > 1 {
                name.push(format!("-{number}"));
            }
            let place = above.join(&name);
            match folder.new_folder(&name, 0o777) {
                Ok(()) => return Ok(place),
                Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => {}
                Err(cause) => return Err(not_made(&place, &cause.into_io())),
            }
        }
        Err(usage(format!(
            "{} and {SAME_SECOND_MAX} like it are taken; name another folder with --out",
            own.display()
        )))
    }
}

/// The name by which a run's folder is known.
pub fn name_of(place: &Path) -> String {
    place.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// More runs of one kind do not begin in one second.
const SAME_SECOND_MAX: u32 = 10_000;

fn not_made(folder: &Path, cause: &io::Error) -> anyhow::Error {
    usage(format!("cannot make {}: {cause}; name another folder with --out", folder.display()))
}

/// The command line, the program by its name: its path is this machine's affair alone.
pub fn command() -> Vec<String> {
    named(std::env::args())
}

fn named(mut words: impl Iterator<Item = String>) -> Vec<String> {
    let program = words.next().map(|path| match Path::new(&path).file_name() {
        Some(name) => name.to_string_lossy().into_owned(),
        None => path,
    });
    program.into_iter().chain(words).collect()
}

/// Makes the folder of a run, and its parents.
pub fn create(folder: &Path) -> Result<()> {
    SafeFolder::make(folder, 0o777).map(drop).map_err(|cause| not_made(folder, &cause.into_io()))
}

/// Writes one file: until `content` is all there, the name is not taken.
pub fn write(
    folder: &Path,
    name: &str,
    content: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> Result<()> {
    let path = folder.join(name);
    // The working directory of who typed `sudo` is not root's: no link is followed there, and the
    // file is a fresh one.
    let written = SafeFolder::open(folder).and_then(|folder| {
        folder.replace(name, 0o666, |file| {
            let mut file = BufWriter::new(file.try_clone()?);
            content(&mut file)?;
            file.flush()
        })
    });
    written.with_context(|| not_written(&path))
}

/// Begins a file that grows while the run goes on.
pub fn begin(folder: &Path, name: &str) -> Result<File> {
    let begun = SafeFolder::open(folder).and_then(|folder| folder.overwrite(name, 0o666));
    begun.with_context(|| not_written(&folder.join(name)))
}

/// Writes the file that `option` names.
pub fn write_named(path: &Path, option: &str, text: &str) -> Result<()> {
    SafeFolder::write(path, 0o666, |file| file.write_all(text.as_bytes()))
        .with_context(|| format!("cannot write {}; name another file with {option}", path.display()))
}

fn not_written(path: &Path) -> String {
    format!("cannot write {}; free some space or name another folder", path.display())
}

/// Removes the page of an earlier run and its other files, so that no reader mixes two.
pub fn clear(folder: &Path, others: &[&str]) -> Result<()> {
    remove(folder, &[PAGE, REPORT])?;
    remove(folder, others)
}

/// Removes files of an earlier run.
pub fn remove(folder: &Path, names: &[&str]) -> Result<()> {
    for name in names {
        match SafeFolder::open(folder).and_then(|folder| folder.remove(name)) {
            Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
                let path = folder.join(name);
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

pub fn write_info(folder: &Path, info: &RunInfo) -> Result<()> {
    let text = toml::to_string(info).context("run.toml")?;
    write(folder, INFO, |file| file.write_all(text.as_bytes()))
}

/// Writes the page and its data, and says where.
pub fn write_report(folder: &Path, page: &Page) -> Result<String> {
    write(folder, PAGE, |file| file.write_all(page.json().as_bytes()))?;
    write(folder, REPORT, |file| file.write_all(page.html().as_bytes()))?;
    Ok(format!("report: {}", folder.join(REPORT).display()))
}

pub const INFO: &str = "run.toml";
pub const PAGE: &str = "page.json";
pub const REPORT: &str = "report.html";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_names_the_program_and_not_where_it_lies() {
        let typed = |words: &[&str]| named(words.iter().map(|&word| word.to_owned())).join(" ");
        assert_eq!(
            typed(&["/home/me/target/release/roost", "wake", "--out", "/a/b"]),
            "roost wake --out /a/b"
        );
        assert_eq!(typed(&["roost"]), "roost");
        assert_eq!(typed(&[]), "");
    }

    const KIND: Kind = Kind { name: "wake", mark: "wake.json" };

    #[test]
    fn a_run_is_called_after_its_kind_and_its_beginning() {
        let started = "2026-11-22 10:00:01 UTC";
        let own = Place::Own("runs/wake-2026-11-22-10-00-01".into());
        assert_eq!(KIND.place(None, started).unwrap(), own);
        let info = KIND.info(started.to_owned(), "title".to_owned(), &["one", "two"]);
        assert_eq!((info.name.as_str(), info.method.len()), ("wake-2026-11-22-10-00-01", 2));
    }

    #[test]
    fn a_folder_with_another_kind_of_run_is_refused_and_one_with_this_kind_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("a/b");
        assert_eq!(KIND.place(Some(&place), "").unwrap(), Place::Named(place.clone()));
        assert!(place.is_dir());
        write(&place, INFO, |file| file.write_all(b"x")).unwrap();
        let error = KIND.place(Some(&place), "").unwrap_err().to_string();
        assert!(error.contains("another kind of run"), "{error}");
        write(&place, KIND.mark, |file| file.write_all(b"x")).unwrap();
        KIND.place(Some(&place), "").unwrap();
    }

    #[test]
    fn no_two_runs_have_one_folder_however_many_begin_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place::Own(folder.path().join("runs/wake-now"));
        let made: std::collections::BTreeSet<PathBuf> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| place.make().unwrap())).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let names: Vec<String> = made.iter().map(|path| name_of(path)).collect();
        let expected: Vec<String> =
            std::iter::once("wake-now".to_owned()).chain((2..=8).map(|n| format!("wake-now-{n}"))).collect();
        assert_eq!(names, expected);
        assert!(made.iter().all(|path| path.is_dir()));
    }
}
