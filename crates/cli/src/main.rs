//! `roost`: sleep when you can, wake when you must. Each subcommand is a file of wiring; ideas live
//! in the crates.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests write into folders of their own"))]

// `println!` and its kin in all modules are those of `report::print`.
#[macro_use(eprintln, print, println)]
extern crate report as _;

#[cfg(target_os = "linux")]
mod command_meter;
#[cfg(target_os = "linux")]
mod config_file;
#[cfg(target_os = "linux")]
mod daemon;
#[cfg(target_os = "linux")]
mod demo;
#[cfg(target_os = "linux")]
mod doctor;
#[cfg(any(test, not(target_os = "linux")))]
mod elsewhere;
#[cfg(test)]
mod examples;
#[cfg(target_os = "linux")]
mod frames;
#[cfg(target_os = "linux")]
mod govern;
#[cfg(target_os = "linux")]
mod hot;
#[cfg(target_os = "linux")]
mod http;
mod json;
#[cfg(target_os = "linux")]
mod live;
mod load;
mod manual;
#[cfg(target_os = "linux")]
mod memcached_args;
#[cfg(target_os = "linux")]
mod metrics;
#[cfg(target_os = "linux")]
mod observe;
#[cfg(target_os = "linux")]
mod on_linux;
#[cfg(target_os = "linux")]
mod plan;
mod policies;
#[cfg(target_os = "linux")]
mod prove;
#[cfg(target_os = "linux")]
mod quiesce;
#[cfg(target_os = "linux")]
mod replay;
mod report;
#[cfg(target_os = "linux")]
mod restore;
#[cfg(target_os = "linux")]
mod serve;
#[cfg(target_os = "linux")]
mod service_args;
mod sim;
#[cfg(target_os = "linux")]
mod size;
#[cfg(target_os = "linux")]
mod stage;
#[cfg(target_os = "linux")]
mod tariff;
#[cfg(target_os = "linux")]
mod thinned;
#[cfg(target_os = "linux")]
mod top;
#[cfg(target_os = "linux")]
mod wake;

#[cfg(target_os = "linux")]
use ::report::machine_facts;
use ::report::{exit, print, run_folder, table};
use clap::{Parser, Subcommand};
#[cfg(target_os = "linux")]
use linux::signals;
#[cfg(not(target_os = "linux"))]
use std::ffi::OsString;
use std::process::ExitCode;

/// Keeps a latency-critical service inside its tail-latency goal on the fewest awake CPU cores.
#[derive(Parser)]
#[command(name = "roost", version, max_term_width = 110, arg_required_else_help = true)]
#[cfg_attr(target_os = "linux", command(after_help = include_str!("../help/roost.txt")))]
#[cfg_attr(not(target_os = "linux"), command(after_help = elsewhere::HELP))]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    #[cfg(target_os = "linux")]
    #[command(flatten)]
    OnLinux(Box<on_linux::Command>),
    Load(Box<load::Args>),
    Sim(sim::Args),
    Policies(policies::Args),
    Report(report::Args),
    Generate(manual::Generate),
    #[cfg(not(target_os = "linux"))]
    #[command(external_subcommand)]
    Other(Vec<OsString>),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        #[cfg(target_os = "linux")]
        Command::OnLinux(command) => on_linux::run(*command),
        Command::Load(args) => load::run(&args),
        Command::Sim(args) => sim::run(&args),
        Command::Policies(args) => policies::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Generate(args) => manual::generate(&args),
        #[cfg(not(target_os = "linux"))]
        Command::Other(words) => elsewhere::refuse(&words),
    };
    let result = result.and_then(|code| match print::lost() {
        Some(why) if code == ExitCode::SUCCESS => Err(anyhow::anyhow!("standard output: {why}")),
        _ => Ok(code),
    });
    result.unwrap_or_else(|error| {
        // One error, with its causes on the same line; a `hint:` line comes last where there is
        // one.
        eprintln!("roost: {}", os::printable(&exit::told(&error)));
        exit::code_of(&error)
    })
}
