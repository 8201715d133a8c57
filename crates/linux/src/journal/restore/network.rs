//! Settings of network cards, put back in the namespace in which they were changed.
//!
//! A device has a name only in its network namespace. A thread of its own enters the journal's and undoes
//! there. Where no thread and no name has that namespace, it counts as gone: its devices came back to the
//! first one or are gone too, so their settings are looked for here. One that is held by an open file alone,
//! or by processes that this mount of /proc hides (`hidepid`), is not seen.

use super::super::record::{Held, namespace_of};
use super::super::undo::{Undone, undo_all};
use crate::Root;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The PID namespace that the kernel made (`PROC_PID_INIT_INO`).
const FIRST: &str = "pid:[4026531836]";
/// Where `ip netns add` keeps names.
const NAMED: &str = "/run/netns";

pub(super) enum Elsewhere {
    Undone(Vec<(String, Undone)>),
    /// It is gone, with all its processes.
    Gone,
    /// It cannot be seen or entered from here, and why.
    Unknown(String),
}

/// Undoes the settings of cards in `theirs`, a namespace that is not this thread's.
pub(super) fn undo(root: &Root, theirs: &str, here: &str, cards: &BTreeMap<String, Held>) -> Elsewhere {
    let Some(net) = namespace_of(theirs, "net") else { return Elsewhere::Gone };
    let file = match find(net) {
        Ok(Some(path)) => File::open(path),
        // Processes of a PID namespace that is not seen from here may have it. The first one sees all.
        Ok(None) if [namespace_of(theirs, "pid"), Some(FIRST)].contains(&namespace_of(here, "pid")) => {
            return Elsewhere::Gone;
        }
        Ok(None) => return Elsewhere::Unknown("no process here has it".to_owned()),
        Err(cause) => Err(cause),
    };
    let enter_and_undo = || -> io::Result<Vec<(String, Undone)>> {
        let file = file?;
        // A process's number may be another's since.
        if format!("net:[{}]", file.metadata()?.ino()) != net {
            return Err(io::Error::other("it was left just now"));
        }
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
        Ok(undo_all(root, &mut BTreeMap::new(), cards))
    };
    let outcome = std::thread::scope(|scope| scope.spawn(enter_and_undo).join());
    match outcome.unwrap_or_else(|_| Err(io::Error::other("the thread in it ended early"))) {
        Ok(undone) => Elsewhere::Undone(undone),
        Err(cause) => Elsewhere::Unknown(cause.to_string()),
    }
}

/// The file of a namespace, `net:[NUMBER]`: of a thread, or of a name. An error where processes could not
/// be looked at and none of the others has it.
fn find(net: &str) -> io::Result<Option<PathBuf>> {
    let mut hidden = None;
    for entry in fs::read_dir("/proc")?.flatten() {
        if !entry.file_name().to_string_lossy().bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        for thread in fs::read_dir(entry.path().join("task")).into_iter().flatten().flatten() {
            let path = thread.path().join("ns/net");
            match fs::read_link(&path) {
                Ok(link) if link.as_os_str() == net => return Ok(Some(path)),
                Err(cause) if cause.kind() == io::ErrorKind::PermissionDenied => hidden = Some(cause),
                // It has ended in the meantime.
                Ok(_) | Err(_) => {}
            }
        }
    }
    let number = net.trim_start_matches("net:[").trim_end_matches(']');
    let is_it = |path: &Path| fs::metadata(path).is_ok_and(|file| file.ino().to_string() == number);
    let named = fs::read_dir(NAMED).into_iter().flatten().flatten().map(|entry| entry.path());
    match (named.into_iter().find(|path| is_it(path)), hidden) {
        (None, Some(cause)) => Err(cause),
        (found, _) => Ok(found),
    }
}
