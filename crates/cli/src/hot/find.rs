//! Profile, count, rank.

use super::Args;
use super::course::Course;
use super::results::{Found, Kind, Row};
use crate::exit::{Exit, coded, usage};
use ::observe::functions::FunctionError;
use ::observe::hot::{
    Counted, CountedState, Frame, Jvm, JvmError, NativeError, Profile, Seen, Stacks, Unwinding, count_calls,
    count_functions, profile_jvm, profile_native,
};
use ::observe::requests::RequestWatch;
use anyhow::{Context as _, Result};
use linux::service::{self, Service};
use linux::{Root, SafeFolder, printable_name};
use machine::Duration;
use policy::hot::{Candidate, LEAST_SHARE, Profiled, Verdict, rank, shortlist};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Looks at the service, and prints the findings.
pub fn find(args: &Args, scratch: &Path) -> Result<Found> {
    let root = Root::system();
    let mut service = service::of_process(&root, args.pid).map_err(usage)?;
    if let Some(port) = args.port {
        service.ports = [port].into();
    }
    let jvm = Jvm::find(&root, args.pid).map_err(jvm_error)?;
    let kind = if jvm.is_some() { Kind::Jvm } else { Kind::Native };
    let mut notes = Vec::new();
    eprintln!(
        "roost hot: profiling {} (process {}) for {}",
        printable_name(&service.name),
        args.pid,
        args.length
    );
    let stacks = match &jvm {
        Some(jvm) => profile_jvm(jvm, &jars(args)?, args.length).map_err(jvm_error)?,
        None => {
            let unwinding = if args.frame_pointers { Unwinding::FramePointers } else { Unwinding::Dwarf };
            profile_native(args.pid, args.length, unwinding, scratch).map_err(native_error)?
        }
    };
    let profile = Profile::of(&stacks);
    if stacks.odd_lines > 0 {
        notes.push(format!("{} lines of the profiler were not understood", stacks.odd_lines));
    }
    if profile.cut.as_f64() >= LEAST_SHARE {
        notes.push(format!(
            "of {} of the stacks the outer part is missing, so outer functions have more than \
             their share says, and the wrong one may come first: there is a frame with a large \
             array in it, or code without tables to unwind it by; --frame-pointers sees it all \
             where the program is built with them (-fno-omit-frame-pointer)",
            profile.cut
        ));
    }
    let nameless = profile.nameless.iter().filter(|(_, share)| share.as_f64() >= LEAST_SHARE);
    let stripped: Vec<String> = nameless
        .map(|(file, share)| {
            format!(
                "{file} has no symbols, and {share} of the time is in it: install its debug \
                 symbols (on Debian NAME-dbgsym), or build it with -g and do not strip it"
            )
        })
        .collect();
    let chosen = chosen(&profile, FUNCTIONS_COUNTED);
    if chosen.is_empty() {
        let why = match kind {
            Kind::Native if !stripped.is_empty() => {
                format!("no function can be told from another\nhint: {}", stripped.join("\nhint: "))
            }
            Kind::Native => "no function with a name holds a tenth of the request threads' CPU \
                 time\nhint: install the program's debug symbols; --frame-pointers where it is \
                 built with them"
                .to_owned(),
            Kind::Jvm => "no method of the service's own holds a tenth of the request threads' \
                 CPU time\n\
                 hint: was there load?"
                .to_owned(),
        };
        return Err(coded(Exit::Failed, why));
    }
    notes.extend(stripped);
    eprintln!("roost hot: counting the calls of {} functions for {}", chosen.len(), args.counting());
    let mut requests = Requests::open(&root, &service, &mut notes);
    let counted = match &jvm {
        Some(jvm) => {
            let methods: Vec<String> = chosen.iter().filter_map(|seen| seen.frame.symbol.clone()).collect();
            let jars = jars(args)?;
            let work = || count_calls(jvm, &jars, &methods, args.counting());
            let (counted, course) = requests.during(work);
            let mut counted = counted.map_err(jvm_error)?;
            if let Some(course) = course {
                let spans = counted.values_mut();
                spans.for_each(|one| one.requests = Some(course.within(one.began, one.elapsed)));
            }
            by_frame(&chosen, counted)
        }
        None => {
            let frames: Vec<Frame> = chosen.iter().map(|seen| seen.frame.clone()).collect();
            count_functions(&root, args.pid, &frames, args.counting(), |begins| {
                if begins {
                    requests.begin();
                    return None;
                }
                requests.end()
            })
            .map_err(function_error)?
        }
    };
    let rate = requests.per_second();
    if rate.is_none() {
        notes.push(
            "no request was seen on the service's port, so calls for each request are not known: \
             was there load? --port names another"
                .to_owned(),
        );
    }
    let candidates: Vec<Candidate> =
        chosen.iter().map(|seen| candidate(seen, counted.get(&seen.frame), rate)).collect();
    let rows: Vec<Row> = rank(&candidates, args.shards)
        .into_iter()
        .map(|place| {
            row(
                &chosen[place.index],
                candidates[place.index],
                counted.get(&chosen[place.index].frame),
                place.verdict,
            )
        })
        .collect();
    Ok(Found {
        service: service.name.clone(),
        pid: args.pid,
        kind,
        option: rows
            .first()
            .filter(|row| matches!(row.verdict, Verdict::Hot { .. }))
            .map(|row| option(args.pid, kind, row)),
        samples: stacks.weight(),
        requests_per_s: rate,
        pools: profile.pools.clone(),
        rows,
        notes,
        energy: None,
        stacks: serving(&stacks, &profile),
        collapsed: stacks.collapsed(),
    })
}

