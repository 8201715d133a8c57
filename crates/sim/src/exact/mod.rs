//! Queues whose answers are known: references for a simulator.
//!
//! Each constructor of [`ResponseTime`] gives the exact mean and the exact distribution of the
//! response time (waiting and service) of a stable queue with Poisson arrivals, first come first
//! served. All times are in the unit of the arguments, all rates per that unit.
//!
//! | queue | mean | distribution |
//! |---|---|---|
//! | M/M/1 | 1 / (mu - lambda) | exponential (Kleinrock, *Queueing Systems* I, chapters 3 and 5) |
//! | M/M/k | Erlang-C | waits with probability C, then exponentially; plus service (chapter 3) |
//! | M/D/1 | Pollaczek-Khinchine | Crommelin's waiting time in a form without cancellation (Franx) |
//! | M/M/1, asleep when idle | Welch | M/M/1 plus an independent delay (Fuhrmann and Cooper) |
//! | M/E2/1, M/H2/1 | Pollaczek-Khinchine | its transform is rational: two exponentials (chapter 5) |
//!
//! For phase-type service the transform of the response time is `(1 - rho) s B(s) / (s - lambda +
//! lambda B(s))`. With two phases its denominator, freed of the root at zero, is a quadratic with
//! two real negative roots; partial fractions give the tail as a sum of two exponentials.

mod deterministic;
mod sleeping;

use deterministic::Crommelin;
pub use sleeping::SleepingServer;

/// The response time of a stable queue.
#[derive(Clone, Debug)]
pub struct ResponseTime {
    mean: f64,
    tail: Tail,
}

/// P(T > t).
#[derive(Clone, Debug)]
enum Tail {
    /// Weighted exponentials: (weight, rate). A weight may be negative, the sum is one.
    Exponentials(Vec<(f64, f64)>),
    /// `(1 + slope t) e^(-rate t)`: where two rates of a sum of exponentials meet.
    Confluent { slope: f64, rate: f64 },
    /// A constant service after the waiting time of M/D/1.
    Constant { waiting: Crommelin, service: f64 },
    /// A server that has to wake.
    Sleeping(SleepingServer),
}

impl ResponseTime {
    /// One server, exponential service at rate `mu`.
    pub fn mm1(lambda: f64, mu: f64) -> Self {
        Self::mmk(1, lambda, mu)
    }

    /// `servers` servers with one queue, exponential service at rate `mu` each.
    pub fn mmk(servers: u32, lambda: f64, mu: f64) -> Self {
        let drain = f64::from(servers) * mu - lambda;
        assert!(
            lambda > 0.0 && drain > 0.0,
            "the queue is not stable: lambda {lambda}, {servers} servers of {mu}"
        );
        let waits = erlang_c(servers, lambda / mu);
        let tail = if (drain - mu).abs() < 1e-9 * mu {
            Tail::Confluent { slope: waits * mu, rate: mu }
        } else {
            // Waiting (rate `drain`) plus service (rate `mu`).
            let drained = waits * mu / (mu - drain);
            Tail::Exponentials(vec![(1.0 - drained, mu), (drained, drain)])
        };
        Self { mean: 1.0 / mu + waits / drain, tail }
    }

    /// One server that sleeps when it has nothing to do.
    pub fn sleeping(server: &SleepingServer) -> Self {
        Self { mean: server.mean_response(), tail: Tail::Sleeping(server.clone()) }
    }

    /// One server, every service takes `service`.
    pub fn md1(lambda: f64, service: f64) -> Self {
        let mean = pollaczek_khinchine(lambda, service, service * service);
        Self { mean, tail: Tail::Constant { waiting: Crommelin::new(lambda * service), service } }
    }

    /// One server, service of two exponential phases in a row (Erlang-2) with mean `service`
    /// together.
    pub fn me21(lambda: f64, service: f64) -> Self {
        let phase = 2.0 / service;
        let mean = pollaczek_khinchine(lambda, service, 1.5 * service * service);
        let (slow, fast) = roots(2.0 * phase - lambda, phase * phase - 2.0 * phase * lambda);
        let gap = fast - slow;
        Self { mean, tail: Tail::Exponentials(vec![(fast / gap, slow), (-slow / gap, fast)]) }
    }

