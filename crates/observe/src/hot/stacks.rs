//! Sampled stacks, and the two texts that they come from: async-profiler's collapsed stacks, and
//! `perf script`.
//!
//! Both name functions as some program does that we do not know, so every line is either understood
//! or passed over and counted; only a text without one stack is an error.

use linux::symbols::readable;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use thiserror::Error;

/// A function as it stands in stacks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Frame {
    /// As people read it: `pkg.Class::method(descriptor)`, or a demangled name.
    pub name: String,
    /// The file that its code is in, for native functions.
    pub file: Option<String>,
    /// As the file or the agent calls it; `None` for a function without such a name.
    pub symbol: Option<String>,
}

impl Frame {
    /// A place in native code that no symbol names.
    pub(super) fn is_unknown(&self) -> bool {
        self.symbol.is_none() && self.name.starts_with('[') && self.name.ends_with(']')
    }
}

/// One stack, outermost first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    pub thread: String,
    /// Its number; 0 where it was not told.
    pub tid: u32,
    /// Places in [`Stacks::functions`].
    pub frames: Vec<u32>,
    pub weight: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stacks {
    pub functions: Vec<Frame>,
    pub stacks: Vec<Stack>,
    pub odd_lines: u64,
}

/// Why a text is no profile.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum StackError {
    #[error(
        "no stack was sampled: the service did next to nothing meanwhile\nhint: send it load, and profile \
         for longer (--for)"
    )]
    Empty,
    #[error("of {0} lines none is a stack; the profiler speaks another language than ours")]
    Odd(u64),
}

impl Stacks {
    /// Collapsed: one line a stack, `thread;outermost;...;innermost COUNT`, as flame graph tools
    /// read it.
    pub fn collapsed(&self) -> String {
        let mut text = String::new();
        let plain = |name: &str| name.replace(';', "|").replace(char::is_control, "?");
        for stack in &self.stacks {
            text.push_str(&plain(&stack.thread));
            for &frame in &stack.frames {
                text.push(';');
                text.push_str(&plain(&self.functions[frame as usize].name));
            }
            let _ = writeln!(text, " {}", stack.weight);
        }
        text
    }

    pub fn weight(&self) -> u64 {
        self.stacks.iter().fold(0, |sum, stack| sum.saturating_add(stack.weight))
    }

    fn finish(self, lines: u64) -> Result<Self, StackError> {
        match self.stacks.is_empty() {
            false => Ok(self),
            true if lines == 0 => Err(StackError::Empty),
            true => Err(StackError::Odd(lines)),
        }
    }
}

#[derive(Default)]
struct Numbers(BTreeMap<Frame, u32>);

impl Numbers {
    fn of(&mut self, frame: Frame, functions: &mut Vec<Frame>) -> u32 {
        *self.0.entry(frame).or_insert_with_key(|frame| {
            functions.push(frame.clone());
            (functions.len() - 1) as u32
        })
    }
}

/// `[thread tid=N];outermost;...;innermost COUNT`, of `asprof -t --sig -o collapsed`.
pub fn read_async_profiler(text: &str) -> Result<Stacks, StackError> {
    let (mut found, mut numbers, mut lines) = (Stacks::default(), Numbers::default(), 0);
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        lines += 1;
        let Some((stack, weight)) =
            line.rsplit_once(' ').and_then(|(stack, count)| Some((stack, count.parse().ok()?)))
        else {
            found.odd_lines += 1;
            continue;
        };
        let (thread, tid, frames) = match stack.strip_prefix('[').and_then(|rest| rest.split_once(" tid=")) {
            Some((thread, rest)) => {
                let (tid, frames) = rest.split_once("];").unwrap_or((rest.trim_end_matches(']'), ""));
                (thread, tid.parse().unwrap_or(0), frames)
            }
            None => ("", 0, stack),
        };
        let frames = frames.split(';').filter(|frame| !frame.is_empty());
        let frames = frames.map(|frame| numbers.of(java_frame(frame), &mut found.functions)).collect();
        found.stacks.push(Stack { thread: thread.to_owned(), tid, frames, weight });
    }
    found.finish(lines)
}

/// `pkg/Class.method(Largument|)V`; whatever has no descriptor is the JVM's or the kernel's own.
fn java_frame(frame: &str) -> Frame {
    let other = || Frame { name: readable(frame), file: None, symbol: None };
    let Some((method, descriptor)) = frame.split_once('(') else { return other() };
    let Some((class, method)) = method.rsplit_once('.') else { return other() };
    let class = class.replace('/', ".");
    // A descriptor's semicolons would end the frame.
    let name = format!("{class}::{method}({}", descriptor.replace('|', ";"));
    let is_jdk = ["java.", "jdk.", "sun."].iter().any(|jdk| class.starts_with(jdk));
    // Hidden classes bear another name in each run, and cannot be made anew.
    let is_hidden = class.contains("$$Lambda")
        || class.contains("LambdaForm")
        || class.contains(".0x")
        || class.contains('+');
    let is_fit = !is_jdk
        && !is_hidden
        && !method.starts_with('<')
        && !name.contains(',')
        && !name.contains(char::is_whitespace);
    Frame { symbol: is_fit.then(|| name.clone()), name, file: None }
}

