//! A lock that is held for microseconds, taken by threads that must not sleep for it.
//!
//! A mutex puts a thread that finds it taken to sleep, and its CPU with it if nothing else is to be
//! done there. Then microseconds of waiting become the exit latency of an idle state and a pass
//! through the scheduler. Two threads of the wake planner whose windows begin at the same moment
//! met like this again and again, and one of the two CPUs that should have been awake was asleep.
//! So the lock spins as long as a holder that runs may take, and only then sleeps.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// Longer than any running holder keeps it: two writes of an idle limit. For a holder that does not
/// run, the thread sleeps.
const LONGEST: Duration = Duration::from_micros(50);

/// Takes a lock that is held briefly. After a panic of another holder the guarded value stays as
/// the panic left it. So use this only for values that are whole between any two statements of a
/// holder.
pub fn lock_spinning<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    let mut begun = None;
    loop {
        match lock.try_lock() {
            Ok(guard) => return guard,
            Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {}
        }
        if begun.get_or_insert_with(Instant::now).elapsed() > LONGEST {
            return lock.lock().unwrap_or_else(PoisonError::into_inner);
        }
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn what_is_held_briefly_and_what_is_held_for_long_are_both_waited_for() {
        let lock = Mutex::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1000).for_each(|_| *lock_spinning(&lock) += 1));
            }
        });
        assert_eq!(*lock_spinning(&lock), 4000);
        let (held, is_held) = channel();
        let (asked, is_asked) = channel();
        let shared = &lock;
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut guard = lock_spinning(shared);
                held.send(()).unwrap();
                is_asked.recv().unwrap();
                // Longer than the lock spins.
                std::thread::sleep(20 * LONGEST);
                *guard = 1;
            });
            is_held.recv().unwrap();
            asked.send(()).unwrap();
            assert_eq!(*lock_spinning(&lock), 1);
        });
    }

    #[test]
    fn a_panic_while_it_was_held_keeps_nobody_out() {
        let lock = Mutex::new(7);
        std::thread::scope(|scope| {
            let panics = scope.spawn(|| {
                let _guard = lock_spinning(&lock);
                panic!("as is wanted here");
            });
            assert!(panics.join().is_err());
        });
        assert_eq!(*lock_spinning(&lock), 7);
    }
}
