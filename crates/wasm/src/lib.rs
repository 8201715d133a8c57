//! Policies in WebAssembly: the same file decides in a simulation and on Linux.
//!
//! **Problem.** A researcher's policy shall run beside the published ones and then govern a real
//! service, without Rust and without a build of Roost. Its code comes from outside: it may loop for
//! ever, take all memory or answer nonsense, and on Linux its driver is root.
//!
//! **Approach.** A *module* is one file. It exports the calls that it wants to get, and asks and
//! orders through functions that it imports (`include/roost_policy.h`, docs/wasm.md). An
//! interpreter runs it, so no memory of the process is executable. One that exports `on_idle`
//! chooses idle states; any other one counts cores, and may limit idle states and clocks as well.
//!
//! Terms:
//! - *Fuel*: about one unit an instruction of the module. A call has [`EPOCH_FUEL`], or
//!   [`EVENT_FUEL`] where it is about one request or one idle entry.
//! - *Fault*: the module trapped, ran out of fuel, or ordered the impossible. After it the module is
//!   never called again, and the driver ends the run or fails open.
//!
//! Invariants:
//! - A module sees its readings and nothing else: no clock, no file, no memory of its host. The same
//!   calls have the same answers.
//! - A call ends, and a module has at most [`MOST_MEMORY`].
//! - No idle state is entered whose exit latency is above the limit, whatever a module answers.

mod host;
mod idle;
mod orders;
mod registered;

pub use host::Knobs;
pub use orders::Deciding;
pub use registered::{Other, digest, register};

use host::Host;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thiserror::Error;
use wasmi::{
    CompilationMode, Config, EnforcedLimits, Engine, Instance, Linker, Store, TrapCode, TypedFunc,
    WasmParams, WasmResults,
};

/// A policy's file, checked. Copies share its code.
#[derive(Clone)]
pub struct Module {
    name: String,
    engine: Engine,
    code: wasmi::Module,
    linker: Arc<Linker<Host>>,
    decides: Decides,
    digest: u64,
}

/// The decision that a module makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decides {
    /// How many cores are awake, once an epoch.
    Epochs,
    /// The same also when requests come or leave.
    Requests,
    /// Which idle state a CPU takes.
    Idle,
}

/// Why a file is no policy.
#[derive(Debug, Error)]
pub enum ModuleError {
    #[error("cannot read {path}: {cause}", path = path.display())]
    Unreadable { path: PathBuf, cause: io::Error },
    #[error("{name}: {problem}\n\nhint: {fix}")]
    Wrong { name: String, problem: String, fix: &'static str },
}

impl Module {
    /// Reads a file of at most [`MOST_BYTES`].
    pub fn read(path: &Path) -> Result<Self, ModuleError> {
        let unreadable = |cause| ModuleError::Unreadable { path: path.to_owned(), cause };
        // A pipe would be waited for.
        if !path.metadata().map_err(unreadable)?.is_file() {
            return Err(unreadable(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file")));
        }
        Self::of_file(path, File::open(path).map_err(unreadable)?)
    }

    /// The same of a file that is open; `path` is its name in messages.
    pub fn of_file(path: &Path, file: File) -> Result<Self, ModuleError> {
        let mut bytes = Vec::new();
        file.take(MOST_BYTES + 1)
            .read_to_end(&mut bytes)
            .map_err(|cause| ModuleError::Unreadable { path: path.to_owned(), cause })?;
        Self::new(&path.display().to_string(), &bytes)
    }

    pub fn new(name: &str, bytes: &[u8]) -> Result<Self, ModuleError> {
        let wrong = |problem: String, fix| ModuleError::Wrong { name: name.to_owned(), problem, fix };
        if bytes.len() as u64 > MOST_BYTES {
            let problem = format!("has more than {} MiB", MOST_BYTES >> 20);
            return Err(wrong(
                problem,
                "strip it (clang -Wl,--strip-all, rustc -C strip=debuginfo), and build it with -Os",
            ));
        }
        let engine = engine();
        // Translation asserts that the module is valid, so that is found out before it.
        let code = wasmi::Module::validate(&engine, bytes)
            .and_then(|()| wasmi::Module::new(&engine, bytes))
            .map_err(|error| wrong(told(&error), "give a module of WebAssembly's binary format"))?;
        let exports: Vec<String> = code.exports().map(|export| export.name().to_owned()).collect();
        if let Some(unknown) = exports.iter().find(|name| name.starts_with("on_") && !is_call(name)) {
            let problem = format!("exports {unknown}, which is never called");
            return Err(wrong(
                problem,
                "there are on_start, on_epoch, on_arrival, on_completion, on_idle and on_wake",
            ));
        }
        let has = |name: &str| exports.iter().any(|export| export == name);
        let (epochs, requests) = (has("on_epoch"), has("on_arrival") || has("on_completion"));
        let decides = match (has("on_idle"), requests, epochs) {
            (true, false, false) => Decides::Idle,
            (false, true, _) => Decides::Requests,
            (false, false, true) => Decides::Epochs,
            (false, false, false) => {
                return Err(wrong("exports no decision".into(), "export on_epoch, or on_idle"));
            }
            (true, ..) => {
                let problem = "exports on_idle beside on_epoch, on_arrival or on_completion".to_owned();
                return Err(wrong(problem, "make two files, and name both: \"cores.wasm + idle.wasm\""));
            }
        };
        let linker = Arc::new(host::linker(&engine));
        let digest =
            bytes.iter().fold(FNV_OFFSET, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME));
        let module = Self { name: name.to_owned(), engine, code, linker, decides, digest };
        module.try_out().map_err(|problem| wrong(problem, INTERFACE))?;
        Ok(module)
    }

    pub fn decides(&self) -> Decides {
        self.decides
    }

    /// True if it imports the order of a clock.
    pub fn orders_clocks(&self) -> bool {
        self.code.imports().any(|import| import.name() == "set_clock_khz")
    }

    /// Makes an instance, and looks up all that it may be asked.
    fn try_out(&self) -> Result<(), String> {
        let mut guest = self.guest(Knobs::default())?;
        let version = guest.call_of::<(), i32>("roost_policy")?.ok_or("exports no roost_policy")?;
        let version = guest.call(version, EPOCH_FUEL, ())?;
        if version != VERSION {
            return Err(format!("is for version {version} of the interface, and this is version {VERSION}"));
        }
        match self.decides {
            Decides::Idle => idle::Calls::of(&guest).map(drop),
            Decides::Epochs | Decides::Requests => orders::Calls::of(&guest).map(drop),
        }
    }

    fn guest(&self, knobs: Knobs) -> Result<Guest, String> {
        let mut store = Store::new(&self.engine, Host::new(knobs));
        store.limiter(|host| &mut host.limits);
        store.set_fuel(EPOCH_FUEL).map_err(|error| told(&error))?;
        let instance =
            self.linker.instantiate_and_start(&mut store, &self.code).map_err(|error| told(&error))?;
        Ok(Guest { store, instance })
    }

    /// An instance for a run, after its `on_start`.
    fn begun(&self, knobs: Knobs) -> Result<Guest, String> {
        let begun = || {
            let mut guest = self.guest(knobs)?;
            if let Some(start) = guest.call_of::<(), ()>("on_start")? {
                guest.call(start, EPOCH_FUEL, ())?;
            }
            Ok(guest)
        };
        begun().map_err(|problem: String| format!("{}: {problem}", self.name))
    }
}

impl PartialEq for Module {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, self.digest) == (&other.name, other.digest)
    }
}

