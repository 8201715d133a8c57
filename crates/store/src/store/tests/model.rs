//! Random commands against a map that does the same the plain way.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
enum Step {
    Put { key: u8, len: usize, exptime: u32, flags: u32 },
    Around { key: u8, before: usize, after: usize },
    Get { key: u8 },
    Change { key: u8 },
    Touch { key: u8, exptime: u32 },
    Remove { key: u8 },
    Flush { delay: u32 },
    Wait { seconds: u32 },
}

#[derive(Clone, Debug)]
struct Known {
    value: Vec<u8>,
    flags: u32,
    exptime: u32,
    cas: u64,
    touched: u32,
}

fn length() -> impl Strategy<Value = usize> {
    prop_oneof![8 => 0..200usize, 3 => 200..6_000usize, 1 => 6_000..60_000usize]
}

fn step() -> impl Strategy<Value = Step> {
    let exptime = || prop_oneof![3 => Just(0), 2 => 3..60u32];
    prop_oneof![
        8 => (any::<u8>(), length(), exptime(), prop_oneof![Just(0), any::<u32>()])
            .prop_map(|(key, len, exptime, flags)| Step::Put { key, len, exptime, flags }),
        2 => (any::<u8>(), 0..50usize, 0..3_000usize)
            .prop_map(|(key, before, after)| Step::Around { key, before, after }),
        8 => any::<u8>().prop_map(|key| Step::Get { key }),
        1 => any::<u8>().prop_map(|key| Step::Change { key }),
        1 => (any::<u8>(), exptime()).prop_map(|(key, exptime)| Step::Touch { key, exptime }),
        2 => any::<u8>().prop_map(|key| Step::Remove { key }),
        1 => prop_oneof![Just(0), 1..6u32].prop_map(|delay| Step::Flush { delay }),
        2 => (1..4u32).prop_map(|seconds| Step::Wait { seconds }),
    ]
}

/// Plays the steps. With `misses_allowed` the store may have dropped any item, but never shows any
/// value but the one stored last.
fn play(store: &Store, steps: &[Step], misses_allowed: bool) {
    let mut model: BTreeMap<u8, Known> = BTreeMap::new();
    let (mut now, mut due) = (2, 0);
    for (version, step) in steps.iter().enumerate() {
        if due != 0 && due <= now {
            model.retain(|_, known| known.touched >= due);
            due = 0;
        }
        model.retain(|_, known| known.exptime == 0 || known.exptime > now);
        match *step {
            Step::Put { key, len, exptime, flags } => {
                let value = stamped(key.into(), version as u32, len);
                let item =
                    NewItem { flags, exptime, value: &[&value[..len / 3], &value[len / 3..]], cas: None };
                match store.entry(&[key, b'k'], now).put(item) {
                    Ok(cas) => {
                        let known = Known { value, flags, exptime, cas, touched: now };
                        let before = model.insert(key, known);
                        assert!(before.is_none_or(|before| before.cas < cas));
                    }
                    Err(error) => {
                        assert!(misses_allowed && error == StoreError::OutOfMemory);
                        model.remove(&key);
                    }
                }
            }
            Step::Around { key, before, after } => {
                let (before, after) = (vec![b'<'; before], vec![b'>'; after]);
                match store.entry(&[key, b'k'], now).put_around(&before, &after, None) {
                    None => {
                        assert!(misses_allowed || !model.contains_key(&key));
                        model.remove(&key);
                    }
                    Some(Ok(cas)) => {
                        let known = model.get_mut(&key).expect("the model has all that the store has");
                        known.value = [&before[..], &known.value, &after].concat();
                        assert!(known.cas < cas);
                        (known.cas, known.touched) = (cas, now);
                    }
                    Some(Err(_)) => {
                        assert!(misses_allowed);
                        model.remove(&key);
                    }
                }
            }
            Step::Get { key } => {
                let name = [key, b'k'];
                let mut entry = store.entry(&name, now);
                entry.bump();
                match (entry.item(), model.get_mut(&key)) {
                    (Some(item), Some(known)) => {
                        assert_eq!((item.value, item.flags), (&known.value[..], known.flags));
                        assert_eq!((item.exptime, item.cas), (known.exptime, known.cas));
                        known.touched = now;
                    }
                    (None, None) => (),
                    (None, Some(_)) if misses_allowed => drop(model.remove(&key)),
                    (found, known) => panic!("{found:?} instead of {known:?} at step {version}"),
                }
            }
            Step::Change { key } => {
                let name = [key, b'k'];
                let mut entry = store.entry(&name, now);
                let Some(value) = entry.value_mut() else { continue };
                value.iter_mut().for_each(|byte| *byte = !*byte);
                let cas = entry.fresh_cas(None);
                let known = model.get_mut(&key).expect("the model has all that the store has");
                known.value.iter_mut().for_each(|byte| *byte = !*byte);
                assert!(known.cas < cas);
                known.cas = cas;
            }
            Step::Touch { key, exptime } => {
                store.entry(&[key, b'k'], now).set_exptime(exptime);
                if let Some(known) = model.get_mut(&key) {
                    known.exptime = exptime;
                }
            }
            Step::Remove { key } => {
                let removed = store.entry(&[key, b'k'], now).remove();
                let known = model.remove(&key).is_some();
                assert!(removed == known || misses_allowed && known);
            }
            Step::Flush { delay: 0 } => {
                // Any request tells the store the time.
                store.entry(b"time", now);
                store.flush_all(now);
                model.clear();
                due = 0;
            }
            Step::Flush { delay } => {
                store.flush_all(now + delay);
                due = now + delay;
            }
            Step::Wait { seconds } => {
                // A due flush takes effect with the first request after it.
                for _ in 0..seconds {
                    now += 1;
                    store.entry(b"time", now);
                    if due == now {
                        model.retain(|_, known| known.touched >= due);
                        due = 0;
                    }
                }
            }
        }
        assert!(store.budget().used() <= store.budget().limit());
        if version % 64 == 0 {
            audit(store);
        }
    }
    audit(store);
}

fn cases(cases: u32) -> ProptestConfig {
    let cases = if cfg!(miri) { 1 } else { cases };
    ProptestConfig { cases, failure_persistence: None, ..Default::default() }
}

proptest! {
    #![proptest_config(cases(64))]

    #[test]
    fn with_memory_to_spare_it_is_a_map(
        steps in prop::collection::vec(step(), 1..if cfg!(miri) { 60 } else { 600 })
    ) {
        play(&store(if cfg!(miri) { 8 } else { 64 } << 20, Some(1)), &steps, cfg!(miri));
    }

    #[test]
    fn short_of_memory_it_forgets_but_never_errs(
        steps in prop::collection::vec(step(), 1..if cfg!(miri) { 60 } else { 1500 })
    ) {
        play(&small(), &steps, true);
    }
}
