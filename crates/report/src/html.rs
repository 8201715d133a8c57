//! The page.

use crate::run::Run;
use crate::text::escape;

/// The self-contained page for `run`.
pub fn page(run: &Run) -> String {
    format!("<!doctype html><title>{}</title>", escape(&run.info.title))
}
