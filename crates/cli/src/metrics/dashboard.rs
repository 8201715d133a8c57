//! The shipped Grafana dashboards (`config/grafana/`) against the pages that they draw.
//!
//! A dashboard breaks in silence: a metric that was renamed leaves a panel that says "No data", and
//! the reader cannot tell whether the machine is quiet or the panel is wrong. So each dashboard is
//! read here with a page that has everything beside it:
//!
//! - every name in every expression, and in the queries of the variables, is a sample of the page;
//! - every label that is selected, summed by or shown in a legend is on that metric, or one that
//!   Prometheus adds;
//! - every variable that is used exists;
//! - panels have a title, a sentence and a unit, lie on Grafana's 24 columns and do not overlap.
//!
//! The last test breaks a dashboard in each of these ways, so that the others cannot pass by seeing
//! nothing.

use observe::scrape::exposition::samples;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The labels of each sample of a page, by its name.
type Names<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

const COLUMNS: u64 = 24;
/// Prometheus adds these to the scraped ones.
const ADDED: [&str; 2] = ["instance", "job"];
const SOURCE: &str = "${DS_PROMETHEUS}";

/// Everything that is wrong with a dashboard for this page.
fn faults(dashboard: &Value, page: &str) -> Vec<String> {
    let mut names = Names::new();
    for sample in samples(page) {
        names.entry(sample.name).or_default().extend(sample.labels.iter().map(|(label, _)| *label));
    }
    let mut faults = Vec::new();
    for key in ["uid", "title", "refresh"] {
        if text(&dashboard[key]).is_empty() {
            faults.push(format!("the dashboard has no {key}"));
        }
    }
    if list(&dashboard["tags"]).is_empty() || text(&dashboard["time"]["from"]).is_empty() {
        faults.push("the dashboard has no tags, or no time range".to_owned());
    }
    if !list(&dashboard["__inputs"]).iter().any(|input| input["name"] == "DS_PROMETHEUS") {
        faults.push("the dashboard asks for no Prometheus".to_owned());
    }
    let variables: Vec<&str> =
        list(&dashboard["templating"]["list"]).iter().map(|variable| text(&variable["name"])).collect();
    for variable in list(&dashboard["templating"]["list"]) {
        let at = format!("variable {}", text(&variable["name"]));
        if variable["type"] == "query" {
            of_source(variable, &at, &mut faults);
            let query = text(&variable["query"]["query"]);
            let label = query.rsplit_once(',').map(|(_, label)| label.trim_matches([' ', ')']));
            of_expression(query, &names, &variables, &at, &mut faults);
            for (name, _) in metrics(query) {
                has_label(&names, name, label.unwrap_or_default(), &at, &mut faults);
            }
        }
    }
    let panels = list(&dashboard["panels"]);
    if panels.is_empty() {
        faults.push("the dashboard has no panel".to_owned());
    }
    for (at, panel) in panels.iter().enumerate() {
        of_panel(panel, &names, &variables, &mut faults);
        for other in &panels[..at] {
            let both = format!("panels {} and {}", panel["id"], other["id"]);
            if panel["id"] == other["id"] {
                faults.push(format!("{both} have one id"));
            }
            let apart = |from: &str, length: &str| {
                let edge = |panel: &Value| {
                    let grid = &panel["gridPos"];
                    (number(&grid[from]), number(&grid[from]) + number(&grid[length]))
                };
                edge(panel).1 <= edge(other).0 || edge(other).1 <= edge(panel).0
            };
            if !apart("x", "w") && !apart("y", "h") {
                faults.push(format!("{both} overlap"));
            }
        }
    }
    faults
}

fn of_panel(panel: &Value, names: &Names<'_>, variables: &[&str], faults: &mut Vec<String>) {
    let title = text(&panel["title"]);
    let at = format!("panel {} ({title})", panel["id"]);
    let grid = &panel["gridPos"];
    if number(&grid["w"]) == 0 || number(&grid["h"]) == 0 || number(&grid["x"]) + number(&grid["w"]) > COLUMNS
    {
        faults.push(format!("{at} does not lie on the grid"));
    }
    if title.is_empty() || !panel["id"].is_u64() {
        faults.push(format!("{at} has no title, or no id"));
    }
    if !text(&panel["description"]).ends_with('.') {
        faults.push(format!("{at} has no sentence that describes it"));
    }
    if text(&panel["fieldConfig"]["defaults"]["unit"]).is_empty() {
        faults.push(format!("{at} has no unit"));
    }
    if list(&panel["targets"]).is_empty() {
        faults.push(format!("{at} shows nothing"));
    }
    of_source(panel, &at, faults);
    let mut references = BTreeSet::new();
    for target in list(&panel["targets"]) {
        of_source(target, &at, faults);
        if !references.insert(text(&target["refId"])) {
            faults.push(format!("{at} has two targets of one refId"));
        }
        let expression = text(&target["expr"]);
        of_expression(expression, names, variables, &at, faults);
        let kept: BTreeSet<&str> = groups(expression).into_iter().flat_map(|(labels, _)| labels).collect();
        for shown in text(&target["legendFormat"]).split("{{").skip(1) {
            let label = shown.split("}}").next().unwrap_or_default();
            if !kept.contains(label) {
                faults.push(format!("{at}: its legend shows {label}, which the expression does not keep"));
            }
        }
    }
}

