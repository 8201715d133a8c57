//! The threads that serve requests, by their stacks: the pools, and each function's share of their
//! CPU time.

use super::stacks::{Frame, Stack, Stacks, is_of_system};
use machine::Ratio;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Threads whose names differ in their numbers alone.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pool {
    /// Their name, `#` for each number.
    pub name: String,
    /// How many were seen at work.
    pub threads: usize,
    /// Of all CPU time that was sampled.
    pub share: Ratio,
    /// Whether they were seen reading from a socket.
    pub reads: bool,
    /// Whether they are taken for those that serve requests.
    pub serves: bool,
}

impl Pool {
    /// Whether a thread of this name is one of them.
    pub fn holds(&self, thread: &str) -> bool {
        pool_of(thread) == self.name
    }
}

/// A function of the service's own.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    pub frame: Frame,
    /// Share of the request threads' CPU time, callees included.
    pub share: Ratio,
    /// The same without callees.
    pub own: Ratio,
    pub depth: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Most CPU time first.
    pub pools: Vec<Pool>,
    /// Most CPU time first; those without a name to watch them by are left out.
    pub functions: Vec<Seen>,
    /// Files of the service's own in which no function has a name, and the share of the time that
    /// was in them; most first. Of the request threads, or of all where none can be told for want
    /// of names.
    pub nameless: Vec<(String, Ratio)>,
    /// Of the request threads' time, that of which the outermost frames are not known: outer
    /// functions have more than their share says.
    pub cut: Ratio,
}

/// A pool of less than this share of the service's own time serves requests only if it reads them.
const WORKING: f64 = 0.1;

impl Profile {
    /// Of all threads that serve requests.
    pub fn of(stacks: &Stacks) -> Self {
        let pools = pools(stacks);
        let serving: BTreeSet<&str> =
            pools.iter().filter(|pool| pool.serves).map(|pool| pool.name.as_str()).collect();
        let mut sums: BTreeMap<u32, Sum> = BTreeMap::new();
        let (mut whole, mut cut) = (0.0, 0.0);
        for stack in stacks.stacks.iter().filter(|stack| serving.contains(pool_of(&stack.thread).as_str())) {
            let weight = stack.weight as f64;
            whole += weight;
            // A thread begins in libc, whose functions need no names.
            let first = stack.frames.first().map(|&at| &stacks.functions[at as usize]);
            if first
                .is_some_and(|first| first.is_unknown() && !first.file.as_deref().is_some_and(is_of_system))
            {
                cut += weight;
            }
            let mut met = BTreeSet::new();
            for (depth, &frame) in stack.frames.iter().enumerate() {
                if met.insert(frame) {
                    let sum = sums.entry(frame).or_default();
                    sum.within += weight;
                    sum.depths += weight * depth as f64;
                }
            }
            if let Some(last) = stack.frames.last() {
                sums.entry(*last).or_default().own += weight;
            }
        }
        let share = |part: f64| if whole > 0.0 { Ratio::new(part / whole) } else { Ratio::ZERO };
        let mut functions: Vec<Seen> = sums
            .into_iter()
            .map(|(at, sum)| (&stacks.functions[at as usize], sum))
            .filter(|(frame, _)| frame.symbol.is_some())
            .map(|(frame, sum)| Seen {
                frame: frame.clone(),
                share: share(sum.within),
                own: share(sum.own),
                depth: sum.depths / sum.within.max(1.0),
            })
            .collect();
        functions.sort_by(|one, other| {
            other.share.as_f64().total_cmp(&one.share.as_f64()).then(one.frame.cmp(&other.frame))
        });
        let nameless =
            nameless(stacks, |stack| serving.is_empty() || serving.contains(pool_of(&stack.thread).as_str()));
        Self { nameless, cut: share(cut), pools, functions }
    }
}