    /// One server, exponential service at rate `rates[0]` with probability `first`, else at
    /// `rates[1]` (two-branch hyperexponential).
    pub fn mh21(lambda: f64, first: f64, rates: [f64; 2]) -> Self {
        let [a, b] = rates;
        let second = 1.0 - first;
        let service = first / a + second / b;
        let mean = pollaczek_khinchine(lambda, service, 2.0 * (first / (a * a) + second / (b * b)));
        let (slow, fast) = roots(a + b - lambda, a * b * (1.0 - lambda * service));
        // Residues of (1 - rho) B(s) (s + a)(s + b) / ((s + slow)(s + fast)), each over its rate.
        let numerator = |s: f64| (1.0 - lambda * service) * ((first * a + second * b) * s + a * b);
        let weight = |rate: f64, other: f64| numerator(-rate) / ((other - rate) * rate);
        let tail = Tail::Exponentials(vec![(weight(slow, fast), slow), (weight(fast, slow), fast)]);
        Self { mean, tail }
    }

    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// The probability of a response time above `time`.
    pub fn tail(&self, time: f64) -> f64 {
        if time <= 0.0 {
            return 1.0;
        }
        match &self.tail {
            Tail::Exponentials(parts) => {
                parts.iter().map(|(weight, rate)| weight * (-rate * time).exp()).sum()
            }
            Tail::Confluent { slope, rate } => (1.0 + slope * time) * (-rate * time).exp(),
            Tail::Sleeping(server) => server.tail(time),
            Tail::Constant { service, .. } if time < *service => 1.0,
            Tail::Constant { waiting, service } => 1.0 - waiting.distribution(time / service - 1.0),
        }
    }

    /// The response time that a share `quantile` of the requests stays within.
    pub fn quantile(&self, quantile: f64) -> f64 {
        assert!((0.0..1.0).contains(&quantile), "a quantile lies in [0, 1), not at {quantile}");
        let mut high = self.mean;
        while self.tail(high) > 1.0 - quantile {
            high *= 2.0;
        }
        let mut low = 0.0;
        // Each halving gains a bit; a double has 53.
        for _ in 0..64 {
            let middle = 0.5 * (low + high);
            if self.tail(middle) > 1.0 - quantile { low = middle } else { high = middle }
        }
        0.5 * (low + high)
    }
}

/// The probability that a request of M/M/k has to wait, at an offered load of `erlangs` = lambda /
/// mu (Erlang 1917; by the recursion of his B formula).
pub fn erlang_c(servers: u32, erlangs: f64) -> f64 {
    let blocked =
        (1..=servers).fold(1.0, |blocked, k| erlangs * blocked / (f64::from(k) + erlangs * blocked));
    let load = erlangs / f64::from(servers);
    blocked / (1.0 - load * (1.0 - blocked))
}

/// The mean response time of M/G/1 from the first two moments of its service (Kleinrock I, chapter
/// 5).
pub fn pollaczek_khinchine(lambda: f64, service: f64, service_squared: f64) -> f64 {
    let load = lambda * service;
    assert!(lambda > 0.0 && load < 1.0, "the queue is not stable: load {load}");
    service + lambda * service_squared / (2.0 * (1.0 - load))
}

/// By how much the mean response time of M/G/1 rises when a server that has nothing to do is
/// switched off, and the first request of each busy period waits for a set-up with these first two
/// moments (Welch, "On a generalized M/G/1 queuing process in which the first customer of each busy
/// period receives exceptional service", Oper. Res. 12, 1964). For M/M/1 add it to `1 / (mu -
/// lambda)`.
pub fn set_up_delay(lambda: f64, set_up: f64, set_up_squared: f64) -> f64 {
    (2.0 * set_up + lambda * set_up_squared) / (2.0 * (1.0 + lambda * set_up))
}