fn of_source(of: &Value, at: &str, faults: &mut Vec<String>) {
    if of["datasource"]["uid"] != SOURCE {
        faults.push(format!("{at} does not take its data from {SOURCE}"));
    }
}

fn of_expression(
    expression: &str,
    names: &Names<'_>,
    variables: &[&str],
    at: &str,
    faults: &mut Vec<String>,
) {
    let found = metrics(expression);
    if found.is_empty() {
        faults.push(format!("{at} asks for no metric of Roost's: {expression}"));
    }
    for (name, rest) in found {
        if !names.contains_key(name) {
            faults.push(format!("{at}: there is no {name} on the page"));
            continue;
        }
        let selector = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
        for part in selector.map_or("", |(inside, _)| inside).split(',').filter(|part| !part.is_empty()) {
            let label = part.split(['=', '!']).next().unwrap_or_default().trim();
            has_label(names, name, label, at, faults);
        }
    }
    for (labels, summed) in groups(expression) {
        for (name, _) in metrics(summed) {
            for label in &labels {
                has_label(names, name, label, at, faults);
            }
        }
    }
    for used in expression.split('$').skip(1) {
        let name = &used[..used.find(|c| !is_of_name(c)).unwrap_or(used.len())];
        if !name.starts_with("__") && !variables.contains(&name) {
            faults.push(format!("{at}: there is no variable {name}"));
        }
    }
}

fn has_label(names: &Names<'_>, metric: &str, label: &str, at: &str, faults: &mut Vec<String>) {
    let has = |labels: &BTreeSet<&str>| labels.contains(label);
    if !ADDED.contains(&label) && !names.get(metric).is_some_and(has) {
        faults.push(format!("{at}: {metric} has no label {label}"));
    }
}

/// The names of metrics, each with the text after it.
fn metrics(expression: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    let mut rest = expression;
    while let Some(start) = rest.find("roost_") {
        let end = rest[start..].find(|c| !is_of_name(c)).map_or(rest.len(), |length| start + length);
        found.push((&rest[start..end], &rest[end..]));
        rest = &rest[end..];
    }
    found
}

/// The labels of each `by (...)`, with the summed metric.
fn groups(expression: &str) -> Vec<(Vec<&str>, &str)> {
    let mut found = Vec::new();
    for (start, _) in expression.match_indices(" by (") {
        let rest = &expression[start + " by (".len()..];
        let (labels, summed) = rest.split_once(')').expect("an expression closes its parentheses");
        let mut depth = 0;
        let end = summed.find(|c| {
            depth += i32::from(c == '(') - i32::from(c == ')');
            c == ')' && depth == 0
        });
        found.push((labels.split(',').map(str::trim).collect(), &summed[..end.unwrap_or(summed.len())]));
    }
    found
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

fn shipped() -> Value {
    let text = include_str!("../../../../config/grafana/roost-observe.json");
    serde_json::from_str(text).expect("the dashboard is JSON")
}

fn page() -> String {
    super::page(super::sleep::tests::everything())
}

#[test]
fn the_dashboard_shows_what_the_page_has() {
    let dashboard = shipped();
    assert_eq!(faults(&dashboard, &page()), Vec::<String>::new());
    let shown = dashboard.to_string();
    for name in ["instance", "cpu"] {
        assert!(shown.contains(&format!("=~\\\"${name}\\\"")), "nothing is chosen by {name}");
    }
    // A metric without a panel would go unnoticed the other way round.
    let text = page();
    let unseen: BTreeSet<&str> = samples(&text)
        .map(|sample| sample.name)
        .filter(|name| name.ends_with("_bucket") || name.ends_with("_total"))
        .filter(|name| !shown.contains(name))
        .collect();
    assert_eq!(unseen, ["roost_observed_interrupt_seconds_bucket", "roost_observed_merged_total"].into());
}

/// The metrics of a page that a dashboard of it does not show; each variable chooses something.
fn unseen<'a>(dashboard: &str, page: &'a str, variables: &[&str]) -> Vec<&'a str> {
    let dashboard: Value = serde_json::from_str(dashboard).expect("the dashboard is JSON");
    assert_eq!(faults(&dashboard, page), Vec::<String>::new());
    let shown = dashboard.to_string();
    for name in variables {
        assert!(shown.contains(&format!("=~\\\"${name}\\\"")), "nothing is chosen by {name}");
    }
    samples(page).map(|sample| sample.name).filter(|name| !shown.contains(name)).collect()
}

