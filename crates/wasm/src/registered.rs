//! Modules as words of a line of policies.
//!
//! A word is a file's name as the line has it, such as `mine.wasm`. An entry of a registry lives for
//! ever, so a word's is made once; the file behind it may be read again.

use crate::idle::Governor;
use crate::{Decides, Deciding, Knobs, Module};
use policy::kind::idle::IdleTable;
use policy::kind::{CorePolicy, IdlePolicy, Make, Making};
use policy::own::Own;
use policy::registry::{Entry, Question, Registry, Runs, Word};
use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

static MODULES: RwLock<BTreeMap<String, Module>> = RwLock::new(BTreeMap::new());

/// The word was a file that decided something else.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} decides something else than before\n\nhint: give it another name")]
pub struct Other(String);

/// Lines may call this module by `word` from now on. The registry to join, if the word is new.
pub fn register(word: &str, module: Module) -> Result<Option<&'static Registry>, Other> {
    let mut modules = MODULES.write().unwrap_or_else(PoisonError::into_inner);
    let is_idle = |module: &Module| module.decides == Decides::Idle;
    let decides_idle = is_idle(&module);
    match modules.insert(word.to_owned(), module) {
        None => Ok(Some(registry(word, decides_idle))),
        Some(before) if is_idle(&before) == decides_idle => Ok(None),
        Some(before) => {
            modules.insert(word.to_owned(), before);
            Err(Other(word.to_owned()))
        }
    }
}

/// Tells a word's code from every other; `None`: the word is no module.
pub fn digest(word: &str) -> Option<u64> {
    module(word).map(|module| module.digest)
}

fn module(word: &str) -> Option<Module> {
    MODULES.read().unwrap_or_else(PoisonError::into_inner).get(word).cloned()
}

/// A registry of this word alone.
fn registry(word: &str, decides_idle: bool) -> &'static Registry {
    let word = Word::bare(Box::leak(word.to_owned().into_boxed_str()), "a policy in WebAssembly");
    let plain = Entry { origin: "the caller's own", ..Entry::PLAIN };
    let entry = if decides_idle {
        Entry { question: Question::Idle, make: Make::Idle(made_idle), ..plain }
    } else {
        Entry { runs: Runs::Live, make: Make::Cores(made_cores), ..plain }
    };
    let entry = Entry { words: Box::leak(Box::new([word])), ..entry };
    Box::leak(Box::new([&*Box::leak(Box::new(entry))]))
}

fn made_cores(making: &Making<'_>) -> Box<dyn CorePolicy> {
    let module = module(making.word).ok_or_else(|| format!("{} is not loaded", making.word));
    let deciding = module.and_then(|module| Deciding::new(&module, making.into()));
    Box::new(match deciding {
        Ok(deciding) => {
            let (epoch, quantile) = (deciding.epoch(), deciding.quantile());
            Own::new(Box::new(deciding), making, epoch, quantile)
        }
        Err(fault) => Own::failed(fault, making),
    })
}

fn made_idle(making: &Making<'_>, _: &IdleTable) -> Box<dyn IdlePolicy> {
    Box::new(match module(making.word) {
        Some(module) => Governor::new(&module, Knobs::from(making)),
        None => Governor::failed(format!("{} is not loaded", making.word)),
    })
}
