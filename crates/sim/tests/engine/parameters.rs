//! Every parameter of every policy, with every kind of nonsense for its type.

use literature::cores::{auto_scale, dream_weaver, lavd};
use literature::frequency::{adrenaline, eco_faas, nmap, ondemand, predicted, rubik, schedutil};
use literature::idle::{MenuFeedbackParams, MenuParams, TeoFeedbackParams, TeoParams};
use literature::timing::{dyn_sleep, sleep_scale, udpm};
use policy::carb;
use policy::check::{Check, Wrong};
use policy::frequency::{hurry_up, pegasus, sensitivity};
use policy::governing::UncoreParams;
use policy::wake_plan::{DeviceParams, KernelParams};
use policy::{joint, peafowl, quiescence, staging, wake_plan};
use serde::Serialize;
use serde::de::DeserializeOwned;
use toml::{Table, Value};

/// Every leaf of a table, dotted.
fn leaves(table: &Table, prefix: &str, found: &mut Vec<String>) {
    for (name, value) in table {
        let key = format!("{prefix}{name}");
        match value {
            Value::Table(inner) => leaves(inner, &format!("{key}."), found),
            Value::Array(values) => found.extend((0..values.len()).map(|place| format!("{key}.{place}"))),
            _ => found.push(key),
        }
    }
}

fn leaf<'a>(table: &'a mut Table, key: &str) -> &'a mut Value {
    let mut parts = key.split('.');
    let mut value = table.get_mut(parts.next().unwrap()).unwrap();
    for part in parts {
        value = match value {
            Value::Array(values) => &mut values[part.parse::<usize>().unwrap()],
            Value::Table(table) => table.get_mut(part).unwrap(),
            _ => panic!("{key}"),
        };
    }
    value
}

/// Nonsense of the type of a value, and whether it may be sense for some parameters: a zero often
/// is.
fn nonsense(value: &Value) -> Vec<(Value, bool)> {
    match value {
        Value::Float(_) => {
            let certain = [f64::NAN, f64::INFINITY, -1.0].map(|number| (Value::Float(number), false));
            [&certain[..], &[(Value::Float(0.0), true)]].concat()
        }
        Value::Integer(_) => vec![(Value::Integer(0), true)],
        Value::String(text) if text.parse::<machine::Duration>().is_ok() => {
            vec![(Value::String("0s".into()), true)]
        }
        _ => Vec::new(),
    }
}

/// The faults of the check of `params`: none if they pass, and if no parameter takes nonsense but
/// for zeros of `zeros`.
fn faults<T: Check + Serialize + DeserializeOwned>(name: &str, params: &T, zeros: &[&str]) -> Vec<String> {
    let mut faults: Vec<String> =
        params.check().err().map(|wrong| format!("{name}: {wrong}")).into_iter().collect();
    let table = Table::try_from(params).unwrap();
    let mut keys = Vec::new();
    leaves(&table, "", &mut keys);
    let mut unused = zeros.to_vec();
    for key in keys {
        let plain = key.trim_end_matches(|c: char| c == '.' || c.is_ascii_digit()).to_owned();
        for (value, may_be_sense) in nonsense(leaf(&mut table.clone(), &key)) {
            let mut wrong = table.clone();
            *leaf(&mut wrong, &key) = value.clone();
            let Ok(read) = wrong.try_into::<T>() else { continue };
            let is_sense = may_be_sense && zeros.contains(&plain.as_str());
            if is_sense {
                unused.retain(|zero| *zero != plain);
            }
            faults.extend(match read.check() {
                Ok(()) if is_sense => None,
                Ok(()) => Some(format!("{name}: {key} = {value} passes")),
                Err(wrong) if is_sense => Some(format!("{name}: {key} = {value} is refused: {wrong}")),
                Err(Wrong { key: blamed, problem, fix }) => {
                    let name = plain.rsplit('.').next().unwrap_or_default();
                    let names_it = blamed.starts_with(&plain) || problem.contains(name);
                    let names_fix = fix.starts_with("write ");
                    (!names_it || !names_fix).then(|| format!("{name}: {key}: {blamed}: {problem}; {fix}"))
                }
            });
        }
    }
    faults.extend(unused.iter().map(|zero| format!("{name} has no zero at {zero}")));
    faults
}

