//! The commands that read or change a machine, or serve on it: they need Linux.

use crate::*;
use anyhow::Result;

#[derive(Subcommand)]
pub enum Command {
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
    Stage(Box<stage::Args>),
    Replay(replay::Args),
    Demo(demo::Args),
    Doctor(doctor::Args),
}

pub fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Demo(args) => demo::run(&args),
        Command::Daemon(args) => daemon::run(&args),
        Command::Status(args) => daemon::status::show(&args),
        Command::Set(args) => daemon::status::set(&args),
        Command::Pause(args) => daemon::status::pause(&args),
        Command::Resume(args) => daemon::status::resume(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Observe(args) => observe::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Govern(args) => govern::run(&args),
        Command::Prove(args) => prove::run(&args),
        Command::Hot(args) => hot::run(&args),
        Command::Quiesce(args) => quiesce::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Stage(args) => stage::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Wake(args) => wake::run(&args),
        Command::Restore(args) => restore::run(&args),
    }
}
