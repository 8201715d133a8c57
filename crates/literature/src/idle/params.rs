//! The governors by name, each with its parameters beside it.

use super::{Feedback, FeedbackParams, Governor, IdleTable, Menu, MenuParams, Teo, TeoParams};
use machine::Duration;
use policy::check::{Check, Wrong};
use policy::registry::{Parameter, table};
use serde::{Deserialize, Serialize};

/// Which governor, with its parameters, as a configuration file says it: `{ governor = "menu", tick = "1ms" }`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "governor", rename_all = "snake_case", deny_unknown_fields)]
pub enum GovernorParams {
    /// Always spins.
    Poll {},
    /// Always the shallowest state.
    Shallow {},
    /// Always the deepest state.
    Deep {},
    /// Linux's menu.
    Menu(MenuParams),
    /// Linux's TEO.
    Teo(TeoParams),
    /// Menu, curbed.
    #[serde(alias = "menu-feedback")]
    MenuFeedback(MenuFeedbackParams),
    /// TEO, curbed.
    #[serde(alias = "teo-feedback")]
    TeoFeedback(TeoFeedbackParams),
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

impl Check for GovernorParams {
    const PARAMETERS: &'static [Parameter] = &[];

    fn check(&self) -> Result<(), Wrong> {
        match self {
            Self::Poll {} | Self::Shallow {} | Self::Deep {} => Ok(()),
            Self::Menu(params) => params.check(),
            Self::Teo(params) => params.check(),
            Self::MenuFeedback(params) => params.check(),
            Self::TeoFeedback(params) => params.check(),
        }
    }
}

impl GovernorParams {
    /// What [`by_name`](Self::by_name) knows.
    pub const NAMES: [&str; 7] = ["poll", "shallow", "deep", "menu", "teo", "menu-feedback", "teo-feedback"];

    /// The governor of this name, with its default parameters.
    pub fn by_name(name: &str) -> Option<Self> {
        Some(match name {
            "poll" => Self::Poll {},
            "shallow" => Self::Shallow {},
            "deep" => Self::Deep {},
            "menu" => Self::Menu(Default::default()),
            "teo" => Self::Teo(Default::default()),
            "menu-feedback" => Self::MenuFeedback(Default::default()),
            "teo-feedback" => Self::TeoFeedback(Default::default()),
            _ => return None,
        })
    }

    /// Its name, as in [`NAMES`](Self::NAMES).
    pub fn name(&self) -> &'static str {
        match self {
            Self::Poll {} => "poll",
            Self::Shallow {} => "shallow",
            Self::Deep {} => "deep",
            Self::Menu(_) => "menu",
            Self::Teo(_) => "teo",
            Self::MenuFeedback(_) => "menu-feedback",
            Self::TeoFeedback(_) => "teo-feedback",
        }
    }

    /// The same governor on a machine whose scheduler ticks with this period.
    #[must_use]
    pub fn with_tick(mut self, period: Duration) -> Self {
        match &mut self {
            Self::Poll {} | Self::Shallow {} | Self::Deep {} => {}
            Self::Menu(menu) | Self::MenuFeedback(MenuFeedbackParams { menu, .. }) => menu.tick = period,
            Self::Teo(teo) | Self::TeoFeedback(TeoFeedbackParams { teo, .. }) => teo.tick = period,
        }
        self
    }

    /// The governor of a CPU with these idle states.
    pub fn governor(&self, table: &IdleTable) -> Governor {
        match *self {
            Self::Poll {} => Governor::Poll,
            Self::Shallow {} => Governor::Shallow,
            Self::Deep {} => Governor::Deep,
            Self::Menu(menu) => Governor::Menu(Menu::new(menu)),
            Self::Teo(teo) => Governor::Teo(Teo::new(teo)),
            Self::MenuFeedback(MenuFeedbackParams { menu, feedback }) => {
                Governor::Feedback(Feedback::around_menu(menu, feedback, table))
            }
            Self::TeoFeedback(TeoFeedbackParams { teo, feedback }) => {
                Governor::Feedback(Feedback::around_teo(teo, feedback, table))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_governor_answers_to_its_name() {
        for name in GovernorParams::NAMES {
            let params = GovernorParams::by_name(name).unwrap();
            assert_eq!(params.name(), name);
            let text = serde_json::to_string(&params).unwrap();
            assert_eq!(serde_json::from_str::<GovernorParams>(&text).unwrap(), params, "{text}");
            let short = format!(r#"{{"governor": "{name}"}}"#);
            assert_eq!(serde_json::from_str::<GovernorParams>(&short).unwrap(), params);
            let unknown = format!(r#"{{"governor": "{name}", "depth": 3}}"#);
            assert!(serde_json::from_str::<GovernorParams>(&unknown).is_err(), "{unknown}");
        }
        assert_eq!(GovernorParams::by_name("Menu"), None);
    }

    #[test]
    fn the_tick_is_a_parameter() {
        let text = r#"{"governor": "menu", "tick": "1ms"}"#;
        let read: GovernorParams = serde_json::from_str(text).unwrap();
        let ms = Duration::from_millis(1);
        assert_eq!(read, GovernorParams::Menu(MenuParams { tick: ms }));
        let feedback = GovernorParams::by_name("teo-feedback").unwrap().with_tick(ms);
        let expected = GovernorParams::TeoFeedback(TeoFeedbackParams {
            teo: TeoParams { tick: ms },
            ..Default::default()
        });
        assert_eq!(feedback, expected);
    }
}
