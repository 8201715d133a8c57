//! `roost serve`: the arguments become a server's configuration, and signals end it.

use crate::exit::{Exit, coded, usage};
use crate::machine_facts;
use crate::memcached_args;
use crate::signals::EndSignals;
use crate::size::parse_size;
use anyhow::{Context as _, Result};
use clap::{Parser, ValueEnum};
use machine::{CpuId, CpuList, Duration};
use signal_hook::consts::SIGHUP;
use std::io::Write as _;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use store::session::Users;
use store::{Config, Limits, Listen, Parameters, Policy, Server, StartError, StoreConfig};

const MIN_MEMORY: usize = 16 << 20;
const MIN_ITEM: usize = 1 << 10;

/// A place to listen at without TLS though there is a certificate.
const NO_TLS: &str = "notls:";

/// A place to listen at that is the path of a socket.
const UNIX: &str = "unix:";

/// A memcached-compatible store that puts idle cores to sleep
#[derive(Clone, Parser)]
#[command(after_long_help = include_str!("../help/serve.txt"))]
pub struct Args {
    /// Address or name to listen at, or unix:PATH for a socket; may be given several times
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    listen: Vec<String>,
    /// Port; 0 lets the system choose and prints it
    #[arg(long, default_value_t = 11211)]
    port: u16,
    /// CPUs to run on, such as 0-3,8 [default: all allowed]
    #[arg(long, value_name = "LIST")]
    cpus: Option<String>,
    /// Workers; more than CPUs share them in turn [default: one per CPU]
    #[arg(long, value_name = "N")]
    workers: Option<u16>,
    /// Memory for items, their index and connection buffers. Not counted are the program itself
    /// and, for each worker, the answer that it composes: one value of --max-item-size and some 256
    /// KiB
    #[arg(long, value_name = "SIZE", default_value = "1g")]
    memory_limit: String,
    /// The largest value
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "1m",
        help_heading = "Advanced",
        hide_short_help = true
    )]
    max_item_size: String,
    /// The arguments of a memcached, such as "-m 512 -t 4 -c 2000", in place of the flags above; those
    /// that mean nothing here are named, and those that it would be wrong to leave out are refused
    #[arg(long, value_name = "ARGS", allow_hyphen_values = true,
        conflicts_with_all = ["listen", "port", "workers", "memory_limit", "max_item_size"])]
    memcached_args: Option<String>,
    /// Serve only clients that say a user of this file, a line USER:PASSWORD each, as memcached's -Y;
    /// SIGHUP reads it again
    #[arg(long, value_name = "FILE")]
    auth_file: Option<PathBuf>,
    /// Speak TLS at every TCP address that is not notls:ADDRESS, and show this chain of certificates (PEM);
    /// SIGHUP reads it again
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The private key of --tls-cert (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// With TLS, serve only clients with a certificate of one of these authorities (PEM)
    #[arg(
        long,
        value_name = "FILE",
        requires = "tls_cert",
        help_heading = "Advanced",
        hide_short_help = true
    )]
    tls_client_ca: Option<PathBuf>,
    /// How many workers stay awake
    #[arg(long, value_enum, default_value_t = PolicyName::Peafowl)]
    policy: PolicyName,
    /// Also wake workers when the measured tail exceeds this, such as 500us@p99; with --policy joint, the
    /// goal that plans are made for
    #[arg(long, value_name = "TIME@pQ")]
    latency_goal: Option<String>,
    /// The state of an active worker's CPU when it has nothing to do; --policy joint plans it itself
    /// [default: halt]
    #[arg(long, value_enum)]
    active_idle: Option<ActiveIdle>,
    /// By which interface idle states are limited
    #[arg(
        long,
        value_enum,
        default_value_t = Actuator::PmQos,
        help_heading = "Advanced",
        hide_short_help = true
    )]
    idle_actuator: Actuator,
    /// Put off the interrupts of this network card while requests come: workers look for packets
    /// themselves, and are interrupted when there were none (Linux 6.13; takes root)
    #[arg(long, value_name = "DEVICE", help_heading = "Advanced", hide_short_help = true)]
    nic_suspend: Option<String>,
    /// For clients that may wait: leave requests in their sockets and serve them together, within
    /// this, such as 50ms@p99
    #[arg(long, value_name = "TIME@pQ")]
    stage: Option<machine::Goal>,
    /// Keep learned load limits in this file between runs
    #[arg(long, value_name = "FILE", help_heading = "Advanced", hide_short_help = true)]
    state: Option<PathBuf>,
    /// Keep the items in this file between runs: it is written at the end, and read and taken away at
    /// the next start
    #[arg(long, value_name = "FILE", help_heading = "Advanced", hide_short_help = true)]
    items: Option<PathBuf>,
    /// Record every policy's readings and commands into this folder, for replay
    #[arg(long, value_name = "DIR", help_heading = "Advanced", hide_short_help = true)]
    record: Option<PathBuf>,
    #[command(flatten)]
    names: crate::metrics::Names,
    /// Limits of connections, permissions of unix:PATH, parameters of policies, of --stage and of
    /// --nic-suspend, work stealing, as TOML; unknown keys are refused
    #[arg(long, value_name = "FILE", help_heading = "Advanced", hide_short_help = true)]
    config: Option<PathBuf>,
    /// Print the parameters in force as TOML, and end
    #[arg(long, help_heading = "Advanced", hide_short_help = true)]
    print_config: bool,
    /// The control socket of the daemon, which is asked for idle limits where one runs
    /// [default: /run/roost/roost.sock]
    #[arg(long, value_name = "PATH", help_heading = "Advanced", hide_short_help = true)]
    socket: Option<PathBuf>,
    /// The machine's files lie below this folder: for benches on machines that are not there
    #[arg(long, value_name = "DIR", alias = "sysfs-root", hide = true)]
    root: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PolicyName {
    /// Pack connections onto as few workers as the learned limits allow
    Peafowl,
    /// Peafowl as its paper prints it
    PeafowlPaper,
    /// All workers, always
    AllAwake,
    /// Search the number of workers by response time
    Carb,
    /// CARB as its paper prints it
    CarbPaper,
    /// Plan for the least modelled power within --latency-goal
    Joint,
}

