//! The errors of a scenario.

use std::path::PathBuf;

/// An error that names file, key and fix.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    #[error("{}: {cause}\n\nhint: name a scenario file, such as scenarios/mmk.toml", path.display())]
    Unreadable { path: PathBuf, cause: std::io::Error },
    /// It is no TOML, or has keys or types that are not known.
    #[error("{}: {cause}", path.display())]
    Malformed {
        path: PathBuf,
        /// The reader's message: line, key, the expected value.
        cause: String,
    },
    #[error("{}: {key}: {problem}\n\nhint: {fix}", path.display())]
    Wrong { path: PathBuf, key: String, problem: String, fix: String },
    /// A policy could not decide any more.
    #[error("policies: `{policies}`: {problem}")]
    Policy { policies: String, problem: String },
    /// The caller has set the [`Stop`](crate::Stop) of its runs.
    #[error("the simulation was stopped before its end")]
    Stopped,
}
