//! Views for a terminal.
