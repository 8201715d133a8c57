//! Any text is a configuration of one of the commands or is refused with the reason; one that is
//! accepted says the same when it is written with every default, and a policy made of it runs.
//!
//! The first letter says of which command: `g`overn, `p`roxy, `s`tore, `q`uiesce.

use crate::peafowl::drive;
use policy::check::Check as _;
use policy::quiescence;
use std::path::Path;

pub fn run(bytes: &[u8]) {
    let [kind, text @ ..] = bytes else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    match kind {
        b'g' => govern(text),
        b'p' => proxy(text),
        b's' => store(text),
        b'q' => quiesce(text),
        _ => {}
    }
}

fn govern(text: &str) {
    let Ok(config) = toml::from_str::<daemon::Config>(text) else { return };
    if let Err(error) = config.check(Path::new("roost.toml")) {
        assert!(error.to_string().starts_with("roost.toml: "), "{error}");
        return;
    }
    let written = toml::to_string(&config).expect("a configuration is TOML");
    let again: daemon::Config = toml::from_str(&written).expect("a configuration in force is one");
    assert_eq!(again, config);
    for service in &config.services {
        let _ = service.params(config.epoch);
    }
}

fn proxy(text: &str) {
    let Ok(config) = proxy::Config::read(text) else { return };
    let written = toml::to_string(&config).expect("a configuration is TOML");
    assert_eq!(proxy::Config::read(&written).expect("a configuration in force is one"), config);
    let _ = config.check();
}

fn store(text: &str) {
    let Ok(parameters) = store::Parameters::parse(text) else { return };
    let written = toml::to_string(&parameters).expect("parameters are TOML");
    assert_eq!(store::Parameters::parse(&written).expect("parameters in force are some"), parameters);
    drive(parameters.peafowl, None);
}

fn quiesce(text: &str) {
    let Ok(params) = toml::from_str::<quiescence::Params>(text) else { return };
    let written = toml::to_string(&params).expect("parameters are TOML");
    assert_eq!(
        toml::from_str::<quiescence::Params>(&written).expect("parameters in force are some").check(),
        params.check()
    );
}