/// Files whose code was met, and never with a name: stripped, as distributions' programs are.
fn nameless(stacks: &Stacks, counts: impl Fn(&Stack) -> bool) -> Vec<(String, Ratio)> {
    let mut whole = 0.0;
    let mut files: BTreeMap<&str, f64> = BTreeMap::new();
    let mut named = BTreeSet::new();
    for stack in stacks.stacks.iter().filter(|stack| counts(stack)) {
        whole += stack.weight as f64;
        let frames = stack.frames.iter().map(|&at| &stacks.functions[at as usize]);
        let mut met = BTreeSet::new();
        for (frame, file) in frames.filter_map(|frame| Some((frame, frame.file.as_deref()?))) {
            if frame.symbol.is_some() {
                named.insert(file);
            } else if frame.is_unknown() && !is_of_system(file) && met.insert(file) {
                *files.entry(file).or_default() += stack.weight as f64;
            }
        }
    }
    let mut files: Vec<(String, Ratio)> = files
        .into_iter()
        .filter(|(file, _)| !named.contains(file))
        .map(|(file, weight)| (file.to_owned(), Ratio::new(weight / f64::max(whole, 1.0))))
        .collect();
    files.sort_by(|one, other| other.1.as_f64().total_cmp(&one.1.as_f64()).then(one.0.cmp(&other.0)));
    files
}

#[derive(Default)]
struct Sum {
    within: f64,
    own: f64,
    depths: f64,
}

fn pools(stacks: &Stacks) -> Vec<Pool> {
    #[derive(Default)]
    struct Sums {
        tids: BTreeSet<u32>,
        weight: f64,
        working: f64,
        reads: bool,
    }
    let mut sums: BTreeMap<String, Sums> = BTreeMap::new();
    for stack in &stacks.stacks {
        let sum = sums.entry(pool_of(&stack.thread)).or_default();
        sum.tids.insert(stack.tid);
        sum.weight += stack.weight as f64;
        sum.reads |= reads(stacks, stack);
        if stack.frames.iter().any(|&at| stacks.functions[at as usize].symbol.is_some()) {
            sum.working += stack.weight as f64;
        }
    }
    let whole: f64 = sums.values().map(|sum| sum.weight).sum();
    let working: f64 = sums.values().map(|sum| sum.working).sum();
    let mut pools: Vec<Pool> = sums
        .into_iter()
        .map(|(name, sum)| {
            // Threads of the JVM itself run none of the service's functions.
            let serves = sum.working > 0.0 && (sum.reads || sum.working >= WORKING * working);
            Pool {
                name,
                threads: sum.tids.len(),
                share: Ratio::new(sum.weight / whole.max(1.0)),
                reads: sum.reads,
                serves,
            }
        })
        .collect();
    pools.sort_by(|one, other| {
        other.share.as_f64().total_cmp(&one.share.as_f64()).then(one.name.cmp(&other.name))
    });
    pools
}

/// A thread's name with `#` for each number, and for one that a `#` introduces (`T#7`).
fn pool_of(thread: &str) -> String {
    let mut name = String::with_capacity(thread.len());
    let mut chars = thread.chars().peekable();
    while let Some(c) = chars.next() {
        if c.is_ascii_digit() {
            if !name.ends_with('#') {
                name.push('#');
            }
            while chars.next_if(char::is_ascii_digit).is_some() {}
        } else {
            name.push(c);
        }
    }
    name
}

/// Functions that read from sockets, in the kernel, in libc and in the JDK.
const READERS: [&str; 12] = [
    "tcp_recvmsg",
    "inet_recvmsg",
    "sock_recvmsg",
    "sock_read_iter",
    "__x64_sys_recvfrom",
    "__libc_recv",
    "recvmsg",
    "sun.nio.ch.SocketDispatcher::read",
    "sun.nio.ch.SocketChannelImpl::read",
    "sun.nio.ch.NioSocketImpl::implRead",
    "java.net.SocketInputStream::read",
    "java.net.Socket$SocketInputStream::read",
];

fn reads(stacks: &Stacks, stack: &Stack) -> bool {
    let is_reader = |name: &str| READERS.iter().any(|reader| name.starts_with(reader));
    stack.frames.iter().any(|&at| is_reader(&stacks.functions[at as usize].name))
}

#[cfg(test)]
mod tests {
    use super::super::stacks::{read_async_profiler, read_perf_script};
    use super::*;
    use proptest::prelude::*;

