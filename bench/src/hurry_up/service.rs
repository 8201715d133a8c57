//! The service that is governed: threads that are in and out of a hot function as they are told,
//! and write slots as any server does.
//!
//! Its work ends with its standard input, so that no load is left behind if the bench is killed.

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use slots::{MethodId, ThreadSlot, Writer, WriterOptions};
use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Manner {
    /// They wait, outside.
    Quiet,
    /// Each is inside all the time, in one call, and computes.
    Held,
    /// Each is inside all the time, in calls of 5 ms that follow each other, and computes.
    Calls,
    /// All but one compute outside; that one waits for 10 ms, enters, computes for 3 ms and leaves,
    /// again and again.
    Enters,
}

/// Be the service of `roost-bench hurry-up`
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Where the slots are written
    #[arg(long, value_name = "FILE")]
    slots: PathBuf,
    /// How many threads
    #[arg(long, value_name = "N")]
    threads: u32,
    /// The activity of its threads
    #[arg(long, value_enum)]
    manner: Manner,
}

/// Does it until its standard input ends.
pub fn run(args: &Args) -> Result<ExitCode> {
    let writer = Writer::create(&args.slots, &["bench::hot"], WriterOptions::default())?;
    let hot = writer.method(0)?;
    for number in 0..args.threads {
        let (writer, manner) = (writer.clone(), args.manner);
        thread::Builder::new()
            .name(format!("search-{number}"))
            .spawn(move || one(manner, number, &writer.register(), hot))
            .context("a thread of the service")?;
    }
    println!("ready");
    std::io::stdout().flush()?;
    // No byte is ever written to it: the end is the event.
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(ExitCode::SUCCESS)
}

fn one(manner: Manner, number: u32, slot: &ThreadSlot, hot: MethodId) -> ! {
    match manner {
        Manner::Quiet => loop {
            thread::park();
        },
        Manner::Held => {
            let _inside = slot.enter(hot);
            loop {
                std::hint::spin_loop();
            }
        }
        Manner::Calls => loop {
            let _inside = slot.enter(hot);
            compute(Duration::from_millis(5));
        },
        Manner::Enters if number == 0 => loop {
            thread::sleep(Duration::from_millis(10));
            let _inside = slot.enter(hot);
            compute(Duration::from_millis(3));
        },
        Manner::Enters => loop {
            std::hint::spin_loop();
        },
    }
}

/// By the clock on the wall.
fn compute(length: Duration) {
    let began = Instant::now();
    while began.elapsed() < length {
        std::hint::spin_loop();
    }
}
