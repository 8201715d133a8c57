//! The registry entries of anticipatory wake-ups, where a device's answer is foreseen.

use super::{Device, DeviceParams, KernelParams, Kernels, Params, Predictor};
use crate::check::Check;
use crate::kind::{Anticipation, Make};
use crate::registry::{Entry, Maturity, Parameter, Question, Runs, Word, number, settings, table, time};
use machine::Duration;
use serde::{Deserialize, Serialize};

/// From the latencies of a device.
pub static DEVICE_ENTRY: Entry = Entry {
    words: &[
        Word::new("anticipate", "wakes ahead of a device's answer, from its latencies so far", |_| {
            settings(DeviceAnticipation::default())
        }),
        Word::new("anticipate-paper", "the same without a margin", |_| {
            settings(DeviceAnticipation {
                planner: Params::paper(),
                exit_latency: Some(PAPERS_LEAD),
                overtime: 0.0,
                ..DeviceAnticipation::default()
            })
        }),
    ],
    question: Question::Device,
    help: "A disk's time for one operation is linear in its size, learned separately for reads and writes \
           and for each depth of the queue. The CPU begins to wake one exit latency and a margin before the \
           window in which the answer is expected. Where the driver hears of the answer at once, it stays \
           awake for a late one as long as a sleep would have to last to pay.",
    runs: Runs::Live,
    maturity: Maturity::Experimental,
    origin: "CPU sleeps, section 2",
    make: Make::Anticipation(|making| {
        let DeviceAnticipation { planner, exit_latency, overtime, device } = making.params();
        let predictor = Predictor::Device(Box::new(Device::new(device)));
        Anticipation { planner, exit_latency, overtime, predictor }
    }),
    ..Entry::of::<DeviceAnticipation>()
};

/// From the history of a repeated computation.
pub static KERNELS_ENTRY: Entry = Entry {
    words: &[
        Word::new("anticipate-kernels", "the same from the history of a repeated computation", |_| {
            settings(KernelAnticipation::default())
        }),
        Word::new("anticipate-kernels-paper", "the same without overtime", |_| {
            settings(KernelAnticipation { overtime: 0.0, ..KernelAnticipation::default() })
        }),
    ],
    question: Question::Device,
    help: "A repeated computation takes about as long as the last times. Two means are kept, of few and of \
           many runs, and the one speaks whose expectations were nearer lately; the band of its last errors \
           is the window for which a CPU is kept awake, and it stays awake for a late end as for a device's \
           late answer.",
    runs: Runs::Live,
    maturity: Maturity::Experimental,
    origin: "CPU sleeps, section 2",
    make: Make::Anticipation(|making| {
        let KernelAnticipation { planner, exit_latency, overtime, kernels } = making.params();
        let predictor = Predictor::Kernels(Box::new(Kernels::new(kernels)));
        Anticipation { planner, exit_latency, overtime, predictor }
    }),
    ..Entry::of::<KernelAnticipation>()
};

/// The CPU sleeps paper (section 2) begins to wake 80 us after the submission of a read that
/// takes 100.
const PAPERS_LEAD: Duration = Duration::from_micros(20);

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceAnticipation {
    pub planner: Params,
    #[serde(default, with = "machine::duration_text::optional")]
    pub exit_latency: Option<Duration>,
    pub overtime: f64,
    pub device: DeviceParams,
}

impl Default for DeviceAnticipation {
    fn default() -> Self {
        Self {
            planner: Params::default(),
            exit_latency: None,
            overtime: 1.0,
            device: DeviceParams::default(),
        }
    }
}

impl Check for DeviceAnticipation {
    const PARAMETERS: &'static [Parameter] = &[
        table("planner", "the sleep plan", Params::PARAMETERS),
        EXIT_LATENCY,
        OVERTIME,
        table("device", "the model of the device", DeviceParams::PARAMETERS),
    ];
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KernelAnticipation {
    pub planner: Params,
    #[serde(default, with = "machine::duration_text::optional")]
    pub exit_latency: Option<Duration>,
    pub overtime: f64,
    pub kernels: KernelParams,
}

impl Default for KernelAnticipation {
    fn default() -> Self {
        Self {
            planner: Params::default(),
            exit_latency: None,
            overtime: 1.0,
            kernels: KernelParams::default(),
        }
    }
}

impl Check for KernelAnticipation {
    const PARAMETERS: &'static [Parameter] = &[
        table("planner", "the sleep plan", Params::PARAMETERS),
        EXIT_LATENCY,
        OVERTIME,
        table("kernels", "the history of the computation", KernelParams::PARAMETERS),
    ];
}

const EXIT_LATENCY: Parameter =
    time("exit_latency", "what the planner subtracts; `never`: that of the deepest state allowed")
        .source("the machine's; CPU sleeps, section 2, begins 80 us into a read of 100");

const OVERTIME: Parameter =
    number("overtime", "kept awake for a late answer, in target residencies of the state it would enter")
        .within(0.0, 10.0)
        .source(
            "ours: to stay costs no more then than to wake once more; zero in the paper, and live, \
             where the end of a disk's operation wakes no thread",
        );
