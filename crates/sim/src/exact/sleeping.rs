//! M/M/1 whose server sleeps when it has nothing to do, and takes a *set-up* to wake.
//!
//! A cycle is an idle period, the set-up D that ends it, and work until nothing is left. How long D
//! is depends on the idle period at most (the state that it was spent in), so requests that come
//! later know nothing of it. With E D its mean, a cycle lasts (1 + lambda E D) mu / (lambda (mu -
//! lambda)): the first request and those that come during the set-up each begin a busy period of M/M/1
//! (Welch, Oper. Res. 12, 1964). From it follow the shares of time, and from these the power.
//!
//! The number in the system is that of M/M/1 plus, independent of it, the number that an arrival
//! finds while the server does not work (Fuhrmann and Cooper, "Stochastic decompositions in the M/G/1
//! queue with generalized vacations", Oper. Res. 33, 1985). First come, first served, both are Poisson
//! given the response time, so the response time is that of M/M/1 plus an independent *delay* with the
//! transform
//!
//! ```text
//! (E e^(-sD) + lambda E (1 - e^(-sD)) / s) / (1 + lambda E D)
//! ```
//!
//! which is all of D with weight 1 / (1 + lambda E D), and evenly spread over 0 to D with the rest.

/// A set-up of one length, and its idle state.
#[derive(Clone, Copy, Debug, PartialEq)]
struct SetUp {
    /// The share of idle periods that end with it.
    share: f64,
    length: f64,
    /// Mean time asleep in its state in a cycle.
    asleep: f64,
}

/// One server with exponential services that sleeps when it is idle.
#[derive(Clone, Debug, PartialEq)]
pub struct SleepingServer {
    lambda: f64,
    mu: f64,
    set_ups: Vec<SetUp>,
}

impl SleepingServer {
    /// With one idle state, which it takes `set_up` to leave.
    pub fn new(lambda: f64, mu: f64, set_up: f64) -> Self {
        Self::foreseeing(lambda, mu, &[(0.0, set_up)])
    }

    /// With idle states from shallow to deep, each with its target residency and set-up, and a
    /// governor that knows how long it will be idle: it takes the deepest state whose residency
    /// fits, else the first.
    pub fn foreseeing(lambda: f64, mu: f64, states: &[(f64, f64)]) -> Self {
        assert!(lambda > 0.0 && lambda < mu, "the queue is not stable: lambda {lambda}, mu {mu}");
        let from = |at: usize| match states.get(at) {
            Some(_) if at == 0 => 0.0,
            Some(&(residency, _)) => residency,
            None => f64::INFINITY,
        };
        // Of an idle period I: P(I >= t), and the mean of I where I >= t.
        let above = |time: f64| (-lambda * time).exp();
        let mean_above = |time: f64| if time.is_finite() { above(time) * (1.0 / lambda + time) } else { 0.0 };
        let set_ups = states.iter().enumerate().map(|(at, &(_, length))| SetUp {
            share: above(from(at)) - above(from(at + 1)),
            length,
            asleep: mean_above(from(at)) - mean_above(from(at + 1)),
        });
        Self { lambda, mu, set_ups: set_ups.collect() }
    }

    fn mean_set_up(&self) -> f64 {
        self.set_ups.iter().map(|set_up| set_up.share * set_up.length).sum()
    }

    fn cycle(&self) -> f64 {
        (1.0 + self.lambda * self.mean_set_up()) * self.mu / (self.lambda * (self.mu - self.lambda))
    }

    /// The share of time at work.
    pub fn working(&self) -> f64 {
        self.lambda / self.mu
    }

    /// The share of time in a set-up.
    pub fn waking(&self) -> f64 {
        self.mean_set_up() / self.cycle()
    }

    /// The share of time in each idle state.
    pub fn asleep(&self) -> Vec<f64> {
        self.set_ups.iter().map(|set_up| set_up.asleep / self.cycle()).collect()
    }

    pub(super) fn mean_response(&self) -> f64 {
        let squared: f64 = self.set_ups.iter().map(|set_up| set_up.share * set_up.length.powi(2)).sum();
        1.0 / (self.mu - self.lambda) + super::set_up_delay(self.lambda, self.mean_set_up(), squared)
    }

    /// The probability of a response time above `time`.
    pub(super) fn tail(&self, time: f64) -> f64 {
        let drain = self.mu - self.lambda;
        let over = |set_up: &SetUp| {
            let length = set_up.length;
            // Response of M/M/1 plus all of the set-up, and plus an even share of it; the latter
            // times its length.
            let all = (-drain * (time - length).max(0.0)).exp();
            let part = if time < length {
                (1.0 - (-drain * time).exp()) / drain + length - time
            } else {
                ((-drain * (time - length)).exp() - (-drain * time).exp()) / drain
            };
            set_up.share * (all + self.lambda * part)
        };
        self.set_ups.iter().map(over).sum::<f64>() / (1.0 + self.lambda * self.mean_set_up())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ResponseTime, set_up_delay};
    use super::*;

    fn near(value: f64, expected: f64, within: f64) {
        assert!((value - expected).abs() <= within, "{value}, not {expected}");
    }

    #[test]
    fn without_a_set_up_it_is_the_plain_queue() {
        let queue = ResponseTime::sleeping(&SleepingServer::new(0.7, 1.0, 0.0));
        let plain = ResponseTime::mm1(0.7, 1.0);
        near(queue.mean(), plain.mean(), 1e-12);
        near(queue.quantile(0.99), plain.quantile(0.99), 1e-9);
    }

    #[test]
    fn the_mean_is_welchs_and_that_of_the_tail() {
        for server in [
            SleepingServer::new(0.5, 1.0, 3.0),
            SleepingServer::foreseeing(0.3, 1.0, &[(0.6, 0.4), (8.0, 2.4)]),
        ] {
            let queue = ResponseTime::sleeping(&server);
            let step = queue.mean() / 2000.0;
            let area: f64 = (0..100_000).map(|i| queue.tail((f64::from(i) + 0.5) * step) * step).sum();
            near(area / queue.mean(), 1.0, 1e-4);
        }
        let one = SleepingServer::new(0.5, 1.0, 3.0);
        near(one.mean_response(), 2.0 + set_up_delay(0.5, 3.0, 9.0), 1e-12);
        near(one.tail(0.0), 1.0, 1e-12);
    }

    #[test]
    fn all_time_is_accounted_for() {
        // One state: idle 1 / lambda, then D, then 1 + lambda D busy periods of 1 / (mu - lambda).
        let one = SleepingServer::new(0.5, 1.0, 3.0);
        near(one.waking(), 3.0 / (2.0 + 3.0 + 2.5 * 2.0), 1e-12);
        near(one.asleep()[0], 0.2, 1e-12);
        let two = SleepingServer::foreseeing(0.3, 1.0, &[(0.6, 0.4), (8.0, 2.4)]);
        near(two.working() + two.waking() + two.asleep().iter().sum::<f64>(), 1.0, 1e-12);
        // A residency that every idle period has is a single deep state.
        let deep = SleepingServer::foreseeing(0.3, 1.0, &[(0.0, 0.4), (0.0, 2.4)]);
        near(deep.asleep()[1], SleepingServer::new(0.3, 1.0, 2.4).asleep()[0], 1e-12);
        near(deep.asleep()[0], 0.0, 1e-12);
    }
}
