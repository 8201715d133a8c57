//! A run as a trace that `ui.perfetto.dev` opens: tracks with slices and instants, counters, and
//! flows between them.
//!
//! A trace is a sequence of packets, so it is written as the run goes: memory stays the same however
//! long that is, and a killed run leaves its beginning. The first error ends the trace and is
//! kept for the end; it ends no run.
//!
//! The messages are those of Perfetto's `protos/perfetto/trace`, with the fields that are used here.
//! Times are nanoseconds of `CLOCK_MONOTONIC`, or of simulated time.

use machine::Instant;
use os::{SafeError, SafeFolder};
use prost::Message;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

// `builtin_clock.proto`: BUILTIN_CLOCK_MONOTONIC.
const MONOTONIC: u32 = 3;
// `trace_packet.proto`: SEQ_INCREMENTAL_STATE_CLEARED.
const BEGINS: u32 = 1;
// `track_event.proto`: TrackEvent.Type.
const SLICE_BEGIN: i32 = 1;
const SLICE_END: i32 = 2;
const INSTANT: i32 = 3;
const COUNTER: i32 = 4;

#[derive(Message)]
struct Packets {
    #[prost(message, repeated, tag = "1")]
    packet: Vec<Packet>,
}

#[derive(Message)]
struct Packet {
    #[prost(uint64, optional, tag = "8")]
    timestamp: Option<u64>,
    #[prost(uint32, tag = "10")]
    trusted_packet_sequence_id: u32,
    #[prost(message, optional, tag = "11")]
    track_event: Option<Event>,
    #[prost(uint32, tag = "13")]
    sequence_flags: u32,
    #[prost(uint32, optional, tag = "58")]
    timestamp_clock_id: Option<u32>,
    #[prost(message, optional, tag = "60")]
    track_descriptor: Option<Descriptor>,
}

#[derive(Message)]
struct Descriptor {
    #[prost(uint64, tag = "1")]
    uuid: u64,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(uint64, optional, tag = "5")]
    parent_uuid: Option<u64>,
    #[prost(message, optional, tag = "8")]
    counter: Option<CounterDescriptor>,
}

#[derive(Message)]
struct CounterDescriptor {
    #[prost(string, tag = "6")]
    unit_name: String,
}

#[derive(Message)]
struct Event {
    #[prost(message, repeated, tag = "4")]
    debug_annotations: Vec<Note>,
    #[prost(int32, tag = "9")]
    r#type: i32,
    #[prost(uint64, tag = "11")]
    track_uuid: u64,
    #[prost(string, optional, tag = "23")]
    name: Option<String>,
    #[prost(double, optional, tag = "44")]
    double_counter_value: Option<f64>,
    #[prost(fixed64, repeated, packed = "false", tag = "47")]
    flow_ids: Vec<u64>,
}

#[derive(Message)]
struct Note {
    #[prost(string, tag = "6")]
    string_value: String,
    #[prost(string, tag = "10")]
    name: String,
}

/// A row of the trace, which holds slices, instants or one counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Track(u64);

/// An arrow of a trace, from event to event in order of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow(pub u64);

/// The trace while it is written. Times of one track must not go back.
pub struct Trace<W: Write> {
    out: W,
    tracks: u64,
    failed: Option<io::Error>,
}

impl Trace<BufWriter<File>> {
    /// Writes to the file that the user named, or to a device; root follows no link of others.
    pub fn create(path: &Path) -> Result<Self, SafeError> {
        SafeFolder::begin(path, 0o666).map(|file| Self::to(BufWriter::new(file)))
    }
}

impl<W: Write> Trace<W> {
    pub fn to(out: W) -> Self {
        Self { out, tracks: 0, failed: None }
    }

    /// A track below `parent`.
    pub fn track(&mut self, name: &str, parent: Option<Track>) -> Track {
        self.described(name, parent, None)
    }

    /// A track of one number over time, in `unit`.
    pub fn counter(&mut self, name: &str, unit: &str, parent: Option<Track>) -> Track {
        self.described(name, parent, Some(CounterDescriptor { unit_name: unit.to_owned() }))
    }

    /// A slice begins.
    pub fn begin(&mut self, at: Instant, on: Track, name: &str, flow: Option<Flow>) {
        self.event(at, on, SLICE_BEGIN, |event| {
            event.name = Some(name.to_owned());
            event.flow_ids.extend(flow.map(|flow| flow.0));
        });
    }

    /// The last slice that has begun on the track ends.
    pub fn end(&mut self, at: Instant, on: Track) {
        self.event(at, on, SLICE_END, |_| {});
    }

