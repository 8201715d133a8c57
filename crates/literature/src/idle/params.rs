//! The governors, each with its parameters beside it, and the registry entries.

use super::{Feedback, FeedbackParams, Governor, Menu, MenuParams, Teo, Teo7, TeoParams};
use policy::check::Check;
use policy::kind::Make;
use policy::registry::{Entry, Parameter, Question, Surroundings, Word, settings, table};
use serde::{Deserialize, Serialize};

/// The entry of the governors that do not look at a CPU's past.
pub static UNCHANGING: Entry = Entry {
    words: &[
        Word::bare("shallow", "always the shallowest"),
        Word::bare("deep", "always the deepest"),
        Word::bare("poll", "spins"),
    ],
    question: Question::Idle,
    help: "The bounds of what an idle governor can do: always the shallowest state, always the deepest, or \
           no sleep at all.",
    origin: "Tradeoffs, section III-C",
    make: Make::Idle(|making, _| {
        Box::new(match making.word {
            "shallow" => Governor::Shallow,
            "deep" => Governor::Deep,
            _ => Governor::Poll,
        })
    }),
    ..Entry::PLAIN
};

pub static MENU: Entry = Entry {
    words: &[Word::new("menu", "Linux's menu governor", |around| settings(menu(around)))],
    question: Question::Idle,
    help: "The deepest state that pays in the predicted time: the shorter of the time to the next timer, \
           corrected by how much of it sleeps really lasted, and the typical length of the last eight \
           sleeps.",
    origin: "Linux 6.18, drivers/cpuidle/governors/menu.c",
    make: Make::Idle(|making, _| Box::new(Governor::Menu(Menu::new(making.params())))),
    ..Entry::of::<MenuParams>()
};

pub static TEO: Entry = Entry {
    words: &[
        Word::new("teo", "Linux's timer-events-oriented governor, as of 6.18", |around| {
            settings(teo(around))
        }),
        Word::new("teo@6.18", "the same", |around| settings(teo(around))),
        Word::new("teo@7.0", "the same as of Linux 7.0", |around| settings(teo(around))),
    ],
    question: Question::Idle,
    help: "Trusts the next timer until sleeps that were cut short before it outweigh those that reached \
           it; then it goes down to a state that more than half of them reached.",
    origin: "Linux 6.18 and 7.2, drivers/cpuidle/governors/teo.c",
    make: Make::Idle(|making, _| {
        Box::new(match making.word {
            "teo@7.0" => Governor::Teo7(Teo7::new(making.params())),
            _ => Governor::Teo(Teo::new(making.params())),
        })
    }),
    ..Entry::of::<TeoParams>()
};

pub static MENU_FEEDBACK: Entry = Entry {
    words: &[Word::new("menu-feedback", "menu, capped while too many sleeps were premature", |around| {
        settings(MenuFeedbackParams { menu: menu(around), ..MenuFeedbackParams::default() })
    })],
    question: Question::Idle,
    help: "Menu's choice is limited by a cap that goes one state shallower while too many sleeps are \
           shorter than their target residency, and one deeper after a run of good ones.",
    origin: "Tradeoffs, section III-C; the rule is ours",
    make: Make::Idle(|making, table| {
        let MenuFeedbackParams { menu, feedback } = making.params();
        Box::new(Governor::Feedback(Feedback::around_menu(menu, feedback, table)))
    }),
    ..Entry::of::<MenuFeedbackParams>()
};

pub static TEO_FEEDBACK: Entry = Entry {
    words: &[Word::new("teo-feedback", "TEO, capped in the same way", |around| {
        settings(TeoFeedbackParams { teo: teo(around), ..TeoFeedbackParams::default() })
    })],
    question: Question::Idle,
    help: "TEO's choice is limited by a cap that goes one state shallower while too many sleeps are \
           shorter than their target residency, and one deeper after a run of good ones.",
    origin: "Tradeoffs, section III-C; the rule is ours",
    make: Make::Idle(|making, table| {
        let TeoFeedbackParams { teo, feedback } = making.params();
        Box::new(Governor::Feedback(Feedback::around_teo(teo, feedback, table)))
    }),
    ..Entry::of::<TeoFeedbackParams>()
};

fn menu(around: &Surroundings<'_>) -> MenuParams {
    around.tick.map_or_else(MenuParams::default, |tick| MenuParams { tick })
}

fn teo(around: &Surroundings<'_>) -> TeoParams {
    around.tick.map_or_else(TeoParams::default, |tick| TeoParams { tick })
}

/// Menu and the loop that curbs it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MenuFeedbackParams {
    pub menu: MenuParams,
    pub feedback: FeedbackParams,
}

impl Check for MenuFeedbackParams {
    const PARAMETERS: &'static [Parameter] = &[
        table("menu", "the governor's", MenuParams::PARAMETERS),
        table("feedback", "the loop's", FeedbackParams::PARAMETERS),
    ];
}

/// TEO and the loop that curbs it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TeoFeedbackParams {
    pub teo: TeoParams,
    pub feedback: FeedbackParams,
}

impl Check for TeoFeedbackParams {
    const PARAMETERS: &'static [Parameter] = &[
        table("teo", "the governor's", TeoParams::PARAMETERS),
        table("feedback", "the loop's", FeedbackParams::PARAMETERS),
    ];
}
