//! Logs in segments, as `linux::RotatingLog` writes them: `INSTANCE.000042.jsonl` and so on.

use crate::exit::usage;
use anyhow::Result;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The segments of each instance in a folder whose name begins so, by the rest of the name, in
/// order.
pub fn logs(folder: &Path, prefix: &str) -> BTreeMap<String, Vec<PathBuf>> {
    let mut logs: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for path in std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let instance = name.strip_prefix(prefix).and_then(|name| name.strip_suffix(".jsonl"));
        if let Some((instance, _number)) = instance.and_then(|name| name.rsplit_once('.')) {
            logs.entry(instance.to_owned()).or_default().push(path);
        }
    }
    logs.values_mut().for_each(|segments| segments.sort());
    logs
}

/// Their contents, without a last line that a killed run left without an end.
pub fn read(segments: &[PathBuf]) -> Result<Vec<String>> {
    let read = |path: &PathBuf| {
        let text = std::fs::read_to_string(path)
            .map_err(|cause| usage(format!("cannot read {}: {cause}", path.display())))?;
        Ok(text.rfind('\n').map_or(String::new(), |end| text[..=end].to_owned()))
    };
    segments.iter().map(read).collect()
}