    const TEXT: &str = "\
[netty#1 tid=1];java/net/SocketInputStream.read()I;recvmsg 2
[netty#1 tid=1];a/Netty.loop()V;sun/nio/ch/SocketDispatcher.read0()I 3
[search#1 tid=2];java/lang/Thread.run()V;a/Pool.run()V;a/Service.query(I)V;a/Score.next()I 60
[search#2 tid=3];java/lang/Thread.run()V;a/Pool.run()V;a/Service.query(I)V 20
[search#2 tid=3];java/lang/Thread.run()V;a/Pool.run()V 5
[merge tid=4];java/lang/Thread.run()V;a/Merge.run()V 4
[C2 Compiler#0 tid=5];Compile::Compile 50
";

    #[test]
    fn threads_that_work_and_threads_that_read_serve_and_the_jvm_s_own_do_not() {
        let stacks = read_async_profiler(TEXT).unwrap();
        let profile = Profile::of(&stacks);
        let serving: Vec<&str> =
            profile.pools.iter().filter(|pool| pool.serves).map(|pool| pool.name.as_str()).collect();
        assert_eq!(serving, ["search#", "netty#"]);
        assert_eq!(profile.pools[0].threads, 2);
        let query = profile.functions.iter().find(|seen| seen.frame.name.contains("query")).unwrap();
        // 80 of the 90 samples of search and netty.
        assert!((query.share.as_f64() - 80.0 / 90.0).abs() < 1e-9 && query.depth == 2.0, "{query:?}");
        assert!((query.own.as_f64() - 20.0 / 90.0).abs() < 1e-9);
        assert!(profile.functions.iter().all(|seen| !seen.frame.name.starts_with("java.")));
    }

    #[test]
    fn a_program_without_names_is_named() {
        let text = "srv 7\n\t 1 [unknown] (/usr/bin/srv)\n\t 2 main (/usr/bin/tool)\n\nsrv 7\n\t 1 \
            memcpy (/lib/libc.so.6)\n\t 2 [unknown] (/usr/bin/srv)\n\n\
                    srv 7\n\t 1 memcpy (/lib/libc.so.6)\n\t 2 [unknown] (/lib/libc.so.6)\n\t 3 \
                    [unknown] (/usr/bin/tool)\n\n";
        let profile = Profile::of(&read_perf_script(text).unwrap());
        let [(file, share)] = profile.nameless.as_slice() else { panic!("{profile:?}") };
        assert_eq!(file, "/usr/bin/srv");
        // Two of the three stacks begin in no function, so the caller is unknown.
        assert!((profile.cut.as_f64() - 2.0 / 3.0).abs() < 1e-6, "{profile:?}");
        assert!((share.as_f64() - 2.0 / 3.0).abs() < 1e-6, "{share}");
    }

    #[test]
    fn recursion_is_counted_once_a_stack() {
        let stacks = read_async_profiler("[t tid=1];a/B.c()V;a/B.c()V;a/B.c()V 10").unwrap();
        let profile = Profile::of(&stacks);
        assert_eq!(
            (profile.functions.len(), profile.functions[0].share, profile.functions[0].depth),
            (1, Ratio::ONE, 0.0)
        );
    }

    proptest! {
        #[test]
        fn shares_are_shares(
            lines in prop::collection::vec(
                ("[a-c][0-9]", prop::collection::vec("[a-e]", 1..6), 1u64..100),
                1..20,
            ),
        ) {
            let text: String = lines.iter().map(|(thread, frames, weight)| {
                let frames: Vec<String> = frames.iter().map(|name| format!("p/Q.{name}()V")).collect();
                format!("[{thread} tid=1];{} {weight}\n", frames.join(";"))
            }).collect();
            let profile = Profile::of(&read_async_profiler(&text).unwrap());
            let pools: f64 = profile.pools.iter().map(|pool| pool.share.as_f64()).sum();
            prop_assert!((pools - 1.0).abs() < 1e-6);
            let own: f64 = profile.functions.iter().map(|seen| seen.own.as_f64()).sum();
            prop_assert!(own <= 1.0 + 1e-6);
            prop_assert!(profile.functions.iter().all(|seen| seen.own.as_f64() <= seen.share.as_f64() + 1e-9));
        }
    }
}
