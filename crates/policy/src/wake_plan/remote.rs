//! When a remote client will send: when it says so (the CPU sleeps paper, section 2).
//!
//! A server cannot foresee independent clients; "anticipatory wakeups may only be possible if they
//! are requested in advance by remote clients". The paper stops there. Two things stand between a
//! client's word and the arrival: the network and the client's own scheduling jitter, both learned
//! as a band of errors, client by client; and announcements that nothing follows. A client that
//! breaks its word costs energy and gains nothing, so it is not believed while fewer than half of
//! its announcements were kept. It may earn belief again: its announcements are still compared with
//! its arrivals.

use super::band::{Band, BandParams};
use super::table::Table;
use super::{Prediction, Record};
use machine::{Duration, Instant, Ratio};
use serde::{Deserialize, Serialize};

/// A remote client, as the driver numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClientId(pub u64);

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RemoteParams {
    /// A client is believed while at least this share of its announcements is kept. 0.5 (ours).
    pub least_kept: Ratio,
    /// Over so many announcements is that share taken, as a running average. 16 (ours).
    pub kept_over: f64,
    /// How many clients are remembered. 1024 (ours).
    pub max_clients: u16,
    pub band: BandParams,
}

impl Default for RemoteParams {
    fn default() -> Self {
        Self { least_kept: Ratio::new(0.5), kept_over: 16.0, max_clients: 1024, band: BandParams::default() }
    }
}

/// An announcement: to be handed back when the work arrived, or was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Announced {
    pub client: ClientId,
    /// The time when the announcement arrived.
    pub at: Instant,
    /// In how long the client says it will send.
    pub after: Duration,
    /// When its work will arrive, counted from `at`; `None` if the client is not believed.
    pub prediction: Option<Prediction>,
}

/// The announcements of clients and their arrivals.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Announcements {
    params: RemoteParams,
    clients: Table<ClientId, Client>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Client {
    kept: f64,
    band: Band,
}

impl Announcements {
    pub fn new(params: RemoteParams) -> Self {
        Self { params, clients: Table::new(params.max_clients) }
    }

    /// A client says that it will send in `after`.
    pub fn handle_announced(&mut self, now: Instant, client: ClientId, after: Duration) -> Announced {
        let params = self.params;
        let known = self.clients.entry(client, || Client { kept: 1.0, band: Band::new(params.band) });
        let is_believed = known.kept >= params.least_kept.as_f64();
        let prediction = is_believed.then(|| known.band.around(after, 1.0)).flatten();
        Announced { client, at: now, after, prediction }
    }

    pub fn handle_arrived(&mut self, now: Instant, announced: &Announced) {
        let weight = self.weight();
        if let Some(client) = self.clients.find_mut(announced.client) {
            client.kept += (1.0 - client.kept) * weight;
            client.band.handle_came(announced.prediction, Some(announced.after), now.since(announced.at));
        }
    }

    /// The announced event did not come, and is not waited for any more.
    pub fn handle_given_up(&mut self, announced: &Announced) {
        let weight = self.weight();
        if let Some(client) = self.clients.find_mut(announced.client) {
            client.kept -= client.kept * weight;
            client.band.record.note_absent(announced.prediction);
        }
    }

    /// How the predictions for one client fared.
    pub fn record(&self, client: ClientId) -> Option<Record> {
        Some(self.clients.find(client)?.band.record)
    }

    /// How the predictions for all remembered clients fared.
    pub fn total(&self) -> Record {
        let mut total = Record::default();
        self.clients.values().for_each(|client| total += client.band.record);
        total
    }

    fn weight(&self) -> f64 {
        1.0 / self.params.kept_over.max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: ClientId = ClientId(4);

    /// One announcement of 400 us; the work comes after `us`, or never.
    fn announce(announcements: &mut Announcements, us: Option<u64>) -> Option<Prediction> {
        let announced = announcements.handle_announced(Instant::ZERO, CLIENT, Duration::from_micros(400));
        match us {
            Some(us) => announcements.handle_arrived(Instant::from_nanos(us * 1_000), &announced),
            None => announcements.handle_given_up(&announced),
        }
        announced.prediction
    }

    #[test]
    fn a_clients_jitter_becomes_its_window() {
        let mut announcements = Announcements::new(RemoteParams::default());
        // +-20 % about 450 us, one in ten never.
        for n in 0..1000_u64 {
            let us = 370 + (n * 37) % 161;
            announce(&mut announcements, (n % 10 != 9).then_some(us));
        }
        let record = announcements.record(CLIENT).unwrap();
        assert_eq!((record.absent, record.unpredicted), (100, 0));
        assert!((0.78..0.9).contains(&record.hit_rate().as_f64()), "{record:?}");
        let prediction = announce(&mut announcements, Some(400)).unwrap();
        assert!(prediction.earliest > Duration::from_micros(365), "{prediction:?}");
        assert!(prediction.latest < Duration::from_micros(535), "{prediction:?}");
    }

    #[test]
    fn a_client_that_breaks_its_word_is_believed_again_when_it_keeps_it() {
        let mut announcements = Announcements::new(RemoteParams::default());
        let doubted_after = (0..40).find(|_| announce(&mut announcements, None).is_none());
        assert_eq!(doubted_after, Some(11));
        for _ in 0..20 {
            announce(&mut announcements, None);
        }
        let believed_after = (0..40).find(|_| announce(&mut announcements, Some(400)).is_some());
        assert!(believed_after.is_some_and(|kept| (5..16).contains(&kept)), "{believed_after:?}");
    }

    #[test]
    fn clients_do_not_share_their_reputation() {
        let mut announcements = Announcements::new(RemoteParams::default());
        for _ in 0..40 {
            announce(&mut announcements, None);
        }
        let other = announcements.handle_announced(Instant::ZERO, ClientId(5), Duration::from_micros(400));
        assert!(other.prediction.is_some());
        assert_eq!(announcements.total().absent, 11);
    }
}
