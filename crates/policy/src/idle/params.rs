//! The governors by name, each with its parameters beside it.

use super::{Feedback, FeedbackParams, Governor, IdleTable, Menu, MenuParams, Teo, TeoParams};
use machine::Duration;
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
    MenuFeedback {
        /// The governor's.
        #[serde(default)]
        menu: MenuParams,
        /// The loop's.
        #[serde(default)]
        feedback: FeedbackParams,
    },
    /// TEO, curbed.
    #[serde(alias = "teo-feedback")]
    TeoFeedback {
        /// The governor's.
        #[serde(default)]
        teo: TeoParams,
        /// The loop's.
        #[serde(default)]
        feedback: FeedbackParams,
    },
}

impl GovernorParams {
    /// What [`by_name`](Self::by_name) knows.
    pub const NAMES: [&str; 7] = ["poll", "shallow", "deep", "menu", "teo", "menu-feedback", "teo-feedback"];

    /// The governor of this name, with its default parameters.
    pub fn by_name(name: &str) -> Option<Self> {
        let (menu, teo, feedback) = (MenuParams::default(), TeoParams::default(), FeedbackParams::default());
        Some(match name {
            "poll" => Self::Poll {},
            "shallow" => Self::Shallow {},
            "deep" => Self::Deep {},
            "menu" => Self::Menu(menu),
            "teo" => Self::Teo(teo),
            "menu-feedback" => Self::MenuFeedback { menu, feedback },
            "teo-feedback" => Self::TeoFeedback { teo, feedback },
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
            Self::MenuFeedback { .. } => "menu-feedback",
            Self::TeoFeedback { .. } => "teo-feedback",
        }
    }

    /// The same governor on a machine whose scheduler ticks with this period.
    #[must_use]
    pub fn with_tick(mut self, period: Duration) -> Self {
        match &mut self {
            Self::Poll {} | Self::Shallow {} | Self::Deep {} => {}
            Self::Menu(menu) | Self::MenuFeedback { menu, .. } => menu.tick = period,
            Self::Teo(teo) | Self::TeoFeedback { teo, .. } => teo.tick = period,
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
            Self::MenuFeedback { menu, feedback } => {
                Governor::Feedback(Feedback::around_menu(menu, feedback, table))
            }
            Self::TeoFeedback { teo, feedback } => {
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
        let expected =
            GovernorParams::TeoFeedback { teo: TeoParams { tick: ms }, feedback: FeedbackParams::default() };
        assert_eq!(feedback, expected);
    }
}
