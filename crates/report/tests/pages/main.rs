//! Pages of whole runs: written to a folder, read back, and opened in a real browser.

mod browser;
mod every_figure;
mod figures;
mod folder;
mod sample;
