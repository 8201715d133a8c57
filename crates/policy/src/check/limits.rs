//! What each policy's parameters can be. Where a parameter is not named, any value of its type will do.

use super::{
    Check, Wrong, above_zero, around_one, clock, count, holds, not_above, quantile, share, time, within,
    zero_or_more,
};
use crate::carb::{self, Threshold};
use crate::cores::{auto_scale, dream_weaver};
use crate::frequency::{adrenaline, hurry_up, ondemand, pegasus, rubik, schedutil, sensitivity};
use crate::idle::{FeedbackParams, GovernorParams, MenuParams, TeoParams};
use crate::timing::{dyn_sleep, sleep_scale, tails, udpm};
use crate::wake_plan::{BandParams, DeviceParams, KernelParams};
use crate::{peafowl, quiescence, roost, staging, wake_plan};
use machine::Duration;

impl Check for carb::Params {
    fn check(&self) -> Result<(), Wrong> {
        time("epoch", self.epoch)?;
        count("min_active", self.min_active)?;
        count("step_up", self.step_up)?;
        count("step_down", self.step_down)?;
        for (key, threshold) in [("rate_step", self.rate_step), ("rate_jump", self.rate_jump)] {
            match threshold {
                Threshold::Absolute(rate) => {
                    zero_or_more(&format!("{key}.absolute"), rate.as_per_second())?;
                }
                Threshold::OfPeak(fraction) => within(&format!("{key}.of_peak"), fraction, 0.0..=1.0)?,
            }
        }
        zero_or_more("tail_step", self.tail_step)?;
        zero_or_more("noise_z", self.noise_z)
    }
}

impl Check for carb::GoalParams {
    fn check(&self) -> Result<(), Wrong> {
        time("epoch", self.epoch)?;
        count("min_active", self.min_active)?;
        count("patience", self.patience)?;
        count("barred_epochs", self.barred_epochs)?;
        within("room", self.room.as_f64(), 0.0..=1.0)?;
        within("busiest", self.busiest.as_f64(), 0.0..=1.0)?;
        match self.rate_jump {
            Threshold::Absolute(rate) => zero_or_more("rate_jump.absolute", rate.as_per_second()),
            Threshold::OfPeak(fraction) => within("rate_jump.of_peak", fraction, 0.0..=1.0),
        }
    }
}

impl Check for peafowl::Params {
    fn check(&self) -> Result<(), Wrong> {
        count("window_requests", self.window_requests)?;
        time("report_period", self.report_period)?;
        share("full_busy", self.full_busy)?;
        above_zero("full_busy", self.full_busy.as_f64())?;
        share("overload_busy", self.overload_busy)?;
        time("turn_most", self.turn_most)?;
        time("capacity_memory", self.capacity_memory)?;
        above_zero("outlier_z", self.outlier_z)?;
        time("learn_after", self.learn_after)?;
        share("saturation_busy", self.saturation_busy)?;
        above_zero("approach", self.approach)?;
        zero_or_more("approach_z", self.approach_z)?;
        zero_or_more("burst_drain", self.burst_drain)?;
        zero_or_more("burst_depth", self.burst_depth)?;
        zero_or_more("swell_drain", self.swell_drain)?;
        zero_or_more("swell_depth", self.swell_depth)?;
        above_zero("headroom", self.headroom)?;
        // What was packed would be sent home again.
        not_above("headroom", self.headroom, "approach", self.approach)?;
        count("min_active", self.min_active)?;
        time("order_deadline", self.order_deadline)?;
        self.imbalance_patience.map_or(Ok(()), |patience| time("imbalance_patience", patience))?;
        above_zero("imbalance", self.imbalance)?;
        self.latency_goal.map_or(Ok(()), |goal| time("latency_goal", goal))?;
        count("tail_reports", self.tail_reports)?;
        count("goal_readings", self.goal_readings)?;
        count("tail_samples", self.tail_samples)
    }
}

impl Check for auto_scale::Params {
    fn check(&self) -> Result<(), Wrong> {
        count("requests_per_core", self.requests_per_core)?;
        count("min_on", self.min_on)
    }
}

impl Check for dream_weaver::Params {
    fn check(&self) -> Result<(), Wrong> {
        self.busy_cores.map_or(Ok(()), |cores| count("busy_cores", cores))
    }
}

