//! `roost`: sleep when you can, wake when you must. Each subcommand is a file of wiring; ideas live
//! in the crates.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests write into folders of their own"))]

// `println!` and its kin in all modules are those of `report::print`.
#[macro_use(eprintln, print, println)]
extern crate report as _;

mod command_meter;
mod config_file;
mod daemon;
mod demo;
mod doctor;
#[cfg(test)]
mod examples;
mod frames;
mod govern;
mod hot;
mod http;
mod json;
mod live;
mod load;
mod manual;
mod memcached_args;
mod metrics;
mod observe;
mod plan;
mod policies;
mod prove;
mod quiesce;
mod replay;
mod report;
mod restore;
mod serve;
mod service_args;
mod sim;
mod size;
mod stage;
mod tariff;
mod thinned;
mod top;
mod wake;

use ::report::{exit, machine_facts, print, run_folder, table};
use clap::{Parser, Subcommand};
use linux::signals;
use std::process::ExitCode;

/// Keeps a latency-critical service inside its tail-latency goal on the fewest awake CPU cores.
#[derive(Parser)]
#[command(name = "roost", version, max_term_width = 110, arg_required_else_help = true)]
#[command(after_help = include_str!("../help/roost.txt"))]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    // The road that a user walks, then the products of their own, then the rest.
    Observe(observe::Args),
    Plan(Box<plan::Args>),
    Govern(Box<govern::Args>),
    Prove(Box<prove::Args>),
    Daemon(daemon::Args),
    Status(daemon::status::Status),
    Set(daemon::status::Set),
    Pause(daemon::status::Pause),
    Resume(daemon::status::Resume),
    Restore(restore::Args),
    Quiesce(quiesce::Args),
    Wake(Box<wake::Args>),
    Hot(hot::Args),
    Serve(serve::Args),
    Top(top::Args),
    Load(load::Args),
    Stage(Box<stage::Args>),
    Sim(sim::Args),
    Replay(replay::Args),
    Policies(policies::Args),
    Report(report::Args),
    Demo(demo::Args),
    Doctor(doctor::Args),
    Generate(manual::Generate),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Demo(args) => demo::run(&args),
        Command::Daemon(args) => daemon::run(&args),
        Command::Status(args) => daemon::status::show(&args),
        Command::Set(args) => daemon::status::set(&args),
        Command::Pause(args) => daemon::status::pause(&args),
        Command::Resume(args) => daemon::status::resume(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Load(args) => load::run(&args),
        Command::Observe(args) => observe::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Govern(args) => govern::run(&args),
        Command::Prove(args) => prove::run(&args),
        Command::Hot(args) => hot::run(&args),
        Command::Quiesce(args) => quiesce::run(&args),
        Command::Policies(args) => policies::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Sim(args) => sim::run(&args),
        Command::Stage(args) => stage::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Wake(args) => wake::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Restore(args) => restore::run(&args),
        Command::Generate(args) => manual::generate(&args),
    };
    let result = result.and_then(|code| match print::lost() {
        Some(why) if code == ExitCode::SUCCESS => Err(anyhow::anyhow!("standard output: {why}")),
        _ => Ok(code),
    });
    result.unwrap_or_else(|error| {
        // One error, with its causes on the same line; a `hint:` line comes last where there is
        // one.
        eprintln!("roost: {}", linux::printable(&exit::told(&error)));
        exit::code_of(&error)
    })
}
