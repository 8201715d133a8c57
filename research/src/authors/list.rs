//! The runs of a folder, as a table and as a document.

use super::{Exclusion, Role, runs};
use anyhow::Result;
use report::table::Table;
use serde::Serialize;
use std::path::Path;

/// A run and its measured values; those of a run that is left out are not shown.
#[derive(Debug, Serialize)]
pub struct Listed {
    run: String,
    role: Role,
    users: u32,
    left_out: Option<Exclusion>,
    watts: Option<f64>,
    p99_s: Option<f64>,
}

pub fn listed(folder: &Path) -> Result<Vec<Listed>> {
    let of = |run: super::Run| {
        let left_out = run.exclusion()?;
        let is_used = left_out.is_none();
        Ok(Listed {
            role: run.role(),
            watts: run.measured.watts().filter(|_| is_used),
            p99_s: run.measured.p99_s.filter(|_| is_used),
            run: run.name,
            users: run.users,
            left_out,
        })
    };
    runs(folder)?.into_iter().map(of).collect()
}

pub fn json(listed: &[Listed]) -> Result<String> {
    #[derive(Serialize)]
    struct Document<'a> {
        format: u32,
        runs: &'a [Listed],
    }
    Ok(serde_json::to_string_pretty(&Document { format: 1, runs: listed })? + "\n")
}

pub fn text(listed: &[Listed]) -> String {
    let header = ["run", "role", "clients", "power W", "p99 ms"];
    let mut table = Table::new(2, header.map(str::to_owned).to_vec());
    for run in listed {
        match &run.left_out {
            Some(why) => table.remark(run.run.clone(), &format!("left out: {why}")),
            None => table.row(vec![
                run.run.clone(),
                role(run.role).to_owned(),
                run.users.to_string(),
                run.watts.map_or_else(String::new, |watts| format!("{watts:.1}")),
                run.p99_s.map_or_else(String::new, |seconds| format!("{:.0}", seconds * 1e3)),
            ]),
        }
    }
    let count =
        |wanted: Role| listed.iter().filter(|run| run.left_out.is_none() && run.role == wanted).count();
    let left_out = listed.iter().filter(|run| run.left_out.is_some()).count();
    format!(
        "{}\n{} runs: {} baselines, {} held out, {left_out} left out\n",
        table.text(),
        listed.len(),
        count(Role::Baseline),
        count(Role::HeldOut),
    )
}

pub(super) fn role(role: Role) -> &'static str {
    match role {
        Role::Baseline => "baseline",
        Role::HeldOut => "held out",
    }
}
