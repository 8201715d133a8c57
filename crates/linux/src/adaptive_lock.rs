//! A lock that is held for microseconds, taken by threads that must not sleep for it.
//!
//! A mutex lets who finds it taken sleep, and its CPU with it, if nothing else is to be done there: microseconds of waiting become the exit
//! latency of an idle state and the way back through the scheduler. Two helpers of the wake planner whose windows begin at the same moment met so again
//! and again, and one of the two CPUs that should have been awake was asleep. So the wait is spun, as long as a holder that runs may take, and only
//! then slept.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// Longer than any holder that is running keeps it: two writes of an idle limit. One that does not run is waited for asleep.
const LONGEST: Duration = Duration::from_micros(50);

/// Takes a lock that is held briefly. A panic of another holder leaves what is guarded as it was: fit for this only what each holder leaves whole.
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
                // Longer than anybody spins.
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