impl Check for roost::Params {
    fn check(&self) -> Result<(), Wrong> {
        time("target", self.target)?;
        quantile("quantile", self.quantile)?;
        above_zero("aim", self.aim)?;
        within("aim", self.aim, 0.0..=1.0)?;
        let fix = "write a time from 100us on";
        holds("epoch", self.epoch >= Duration::from_micros(100), self.epoch, fix)?;
        time("epoch_after_jump", self.epoch_after_jump)?;
        count("samples_min", self.samples_min)?;
        zero_or_more("rate_z", self.rate_z)?;
        self.correction_gains.into_iter().try_for_each(|gain| within("correction_gains", gain, 0.0..=1.0))?;
        around_one("correction_bounds", self.correction_bounds)?;
        time("peak_half_life", self.peak_half_life)?;
        within("worth_changing", self.worth_changing, 0.0..=1.0)
    }
}

impl Check for MenuParams {
    fn check(&self) -> Result<(), Wrong> {
        time("tick", self.tick)
    }
}

impl Check for TeoParams {
    fn check(&self) -> Result<(), Wrong> {
        time("tick", self.tick)
    }
}

impl Check for FeedbackParams {
    fn check(&self) -> Result<(), Wrong> {
        share("curb_above", self.curb_above)?;
        share("relax_below", self.relax_below)?;
        not_above("relax_below", self.relax_below.as_f64(), "curb_above", self.curb_above.as_f64())?;
        count("relax_after", self.relax_after)
    }
}

impl Check for GovernorParams {
    fn check(&self) -> Result<(), Wrong> {
        let below = |table: &'static str| move |wrong: Wrong| wrong.below(table);
        match self {
            Self::Poll {} | Self::Shallow {} | Self::Deep {} => Ok(()),
            Self::Menu(menu) => menu.check(),
            Self::Teo(teo) => teo.check(),
            Self::MenuFeedback { menu, feedback } => {
                menu.check().map_err(below("menu"))?;
                feedback.check().map_err(below("feedback"))
            }
            Self::TeoFeedback { teo, feedback } => {
                teo.check().map_err(below("teo"))?;
                feedback.check().map_err(below("feedback"))
            }
        }
    }
}

impl Check for ondemand::Params {
    fn check(&self) -> Result<(), Wrong> {
        time("period", self.period)?;
        within("up_threshold_percent", self.up_threshold_percent.into(), 1.0..=100.0)?;
        count("sampling_down_factor", self.sampling_down_factor)
    }
}

impl Check for schedutil::Params {
    fn check(&self) -> Result<(), Wrong> {
        time("half_life", self.half_life)?;
        above_zero("headroom", self.headroom)?;
        time("tick", self.tick)
    }
}

impl Check for sensitivity::Params {
    fn check(&self) -> Result<(), Wrong> {
        time("step", self.step)?;
        share("slack", self.slack)?;
        above_zero("gain", self.gain)?;
        within("gain", self.gain, 0.0..=1.0)?;
        within("min_change", self.min_change, 0.0..=1.0)?;
        count("stale_after", self.stale_after)
    }
}

impl Check for pegasus::Params {
    fn check(&self) -> Result<(), Wrong> {
        time("target", self.target)?;
        time("epoch", self.epoch)?;
        within("raise", self.raise, 0.0..=1.0)?;
        within("lower", self.lower, 0.0..=1.0)?;
        within("lower_fast", self.lower_fast, 0.0..=1.0)?;
        above_zero("comfortable", self.comfortable)?;
        zero_or_more("idle", self.idle)?;
        zero_or_more("violation", self.violation)?;
        not_above("idle", self.idle, "comfortable", self.comfortable)?;
        not_above("comfortable", self.comfortable, "violation", self.violation)
    }
}

impl Check for rubik::Params {
    fn check(&self) -> Result<(), Wrong> {
        time("target", self.target)?;
        quantile("quantile", self.quantile)?;
        time("rebuild_every", self.rebuild_every)?;
        count("samples_min", self.samples_min)?;
        time("feedback_every", self.feedback_every)?;
        within("proportional_gain", self.proportional_gain, 0.0..=1.0)?;
        within("integral_gain", self.integral_gain, 0.0..=1.0)?;
        around_one("factor_bounds", self.factor_bounds)
    }
}

