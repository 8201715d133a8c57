//! The stream of jobs that a simulator runs: one for each request, in order of arrival.
//!
//! Arrivals, classes and connections come from the same functions of the seed as the load
//! generator's requests: job n arrives when request n is sent, on the same connection. Of two
//! classes with shares g and 1 - g the first are the requests that read where g is the share of
//! reads. Service times, which no load generator knows, come from a stream of their own; so two
//! policies are compared on the same jobs.

use crate::connections::Carrier;
use crate::job_trace::{JobTrace, Replay};
use crate::requests::request_stream;
use crate::{Arrivals, Class, Demand, Profile, Random, Sampler, SpecError};
use machine::{Duration, Rate, Ratio};
use std::sync::Arc;

/// One request as the machine sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// Number of the request, from 0.
    pub index: u64,
    /// When it arrives, since the beginning.
    pub at: Duration,
    /// Time at the nominal clock that a slower clock stretches.
    pub compute: Duration,
    pub memory: Duration,
    /// Its class: a place in [`Jobs::classes`].
    pub class: u8,
    pub connection: u32,
}

#[derive(Clone, Debug)]
pub struct JobClass {
    pub name: String,
    /// Share of all jobs, 0 to 1.
    pub share: f64,
    /// When an answer is late, counted from its arrival.
    pub deadline: Option<Duration>,
    /// Mean of compute and memory time together.
    pub mean_service: Duration,
    /// Share of a service time that is memory time.
    pub memory: Ratio,
    /// The bound of memory time, where that is no share.
    pub memory_most: Option<Duration>,
    /// The source of service times; none in a trace.
    pub service: Option<Sampler>,
}

impl JobClass {
    /// The memory time of a service time.
    pub fn memory_of(&self, service: Duration) -> Duration {
        match self.memory_most {
            Some(most) => bounded(service, most),
            None if self.memory == Ratio::ZERO => Duration::ZERO,
            None => service.scale(self.memory.as_f64()),
        }
    }
}

/// Of a service time x that which a faster clock does not shorten: M (1 - exp(-x / M)).
fn bounded(service: Duration, most: Duration) -> Duration {
    let bounds = service.as_nanos() as f64 / most.as_nanos() as f64;
    most.scale(-(-bounds).exp_m1())
}

/// Jobs in order of arrival: without end, unless they come from a trace.
#[derive(Debug)]
pub struct Jobs {
    source: Source,
    carrier: Carrier,
    classes: Arc<[JobClass]>,
    mean_service: Duration,
}

#[derive(Debug)]
enum Source {
    Drawn(Drawn),
    Trace(Played),
}

#[derive(Debug)]
struct Drawn {
    arrivals: Arrivals,
    work: Random,
    seed: u64,
    /// Of each class but the last: the share of jobs of it or of one before it.
    shares: Box<[f64]>,
    laws: Box<[Law]>,
}

#[derive(Clone, Debug)]
struct Law {
    service: Sampler,
    memory: Memory,
}

#[derive(Clone, Copy, Debug)]
enum Memory {
    Share(f64),
    Most(Duration),
}

#[derive(Debug)]
struct Played {
    trace: JobTrace,
    replay: Replay,
    next_index: u64,
    pace: f64,
    failed: Option<SpecError>,
}

