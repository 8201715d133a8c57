//! Every file below some folders, to compare before and after.

use std::fs;
use std::path::PathBuf;

/// Each with its bytes, of which those that are no ASCII text are escaped, in order of path.
pub fn below(mut folders: Vec<PathBuf>) -> Vec<(PathBuf, String)> {
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let text = fs::read(&path).unwrap().escape_ascii().to_string();
                files.push((path, text));
            }
        }
    }
    files.sort();
    files
}