impl PolicyName {
    fn is_paper(self) -> bool {
        matches!(self, Self::PeafowlPaper | Self::CarbPaper)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ActiveIdle {
    /// Halts in its shallowest state
    Halt,
    /// Polls: ready at once, at full power
    Poll,
    /// Whatever the kernel thinks best
    Stock,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Actuator {
    /// The CPU's resume-latency limit
    PmQos,
    /// Each state's `disable` file
    Disable,
    /// None: touch nothing
    None,
}

/// Serves until a signal ends it.
pub fn run(args: &Args) -> Result<ExitCode> {
    let (args, theirs) = &translated(args)?;
    let mut parameters = parameters(args)?;
    if let Some(theirs) = theirs {
        parameters.limits.connections = theirs.connections;
        parameters.limits.dump &= theirs.dump;
        parameters.limits.watch &= theirs.watch;
        parameters.unix.mode = format!("{:04o}", theirs.unix_mode);
    }
    if args.print_config {
        print!("{}", toml::to_string_pretty(&parameters).context("printing the configuration")?);
        return Ok(ExitCode::SUCCESS);
    }
    check_together(args)?;
    let config = config(args, parameters)?;
    // Signals are caught before there is anything to put back.
    let (users, tls) = (config.users.clone(), config.tls.clone());
    let mut signals =
        if users.is_some() || tls.is_some() { EndSignals::watch_and_reload()? } else { EndSignals::watch()? };
    let handle = signals.handle();
    let server = start(config, move || handle.close())?;
    let metrics = args
        .names
        .address()
        .map(|address| crate::metrics::serve_store(address, &args.names, server.inspector()))
        .transpose()?;
    announce(&server, args, metrics);
    let asked = loop {
        match signals.wait() {
            Some(SIGHUP) if users.is_some() || tls.is_some() => {
                if let Some(users) = &users {
                    told("the users", users.path(), users.reload());
                }
                if let Some(tls) = &tls {
                    told("the certificates", &tls.identity().certificate, tls.reload());
                }
            }
            signal => break signal.is_some(),
        }
    };
    server.stop().context("serving")?;
    if asked {
        Ok(ExitCode::SUCCESS)
    } else {
        Err(coded(Exit::Failed, "a thread of the server ended by itself"))
    }
}

/// Says whether a file was read again.
fn told(what: &str, file: &Path, outcome: Result<(), impl std::fmt::Display>) {
    match outcome {
        Ok(()) => eprintln!("roost: {} read again", file.display()),
        Err(error) => eprintln!("roost: {what} stay as they were: {error}"),
    }
}

/// The arguments with those of a memcached in their place, and those that are parameters here.
fn translated(args: &Args) -> Result<(Args, Option<memcached_args::Translated>)> {
    let Some(theirs) = &args.memcached_args else { return Ok((args.clone(), None)) };
    let found = memcached_args::translate(theirs)?;
    for note in &found.notes {
        eprintln!("roost: --memcached-args: {note}");
    }
    let args = Args {
        listen: found.listen.clone(),
        port: found.port,
        workers: found.workers,
        memory_limit: found.memory_limit.clone(),
        max_item_size: found.max_item_size.clone(),
        items: found.items.as_ref().map(PathBuf::from).or(args.items.clone()),
        auth_file: found.auth_file.as_ref().map(PathBuf::from).or(args.auth_file.clone()),
        tls_cert: found.tls_cert.as_ref().map(PathBuf::from).or(args.tls_cert.clone()),
        tls_key: found.tls_key.as_ref().map(PathBuf::from).or(args.tls_key.clone()),
        tls_client_ca: found.tls_client_ca.as_ref().map(PathBuf::from).or(args.tls_client_ca.clone()),
        ..args.clone()
    };
    Ok((args, Some(found)))
}

/// Starts a server; a fault of the arguments ends with the code for that. `on_broken` is called if
/// one of its threads ends by itself.
pub fn start(config: Config, on_broken: impl Fn() + Send + Sync + 'static) -> Result<Server> {
    Server::start(config, on_broken).map_err(|error| match error {
        StartError::Held(_)
        | StartError::Items(store::ItemsError::Held(_))
        | StartError::Nic(linux::NicError::Lock(_)) => coded(Exit::Refused, error),
        StartError::Nic(linux::NicError::Refused { .. }) => error.into(),
        StartError::Nic(_) => usage(error),
        StartError::Listen(_) | StartError::State(_) | StartError::Items(_) | StartError::Store(_) => {
            usage(error)
        }
        StartError::Kernel(_) => error.into(),
    })
}

/// The first line says where: the process that started the server waits for it. It serves without
/// that, too.
fn announce(server: &Server, args: &Args, metrics: Option<SocketAddr>) {
    for address in server.addresses() {
        println!("listening on {address}");
    }
    for socket in args.listen.iter().filter(|place| place.starts_with(UNIX)) {
        println!("listening on {socket}");
    }
    if let Some(address) = metrics {
        println!("metrics on http://{address}/metrics");
    }
    let _ = std::io::stdout().flush();
}

/// Refuses options of which one would silently have no effect.
fn check_together(args: &Args) -> Result<()> {
    let looks_at_goals = [PolicyName::Peafowl, PolicyName::PeafowlPaper, PolicyName::Joint];
    if args.latency_goal.is_some() && !looks_at_goals.contains(&args.policy) {
        return Err(usage(
            "--latency-goal is a word of --policy peafowl and joint: the others would not look at it\n\
             hint: leave one of them out",
        ));
    }
    let judges_times = [PolicyName::Carb, PolicyName::CarbPaper, PolicyName::Joint];
    if args.stage.is_some() && judges_times.contains(&args.policy) {
        return Err(usage(
            "--stage holds requests back, and --policy carb or joint would take the time that they \
             are held for a server that is slow\n\
             hint: use --policy peafowl or all-awake, or leave --stage out",
        ));
    }
    if args.policy == PolicyName::Joint && args.active_idle.is_some() {
        return Err(usage(
            "--policy joint plans how deep the CPUs of active workers sleep: --active-idle would have no effect\n\
             hint: leave it out, or leave all idle states alone by --idle-actuator none",
        ));
    }
    Ok(())
}

/// The goal that plans are made for: the workers count all response times, so it may be of any quantile.
fn joint(args: &Args) -> Result<policy::joint::Params> {
    let Some(goal) = &args.latency_goal else {
        return Err(usage(
            "--policy joint plans for a goal\nhint: add one, such as --latency-goal 500us@p99",
        ));
    };
    let goal: machine::Goal = goal.parse().map_err(|error| usage(format!("--latency-goal: {error}")))?;
    Ok(policy::joint::Params { target: goal.latency, quantile: goal.quantile, ..Default::default() })
}

/// The rules of a paper or the file, then flags.
fn parameters(args: &Args) -> Result<Parameters> {
    let mut file = match &args.config {
        Some(_) if args.policy.is_paper() => {
            return Err(usage(
                "the rules of a paper and --config exclude each other\nhint: start from `roost serve --policy \
                 peafowl-paper --print-config`",
            ));
        }
        Some(path) => {
            let text = std::fs::read_to_string(path).map_err(|error| {
                usage(format!("cannot read {}: {error}\nhint: --config takes a TOML file", path.display()))
            })?;
            Parameters::parse(&text).map_err(|error| {
                usage(format!(
                    "{}: {error}hint: `roost serve --print-config` prints every key",
                    path.display()
                ))
            })?
        }
        None if args.policy.is_paper() => Parameters::paper(),
        None => Parameters::default(),
    };
    if let Some(goal) = args.latency_goal.as_ref().filter(|_| args.policy != PolicyName::Joint) {
        file.peafowl.latency_goal = Some(parse_goal(goal).map_err(usage)?);
    }
    Ok(file)
}

fn config(args: &Args, file: Parameters) -> Result<Config> {
    let memory_limit = parse_size(&args.memory_limit).map_err(|e| usage(format!("--memory-limit: {e}")))?;
    if memory_limit < MIN_MEMORY {
        return Err(usage("--memory-limit must be at least 16m"));
    }
    let max_item_size =
        parse_size(&args.max_item_size).map_err(|e| usage(format!("--max-item-size: {e}")))?;
    if let Some(memory) = machine_facts::memory_bytes()
        && memory_limit as u64 > memory
    {
        return Err(usage(format!(
            "--memory-limit {} is more than this machine has\nhint: it has {} MiB; leave some for the rest",
            args.memory_limit,
            memory >> 20
        )));
    }
    if max_item_size < MIN_ITEM {
        return Err(usage("--max-item-size must be at least 1k"));
    }
    // An item that cannot be kept once the store is full is not accepted while it is empty.
    if max_item_size > store::store::largest_item(memory_limit) {
        let most = store::store::largest_item(memory_limit) >> 10;
        return Err(usage(format!(
            "--max-item-size {} cannot be kept within --memory-limit {}: an eighth of it, and 64m \
             at the most, is for values on their way\nhint: lower --max-item-size to {most}k or \
             raise --memory-limit",
            args.max_item_size, args.memory_limit
        )));
    }
    if args.stage.is_some() && file.stealing.after.is_some() {
        return Err(usage(
            "stealing.after beside --stage: its requests wait on purpose, and are served together\n\
             hint: leave out one of the two",
        ));
    }
    let root = args.root.as_ref().map_or_else(linux::Root::system, linux::Root::at);
    raise_descriptor_limit(file.limits.connections);
    let tls = identity(args).map(tls::Server::load).transpose().map_err(usage)?.map(Arc::new);
    Ok(Config {
        listen: places(args, &file)?,
        worker_cpus: worker_cpus(args)?,
        store: StoreConfig { memory_limit, max_item_size, shards: None },
        limits: Limits {
            max_connections: file.limits.connections,
            stall: file.limits.stall,
            session: store::session::Limits {
                max_item_size,
                dump: file.limits.dump,
                watch: file.limits.watch,
                ..Default::default()
            },
        },
        users: args.auth_file.as_deref().map(Users::load).transpose().map_err(usage)?.map(Arc::new),
        tls,
        policy: match args.policy {
            PolicyName::Peafowl | PolicyName::PeafowlPaper => Policy::Peafowl(file.peafowl),
            PolicyName::AllAwake => Policy::AllAwake,
            PolicyName::Carb | PolicyName::CarbPaper => Policy::Carb(file.carb),
            PolicyName::Joint => Policy::Joint(joint(args)?),
        },
        active_idle: match args.active_idle {
            None if args.policy == PolicyName::Joint => policy::active_idle::Mode::Stock,
            None | Some(ActiveIdle::Halt) => policy::active_idle::Mode::Halt,
            Some(ActiveIdle::Poll) => policy::active_idle::Mode::Poll,
            Some(ActiveIdle::Stock) => policy::active_idle::Mode::Stock,
        },
        idle_actuator: match args.idle_actuator {
            Actuator::PmQos => Some(linux::IdleActuator::PmQos),
            Actuator::Disable => Some(linux::IdleActuator::Disable),
            Actuator::None => None,
        },
        control: args.socket.clone().unwrap_or_else(|| linux::run_place(&root).join("roost.sock")),
        root,
        nic: args.nic_suspend.clone().map(|device| store::Nic {
            device,
            times: linux::SuspendTimes {
                suspend: file.nic.suspend,
                flush: file.nic.flush,
                looks: file.nic.looks,
            },
            busy_poll: file.nic.busy_poll,
        }),
        steal_after: file.stealing.after,
        stage: args.stage.map(|goal| store::Stage { goal, period: file.stage.period }),
        state_file: args.state.clone(),
        items: args.items.clone(),
        record: args.record.clone(),
        power_model: None,
        log: store::Log::new(|line| eprintln!("roost: {line}")),
    })
}

fn identity(args: &Args) -> Option<tls::Identity> {
    let (certificate, key) = (args.tls_cert.clone()?, args.tls_key.clone()?);
    if let Some(remark) = tls::remark(&key) {
        eprintln!("roost: {remark}");
    }
    Some(tls::Identity { certificate, key, clients: args.tls_client_ca.clone() })
}

fn places(args: &Args, file: &Parameters) -> Result<Vec<Listen>> {
    let mode = file.unix.permissions().context("unix.mode is no permissions")?;
    let mut places = Vec::new();
    for text in &args.listen {
        let plain = text.strip_prefix(NO_TLS);
        if plain.is_some() && args.tls_cert.is_none() {
            return Err(usage(format!(
                "--listen {text}: nothing speaks TLS without --tls-cert\nhint: leave {NO_TLS} out"
            )));
        }
        if plain.is_some_and(|place| place.starts_with(UNIX)) {
            return Err(usage(format!(
                "--listen {text}: a socket of a file has no TLS in any case\nhint: leave {NO_TLS} out"
            )));
        }
        let is_tls = args.tls_cert.is_some() && plain.is_none();
        let text = plain.unwrap_or(text);
        if let Some(path) = text.strip_prefix(UNIX) {
            places.push(Listen::Unix { path: path.into(), mode });
            continue;
        }
        let addresses: Vec<SocketAddr> = match text.parse::<IpAddr>() {
            Ok(address) => vec![SocketAddr::new(address, args.port)],
            // Of a name's addresses those that this machine has: localhost may have one of IPv6 that is off.
            Err(_) => (text, args.port)
                .to_socket_addrs()
                .into_iter()
                .flatten()
                .filter(|place| std::net::UdpSocket::bind((place.ip(), 0)).is_ok())
                .collect(),
        };
        if addresses.is_empty() {
            return Err(usage(format!(
                "--listen {text}: no address of this machine\nhint: write one, such as 127.0.0.1, a name \
                 of one, or unix:PATH"
            )));
        }
        places.extend(addresses.into_iter().map(if is_tls { Listen::Tls } else { Listen::Tcp }));
    }
    if args.tls_cert.is_some() && !places.iter().any(|place| matches!(place, Listen::Tls(_))) {
        return Err(usage(format!(
            "--tls-cert: no place to listen at speaks TLS: they are {}\nhint: leave it out, or listen at an \
             address as well",
            args.listen.join(", ")
        )));
    }
    Ok(places)
}

/// The CPU of each worker: the CPUs in turn.
fn worker_cpus(args: &Args) -> Result<Vec<CpuId>> {
    let allowed = linux::allowed_cpus().map_err(usage)?;
    let cpus = match &args.cpus {
        None => allowed,
        Some(text) => {
            let asked: CpuList = text.parse().map_err(|error| usage(format!("--cpus: {error}")))?;
            linux::check_allowed(&asked, &allowed).map_err(|error| usage(format!("--cpus: {error}")))?;
            asked
        }
    };
    let workers = args.workers.map_or(cpus.0.len(), usize::from);
    if workers == 0 {
        return Err(usage("--workers must be at least 1"));
    }
    Ok(cpus.0.iter().copied().cycle().take(workers).collect())
}

/// `500us@p99`. The store measures its 99th percentile, so that is the one that can be a goal.
fn parse_goal(text: &str) -> Result<Duration, String> {
    let refused = || format!("--latency-goal {text}: write a time and a percentile, such as 500us@p99");
    let (time, quantile) = text.split_once('@').ok_or_else(refused)?;
    let time: Duration = time.parse().map_err(|_| refused())?;
    let is_percentile = quantile.strip_prefix('p').and_then(|percent| percent.parse::<f64>().ok());
    if !is_percentile.is_some_and(|percent| percent > 0.0 && percent < 100.0) {
        return Err(format!("--latency-goal {text}: {quantile} is no percentile\nhint: write {time}@p99"));
    }
    if quantile != "p99" {
        return Err(format!(
            "--latency-goal {text}: the store measures p99, and no other percentile\nhint: write {time}@p99"
        ));
    }
    Ok(time)
}

/// One descriptor per client and some for the rest, as far as this user may.
fn raise_descriptor_limit(connections: u32) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let needed = u64::from(connections) + 256;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < needed) {
        let maximum = limit.maximum;
        let raised = Rlimit { current: Some(maximum.map_or(needed, |maximum| needed.min(maximum))), maximum };
        let _ = setrlimit(Resource::Nofile, raised);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_is_a_time_and_the_percentile_that_is_measured() {
        assert_eq!(parse_goal("500us@p99"), Ok(Duration::from_micros(500)));
        for wrong in ["500us", "fast@p99", "500us@p95", "@p99"] {
            assert!(
                parse_goal(wrong).unwrap_err().contains("500us@p99") || wrong.ends_with("p95"),
                "{wrong}"
            );
        }
    }
}