impl Jobs {
    pub(crate) fn drawn(arrivals: Arrivals, written: &[Class], demand: &Demand) -> Result<Self, SpecError> {
        let whole: f64 = written.iter().map(|class| class.share).sum();
        let mut classes = Vec::with_capacity(written.len());
        for class in written {
            let service = class.service.as_ref().map(|law| law.sampler()).transpose()?;
            classes.push(JobClass {
                name: class.name.clone(),
                share: class.share / whole,
                deadline: class.deadline,
                mean_service: service.as_ref().map_or(Duration::ZERO, Sampler::mean),
                memory: class.memory,
                memory_most: class.memory_most,
                service,
            });
        }
        let mut below = 0.0;
        let mut shares: Vec<f64> = Vec::new();
        for class in &classes[..classes.len() - 1] {
            below += class.share;
            shares.push(below);
        }
        let law = |class: &JobClass| {
            let memory = class.memory_most.map_or(Memory::Share(class.memory.as_f64()), Memory::Most);
            Some(Law { service: class.service.clone()?, memory })
        };
        let mean_ns: f64 =
            classes.iter().map(|class| class.share * class.mean_service.as_nanos() as f64).sum();
        Ok(Self {
            source: Source::Drawn(Drawn {
                arrivals,
                work: Random::new(demand.seed ^ SERVICE_SALT, 0),
                seed: demand.seed,
                shares: shares.into(),
                laws: classes.iter().filter_map(law).collect(),
            }),
            carrier: Carrier::new(&demand.connections, demand.seed)?,
            classes: classes.into(),
            mean_service: Duration::from_nanos(mean_ns.round() as u64),
        })
    }

    pub(crate) fn replayed(trace: JobTrace, written: &[Class], demand: &Demand) -> Result<Self, SpecError> {
        let requests = trace.requests() as f64;
        // Without declared classes, the one that is written stands for every class of the trace.
        let facts = |(place, name): (usize, &String)| {
            let class = if demand.class.is_empty() { &written[0] } else { &written[place] };
            let (count, service) = trace.totals[place];
            JobClass {
                name: name.clone(),
                share: count as f64 / requests,
                deadline: class.deadline,
                mean_service: service / count.max(1),
                memory: class.memory,
                memory_most: class.memory_most,
                service: None,
            }
        };
        let classes: Arc<[JobClass]> = trace.classes.iter().enumerate().map(facts).collect();
        let mut connections = demand.connections.clone();
        connections.count = connections.count.max(trace.last_connection.map_or(1, |last| last + 1));
        Ok(Self {
            carrier: Carrier::new(&connections, demand.seed)?,
            classes,
            mean_service: trace.mean_service(),
            source: Source::Trace(Played::new(trace, 1.0 / demand.compression)?),
        })
    }

    /// The classes, by the number that jobs carry.
    pub fn classes(&self) -> &[JobClass] {
        &self.classes
    }

    /// How the rate changes over time; none for a trace.
    pub fn profile(&self) -> Option<&Profile> {
        match &self.source {
            Source::Drawn(drawn) => Some(drawn.arrivals.profile()),
            Source::Trace(_) => None,
        }
    }

    /// Compute and memory time of a job on average, over all classes.
    pub fn mean_service(&self) -> Duration {
        self.mean_service
    }

    /// Jobs per second, over one period of the profile or over the trace.
    pub fn mean_rate(&self) -> Rate {
        match &self.source {
            Source::Drawn(drawn) => drawn.arrivals.profile().mean(),
            Source::Trace(played) => played.trace.rate().scale(1.0 / played.pace),
        }
    }

    pub fn connections(&self) -> u32 {
        self.carrier.count()
    }

    /// The same jobs from the first on, with everything random drawn from another seed. A trace has
    /// nothing random in it but connections that it does not name.
    pub fn with_seed(&self, seed: u64) -> Result<Self, SpecError> {
        let source = match &self.source {
            Source::Drawn(drawn) => Source::Drawn(Drawn {
                arrivals: drawn.arrivals.with_seed(seed),
                work: Random::new(seed ^ SERVICE_SALT, 0),
                seed,
                shares: drawn.shares.clone(),
                laws: drawn.laws.clone(),
            }),
            Source::Trace(played) => Source::Trace(Played::new(played.trace.clone(), played.pace)?),
        };
        let carrier = self.carrier.with_seed(seed);
        Ok(Self { source, carrier, classes: self.classes.clone(), mean_service: self.mean_service })
    }

