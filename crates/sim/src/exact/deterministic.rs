//! The waiting time of M/D/1.
//!
//! Crommelin's series (1932) alternates in sign, and its terms grow like e^x: at rho 0.95 nothing
//! is left of a p99.9 in double precision. Franx ("A simple solution for the M/D/c waiting time
//! distribution", Oper. Res. Letters 29, 2001) gives the same distribution as a sum of positive
//! terms: with service as the unit of time, for `k - 1 <= x < k`,
//!
//! ```text
//! P(W <= x) = sum over j < k of  Q(k - 1 - j)  u^j e^-u / j!      u = rho (k - x)
//! ```
//!
//! where Q(n) is the probability of at most n requests in the queue. The distribution of the number
//! in the system comes from the chain at departures (Kleinrock, *Queueing Systems* I, chapter 5),
//! by balancing up- and down-crossings of a level, again a sum of positive terms. It is continued
//! until its tail, which is geometric, is below [`NEGLIGIBLE`].

/// The distribution of the waiting time, in units of the service time.
#[derive(Clone, Debug)]
pub(super) struct Crommelin {
    load: f64,
    /// Place n: the probability of at most n requests in the queue.
    queue_within: Vec<f64>,
}

impl Crommelin {
    pub(super) fn new(load: f64) -> Self {
        assert!(load > 0.0 && load < 1.0, "the queue is not stable: load {load}");
        // Place k: the probability of more than k arrivals during a service.
        let mut arrivals_above = Vec::new();
        let none = (-load).exp();
        let mut exactly = none;
        let mut above = -(-load).exp_m1();
        while above > NEGLIGIBLE {
            arrivals_above.push(above);
            exactly *= load / arrivals_above.len() as f64;
            above -= exactly;
        }
        // Place n: the probability of n in the system.
        let mut in_system = vec![1.0 - load];
        let mut within = 1.0 - load;
        let mut queue_within = Vec::new();
        while 1.0 - within > NEGLIGIBLE {
            let n = in_system.len() - 1;
            // Up from 0..=n to more than n, against down from n + 1 to n.
            let mut up = in_system[0] * arrivals_above.get(n).unwrap_or(&0.0);
            for (more, above) in arrivals_above.iter().enumerate().skip(1).take(n) {
                up += in_system[n + 1 - more] * above;
            }
            in_system.push(up / none);
            within += up / none;
            queue_within.push(within.min(1.0));
            if up / none < NEGLIGIBLE * NEGLIGIBLE {
                break;
            }
        }
        Self { load, queue_within }
    }

    /// P(W <= time).
    pub(super) fn distribution(&self, time: f64) -> f64 {
        if time < 0.0 {
            return 0.0;
        }
        let k = time.floor() as usize + 1;
        let mean = self.load * (k as f64 - time);
        let mut term = (-mean).exp();
        let mut sum = 0.0;
        for j in 0..k {
            sum += self.queue_within.get(k - 1 - j).copied().unwrap_or(1.0) * term;
            term *= mean / (j + 1) as f64;
            if term < NEGLIGIBLE * NEGLIGIBLE {
                break;
            }
        }
        sum
    }
}

/// Probabilities below it change no quantile that is asked for.
const NEGLIGIBLE: f64 = 1e-14;

#[cfg(test)]
mod tests {
    use super::*;

    /// Crommelin's own series, good for short waits.
    fn series(load: f64, time: f64) -> f64 {
        let term = |j: u32| {
            let y = load * (time - f64::from(j));
            let factorial: f64 = (1..=j).map(f64::from).product();
            (-y).powi(j as i32) / factorial * y.exp()
        };
        (1.0 - load) * (0..=time.floor() as u32).map(term).sum::<f64>()
    }

    #[test]
    fn it_is_crommelins_series_where_that_converges() {
        for load in [0.2, 0.5, 0.8, 0.9] {
            let waiting = Crommelin::new(load);
            for tenth in 0..100 {
                let time = f64::from(tenth) / 10.0;
                let (ours, crommelin) = (waiting.distribution(time), series(load, time));
                assert!((ours - crommelin).abs() < 1e-9, "load {load}, {time}: {ours}, not {crommelin}");
            }
        }
    }

    #[test]
    fn nobody_waits_with_the_probability_of_an_idle_server() {
        for load in [0.1, 0.5, 0.99] {
            assert!((Crommelin::new(load).distribution(0.0) - (1.0 - load)).abs() < 1e-9);
        }
    }

    #[test]
    fn far_in_the_tail_at_high_load_it_still_falls_geometrically() {
        // The decay rate r solves load (e^r - 1) = r; heavy traffic gives about 2 (1 - load) /
        // load.
        let waiting = Crommelin::new(0.95);
        let tail = |time: f64| 1.0 - waiting.distribution(time);
        let rate = (tail(100.0) / tail(120.0)).ln() / 20.0;
        assert!((0.95 * rate.exp_m1() - rate).abs() < 1e-6, "{rate}");
    }
}