impl std::fmt::Debug for Module {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Module").field("name", &self.name).field("decides", &self.decides).finish()
    }
}

struct Guest {
    store: Store<Host>,
    instance: Instance,
}

impl Guest {
    /// An exported call; `None` if there is none of that name.
    fn call_of<P: WasmParams, R: WasmResults>(&self, name: &str) -> Result<Option<TypedFunc<P, R>>, String> {
        if self.instance.get_func(&self.store, name).is_none() {
            return Ok(None);
        }
        let call = self.instance.get_typed_func(&self.store, name);
        call.map(Some).map_err(|error| format!("exports {name} of another type ({})", told(&error)))
    }

    #[inline]
    fn call<P: WasmParams, R: WasmResults>(
        &mut self,
        call: TypedFunc<P, R>,
        fuel: u64,
        given: P,
    ) -> Result<R, String> {
        let filled = self.store.set_fuel(fuel);
        filled.and_then(|()| call.call(&mut self.store, given)).map_err(|error| told(&error))
    }
}

fn engine() -> Engine {
    let mut config = Config::default();
    config
        .consume_fuel(true)
        .compilation_mode(CompilationMode::Eager)
        .enforced_limits(EnforcedLimits::strict())
        .set_max_recursion_depth(DEEPEST_CALLS)
        .set_max_stack_height(MOST_STACK);
    Engine::new(&config)
}

fn is_call(name: &str) -> bool {
    ["on_start", "on_epoch", "on_arrival", "on_completion", "on_idle", "on_wake"].contains(&name)
}

/// An error of the interpreter, on one line.
fn told(error: &wasmi::Error) -> String {
    match error.as_trap_code() {
        Some(TrapCode::OutOfFuel) => "ran out of fuel: it may loop for ever".to_owned(),
        _ => error.to_string().trim_end().replace('\n', " "),
    }
}

/// Version of the interface. One with more imports or calls keeps it.
pub const VERSION: i32 = 1;

/// Instructions of a call once an epoch: some tens of milliseconds.
pub const EPOCH_FUEL: u64 = 10_000_000;

/// Instructions of a call about one request or one idle entry: less than a millisecond.
pub const EVENT_FUEL: u64 = 100_000;

/// The memory of a module, in bytes. Each CPU has its own module for idle states.
pub const MOST_MEMORY: usize = 16 << 20;

/// A module's file: code for decisions is some kilobytes.
pub const MOST_BYTES: u64 = 1 << 20;

const DEEPEST_CALLS: usize = 256;
const MOST_STACK: usize = 256 << 10;

const INTERFACE: &str = "see include/roost_policy.h for all calls and their types";

// FNV-1a with 64 bits.
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;
