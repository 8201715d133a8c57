//! The services whose predictions are tried, each with its load.

use super::Args;
use crate::contestant::{Contestant, Ends, Stable, Who};
use anyhow::{Context as _, Result, bail};
use linux::EndsWithParent as _;
use machine::Duration;
use std::fmt;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Service {
    Memcached,
    Nginx,
    Elasticsearch,
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Memcached => "memcached",
            Self::Nginx => "nginx",
            Self::Elasticsearch => "elasticsearch",
        })
    }
}

/// A service that runs until this is dropped.
pub struct Running {
    pub service: Service,
    pub port: u16,
    _memcached: Option<Contestant>,
    _nginx: Option<Ends>,
    _folder: TempDir,
    search: Option<Search>,
}

/// What is asked of a search engine that runs already.
struct Search {
    url: String,
    body: String,
    words: PathBuf,
}

impl Service {
    /// Its program, if it is there; of a search engine that runs, the file of its words.
    pub fn program(self, args: &Args) -> Option<PathBuf> {
        let named = match self {
            Self::Memcached => &args.memcached,
            Self::Nginx => &args.nginx,
            Self::Elasticsearch => return args.words.clone().filter(|file| file.is_file()),
        };
        let path = std::env::var_os("PATH").unwrap_or_default();
        let beside = std::env::split_paths(&path).map(|folder| folder.join(named));
        // A name with a folder in it is that file.
        let files = std::iter::once(named.clone()).filter(|file| file.components().count() > 1).chain(beside);
        files.into_iter().find(|file| file.is_file())
    }

    pub fn start(self, args: &Args, program: &Path) -> Result<Running> {
        let folder = tempfile::tempdir().context("a folder for the service")?;
        match self {
            Self::Memcached => {
                let stable = Stable::of(program, linux::allowed_cpus()?, 256, folder.path())?;
                let server = stable.start(Who::Peer)?;
                let port = server.port().context("memcached has no TCP port")?;
                Ok(Running {
                    service: self,
                    port,
                    _memcached: Some(server),
                    _nginx: None,
                    _folder: folder,
                    search: None,
                })
            }
            Self::Nginx => {
                let (child, port) = nginx(program, folder.path())?;
                let nginx = Some(Ends(child));
                Ok(Running {
                    service: self,
                    port,
                    _memcached: None,
                    _nginx: nginx,
                    _folder: folder,
                    search: None,
                })
            }
            Self::Elasticsearch => {
                let url = args.search.clone().context("--search is missing")?;
                let body = args.body.clone().context("--body is missing")?;
                let port = url.rsplit_once("//").map_or(url.as_str(), |(_, rest)| rest);
                let port = port.split('/').next().and_then(|host| host.rsplit_once(':')?.1.parse().ok());
                let port = port.with_context(|| format!("--search {url}: it names no port"))?;
                let search = Some(Search { url, body, words: program.to_owned() });
                Ok(Running { service: self, port, _memcached: None, _nginx: None, _folder: folder, search })
            }
        }
    }
}

/// nginx with one static file, a worker for each CPU, and nothing logged.
fn nginx(program: &Path, folder: &Path) -> Result<(Child, u16)> {
    // The port is free when it is asked for; nginx cannot say which one it was given.
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let at = folder.display();
    let config = format!(
        "daemon off; worker_processes auto; pid {at}/pid; error_log {at}/error.log;\n\
         events {{ worker_connections 1024; }}\n\
         http {{ access_log off; sendfile on; keepalive_requests 1000000000;\n\
         client_body_temp_path {at}/body; proxy_temp_path {at}/proxy; fastcgi_temp_path {at}/fastcgi;\n\
         uwsgi_temp_path {at}/uwsgi; scgi_temp_path {at}/scgi;\n\
         server {{ listen 127.0.0.1:{port}; root {at}/files; }} }}\n"
    );
    let files = folder.join("files");
    crate::run_folder::create(&files)?;
    crate::run_folder::write(&files, "page", |file| file.write_all(&[b'x'; 4096]))?;
    crate::run_folder::write(folder, "nginx.conf", |file| file.write_all(config.as_bytes()))?;
    // Its workers may run as another user.
    std::fs::set_permissions(folder, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    let mut command = Command::new(program);
    command.arg("-c").arg(folder.join("nginx.conf")).arg("-p").arg(folder);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).ends_with_parent();
    let mut child = command.spawn().with_context(|| format!("starting {}", program.display()))?;
    for _ in 0..100 {
        if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return Ok((child, port));
        }
        if let Some(status) = child.try_wait()? {
            bail!("nginx ended at once ({status})");
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    let _ = child.kill();
    let _ = child.wait();
    bail!("nginx does not listen on port {port}")
}

impl Running {
    fn target(&self) -> String {
        match self.service {
            Service::Memcached => format!("127.0.0.1:{}", self.port),
            Service::Nginx => format!("http://127.0.0.1:{}/page", self.port),
            Service::Elasticsearch => {
                self.search.as_ref().map_or_else(String::new, |search| search.url.clone())
            }
        }
    }

    fn generator(&self, length: Duration) -> Result<Command> {
        let mut command = Command::new(crate::product::roost()?);
        command.args(["load", &self.target(), "--connections", "32", "--warmup", "0s", "--json"]);
        command.args(["--for", &format!("{}ms", length.as_millis())]);
        if self.service == Service::Memcached {
            command.args(["--keys", "10000", "--preload"]);
        }
        if let Some(search) = &self.search {
            command.args(["--body", &search.body]);
            command.arg("--words").arg(&search.words);
        }
        command.stdin(Stdio::null()).stderr(Stdio::null()).ends_with_parent();
        Ok(command)
    }

    /// Requests per second that it answers at most, with the generator on the same CPUs.
    pub fn capacity(&self, length: Duration) -> Result<f64> {
        let output = self.generator(length)?.args(["--arrivals", "closed:1"]).output()?;
        let document: serde_json::Value =
            serde_json::from_slice(&output.stdout).context("the document of roost load")?;
        let rate = document["achieved_per_s"].as_f64().filter(|rate| *rate > 0.0);
        rate.context("the load had no answers")
    }

    pub fn load(&self, rate: f64, length: Duration) -> Result<Child> {
        let mut command = self.generator(length)?;
        command.args(["--rate", &format!("{rate:.0}"), "--spin", "0s"]).stdout(Stdio::null());
        command.spawn().context("starting roost load")
    }
}