    /// Fails if the jobs ended because a trace could not be read to its end. For after the last
    /// job.
    pub fn check(&mut self) -> Result<(), SpecError> {
        match &mut self.source {
            Source::Trace(Played { failed: failed @ Some(_), .. }) => failed.take().map_or(Ok(()), Err),
            _ => Ok(()),
        }
    }
}

impl Iterator for Jobs {
    type Item = Job;

    #[inline(always)]
    fn next(&mut self) -> Option<Job> {
        match &mut self.source {
            Source::Drawn(drawn) => Some(drawn.next(&self.carrier)),
            Source::Trace(played) => played.next(&self.carrier, &self.classes),
        }
    }
}

impl Drawn {
    // A job that goes through memory on its way to the caller takes longer than all that is drawn
    // for it.
    #[inline(always)]
    fn next(&mut self, carrier: &Carrier) -> Job {
        let arrival = self.arrivals.draw();
        let class = if self.shares.is_empty() { 0 } else { self.class_of(arrival.index) };
        let law = &self.laws[class];
        let (compute, memory) = match law.memory {
            Memory::Share(0.0) => (law.service.draw(&mut self.work), Duration::ZERO),
            Memory::Share(share) => law.service.draw_split(share, &mut self.work),
            Memory::Most(most) => {
                let whole = law.service.draw(&mut self.work);
                let memory = bounded(whole, most);
                (whole - memory, memory)
            }
        };
        let connection = if carrier.count() == 1 { 0 } else { carrier.connection(arrival.index, arrival.at) };
        Job { index: arrival.index, at: arrival.at, compute, memory, class: class as u8, connection }
    }

    /// A function of the seed and the number alone, as for the load generator's requests.
    fn class_of(&self, index: u64) -> usize {
        let place = request_stream(self.seed, index).unit();
        self.shares.iter().take_while(|share| **share <= place).count()
    }
}

impl Played {
    fn new(trace: JobTrace, pace: f64) -> Result<Self, SpecError> {
        let replay = trace.replay()?;
        Ok(Self { trace, replay, next_index: 0, pace, failed: None })
    }

    fn next(&mut self, carrier: &Carrier, classes: &[JobClass]) -> Option<Job> {
        if self.failed.is_some() {
            return None;
        }
        let entry = match self.replay.next() {
            Ok(entry) => entry?,
            Err(error) => {
                self.failed = Some(error);
                return None;
            }
        };
        let index = self.next_index;
        self.next_index += 1;
        let at = if self.pace == 1.0 { entry.at } else { entry.at.scale(self.pace) };
        let memory = classes[usize::from(entry.class)].memory_of(entry.service);
        let compute = entry.service - memory;
        // A trace that grew since it was checked may name unknown connections.
        let named = entry.connection.map(|connection| connection.min(carrier.count() - 1));
        let connection = named.unwrap_or_else(|| carrier.connection(index, at));
        Some(Job { index, at, compute, memory, class: entry.class, connection })
    }
}