/// The functions whose calls are worth counting, as the policy says.
fn chosen(profile: &Profile, most: usize) -> Vec<Seen> {
    let profiled: Vec<Profiled> =
        profile.functions.iter().map(|seen| Profiled { share: seen.share, depth: seen.depth }).collect();
    shortlist(&profiled, most).into_iter().map(|at| profile.functions[at].clone()).collect()
}

fn by_frame(
    chosen: &[Seen],
    mut counted: BTreeMap<String, Counted>,
) -> BTreeMap<Frame, Result<Counted, String>> {
    let take = |seen: &Seen| Some((seen.frame.clone(), counted.remove(seen.frame.symbol.as_ref()?)?));
    let of = |counted: Counted| match counted.state {
        CountedState::Refused if counted.why.is_empty() => Err("its class is not loaded".to_owned()),
        CountedState::Refused => Err(counted.why),
        _ => Ok(counted),
    };
    chosen.iter().filter_map(take).map(|(frame, counted)| (frame, of(counted))).collect()
}

fn candidate(seen: &Seen, counted: Option<&Result<Counted, String>>, rate: Option<f64>) -> Candidate {
    let calls_per_request = match counted {
        Some(Ok(counted)) => counted.per_request(rate),
        _ => None,
    };
    Candidate { profiled: Profiled { share: seen.share, depth: seen.depth }, calls_per_request }
}

fn row(
    seen: &Seen,
    candidate: Candidate,
    counted: Option<&Result<Counted, String>>,
    verdict: Verdict,
) -> Row {
    let times = counted.and_then(|counted| counted.as_ref().ok()).map(|counted| &counted.times);
    let percentile = |percent| times.and_then(|times| times.percentile(percent));
    Row {
        function: seen.frame.name.clone(),
        file: seen.frame.file.clone(),
        symbol: seen.frame.symbol.clone(),
        share: seen.share,
        own: seen.own,
        depth: seen.depth,
        calls_per_request: candidate.calls_per_request,
        p50: percentile(50.0),
        p99: percentile(99.0),
        light: times.and_then(::observe::hot::Times::light),
        verdict,
        why: match counted {
            Some(Err(why)) => Some(why.clone()),
            None => Some("it was not counted".to_owned()),
            Some(Ok(_)) => None,
        },
    }
}

/// The command that has it watched.
fn option(pid: u32, kind: Kind, row: &Row) -> String {
    let symbol = row.symbol.as_deref().unwrap_or(&row.function);
    match kind {
        // A descriptor's parentheses and semicolons are the shell's otherwise.
        Kind::Jvm => format!("'-javaagent:roost-agent.jar=method={symbol},file=/dev/shm/%p.slots'"),
        Kind::Native => {
            format!(
                "roost govern hurry-up --pid {pid} --uprobe '{}:{symbol}'",
                row.file.as_deref().unwrap_or("")
            )
        }
    }
}

