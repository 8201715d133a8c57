//! A JVM with the agent and the small server of `java/`'s own tests in it, driven line by line.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

pub struct Jvm {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Jvm {
    /// With these options of the agent and these flags of the JVM; why it cannot be had here, where
    /// it cannot.
    pub fn start(options: &str, flags: &[&str]) -> Result<Self, String> {
        let (jar, classes) = jar()?;
        let mut command = Command::new("java");
        command.arg(format!("-javaagent:{}={options}", jar.display())).args(flags).arg("-cp").arg(classes);
        command.arg("tiny.Server").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().map_err(|error| format!("java: {error}"))?;
        let (input, output) = (process.stdin.take().expect("piped"), process.stdout.take().expect("piped"));
        let mut server = Self { process, input, output: BufReader::new(output) };
        assert_eq!(server.answer(), format!("ready {}", server.id()));
        Ok(server)
    }

    pub fn id(&self) -> u32 {
        self.process.id()
    }

    pub fn tell(&mut self, line: &str) {
        self.input.write_all(format!("{line}\n").as_bytes()).expect("it reads");
    }

    pub fn answer(&mut self) -> String {
        let mut answer = String::new();
        self.output.read_line(&mut answer).expect("it answers");
        answer.trim_end().to_owned()
    }

    /// Says a line and waits for the answer.
    pub fn ask(&mut self, line: &str) -> String {
        self.tell(line);
        self.answer()
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        self.process.kill().expect("it runs");
        self.process.wait().expect("it has ended");
    }
}

impl Drop for Jvm {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The jar and the tests' classes, made if they are not there or older than the server's source;
/// the reason if they cannot be.
fn jar() -> Result<(PathBuf, PathBuf), String> {
    for tool in ["java", "mvn", "cc"] {
        if Command::new(tool).arg("--version").output().is_err() {
            return Err(format!("no {tool} here; `scripts/setup test` installs it"));
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let made = root.join("target/java");
    let (jar, classes) = (made.join("roost-agent.jar"), made.join("test-classes"));
    let changed = |path: &Path| fs::metadata(path).and_then(|about| about.modified()).ok();
    let (class, source) =
        (classes.join("tiny/Server.class"), root.join("java/src/test/java/tiny/Server.java"));
    if !jar.exists() || changed(&class) < changed(&source) {
        let mut maven = Command::new("mvn");
        maven.args(["-q", "-B", "-DskipTests", "package", "-f"]).arg(root.join("java/pom.xml"));
        let done = maven.output().map_err(|error| format!("mvn: {error}"))?;
        let said = String::from_utf8_lossy(&done.stdout);
        if !done.status.success() && said.contains("Could not transfer") {
            return Err(format!("Maven Central cannot be reached: {said}"));
        }
        assert!(done.status.success(), "{said}");
    }
    Ok((jar, classes))
}
