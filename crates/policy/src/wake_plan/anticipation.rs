//! The registry entries of anticipatory wake-ups, where a device's answer is foreseen.

use super::{Device, DeviceParams, KernelParams, Kernels, Params, Predictor};
use crate::check::Check;
use crate::kind::{Anticipation, Make};
use crate::registry::{Entry, Maturity, Parameter, Question, Runs, Word, settings, table, time};
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
                ..DeviceAnticipation::default()
            })
        }),
    ],
    question: Question::Device,
    help: "A disk's time for one operation is linear in its size, learned separately for reads and writes \
           and for each depth of the queue. The CPU begins to wake one exit latency and a margin before the \
           window in which the answer is expected, and may sleep again when that is over.",
    runs: Runs::Live,
    maturity: Maturity::Experimental,
    origin: "CPU sleeps, section 2",
    make: Make::Anticipation(|making| {
        let DeviceAnticipation { planner, exit_latency, device } = making.params();
        let predictor = Predictor::Device(Box::new(Device::new(device)));
        Anticipation { planner, exit_latency, predictor }
    }),
    ..Entry::of::<DeviceAnticipation>()
};

/// From the history of a repeated computation.
pub static KERNELS_ENTRY: Entry = Entry {
    words: &[Word::new("anticipate-kernels", "the same from the history of a repeated computation", |_| {
        settings(KernelAnticipation::default())
    })],
    question: Question::Device,
    help: "A repeated computation takes about as long as the last times. Two means are kept, of few and of \
           many runs, and the one speaks whose expectations were nearer lately; the band of its last errors \
           is the window for which a CPU is kept awake.",
    runs: Runs::Live,
    maturity: Maturity::Experimental,
    origin: "CPU sleeps, section 2",
    make: Make::Anticipation(|making| {
        let KernelAnticipation { planner, exit_latency, kernels } = making.params();
        let predictor = Predictor::Kernels(Box::new(Kernels::new(kernels)));
        Anticipation { planner, exit_latency, predictor }
    }),
    ..Entry::of::<KernelAnticipation>()
};

/// The CPU sleeps paper (section 2) begins to wake 80 us after the submission of a read that
/// takes 100.
const PAPERS_LEAD: Duration = Duration::from_micros(20);

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceAnticipation {
    pub planner: Params,
    #[serde(default, with = "machine::duration_text::optional")]
    pub exit_latency: Option<Duration>,
    pub device: DeviceParams,
}

impl Check for DeviceAnticipation {
    const PARAMETERS: &'static [Parameter] = &[
        table("planner", "the sleep plan", Params::PARAMETERS),
        EXIT_LATENCY,
        table("device", "the model of the device", DeviceParams::PARAMETERS),
    ];
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KernelAnticipation {
    pub planner: Params,
    #[serde(default, with = "machine::duration_text::optional")]
    pub exit_latency: Option<Duration>,
    pub kernels: KernelParams,
}

impl Check for KernelAnticipation {
    const PARAMETERS: &'static [Parameter] = &[
        table("planner", "the sleep plan", Params::PARAMETERS),
        EXIT_LATENCY,
        table("kernels", "the history of the computation", KernelParams::PARAMETERS),
    ];
}

const EXIT_LATENCY: Parameter =
    time("exit_latency", "what the planner subtracts; `never`: the deepest state's")
        .source("the machine's; CPU sleeps, section 2, begins 80 us into a read of 100");
