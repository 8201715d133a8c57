use policy::registry::{Entry, Question, Word};

/// How a clairvoyant uses its knowledge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clairvoyance {
    /// The deepest state whose target residency fits (the Peafowl paper's CISG, section 4.3).
    Fits,
    /// The state of least energy, the wake-up included.
    LeastEnergy,
    /// As `Fits`, and awake again when the event comes: the bound for anticipatory wake-ups.
    Prewake,
}

pub static ENTRY: Entry = Entry {
    words: &[
        Word::bare("clairvoyant", "knows when the next request comes: the deepest state that fits"),
        Word::bare("clairvoyant-energy", "the same: the state of least energy"),
        Word::bare("clairvoyant-prewake", "the same, and awake when the request comes"),
    ],
    question: Question::Idle,
    help: "The bound for every idle governor: at each idle entry the simulator looks up when the core's \
           next request will come. Needs a queue per core, and all cores awake.",
    origin: "Peafowl, section 4.3 (CISG)",
    ..Entry::PLAIN
};

impl Clairvoyance {
    pub(super) fn of_word(word: &str) -> Self {
        match word {
            "clairvoyant-energy" => Self::LeastEnergy,
            "clairvoyant-prewake" => Self::Prewake,
            _ => Self::Fits,
        }
    }
}
