//! Keys read and written, values checked: in memcached's text protocol, or in that of Redis.

use super::resp;
use super::{Answer, Asks, Kind, Protocol, Taken};
use crate::lane::{Lane, Window};
use crate::run::on_threads;
use crate::source::Source;
use crate::{Error, Plan, Preload};
use machine::Instant;
use memcache::client::{Answer as Reply, Reading as Parsed, compose, parse};
use std::sync::atomic::AtomicBool;
use workload::{Op, Request, Requests, SpecError, Workload, fill_value, value_matches};

/// Keys of a server, read and written.
#[derive(Clone, Debug, PartialEq)]
pub struct Items {
    pub workload: Workload,
    pub dialect: Dialect,
    /// Store every key first, and check that the server kept them.
    pub preload: bool,
    /// Check every value that is read, byte for byte.
    pub verify: bool,
}

impl Items {
    /// These keys of a memcached server, neither stored first nor checked.
    pub fn of(workload: Workload) -> Self {
        Self { workload, dialect: Dialect::Memcached, preload: false, verify: false }
    }
}

/// The protocol that a server of keys speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    Memcached,
    /// RESP2, which Valkey speaks as well.
    Redis,
}

impl Default for Items {
    fn default() -> Self {
        Self::of(Workload::default())
    }
}

impl Asks for Items {
    type Protocol = KeyValue;

    fn seed(&self) -> u64 {
        self.workload.seed
    }

    fn protocol(&self) -> Result<KeyValue, SpecError> {
        Ok(KeyValue {
            dialect: self.dialect,
            requests: Requests::new(&self.workload)?,
            verify: self.verify,
            key: Vec::with_capacity(workload::KeySize::MAX),
            value: Vec::new(),
        })
    }

    fn prepare(plan: &Plan<Self>, lanes: &mut [Lane<'_, Self>]) -> Result<Option<Preload>, Error> {
        if plan.asks.preload { store_all(plan, lanes).map(Some) } else { Ok(None) }
    }
}

/// A lane's half of the conversation.
#[derive(Clone)]
pub struct KeyValue {
    dialect: Dialect,
    requests: Requests,
    verify: bool,
    key: Vec<u8>,
    value: Vec<u8>,
}

/// The value of a read has come, and the end of the answer is still to come.
#[derive(Default)]
pub struct Reading {
    found: bool,
}

impl Protocol for KeyValue {
    type Request = Request;
    type Reading = Reading;

    const POOLED: bool = false;

    fn request(&self, index: u64) -> Request {
        self.requests.request(index)
    }

    fn connection(&self, index: u64, count: u32) -> u32 {
        self.requests.connection(index, count)
    }

    fn compose(&mut self, request: &Request, out: &mut Vec<u8>) {
        self.key.clear();
        self.requests.write_key(request.key, &mut self.key);
        if request.op == Op::Get {
            return match self.dialect {
                Dialect::Memcached => compose::get(out, &self.key),
                Dialect::Redis => resp::get(out, &self.key),
            };
        }
        self.value.resize(self.requests.value_len(request.key), 0);
        fill_value(&self.key, &mut self.value);
        match self.dialect {
            Dialect::Memcached => compose::set(out, &self.key, 0, 0, &self.value),
            Dialect::Redis => resp::set(out, &self.key, &self.value),
        }
    }

    fn take(&mut self, request: &Request, reading: &mut Reading, input: &[u8]) -> Result<Taken, String> {
        match self.dialect {
            Dialect::Memcached => self.take_memcached(request, reading, input),
            Dialect::Redis => self.take_redis(request, reading, input),
        }
    }

    fn end(&mut self, _: &mut Reading) -> Option<Answer> {
        None
    }
}

impl KeyValue {
    fn take_memcached(
        &mut self,
        request: &Request,
        reading: &mut Reading,
        input: &[u8],
    ) -> Result<Taken, String> {
        let (reply, bytes) = match parse(input) {
            Ok(Parsed::Answer { answer, length }) => (answer, length),
            Ok(Parsed::Partial { .. }) => return Ok(Taken::Nothing),
            Err(garbled) => return Err(garbled.to_string()),
        };
        let found = std::mem::take(&mut reading.found);
        let kind = match (reply, request.op) {
            (Reply::Value { key, value, .. }, Op::Get) if !found => {
                reading.found = true;
                let wrong = if self.verify { self.fault(request, Some(key), value) } else { None };
                return Ok(Taken::Part(bytes, wrong));
            }
            (Reply::End, Op::Get) if found => Kind::Hit,
            (Reply::End, Op::Get) => Kind::Miss,
            (Reply::Stored, Op::Set) => Kind::Stored,
            (Reply::Error(words), _) if !found => Kind::Refused(String::from_utf8_lossy(words).into_owned()),
            (other, op) => return Err(format!("the server answered {op:?} with {other:?}")),
        };
        Ok(Taken::Answer(bytes, kind.into()))
    }

