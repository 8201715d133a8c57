//! `roost-kube`: governs the pods of a node that ask for it.

use anyhow::{Context as _, Result};
use clap::Parser;
use kube::api::Client;
use kube::run::Options;
use linux::Root;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Govern the pods of this node that ask for a latency goal by annotation
///
/// Runs beside `roost daemon`, in the same pod of a DaemonSet, as root and without its capabilities.
/// It holds a lease of the daemon for each pod; when it ends, everything is put back.
#[derive(Parser, Debug)]
#[command(name = "roost-kube", version, after_help = HELP)]
struct Args {
    /// The name of this node in the cluster [default: NODE_NAME of the environment]
    #[arg(long, value_name = "NAME")]
    node: Option<String>,

    /// The control socket of the daemon
    #[arg(long, value_name = "FILE", default_value = "/run/roost/roost.sock")]
    socket: PathBuf,

    /// The ConfigMap whose limits.toml has the limits of namespaces
    #[arg(long, value_name = "NAMESPACE/NAME", default_value = "roost/roost-limits")]
    limits: String,

    /// The API server, such as https://10.0.0.1:6443 [default: the cluster's own, from within a pod]
    #[arg(long, value_name = "URL")]
    server: Option<String>,

    /// The certificates that the server's is signed by, in PEM [default: those of the pod's account]
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,

    /// The token to show to the server [default: that of the pod's account]
    #[arg(long, value_name = "FILE")]
    token: Option<PathBuf>,
}

const HELP: &str = "\
Annotations of a pod:
  roost.dev/goal: 500us@p99     its latency goal; with one it is governed
  roost.dev/port: \"11211\"       the port that the goal is about [default: all of the pod]
  roost.dev/policy: carb        or carb-paper, fixed
  roost.dev/mode: observe       or govern

Examples:
  roost-kube --node \"$(hostname)\"
  roost-kube --node node7 --server https://10.0.0.1:6443 --ca ca.crt --token token
";

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("roost-kube: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    let node = args.node.clone().or_else(|| std::env::var("NODE_NAME").ok());
    let (namespace, name) = args.limits.split_once('/').context("--limits: write NAMESPACE/NAME")?;
    let options = Options {
        node: node.context("which node is this?\nhint: --node NAME, or NODE_NAME from spec.nodeName")?,
        socket: args.socket.clone(),
        limits: (namespace.to_owned(), name.to_owned()),
        root: Root::system(),
    };
    let client = Client::new(args.server.as_deref(), args.ca.clone(), args.token.clone())?;
    let ends = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&ends)).context("listening for signals")?;
    }
    kube::run::run(client, options, &ends)
}
