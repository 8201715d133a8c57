//! A service to be confined: this test binary again, as a child with the given number of threads.

use linux::{Root, service::Service};
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use tempfile::TempDir;

const CHILD: &str = "ROOST_TEST_SERVICE";

/// Not a test of its own: the body of the child process. It follows orders, line by line, and
/// answers each with the number of the thread or process concerned.
#[test]
fn body() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let number = || rustix::thread::gettid().as_raw_nonzero().get().to_string();
    println!("\nanswer {}", number());
    for line in std::io::stdin().lines().map_while(Result::ok) {
        let (word, cpu) = line.split_once(' ').unwrap_or((&line, ""));
        let pin = cpu.parse().ok().map(machine::CpuId);
        let pinned = move || pin.map_or(Ok(()), linux::pin_current_thread);
        let answer = match word {
            "thread" => {
                let (sender, receiver) = std::sync::mpsc::channel();
                std::thread::spawn(move || {
                    pinned().unwrap();
                    sender.send(number()).unwrap();
                    loop {
                        std::thread::park();
                    }
                });
                receiver.recv().unwrap()
            }
            "here" => {
                pinned().unwrap();
                number()
            }
            "child" => Command::new("/bin/sleep").arg("600").spawn().unwrap().id().to_string(),
            "become" => panic!("{}", Command::new("/bin/sleep").arg("600").exec()),
            other => panic!("{other}"),
        };
        println!("answer {answer}");
    }
}

/// The child, from outside. It ends, and its children, with this.
pub struct Running {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    children: Vec<u32>,
    /// The thread that takes the orders.
    pub taker: u32,
}

impl Running {
    pub fn start() -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "service::body", "--nocapture", "--test-threads=1"])
            .env(CHILD, "yes")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let orders = child.stdin.take().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        let mut running = Self { child, orders, answers, children: Vec::new(), taker: 0 };
        running.taker = running.answer();
        running
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn service(&self) -> Service {
        linux::service::of_process(&Root::system(), self.pid()).unwrap()
    }

    /// A thread more, on `cpu` alone or as its parent.
    pub fn thread(&mut self, cpu: Option<u16>) -> u32 {
        self.tell(&cpu.map_or("thread".to_owned(), |cpu| format!("thread {cpu}")))
    }

    /// Pins the thread that takes the orders.
    pub fn here(&mut self, cpu: u16) -> u32 {
        self.tell(&format!("here {cpu}"))
    }

    /// A process more, of another program.
    pub fn child(&mut self) -> u32 {
        let child = self.tell("child");
        self.children.push(child);
        child
    }

    pub fn become_another(&mut self) {
        writeln!(self.orders, "become").unwrap();
        while fs::read_to_string(format!("/proc/{}/comm", self.pid())).unwrap().trim() != "sleep" {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    fn tell(&mut self, order: &str) -> u32 {
        writeln!(self.orders, "{order}").unwrap();
        self.answer()
    }

    fn answer(&mut self) -> u32 {
        let lines = (&mut self.answers).lines().map_while(Result::ok);
        let mut answers = lines.filter_map(|line| line.strip_prefix("answer ")?.parse().ok());
        answers.next().expect("the service answers")
    }

    /// The CPUs of each of its threads.
    pub fn masks(&self) -> BTreeMap<u32, String> {
        masks(self.pid())
    }

    /// Its line in `cgroup`.
    pub fn cgroups(&self) -> String {
        fs::read_to_string(format!("/proc/{}/cgroup", self.pid())).unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for child in &self.children {
            let child = rustix::process::Pid::from_raw(*child as i32).unwrap();
            let _ = rustix::process::kill_process(child, rustix::process::Signal::KILL);
        }
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// The CPUs of each thread of a process.
pub fn masks(process: u32) -> BTreeMap<u32, String> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    tasks
        .map(|task| {
            let task = task.unwrap();
            let thread: u32 = task.file_name().to_str().unwrap().parse().unwrap();
            (thread, mask(thread))
        })
        .collect()
}

pub fn mask(thread: u32) -> String {
    let status = fs::read_to_string(format!("/proc/{thread}/status")).unwrap();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    list.trim().to_owned()
}

/// The real machine, with locks and journals in a folder of the test's own.
pub fn machine() -> (TempDir, Root) {
    let folder = tempfile::tempdir().unwrap();
    for part in ["sys", "proc", "dev"] {
        symlink(format!("/{part}"), folder.path().join(part)).unwrap();
    }
    let root = Root::at(folder.path());
    (folder, root)
}