/// The stacks of the threads that serve requests, as names.
fn serving(stacks: &Stacks, profile: &Profile) -> Vec<(Vec<String>, u64)> {
    let serves = |thread: &str| profile.pools.iter().any(|pool| pool.serves && pool.holds(thread));
    let names =
        |frames: &[u32]| frames.iter().map(|&at| stacks.functions[at as usize].name.clone()).collect();
    stacks
        .stacks
        .iter()
        .filter(|stack| serves(&stack.thread))
        .map(|stack| (names(&stack.frames), stack.weight))
        .collect()
}

/// A counted call costs the service some microseconds.
const FUNCTIONS_COUNTED: usize = 24;

/// How often the requests' course is looked at: a function that is called too often to be counted
/// is let go of in as short a time.
const LOOK: std::time::Duration = std::time::Duration::from_millis(10);

/// The service's requests while calls are counted.
struct Requests {
    watch: Option<RequestWatch>,
    requests: u64,
    elapsed: Duration,
}

impl Requests {
    fn open(root: &Root, service: &Service, notes: &mut Vec<String>) -> Self {
        let watch = match service.clone().with_port() {
            Err(why) => {
                notes.push(format!("requests are not counted: {why}"));
                None
            }
            Ok(service) => {
                let (watch, failed) = RequestWatch::open(root, &service, linux::now());
                notes
                    .extend(failed.iter().map(|(way, why)| format!("requests are not seen at {way}: {why}")));
                watch.ok()
            }
        };
        Self { watch, requests: 0, elapsed: Duration::ZERO }
    }

    fn begin(&mut self) {
        if let Some(watch) = &mut self.watch {
            watch.read(linux::now());
        }
    }

    /// How many were answered since the beginning, if that can be told.
    fn end(&mut self) -> Option<u64> {
        let seen = self.watch.as_mut()?.read(linux::now());
        self.requests += seen.requests;
        self.elapsed += seen.elapsed;
        Some(seen.requests)
    }

    /// Does `work` and looks on: its result, and the course of the requests meanwhile, if that can
    /// be told.
    fn during<T: Send>(&mut self, work: impl FnOnce() -> T + Send) -> (T, Option<Course>) {
        self.begin();
        let mut course = Course::default();
        let mut look = |requests: &mut Self, is_first: bool| {
            let now = linux::now();
            let more = if is_first { Some(0) } else { requests.end() };
            more.map(|more| course.look(now, more)).is_some()
        };
        let mut is_told = look(self, true);
        let done = std::thread::scope(|scope| {
            let working = scope.spawn(work);
            while !working.is_finished() {
                std::thread::sleep(LOOK);
                is_told &= look(self, false);
            }
            working.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        is_told &= look(self, false);
        (done, is_told.then_some(course))
    }

    fn per_second(&self) -> Option<f64> {
        (self.requests > 0 && !self.elapsed.is_zero())
            .then(|| self.requests as f64 / self.elapsed.as_secs_f64())
    }
}

/// Where the jars are: as asked, beside the binary, or as a checkout has them.
fn jars(args: &Args) -> Result<PathBuf> {
    let beside = || std::env::current_exe().ok()?.parent().map(PathBuf::from);
    let has = |folder: &PathBuf| folder.join("roost-agent.jar").is_file();
    let usual = [beside(), beside().map(|folder| folder.join("../java")), Some("/usr/share/roost".into())];
    if let Some(named) = args.jars.clone().or_else(|| usual.into_iter().flatten().find(has)) {
        return Ok(named);
    }
    let here = PathBuf::from("target/java");
    // The working directory may be any user's, and its files would run in a JVM, perhaps one of
    // root's.
    if rustix::process::geteuid().is_root() && here.exists() {
        SafeFolder::open(&here).and_then(SafeFolder::trusted).map_err(|why| {
            usage(format!(
                "the jars in target/java are another user's ({why})\nhint: --jars {} if you mean them",
                here.display()
            ))
        })?;
    }
    Ok(here)
}

fn jvm_error(error: JvmError) -> anyhow::Error {
    if error.is_unsupported() { coded(Exit::Unsupported, error) } else { error.into() }
}

fn native_error(error: NativeError) -> anyhow::Error {
    match error {
        NativeError::NoPerf(_) | NativeError::NotPermitted { .. } => coded(Exit::Unsupported, error),
        _ => error.into(),
    }
}

fn function_error(error: FunctionError) -> anyhow::Error {
    match error {
        FunctionError::Bpf(_) => coded(Exit::Unsupported, format!("calls cannot be counted here: {error}")),
        _ => Err::<(), _>(error).context("counting calls").unwrap_err(),
    }
}