const SERVICE_SALT: u64 = 0x2f81_6bd3_e950_c74a;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ArrivalKind, Connections, Distribution, Op, Popularity, Requests, Workload};
    use proptest::prelude::*;

    fn demand(text: &str) -> Demand {
        toml::from_str(text).unwrap()
    }

    fn jobs(text: &str) -> Jobs {
        demand(text).jobs(Duration::from_secs(10)).unwrap()
    }

    const PLAIN: &str = "rate = \"100k\"\nservice = { exponential = \"10us\" }";
    const MIXED: &str = "rate = \"80k\"\nconnections = 512\n[[class]]\nname = \"get\"\nshare = 0.998\n\
                         service = { exponential = \"10us\" }\nmemory = 0.3\ndeadline = \"300us\"\n\
                         [[class]]\nname = \"set\"\nshare = 0.002\nservice = { deterministic = \"20us\" }";

    #[test]
    fn the_first_jobs_of_a_seed_are_fixed() {
        // Recorded when written: a change breaks every recorded run.
        let first = |text| -> Vec<(u64, u64)> {
            jobs(text).take(3).map(|job| (job.at.as_nanos(), job.compute.as_nanos())).collect()
        };
        assert_eq!(first(PLAIN), [(3618, 14982), (12678, 21033), (39531, 7903)]);
        let connections: Vec<u32> = jobs(MIXED).take(4).map(|job| job.connection).collect();
        assert_eq!(connections, [395, 434, 233, 360]);
    }

    #[test]
    fn bounded_memory_time_is_most_of_short_work_and_little_of_long_work() {
        let text = "rate = 1000\n[[class]]\nname = \"a\"\nmemory_most = \"10us\"\n\
                    service = { exponential = \"50us\" }";
        for job in jobs(text).take(1_000) {
            let (memory, whole) =
                (job.memory.as_nanos() as f64, (job.compute + job.memory).as_nanos() as f64);
            assert!((memory - 1e4 * (1.0 - (-whole / 1e4).exp())).abs() <= 1.0, "{job:?}");
        }
        let of = |micros: u64| {
            let class = &jobs(text).classes()[0].clone();
            class.memory_of(Duration::from_micros(micros)).as_nanos()
        };
        assert_eq!((of(0), of(1_000)), (0, 10_000));
        assert!(of(1) > 950, "{}", of(1));
    }

    #[test]
    fn a_bound_of_memory_time_stands_alone() {
        for key in ["memory_most = \"0us\"", "memory_most = \"3us\"\nmemory = 0.5"] {
            let text =
                format!("rate = 1000\n[[class]]\nname = \"a\"\n{key}\nservice = {{ exponential = \"5us\" }}");
            let demand: Demand = toml::from_str(&text).unwrap();
            let told = demand.jobs(Duration::from_secs(1)).unwrap_err().to_string();
            assert!(told.contains("memory_most"), "{told}");
        }
    }

    #[test]
    fn jobs_have_the_stated_rate_and_service() {
        for text in [PLAIN, MIXED] {
            let mut stream = jobs(text);
            let (rate, mean) = (stream.mean_rate().as_per_second(), stream.mean_service().as_nanos() as f64);
            let n = 400_000;
            let all: Vec<Job> = stream.by_ref().take(n).collect();
            let seen_rate = n as f64 / all[n - 1].at.as_secs_f64();
            assert!((seen_rate / rate - 1.0).abs() < 0.01, "{seen_rate}");
            let service: u64 = all.iter().map(|job| (job.compute + job.memory).as_nanos()).sum();
            assert!((service as f64 / n as f64 / mean - 1.0).abs() < 0.01, "{service}");
            assert!(all.windows(2).all(|w| w[0].at <= w[1].at && w[0].index + 1 == w[1].index));
        }
    }

    #[test]
    fn jobs_are_the_requests_of_the_load_generator() {
        let stream = jobs(MIXED);
        let profile = Profile::constant(Rate::per_second(80e3)).unwrap();
        let arrivals = Arrivals::new(ArrivalKind::Poisson, profile, 1);
        let workload = Workload { gets: Ratio::new(0.998), ..Workload::default() };
        let requests = Requests::new(&workload).unwrap();
        for (job, arrival) in stream.zip(arrivals).take(20_000) {
            assert_eq!((job.index, job.at), (arrival.index, arrival.at));
            let is_get = requests.request(job.index).op == Op::Get;
            assert_eq!(job.class == 0, is_get, "{}", job.index);
            assert_eq!(job.connection, requests.connection(job.index, 512));
        }
    }

    #[test]
    fn memory_time_is_its_share_of_the_service_time() {
        for job in jobs(MIXED).take(1000) {
            let whole = (job.compute + job.memory).as_nanos() as f64;
            let expected = if job.class == 0 { 0.3 * whole } else { 0.0 };
            assert!((job.memory.as_nanos() as f64 - expected).abs() <= 1.0, "{job:?}");
        }
        let stream = jobs(MIXED);
        assert_eq!(stream.classes()[0].deadline, Some(Duration::from_micros(300)));
        assert_eq!((stream.classes()[1].deadline, stream.connections()), (None, 512));
    }

    #[test]
    fn another_seed_gives_the_jobs_of_a_demand_with_that_seed() {
        let other = Demand { seed: 7, ..demand(MIXED) };
        let mut direct = other.jobs(Duration::from_secs(10)).unwrap();
        let mut stream = jobs(MIXED);
        stream.nth(100);
        let mut reseeded = stream.with_seed(7).unwrap();
        for _ in 0..1000 {
            assert_eq!(reseeded.next(), direct.next());
        }
        assert_ne!(stream.with_seed(8).unwrap().next(), stream.with_seed(7).unwrap().next());
    }

    #[test]
    fn a_trace_is_replayed_as_it_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("day.csv");
        std::fs::write(&path, "0,get,10us,3\n1,set,20us,0\n3,get,30us,1\n").unwrap();
        let text =
            format!("trace = \"{}\"\ncompression = 10\nmemory = 0.5\ndeadline = \"1ms\"", path.display());
        let mut stream = jobs(&text);
        assert_eq!((stream.connections(), stream.mean_rate().as_per_second()), (4, 10.0));
        assert_eq!(stream.mean_service(), Duration::from_micros(20));
        let classes: Vec<(&str, u64)> = stream
            .classes()
            .iter()
            .map(|class| (class.name.as_str(), class.mean_service.as_micros()))
            .collect();
        assert_eq!(classes, [("get", 20), ("set", 20)]);
        let seen: Vec<(u64, u64, u8, u32)> = stream
            .by_ref()
            .map(|job| (job.at.as_millis(), job.compute.as_micros(), job.class, job.connection))
            .collect();
        assert_eq!(seen, [(0, 5, 0, 3), (100, 10, 1, 0), (300, 15, 0, 1)]);
        assert!(stream.check().is_ok());
        assert_eq!(stream.with_seed(9).unwrap().count(), 3);

        let declared =
            format!("trace = \"{}\"\n[[class]]\nname = \"set\"\n[[class]]\nname = \"get\"", path.display());
        assert_eq!(jobs(&declared).map(|job| job.class).collect::<Vec<u8>>(), [1, 0, 1]);

        // A process writes to it while it is being replayed.
        let mut stream = jobs(&text);
        std::fs::write(&path, "0,get,10us\nnonsense\n").unwrap();
        let mut restarted = stream.with_seed(1).unwrap();
        assert_eq!(restarted.by_ref().count(), 1);
        assert!(restarted.check().unwrap_err().to_string().contains("day.csv:2"));
        assert!(stream.check().is_ok());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn streams_are_ordered_numbered_and_repeatable(
            seed: u64,
            rate in 0.1..1e7f64,
            count in 1u32..2000,
            zipf in 0.0..3.0f64,
            on in 0.05..1.0f64,
            kind in 0usize..3,
        ) {
            let demand = Demand {
                seed,
                rate: Some(Rate::per_second(rate)),
                arrivals: [ArrivalKind::Poisson, ArrivalKind::Hyperexponential(2.0), ArrivalKind::Uniform][kind],
                service: Some(Distribution::Lognormal { mean: Duration::from_micros(10), cv: 2.0 }),
                memory: Ratio::new(0.25),
                connections: Connections {
                    count, spread: Popularity::Zipf(zipf), on: Ratio::new(on), ..Connections::default()
                },
                ..Demand::default()
            };
            let stream = || demand.jobs(Duration::from_secs(1)).unwrap().take(200);
            let all: Vec<Job> = stream().collect();
            prop_assert!(stream().eq(all.iter().copied()));
            prop_assert!(all.windows(2).all(|w| w[0].at <= w[1].at && w[0].index + 1 == w[1].index));
            prop_assert!(all.iter().all(|job| job.connection < count));
        }
    }
}
