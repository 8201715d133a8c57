//! The page with every kind of figure: its structure, whatever the texts.

use crate::every_figure;
use std::path::Path;

#[test]
fn the_page_is_kept_for_eyes() {
    // What a test cannot see: `target/tmp/every-figure.html` in a browser, on a light page and on a dark one.
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("every-figure.html");
    std::fs::write(path, every_figure::page(7).html()).unwrap();
}