/// `perf script -F comm,tid,ip,sym,dso`: a line for the thread, a line for each frame from the
/// innermost out, an empty line.
pub fn read_perf_script(text: &str) -> Result<Stacks, StackError> {
    let (mut found, mut numbers, mut lines) = (Stacks::default(), Numbers::default(), 0);
    // The same stack comes many times: kept once, by thread and frames.
    let mut places: BTreeMap<(String, u32, Vec<u32>), usize> = BTreeMap::new();
    let mut open: Option<(String, u32, Vec<u32>)> = None;
    let mut close = |open: &mut Option<(String, u32, Vec<u32>)>, stacks: &mut Vec<Stack>| {
        let Some((thread, tid, mut frames)) = open.take().filter(|(_, _, frames)| !frames.is_empty()) else {
            return;
        };
        frames.reverse();
        let place = *places.entry((thread.clone(), tid, frames.clone())).or_insert_with(|| {
            stacks.push(Stack { thread, tid, frames, weight: 0 });
            stacks.len() - 1
        });
        stacks[place].weight += 1;
    };
    for line in text.lines() {
        if line.trim().is_empty() {
            close(&mut open, &mut found.stacks);
            continue;
        }
        lines += 1;
        if line.starts_with([' ', '\t']) && open.is_some() {
            match native_frame(line.trim()) {
                Some(frame) => {
                    let number = numbers.of(frame, &mut found.functions);
                    if let Some((_, _, frames)) = &mut open {
                        frames.push(number);
                    }
                }
                None => found.odd_lines += 1,
            }
            continue;
        }
        close(&mut open, &mut found.stacks);
        // A command may hold spaces; the number is the last word.
        match line.trim().rsplit_once(' ').and_then(|(thread, tid)| Some((thread.trim(), tid.parse().ok()?)))
        {
            Some((thread, tid)) => open = Some((thread.to_owned(), tid, Vec::new())),
            None => found.odd_lines += 1,
        }
    }
    close(&mut open, &mut found.stacks);
    found.finish(lines)
}

/// `ADDRESS SYMBOL (FILE)`; a symbol may hold spaces and parentheses, a file may, too.
fn native_frame(line: &str) -> Option<Frame> {
    let (address, rest) = line.split_once(' ')?;
    u64::from_str_radix(address, 16).ok()?;
    let (symbol, file) = rest.trim().strip_suffix(')')?.rsplit_once(" (")?;
    let file_has_code = file.starts_with('/');
    let is_named = symbol != "[unknown]" && !symbol.is_empty();
    if !is_named {
        let short = file.rsplit('/').next().unwrap_or(file);
        return Some(Frame {
            name: format!("[{short}]"),
            file: file_has_code.then(|| file.to_owned()),
            symbol: None,
        });
    }
    let is_own = file_has_code && !is_of_system(file);
    Some(Frame {
        name: readable(symbol),
        file: file_has_code.then(|| file.to_owned()),
        symbol: is_own.then(|| symbol.to_owned()),
    })
}

