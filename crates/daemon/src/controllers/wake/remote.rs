//! Remote callers: datagrams over UDP, and HTTP requests that the binary's server passes on, each
//! with a token.
//!
//! A datagram is one line, as over the Unix socket, in an envelope:
//! `{"token":"...","client":"web-3","say":{"follows":{"in":"400us"}}}`. The answer is `ok` or the
//! reason. It never has more bytes than the datagram, so that forged addresses cannot be used to
//! flood a third machine.
//!
//! Invariants: without the token only the envelope is read, nothing is answered and nothing
//! changes. Comparing the token takes the same time however much of it is right. At most
//! [`CLIENTS_MAX`] clients are remembered; one more replaces the client with the oldest message.

use super::caller::Caller;
use super::plan::Shared;
use super::wire::{self, Envelope, WakeAsk, plain_name};
use super::{PrincipalKind, Roll};
use machine::{CpuList, Instant};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The secret of remote callers.
#[derive(Clone)]
pub struct Token(Vec<u8>);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

/// A shorter token can be guessed.
const TOKEN_MIN: usize = 16;
const TOKEN_MAX: usize = 256;

impl Token {
    /// From a file that only its owner can read.
    pub fn read(path: &Path) -> Result<Self, String> {
        let told = |cause: std::io::Error| format!("{}: {cause}", path.display());
        let metadata = fs::metadata(path).map_err(told)?;
        let mode = metadata.permissions().mode();
        if mode & 0o077 != 0 {
            return Err(format!(
                "{} can be read by others (mode {:o}): chmod 600 {}",
                path.display(),
                mode & 0o777,
                path.display()
            ));
        }
        let uid = rustix::process::geteuid().as_raw();
        if metadata.uid() != uid && metadata.uid() != 0 {
            return Err(format!(
                "{} belongs to user {}, not to this one or root",
                path.display(),
                metadata.uid()
            ));
        }
        let text = fs::read_to_string(path).map_err(told)?;
        Self::of(text.trim()).map_err(|reason| format!("{}: {reason}", path.display()))
    }

    /// A token of at least 16 bytes.
    pub fn of(text: &str) -> Result<Self, String> {
        if (TOKEN_MIN..=TOKEN_MAX).contains(&text.len()) {
            Ok(Self(text.as_bytes().to_vec()))
        } else {
            Err(format!(
                "a token has {TOKEN_MIN} to {TOKEN_MAX} bytes: write one with `head -c 24 \
                 /dev/urandom | base64`"
            ))
        }
    }

    /// True if `said` is the token. The time that this takes depends only on the length of `said`.
    pub fn matches(&self, said: &[u8]) -> bool {
        let differs = said.iter().enumerate().fold(said.len() ^ self.0.len(), |differs, (nth, byte)| {
            differs | usize::from(byte ^ self.0[nth % self.0.len()])
        });
        std::hint::black_box(differs) == 0
    }
}

/// The most clients that are remembered.
const CLIENTS_MAX: usize = 256;
/// The longest datagram.
pub(super) const DATAGRAM_MAX: usize = 1024;

/// Hears remote callers, from any thread.
#[derive(Clone, Debug)]
pub struct RemoteDesk(Arc<Desk>);

#[derive(Debug)]
struct Desk {
    token: Token,
    cpus: CpuList,
    shared: Shared,
    roll: Roll,
    clients: Mutex<BTreeMap<String, (Instant, Caller)>>,
    ids: AtomicU64,
    wrong: AtomicU64,
    nonsense: AtomicU64,
}

/// The reason why a remote caller was not heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unheard {
    /// The token does not match. A datagram then gets no answer.
    Token,
    /// The text says why.
    Refused(String),
}

impl RemoteDesk {
    pub(super) fn new(token: Token, cpus: CpuList, shared: Shared, roll: Roll) -> Self {
        Self(Arc::new(Desk {
            token,
            cpus,
            shared,
            roll,
            clients: Mutex::default(),
            ids: AtomicU64::new(1),
            wrong: AtomicU64::new(0),
            nonsense: AtomicU64::new(0),
        }))
    }

    /// Carries out one message, with its token inside or, from HTTP, in `beside`. Returns the name
    /// of the request.
    pub fn hear(&self, message: &[u8], beside: Option<&[u8]>) -> Result<u64, Unheard> {
        let desk = &*self.0;
        let Ok(Envelope { token, client, say }) = serde_json::from_slice(message) else {
            desk.nonsense.fetch_add(1, Ordering::Relaxed);
            // A caller without the token learns nothing.
            return Err(match beside.is_some_and(|token| desk.token.matches(token)) {
                true => Unheard::Refused("not understood; see `roost wake --help`".to_owned()),
                false => Unheard::Token,
            });
        };
        if !desk.token.matches(beside.unwrap_or(token.as_bytes())) {
            desk.wrong.fetch_add(1, Ordering::Relaxed);
            return Err(Unheard::Token);
        }
        let client = plain_name(&client).map_err(Unheard::Refused)?;
        let now = linux::now();
        let new = desk.ids.fetch_add(1, Ordering::Relaxed);
        let id = match &say {
            WakeAsk::Came { id } | WakeAsk::Withdraw { id } | WakeAsk::Ended { id } => *id,
            _ => new,
        };
        let said = wire::said(&say, now, id, &desk.cpus).map_err(Unheard::Refused)?;
        let said =
            said.ok_or_else(|| Unheard::Refused("that is answered over the Unix socket only".to_owned()))?;
        let mut clients = desk.clients.lock().unwrap_or_else(PoisonError::into_inner);
        desk.shared.change(|plan| {
            if !clients.contains_key(&client) && clients.len() >= CLIENTS_MAX {
                let oldest =
                    clients.iter().min_by_key(|(_, (heard, _))| *heard).map(|(name, _)| name.clone());
                if let Some((_, mut caller)) = oldest.and_then(|name| clients.remove(&name)) {
                    caller.depart(plan, now);
                    desk.roll.leave(plan, caller.principal, now);
                }
            }
            let (heard, caller) = clients.entry(client.clone()).or_insert_with(|| {
                (now, Caller::new(desk.roll.enter(plan, PrincipalKind::Remote, None, &client)))
            });
            *heard = now;
            caller.hear(plan, now, said).map_err(|why| Unheard::Refused(why.to_string()))
        })?;
        Ok(id)
    }

    /// The number of wrong tokens, and of messages that could not be read.
    pub(super) fn counted(&self) -> [u64; 2] {
        [&self.0.wrong, &self.0.nonsense].map(|count| count.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_token_matches() {
        let token = Token::of("0123456789abcdef").unwrap();
        assert!(token.matches(b"0123456789abcdef"));
        for wrong in [
            "",
            "0123456789abcde",
            "0123456789abcdeg",
            "0123456789abcdef0123456789abcdef",
            "0123456789abcdef\0",
        ] {
            assert!(!token.matches(wrong.as_bytes()), "{wrong}");
        }
        assert!(Token::of("short").is_err());
        assert!(!format!("{token:?}").contains("0123"), "a secret is not printed");
    }

    #[test]
    fn a_token_that_others_can_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        fs::write(&path, "0123456789abcdef\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(Token::read(&path).unwrap_err().contains("chmod 600"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(Token::read(&path).unwrap().matches(b"0123456789abcdef"));
    }
}