#[test]
fn no_parameter_of_any_policy_takes_what_cannot_be() {
    let mut all: Vec<String> = Vec::new();
    let mut check = |faults: &[String]| all.extend_from_slice(faults);
    let carb = ["rate_step.of_peak", "rate_jump.of_peak", "tail_step", "noise_z", "probe_epochs"];
    check(&faults("carb", &carb::Params::default(), &carb));
    let carb = ["rate_step.absolute", "rate_jump.absolute", "tail_step", "noise_z", "probe_epochs"];
    check(&faults("carb-paper", &carb::Params::paper(), &carb));
    let peafowl = [
        "window_span",
        "saturation_busy",
        "overload_busy",
        "approach_z",
        "burst_drain",
        "burst_depth",
        "swell_drain",
        "swell_depth",
        "stall_memory",
        "block",
        "rerate",
        "fit_patience",
        "order_patience",
        "arrival_grace",
    ];
    check(&faults("peafowl", &peafowl::Params::default(), &peafowl));
    check(&faults("peafowl-paper", &peafowl::Params::paper(), &peafowl));
    check(&faults("autoscale", &auto_scale::Params::default(), &["t_wait"]));
    check(&faults("uncore", &UncoreParams::default(), &[]));
    check(&faults("lavd-compaction", &lavd::Params::default(), &["headroom", "spike"]));
    let weaver = dream_weaver::Params { busy_cores: Some(2), ..Default::default() };
    check(&faults("dreamweaver", &weaver, &["max_stall"]));
    let joint = ["dvfs_delay", "rate_z", "correction_gains", "worth_changing", "budget_gain"];
    check(&faults("joint", &joint::Params::default(), &joint));
    check(&faults("joint-store", &joint::Params::default(), &joint));
    check(&faults("menu", &MenuParams::default(), &[]));
    check(&faults("teo", &TeoParams::default(), &[]));
    check(&faults("menu-feedback", &MenuFeedbackParams::default(), &["feedback.relax_below"]));
    check(&faults("teo-feedback", &TeoFeedbackParams::default(), &["feedback.relax_below"]));
    check(&faults("ondemand", &ondemand::Params::default(), &[]));
    check(&faults("schedutil", &schedutil::Params::default(), &["rate_limit"]));
    let sensitivity = ["slack", "min_change", "min_busy"];
    check(&faults("sensitivity", &sensitivity::Params::default(), &sensitivity));
    check(&faults("sensitivity-paper", &sensitivity::Params::paper(), &sensitivity));
    let pegasus = ["hold", "raise", "lower", "idle", "lower_fast"];
    check(&faults("pegasus", &pegasus::Params::default(), &pegasus));
    let rubik = ["dvfs_delay", "proportional_gain", "integral_gain"];
    check(&faults("rubik", &rubik::Params::default(), &rubik));
    let learned = ["threshold.learned.quantile", "threshold.learned.floor", "grace"];
    check(&faults("hurry-up", &hurry_up::Params::default(), &learned));
    check(&faults("hurry-up-paper", &hurry_up::Params::paper(), &["threshold.fixed", "grace"]));
    check(&faults("hurry-up, tuned", &hurry_up::Params::tuned(), &["threshold.fixed", "grace"]));
    check(&faults("adrenaline", &adrenaline::Params::default(), &[]));
    let predicted = ["dvfs_delay", "error", "second_step", "budget_gain"];
    check(&faults("retail-like", &predicted::Params::default(), &predicted));
    check(&faults("nmap-like", &nmap::Params::default(), &["polled_most", "polled_ratio"]));
    check(&faults("ecofaas-like", &eco_faas::Params::default(), &["error"]));
    check(&faults("sleepscale", &sleep_scale::Params::default(), &[]));
    check(&faults("dynsleep", &dyn_sleep::Params::default(), &[]));
    check(&faults("udpm", &udpm::Params::default(), &["least_sleep", "switch"]));
    check(&faults("anticipate", &wake_plan::Params::default(), &["margin"]));
    check(&faults("anticipate-paper", &wake_plan::Params::paper(), &["margin"]));
    check(&faults("a device", &DeviceParams::default(), &["band.first_guess", "band.short"]));
    check(&faults("kernels", &KernelParams::default(), &["dropped", "band.first_guess", "band.short"]));
    let quiesce = ["min_wait", "max_share", "leave_alone", "payoff.min_gain", "payoff.max_slowdown"];
    check(&faults("quiesce", &quiescence::Params::default(), &quiesce));
    let staging = ["phase", "first_share", "margin_step"];
    check(&faults("staged", &staging::Params::default(), &staging));
    check(&faults("staged-paper", &staging::Params::paper(), &staging));
    assert!(all.is_empty(), "{}", all.join("\n"));
}

#[test]
fn bounds_that_cross_are_refused_with_both_names() {
    fn said<T: Check + DeserializeOwned>(text: &str) -> String {
        toml::from_str::<T>(text).unwrap().check().unwrap_err().to_string()
    }
    let crossed = [
        said::<pegasus::Params>("idle = 0.9"),
        said::<pegasus::Params>("comfortable = 1.4"),
        said::<hurry_up::Params>("f_min = 2100000"),
        said::<adrenaline::Params>("boost = 900000"),
        said::<sleep_scale::Params>("log = 50"),
        said::<dyn_sleep::Params>("tails = { log = 50 }"),
        said::<quiescence::Params>("min_wait = \"1s\""),
        said::<staging::Params>("first = 200"),
        said::<staging::Params>("margin_step = \"1s\""),
    ];
    let names = [
        ("idle", "comfortable"),
        ("comfortable", "violation"),
        ("f_min", "f_mid"),
        ("cruise", "boost"),
        ("least", "log"),
        ("tails.least", "log"),
        ("min_wait", "max_freeze"),
        ("first", "history"),
        ("margin_step", "max_margin"),
    ];
    for (said, (low, high)) in crossed.iter().zip(names) {
        assert!(said.starts_with(&format!("{low}: ")), "{said}");
        assert!(said.ends_with(&format!("write no more than `{high}`")), "{said}");
    }
    for bounds in ["[1.5, 0.5]", "[0.5, 0.9]", "[1.1, 2.0]", "[0.0, 2.0]", "[nan, 2.0]", "[0.5, inf]"] {
        assert!(
            said::<rubik::Params>(&format!("factor_bounds = {bounds}")).contains("factor_bounds"),
            "{bounds}"
        );
        assert!(said::<joint::Params>(&format!("correction_bounds = {bounds}")).contains("[0.5, 1.5]"));
        assert!(said::<joint::Params>(&format!("aims = {bounds}")).contains("[0.5, 1.5]"));
    }
    for speed in ["0.0", "1.5", "-1.0"] {
        let said = said::<joint::Params>(&format!("shared_speed = {speed}"));
        assert!(said.starts_with("shared_speed: "), "{speed}: {said}");
    }
}