impl Check for hurry_up::Params {
    fn check(&self) -> Result<(), Wrong> {
        clock("f_min", self.f_min)?;
        not_above("f_min", self.f_min.0, "f_mid", self.f_mid.0)?;
        not_above("f_mid", self.f_mid.0, "f_max", self.f_max.0)?;
        self.sleep.map_or(Ok(()), |sleep| time("sleep", sleep))?;
        let hurry_up::Threshold::Learned(learned) = self.threshold else { return Ok(()) };
        let below = |wrong: Wrong| wrong.below("threshold.learned");
        within("quantile", learned.quantile, 0.0..=1.0).map_err(below)?;
        count("calls", learned.calls).map_err(below)?;
        not_above("floor", learned.floor, "first", learned.first).map_err(below)
    }
}

impl Check for adrenaline::Params {
    fn check(&self) -> Result<(), Wrong> {
        clock("cruise", self.cruise)?;
        not_above("cruise", self.cruise.0, "boost", self.boost.0)
    }
}

impl Check for sleep_scale::Params {
    fn check(&self) -> Result<(), Wrong> {
        time("goal", self.goal)?;
        quantile("quantile", self.quantile.as_f64())?;
        time("epoch", self.epoch)?;
        count("log", self.log)?;
        count("least", self.least)?;
        not_above("least", self.least, "log", self.log)
    }
}

impl Check for tails::Params {
    fn check(&self) -> Result<(), Wrong> {
        quantile("quantile", self.quantile.as_f64())?;
        count("log", self.log)?;
        count("least", self.least)?;
        not_above("least", self.least, "log", self.log)?;
        time("rebuild", self.rebuild)
    }
}

impl Check for dyn_sleep::Params {
    fn check(&self) -> Result<(), Wrong> {
        time("goal", self.goal)?;
        self.tails.check().map_err(|wrong| wrong.below("tails"))
    }
}

impl Check for udpm::Params {
    fn check(&self) -> Result<(), Wrong> {
        time("goal", self.goal)?;
        self.tails.check().map_err(|wrong| wrong.below("tails"))
    }
}

impl Check for wake_plan::Params {
    fn check(&self) -> Result<(), Wrong> {
        time("max_stay", self.max_stay)?;
        time("max_ahead", self.max_ahead)?;
        count("max_per_cpu", self.max_per_cpu)?;
        count("max_per_principal", self.max_per_principal)?;
        count("max_principals", self.max_principals)
    }
}

impl Check for BandParams {
    fn check(&self) -> Result<(), Wrong> {
        count("history", self.history)?;
        above_zero("coverage", self.coverage.as_f64())?;
        share("coverage", self.coverage)?;
        zero_or_more("first_guess", self.first_guess)?;
        above_zero("widest", self.widest)
    }
}

impl Check for DeviceParams {
    fn check(&self) -> Result<(), Wrong> {
        within("memory", self.memory, 1.0..=1e9)?;
        above_zero("outlier", self.outlier)?;
        self.band.check().map_err(|wrong| wrong.below("band"))
    }
}

impl Check for KernelParams {
    fn check(&self) -> Result<(), Wrong> {
        count("history", self.history)?;
        not_above("history", self.history, "long_history", self.long_history)?;
        count("max_kernels", self.max_kernels)?;
        self.band.check().map_err(|wrong| wrong.below("band"))
    }
}

impl Check for quiescence::Params {
    fn check(&self) -> Result<(), Wrong> {
        time("max_freeze", self.max_freeze)?;
        count("worth", self.worth)?;
        not_above("min_wait", self.min_wait, "max_freeze", self.max_freeze)?;
        share("max_share", self.max_share)?;
        time("max_interaction", self.max_interaction)?;
        count("max_tasks", self.max_tasks)?;
        count("max_channels", self.max_channels)?;
        self.payoff.check().map_err(|wrong| wrong.below("payoff"))
    }
}

impl Check for quiescence::PayoffParams {
    fn check(&self) -> Result<(), Wrong> {
        time("turn", self.turn)?;
        share("min_gain", self.min_gain)?;
        share("max_slowdown", self.max_slowdown)?;
        time("retry_min", self.retry_min)?;
        time("retry_max", self.retry_max)?;
        not_above("retry_min", self.retry_min, "retry_max", self.retry_max)
    }
}

impl Check for staging::Params {
    fn check(&self) -> Result<(), Wrong> {
        time("period", self.period)?;
        not_above("phase", self.phase, "period", self.period)?;
        count("max_staged", self.max_staged)?;
        above_zero("quantile", self.quantile.as_f64())?;
        share("quantile", self.quantile)?;
        count("history", self.history)?;
        count("first", self.first)?;
        not_above("first", self.first, "history", self.history)?;
        share("first_share", self.first_share)?;
        not_above("margin_step", self.margin_step, "max_margin", self.max_margin)
    }
}