    /// Something happens that takes no time; `notes` are shown when it is chosen.
    pub fn instant(
        &mut self,
        at: Instant,
        on: Track,
        name: &str,
        notes: &[(&str, &str)],
        flow: Option<Flow>,
    ) {
        self.event(at, on, INSTANT, |event| {
            event.name = Some(name.to_owned());
            event.flow_ids.extend(flow.map(|flow| flow.0));
            let note = |(name, text): &(&str, &str)| Note {
                name: (*name).to_owned(),
                string_value: (*text).to_owned(),
            };
            event.debug_annotations = notes.iter().map(note).collect();
        });
    }

    /// A counter's value from now on.
    pub fn value(&mut self, at: Instant, of: Track, value: f64) {
        self.event(at, of, COUNTER, |event| event.double_counter_value = Some(value));
    }

    /// Writes out all that is held back; the first error if there was one.
    pub fn finish(mut self) -> io::Result<()> {
        match self.failed {
            Some(error) => Err(error),
            None => self.out.flush(),
        }
    }

    /// Writes out all that is held back, and says where the trace is or why there is none.
    pub fn end_at(self, path: &Path) -> String {
        let path = path.display();
        match self.finish() {
            Ok(()) => format!("trace: {path} (open it in ui.perfetto.dev)"),
            Err(error) => format!("the trace {path} is cut off: {error}"),
        }
    }

    fn described(&mut self, name: &str, parent: Option<Track>, counter: Option<CounterDescriptor>) -> Track {
        self.tracks += 1;
        let track = Track(self.tracks);
        let descriptor = Descriptor {
            uuid: track.0,
            name: name.to_owned(),
            parent_uuid: parent.map(|parent| parent.0),
            counter,
        };
        self.write(Packet { track_descriptor: Some(descriptor), ..Packet::default() });
        track
    }

    fn event(&mut self, at: Instant, on: Track, kind: i32, fill: impl FnOnce(&mut Event)) {
        let mut event = Event { r#type: kind, track_uuid: on.0, ..Event::default() };
        fill(&mut event);
        self.write(Packet {
            timestamp: Some(at.as_nanos()),
            timestamp_clock_id: Some(MONOTONIC),
            track_event: Some(event),
            ..Packet::default()
        });
    }

    fn write(&mut self, mut packet: Packet) {
        if self.failed.is_some() {
            return;
        }
        packet.trusted_packet_sequence_id = 1;
        packet.sequence_flags =
            if self.tracks == 1 && packet.track_descriptor.is_some() { BEGINS } else { 0 };
        let bytes = Packets { packet: vec![packet] }.encode_to_vec();
        self.failed = self.out.write_all(&bytes).err();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn packets_read_back_in_order() {
        let mut bytes = Vec::new();
        let mut trace = Trace::to(&mut bytes);
        let service = trace.track("cache", None);
        let rate = trace.counter("rate", "requests/s", Some(service));
        trace.begin(Instant::from_nanos(5), service, "epoch", Some(Flow(7)));
        trace.value(Instant::from_nanos(6), rate, 2.5);
        trace.end(Instant::from_nanos(8), service);
        trace.instant(Instant::from_nanos(8), service, "2 cores", &[("why", "the tail")], Some(Flow(7)));
        trace.finish().unwrap();
        let packets = Packets::decode(&*bytes).unwrap().packet;
        assert_eq!(packets.len(), 6);
        assert_eq!(packets[0].sequence_flags, BEGINS);
        let descriptor = packets[1].track_descriptor.as_ref().unwrap();
        assert_eq!(descriptor.parent_uuid, Some(service.0));
        assert_eq!(descriptor.counter.as_ref().unwrap().unit_name, "requests/s");
        let events: Vec<&Event> = packets.iter().filter_map(|packet| packet.track_event.as_ref()).collect();
        assert_eq!(events.iter().map(|event| event.r#type).collect::<Vec<_>>(), [1, 4, 2, 3]);
        assert_eq!((&events[0].flow_ids, &events[3].flow_ids), (&vec![7], &vec![7]));
        assert_eq!(events[3].debug_annotations[0].string_value, "the tail");
        assert!(packets.iter().filter_map(|packet| packet.timestamp).is_sorted());
    }

    #[test]
    fn root_follows_no_link_in_a_folder_that_others_can_write() {
        let folder = tempfile::tempdir().unwrap();
        let (link, target) = (folder.path().join("link"), folder.path().join("target"));
        std::fs::write(&target, "kept").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        if rustix::process::getuid().is_root() {
            assert!(Trace::create(&link).is_err());
            assert_eq!(std::fs::read_to_string(&target).unwrap(), "kept");
        }
        Trace::create(&folder.path().join("new")).unwrap().finish().unwrap();
    }

    #[test]
    fn the_first_error_is_kept_and_nothing_panics() {
        let mut trace = Trace::create(Path::new("/dev/full")).unwrap();
        let track = trace.track("cache", None);
        for at in 0..10_000 {
            trace.instant(Instant::from_nanos(at), track, "again", &[], None);
        }
        assert_eq!(trace.finish().unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
}