/// Whether a file is no program's own: the parts of C, C++ and the loader that every program has,
/// and the allocators that take malloc's place. `epoll_wait` is called once a request, too, and
/// tells nothing of it.
pub(super) fn is_of_system(file: &str) -> bool {
    const SYSTEM: [&str; 17] = [
        "libc.so",
        "libc-",
        "libc.musl-",
        "ld-linux",
        "ld-musl-",
        "ld-",
        "ld.so",
        "libpthread",
        "libm.so",
        "libm-",
        "libdl",
        "librt.so",
        "libstdc++",
        "libgcc_s",
        "libc++",
        "libjemalloc",
        "libtcmalloc",
    ];
    let name = file.rsplit('/').next().unwrap_or(file);
    name.contains(".so") && SYSTEM.iter().any(|start| name.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn names(stacks: &Stacks, at: usize) -> Vec<&str> {
        stacks.stacks[at].frames.iter().map(|&frame| stacks.functions[frame as usize].name.as_str()).collect()
    }

    #[test]
    fn async_profiler_s_stacks_are_read_with_their_descriptors() {
        let text = "[es[n][search][T#1] \
            tid=695];java/lang/Thread.run()V;org/es/SearchService.query(Lorg/es/Request|I)V;read 7\n\
                    [G1 Conc#0 tid=9];G1ConcurrentMark::mark 3\nnonsense\n";
        let found = read_async_profiler(text).unwrap();
        assert_eq!(
            names(&found, 0),
            ["java.lang.Thread::run()V", "org.es.SearchService::query(Lorg/es/Request;I)V", "read"]
        );
        assert_eq!(
            (found.stacks[0].thread.as_str(), found.stacks[0].tid, found.stacks[0].weight),
            ("es[n][search][T#1]", 695, 7)
        );
        let fit: Vec<bool> = found.functions.iter().map(|function| function.symbol.is_some()).collect();
        assert_eq!(fit, [false, true, false, false]);
        assert_eq!((found.odd_lines, found.weight()), (1, 10));
    }

    #[test]
    fn what_the_agent_cannot_watch_is_shown_and_not_offered() {
        for frame in [
            "a/B$$Lambda$5.0x00007ff3ec000a08.run()V",
            "a/B.<init>()V",
            "jdk/internal/X.y()V",
            "a/B$$Lambda+0x1.run()V",
        ] {
            assert_eq!(java_frame(frame).symbol, None, "{frame}");
        }
        assert_eq!(
            java_frame("a/B.lambda$run$0(Ljava/net/Socket|)V").symbol.as_deref(),
            Some("a.B::lambda$run$0(Ljava/net/Socket;)V")
        );
    }

    #[test]
    fn perf_s_stacks_are_turned_and_counted() {
        let stack = |tid: u32| {
            format!(
                "my server {tid} \n\t    24f4 score (/opt/my srv)\n\t    254e _ZN6Server6searchEi \
                 (/opt/my srv)\n\t 89 [unknown] (/lib/libstdc++.so.6)\n\
             \tffffffff81 do_syscall_64 ([kernel.kallsyms])\n\n"
            )
        };
        let text = [stack(7), stack(7), stack(8)].concat();
        let found = read_perf_script(&text).unwrap();
        assert_eq!(found.stacks.len(), 2);
        assert_eq!(
            (found.stacks[0].weight, found.stacks[0].thread.as_str(), found.stacks[1].tid),
            (2, "my server", 8)
        );
        assert_eq!(names(&found, 0), ["do_syscall_64", "[libstdc++.so.6]", "Server::search(int)", "score"]);
        let search = &found.functions[found.stacks[0].frames[2] as usize];
        assert_eq!(
            (search.file.as_deref(), search.symbol.as_deref()),
            (Some("/opt/my srv"), Some("_ZN6Server6searchEi"))
        );
        assert!(found.functions.iter().filter(|function| function.symbol.is_some()).count() == 2);
        assert_eq!(found.collapsed().lines().count(), 2);
    }

    #[test]
    fn what_is_every_program_s_is_shown_and_not_offered() {
        for (file, is_own) in [
            ("/usr/lib/x86_64-linux-gnu/libc.so.6", false),
            ("/lib/x86_64-linux-gnu/libc-2.31.so", false),
            ("/lib64/ld-linux-x86-64.so.2", false),
            ("/lib/ld-musl-x86_64.so.1", false),
            ("/usr/lib/libstdc++.so.6.0.30", false),
            ("/opt/search/libcache.so", true),
            ("/opt/search/libcore-search.so.1", true),
            ("/usr/sbin/ld-server", true),
            ("/usr/bin/memcached", true),
        ] {
            let frame = native_frame(&format!("7f00 epoll_wait ({file})")).unwrap();
            assert_eq!((frame.symbol.is_some(), frame.name.as_str()), (is_own, "epoll_wait"), "{file}");
        }
        assert_eq!(native_frame("ffffffff81 tcp_recvmsg ([kernel.kallsyms])").unwrap().symbol, None);
    }

    #[test]
    fn texts_without_a_stack_are_errors() {
        assert_eq!(read_perf_script(""), Err(StackError::Empty));
        assert_eq!(read_async_profiler("hello\nthere"), Err(StackError::Odd(2)));
    }

    proptest! {
        #[test]
        fn any_text_is_stacks_or_an_error(text in "(\\PC|[;()\\[\\] \t\n0-9]){0,200}") {
            for read in [read_async_profiler, read_perf_script] {
                if let Ok(found) = read(&text) {
                    let is_known = |&at: &u32| (at as usize) < found.functions.len();
                    prop_assert!(found.stacks.iter().all(|stack| stack.frames.iter().all(is_known)));
                    prop_assert_eq!(found.collapsed().lines().count(), found.stacks.len());
                }
            }
        }
    }
}