    fn take_redis(
        &mut self,
        request: &Request,
        reading: &mut Reading,
        input: &[u8],
    ) -> Result<Taken, String> {
        if reading.found {
            return match input {
                [b'\r', b'\n', ..] => {
                    reading.found = false;
                    Ok(Taken::Answer(2, Kind::Hit.into()))
                }
                b"\r" => Ok(Taken::Nothing),
                _ => Err("the server sent a value that is longer than it said".to_owned()),
            };
        }
        let Some((reply, bytes)) = resp::parse(input)? else { return Ok(Taken::Nothing) };
        let kind = match (reply, request.op) {
            (resp::Reply::Value(value), Op::Get) => {
                reading.found = true;
                let wrong = if self.verify { self.fault(request, None, value) } else { None };
                return Ok(Taken::Part(bytes, wrong));
            }
            (resp::Reply::Nil, Op::Get) => Kind::Miss,
            (resp::Reply::Ok, Op::Set) => Kind::Stored,
            (resp::Reply::Error(words), _) => Kind::Refused(String::from_utf8_lossy(words).into_owned()),
            (other, op) => return Err(format!("the server answered {op:?} with {other:?}")),
        };
        Ok(Taken::Answer(bytes, kind.into()))
    }

    /// The reason why a value is wrong, if it is. Redis does not say of which key it is.
    fn fault(&mut self, request: &Request, key: Option<&[u8]>, value: &[u8]) -> Option<String> {
        self.key.clear();
        self.requests.write_key(request.key, &mut self.key);
        let key = key.unwrap_or(&self.key);
        if key != self.key {
            Some(format!("asked for `{}`, it answered `{}`", self.key.escape_ascii(), key.escape_ascii()))
        } else if !value_matches(key, value) {
            let (key, length) = (key.escape_ascii(), value.len());
            Some(format!("the value of `{key}` ({length} bytes) is not the one stored"))
        } else {
            None
        }
    }
}

/// Stores every key, then reads back a sample of them.
pub(crate) fn store_all(plan: &Plan<Items>, lanes: &mut [Lane<'_, Items>]) -> Result<Preload, Error> {
    let began = os::now();
    let step = lanes.len() as u64;
    let keys = plan.asks.workload.keys;
    let never = Window { from: Instant::ZERO, until: Instant::ZERO };
    let stop = AtomicBool::new(false);
    let mut pass = |op: Op, stride: u64| {
        on_threads(plan, lanes.iter_mut().collect(), |number, lane| {
            let mine = (number as u64 * stride..keys).step_by((step * stride) as usize);
            let source = Source::listed(PRELOAD_DEPTH, mine.map(move |key| Request { op, key }));
            let measured = lane.phase(source, never, None, &stop)?;
            match lane.last_refusal() {
                Some(answer) if op == Op::Set && measured.tally.counts.refused > 0 => {
                    Err(Error::PreloadRefused { target: plan.target.clone(), answer: answer.to_owned() })
                }
                _ => Ok(measured.tally.counts),
            }
        })
    };
    let stored = pass(Op::Set, 1)?.iter().map(|counts| counts.stored).sum();
    let took = os::now().since(began);
    let checked = pass(Op::Get, keys.div_ceil(HIT_CHECK_KEYS))?;
    let hits = checked.iter().map(|counts| counts.hits).sum();
    let misses: u64 = checked.iter().map(|counts| counts.misses).sum();
    Ok(Preload { stored, checked: hits + misses, hits, took })
}

/// Deep enough to fill at the server's speed.
const PRELOAD_DEPTH: usize = 32;
const HIT_CHECK_KEYS: u64 = 100_000;
