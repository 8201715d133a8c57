use super::*;

/// A segment of its own for one record.
struct Room(Vec<u64>);

impl Room {
    fn new() -> Self {
        Self(vec![u64::MAX; 64])
    }

    fn record(&mut self) -> Record {
        // SAFETY: aligned room that nothing else uses while the test runs.
        unsafe { Record::at(NonNull::new(self.0.as_mut_ptr().cast()).unwrap()) }
    }
}

const FRESH: Fresh = Fresh { cas: 7, exptime: 9, now: 5, generation: 3, frequency: 0 };

#[test]
fn the_usual_item_takes_144_bytes() {
    assert_eq!(Shape::new(20, 0, 100, 4096).record_len(), 144);
}

#[test]
fn what_was_written_is_read_back() {
    for (flags, value) in [(0, &b"value"[..]), (1, b""), (u32::MAX, b"12345678")] {
        let mut room = Room::new();
        let record = room.record();
        let shape = Shape::new(3, flags, value.len(), 4096);
        record.write(&shape, b"key", flags, None, FRESH);
        record.fill(&[&value[..value.len() / 2], &value[value.len() / 2..]]);
        assert_eq!((record.key(), record.value(), record.flags()), (&b"key"[..], value, flags));
        assert_eq!(record.shape(), shape);
        assert_eq!((record.header().cas, record.header().exptime, record.header().generation), (7, 9, 3));
        assert!(!record.header().is_dead());
        assert!(room.0[shape.record_len() / 8..].iter().all(|&word| word == u64::MAX), "wrote past its end");
    }
}

#[test]
fn a_large_value_lies_in_its_own_slot() {
    let (mut room, mut slot) = (Room::new(), vec![0u8; 1000]);
    let record = room.record();
    let shape = Shape::new(3, 5, 1000, 256);
    assert_eq!((shape.record_len(), shape.large_len()), (40, 1000));
    record.write(&shape, b"key", 5, NonNull::new(slot.as_mut_ptr()), FRESH);
    record.fill(&[&[1; 400], &[2; 600]]);
    assert_eq!((record.value()[0], record.value()[999], record.flags()), (1, 2, 5));
}

#[test]
fn frequency_saturates_and_leaves_the_other_marks_alone() {
    let mut room = Room::new();
    let record = room.record();
    record.write(&Shape::new(1, 0, 0, 4096), b"k", 0, None, FRESH);
    record.header_mut().mark(STALE, true);
    for expected in [1, 2, 3, 3] {
        let header = record.header_mut();
        header.set_frequency(header.frequency() + 1);
        assert_eq!(header.frequency(), expected);
    }
    record.kill();
    assert!(record.header().has(STALE) && record.header().is_dead() && !record.header().has(WIN_SENT));
}

#[test]
fn only_the_same_room_is_written_over() {
    let shape = |flags, len| Shape::new(20, flags, len, 4096);
    assert!(shape(0, 100).fits_over(&shape(0, 93)));
    assert!(!shape(0, 100).fits_over(&shape(0, 92)));
    assert!(!shape(1, 100).fits_over(&shape(0, 100)));
    assert!(shape(0, 8000).fits_over(&shape(0, 5000)), "the same two pages");
    assert!(!shape(0, 9000).fits_over(&shape(0, 5000)));
    assert!(!shape(0, 5000).fits_over(&shape(0, 8)));
}
