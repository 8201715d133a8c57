//! `roost govern`: keeps a service that was not changed inside its goal on few cores.
//!
//! ```text
//!   options.rs    the arguments
//!   history.rs    its epochs
//!   hurry_up/     frequency by the calls of a hot function
//!   page.rs       the page made of them
//!   dry_run.rs    the service found and the means, said and not touched
//!   trace.rs      the trace of `--perfetto`
//!   view.rs       the live view
//! ```

mod dry_run;
mod history;
mod hurry_up;
mod options;
mod page;
pub mod trace;
mod view;

pub use dry_run::warn_of_nothing;
pub use options::{Args, GovernArgs};

use crate::config_file::Written;
use crate::daemon::{Request, govern};
use anyhow::Result;
use linux::Root;
use options::Subject;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

pub fn run(args: &Args) -> Result<ExitCode> {
    match &args.subject {
        None if args.governing.only_says() => dry_run::run(&args.governing),
        None => service(&args.governing),
        Some(Subject::HurryUp(args)) => hurry_up::run(args),
    }
}

fn service(args: &GovernArgs) -> Result<ExitCode> {
    let Written { config, whole } = args.configuration()?;
    if args.print_config {
        crate::table::print(&toml::to_string(&config)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let view = view::Services::begin(args)?;
    let request = Request {
        config,
        file: None,
        root: args.root.clone().map_or_else(Root::system, Root::at),
        dry_run: args.dry_run,
        take_over: args.take_over,
        names: &args.names,
        length: args.length,
        whole,
    };
    govern(request, Arc::new(Mutex::new(view)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    const UNIT: &str = include_str!("../../../../config/systemd/roost.service");
    const PODS: &str = include_str!("../../../../charts/roost/templates/daemonset.yaml");
    const VALUES: &str = include_str!("../../../../charts/roost/values.yaml");

    /// Two places that say which rights the daemon needs must not drift apart.
    #[test]
    fn pods_have_the_rights_of_the_unit_and_no_others() {
        let rights = UNIT.lines().filter_map(|line| line.strip_prefix("CapabilityBoundingSet="));
        let rights = rights.flat_map(|line| line.split(' '));
        let of_unit: BTreeSet<&str> = rights.map(|name| name.trim_start_matches("CAP_")).collect();
        let line = PODS.lines().find_map(|line| line.trim().strip_prefix("add: [")).expect("its rights");
        let of_pods: BTreeSet<&str> =
            line.trim_end_matches(']').split(',').map(|name| name.trim_matches([' ', '"'])).collect();
        assert_eq!(of_pods, of_unit);
        assert!(PODS.contains("drop: [\"ALL\"]") && PODS.contains("privileged: false"));
    }

    #[test]
    fn what_pods_are_configured_with_is_understood_with_and_without_the_example() {
        let text =
            VALUES.split("\nconfig: |\n").nth(1).and_then(|rest| rest.split("\n\n").next()).expect("it");
        let bare: Vec<&str> = text.lines().map(str::trim).collect();
        let config: ::daemon::Config = toml::from_str(&bare.join("\n")).expect("it is a configuration");
        assert!(config.services.is_empty(), "nothing is governed until a service is named");
        let example: Vec<&str> = bare
            .iter()
            .filter(|line| !line.ends_with(':'))
            .map(|line| line.trim_start_matches("# "))
            .collect();
        let config: ::daemon::Config = toml::from_str(&example.join("\n")).expect("the example too");
        assert_eq!(config.services.len(), 1);
    }
}
