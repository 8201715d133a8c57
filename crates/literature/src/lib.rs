//! Policies of the kernel and of the literature that only simulations run: the baselines of this
//! project's policies.
//!
//! They keep the rules of `policy`: no clock, no file, no thread, no unordered map, no unseeded
//! random number; `now` and readings go in, decisions come out, and the same inputs give the same
//! outputs. The daemon, the store and the proxy do not link this crate.
//!
//! - [`cores`]: how many cores are on, and when the whole machine may nap.
//! - [`idle`]: which idle state a CPU goes to: menu, TEO, and policies that curb or bound them.
//! - [`frequency`]: how fast the cores run.
//! - [`timing`]: when to be awake: work delayed as long as its goal allows.

pub mod cores;
pub mod frequency;
pub mod idle;
pub mod timing;

pub static POLICIES: &policy::registry::Registry = &[
    &cores::auto_scale::ENTRY,
    &cores::lavd::ENTRY,
    &cores::power_nap::ENTRY,
    &cores::dream_weaver::ENTRY,
    &idle::UNCHANGING,
    &idle::MENU,
    &idle::TEO,
    &idle::MENU_FEEDBACK,
    &idle::TEO_FEEDBACK,
    &frequency::fixed::ENDS,
    &frequency::fixed::USERSPACE,
    &frequency::fixed_pace::ENTRY,
    &frequency::ondemand::ENTRY,
    &frequency::schedutil::ENTRY,
    &frequency::rubik::ENTRY,
    &frequency::crescendo::ENTRY,
    &frequency::adrenaline::ENTRY,
    &frequency::predicted::ENTRY,
    &frequency::nmap::ENTRY,
    &frequency::eco_faas::ENTRY,
    &timing::sleep_scale::ENTRY,
    &timing::dyn_sleep::ENTRY,
    &timing::udpm::ENTRY,
];
