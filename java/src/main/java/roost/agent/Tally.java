package roost.agent;

import java.util.concurrent.atomic.AtomicLongArray;

/**
 * The hook of counted methods ({@link Count}): how many calls from outside, and how long each took.
 *
 * <p>It costs more than {@link Hook} (two readings of the clock, two shared counters), and is there
 * for seconds. A call that began under one count, or under none, ends under no other.
 */
public final class Tally {
    /** Buckets to each doubling of a time. */
    private static final int FINE_BITS = 4;

    static final int BUCKETS = (64 - FINE_BITS) << FINE_BITS;

    private static volatile Run run;

    private Tally() {}

    /** One count's figures. */
    static final class Run {
        private final int number;
        private final AtomicLongArray calls;
        private final AtomicLongArray[] times;
        private final ThreadLocal<long[]> threads;

        Run(int number, int methods) {
            this.number = number;
            this.calls = new AtomicLongArray(methods);
            this.times = new AtomicLongArray[methods];
            for (int i = 0; i < methods; i++) {
                times[i] = new AtomicLongArray(BUCKETS);
            }
            // For each method: in how many calls the thread is, and when the outermost began.
            this.threads = ThreadLocal.withInitial(() -> new long[2 * methods]);
        }

        long calls(int method) {
            return calls.get(method);
        }

        long times(int method, int bucket) {
            return times[method].get(bucket);
        }
    }

    /** From now on this one is counted for; null: no process counts. */
    static void install(Run next) {
        run = next;
    }

    /** The thread enters that method; the result goes to {@link #exit}. */
    public static int enter(int method) {
        Run now = run;
        if (now == null) {
            return ThreadSlot.NOT_RECORDED;
        }
        try {
            long[] own = now.threads.get();
            if (own[2 * method]++ == 0) {
                now.calls.getAndIncrement(method);
                own[2 * method + 1] = System.nanoTime();
            }
            return now.number;
        } catch (Throwable failure) {
            // No memory, no stack: the server's own affair, and this call is not recorded.
            return ThreadSlot.NOT_RECORDED;
        }
    }

    /** The call is over that returned {@code token}. */
    public static void exit(int token, int method) {
        Run now = run;
        if (token == ThreadSlot.NOT_RECORDED || now == null || now.number != token) {
            return;
        }
        try {
            long[] own = now.threads.get();
            if (--own[2 * method] == 0) {
                now.times[method].getAndIncrement(bucket(System.nanoTime() - own[2 * method + 1]));
            }
        } catch (Throwable failure) {
            // As above.
        }
    }

    static int bucket(long nanos) {
        long time = Math.max(nanos, 0);
        int octave = Math.max(63 - Long.numberOfLeadingZeros(time | 1) - FINE_BITS, 0);
        return (octave << FINE_BITS) + (int) (time >>> octave);
    }

    /** The shortest time that falls into it. */
    static long lower(int bucket) {
        int octave = Math.max((bucket >> FINE_BITS) - 1, 0);
        return (long) (bucket - (octave << FINE_BITS)) << octave;
    }
}