#[test]
fn the_dashboards_of_services_and_of_the_store_show_all_that_their_pages_have() {
    let govern = include_str!("../../../../config/grafana/roost-govern.json");
    let page = super::govern::tests::everything();
    assert_eq!(unseen(govern, &page, &["instance", "service"]), [""; 0]);
    let store = include_str!("../../../../config/grafana/roost-serve.json");
    let page = super::store::tests::everything();
    assert_eq!(unseen(store, &page, &["instance", "worker"]), [""; 0]);
}

#[test]
fn the_dashboard_of_a_fleet_shows_all_but_the_details_of_a_machine() {
    let fleet = include_str!("../../../../config/grafana/roost-fleet.json");
    let page = super::govern::tests::everything();
    let clocks = ["roost_clock_cap_hertz", "roost_uncore_cap_hertz", "roost_uncore_hertz"];
    let lent = ["roost_lent_cpus", "roost_lent_cpu_seconds_total"];
    let details = [&lent[..], &["roost_paused"], &clocks, &["roost_epochs_total"]].concat();
    assert_eq!(unseen(fleet, &page, &["instance", "service"]), details);
}

#[test]
fn lost_events_turn_red_above_zero() {
    let dashboard = shipped();
    let lost = list(&dashboard["panels"]).iter().find(|panel| panel["title"] == "Lost events").unwrap();
    let steps = list(&lost["fieldConfig"]["defaults"]["thresholds"]["steps"]);
    assert_eq!((&steps[0]["color"], &steps[0]["value"]), (&"green".into(), &Value::Null));
    assert_eq!(steps[1]["color"], "red");
    assert!((f64::MIN_POSITIVE..1.0).contains(&steps[1]["value"].as_f64().unwrap()));
}

#[test]
fn each_way_to_break_it_is_noticed() {
    type Break = fn(&mut Value);
    let breaks: [(Break, &str); 19] = [
        (|all| all["uid"] = "".into(), "the dashboard has no uid"),
        (|all| all["tags"] = Value::Null, "the dashboard has no tags"),
        (|all| all["__inputs"] = Value::Null, "asks for no Prometheus"),
        (|all| all["panels"][1]["id"] = all["panels"][0]["id"].clone(), "have one id"),
        (|all| all["panels"][1]["gridPos"]["x"] = 11.into(), "panels 2 and 1 overlap"),
        (|all| all["panels"][2]["gridPos"]["y"] = 8.into(), "panels 3 and 1 overlap"),
        (|all| all["panels"][1]["gridPos"]["w"] = 13.into(), "does not lie on the grid"),
        (|all| all["panels"][0]["title"] = "".into(), "has no title"),
        (|all| all["panels"][0]["description"] = "lengths".into(), "has no sentence"),
        (|all| all["panels"][0]["fieldConfig"]["defaults"]["unit"] = "".into(), "has no unit"),
        (|all| all["panels"][0]["targets"] = Value::Array(Vec::new()), "shows nothing"),
        (|all| all["panels"][0]["datasource"]["uid"] = "abc".into(), "does not take its data from"),
        (|all| all["panels"][0]["targets"][0]["datasource"] = Value::Null, "does not take its data from"),
        (|all| edit(all, 0, "_bucket", ""), "there is no roost_idle_length_seconds on the page"),
        (|all| edit(all, 2, "by (state)", "by (kind)"), "roost_idle_state_seconds_total has no label kind"),
        (|all| edit(all, 6, "instance=~", "cpu=~"), "roost_energy_joules_total has no label cpu"),
        (|all| edit(all, 0, "$cpu", "$core"), "there is no variable core"),
        (|all| all["panels"][3]["targets"][0]["legendFormat"] = "{{cpu}}".into(), "its legend shows cpu"),
        (
            |all| {
                all["templating"]["list"][2]["query"]["query"] =
                    "label_values(roost_idle_length_seconds_count, core)".into()
            },
            "roost_idle_length_seconds_count has no label core",
        ),
    ];
    let page = page();
    for (at, (break_it, told)) in breaks.into_iter().enumerate() {
        let mut dashboard = shipped();
        break_it(&mut dashboard);
        let found = faults(&dashboard, &page);
        assert!(found.iter().any(|fault| fault.contains(told)), "{at}: {told} is not in {found:?}");
    }
    // A page of an unwatched service lacks the metrics of its panels.
    let without = super::page(super::sleep::tests::seen());
    assert!(
        faults(&shipped(), &without).iter().any(|fault| fault.contains("no roost_observed_requests_total"))
    );
}

fn edit(dashboard: &mut Value, panel: usize, from: &str, to: &str) {
    let expression = &mut dashboard["panels"][panel]["targets"][0]["expr"];
    let edited = text(expression).replacen(from, to, 1);
    assert_ne!(text(expression), edited, "nothing was broken");
    *expression = edited.into();
}