/// The roots of `s^2 - linear s + constant`, the smaller first.
fn roots(linear: f64, constant: f64) -> (f64, f64) {
    let larger = 0.5 * (linear + (linear * linear - 4.0 * constant).sqrt());
    // Not by subtraction, which would lose the small root's digits at high load.
    (constant / larger, larger)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(value: f64, expected: f64, within: f64) {
        assert!((value - expected).abs() <= within, "{value}, not {expected}");
    }

    /// The mean as the area under the tail.
    fn area(queue: &ResponseTime) -> f64 {
        let step = queue.mean() / 2000.0;
        (0..400_000).map(|i| queue.tail((f64::from(i) + 0.5) * step) * step).sum()
    }

    #[test]
    fn one_server_is_known_by_heart() {
        let queue = ResponseTime::mm1(0.8, 1.0);
        near(queue.mean(), 5.0, 1e-12);
        near(queue.quantile(0.99), 5.0 * 100f64.ln(), 1e-9);
        near(queue.quantile(0.99), 23.026, 5e-4);
        near(queue.quantile(0.5), 5.0 * 2f64.ln(), 1e-9);
    }

    #[test]
    fn ten_servers_are_as_measured_by_all_simulators() {
        // The truth that seven simulators were held against (docs/journal): 0.40918, 1.20459,
        // 4.94611.
        near(erlang_c(10, 8.0), 0.40918, 5e-6);
        let queue = ResponseTime::mmk(10, 8.0, 1.0);
        near(queue.mean(), 1.20459, 5e-6);
        near(queue.quantile(0.99), 4.94611, 5e-6);
    }

    #[test]
    fn erlangs_table_is_met() {
        // Two servers at rho: C = 2 rho^2 / (1 + rho), from the formula written out.
        for load in [0.1, 0.5, 0.9] {
            near(erlang_c(2, 2.0 * load), 2.0 * load * load / (1.0 + load), 1e-12);
            near(erlang_c(1, load), load, 1e-12);
        }
    }

    #[test]
    fn the_equal_rate_case_is_the_limit_of_the_others() {
        // k mu - lambda = mu.
        let equal = ResponseTime::mmk(10, 9.0, 1.0);
        let beside = ResponseTime::mmk(10, 9.0 + 1e-6, 1.0);
        for quantile in [0.1, 0.5, 0.99, 0.999] {
            near(equal.quantile(quantile), beside.quantile(quantile), 1e-4);
        }
        near(area(&equal), equal.mean(), 1e-5);
    }

    #[test]
    fn every_distribution_has_the_mean_of_its_formula() {
        let queues = [
            ResponseTime::mm1(0.9, 1.0),
            ResponseTime::mmk(3, 2.0, 1.0),
            ResponseTime::mmk(10, 5.0, 1.0),
            ResponseTime::md1(0.8, 1.0),
            ResponseTime::md1(0.3, 2.0),
            ResponseTime::me21(0.8, 1.0),
            ResponseTime::mh21(0.8, 0.9, [1.8, 0.2]),
        ];
        for queue in &queues {
            near(area(queue) / queue.mean(), 1.0, 1e-4);
            near(queue.tail(queue.quantile(0.99)), 0.01, 1e-9);
        }
    }

    #[test]
    fn phase_type_service_contains_the_exponential() {
        let exponential = ResponseTime::mm1(0.8, 1.0);
        let same_branches = ResponseTime::mh21(0.8, 0.3, [1.0, 1.0 + 1e-9]);
        near(same_branches.mean(), exponential.mean(), 1e-6);
        near(same_branches.quantile(0.99), exponential.quantile(0.99), 1e-5);
    }

    #[test]
    fn variable_service_waits_in_proportion_to_one_plus_its_squared_variation() {
        // Pollaczek-Khinchine: waiting 2, 3 and 4 for D, E2 and M at rho 0.8.
        near(ResponseTime::md1(0.8, 1.0).mean(), 3.0, 1e-12);
        near(ResponseTime::me21(0.8, 1.0).mean(), 4.0, 1e-12);
        near(ResponseTime::mm1(0.8, 1.0).mean(), 5.0, 1e-12);
    }

    #[test]
    fn an_exponential_set_up_adds_its_mean() {
        // Memoryless: a request that comes during a set-up waits for the whole of it, on average.
        near(set_up_delay(0.8, 3.0, 2.0 * 9.0), 3.0, 1e-12);
        // A constant one adds less under load: some come while it is under way.
        near(set_up_delay(1e-9, 3.0, 9.0), 3.0, 1e-6);
        near(set_up_delay(1e9, 3.0, 9.0), 1.5, 1e-6);
    }
}
