package roost.agent;

import static roost.agent.Layout.*;

import java.nio.MappedByteBuffer;

/**
 * The calls of watched methods: {@link #enter} first, {@link #exit} on every way out, with the
 * value that enter returned.
 *
 * <p>The server's own threads run this, so it never waits, never throws and, a thread's first call
 * aside, never allocates. The file and its mapping are constants of this class, so that the
 * compiler folds them: {@link Installed} holds them before any code touches this class.
 *
 * <p>If the file is cut short under us, the JVM turns the fault into an {@link InternalError},
 * which it throws a little later, wherever the thread then is. So the first word that is read each
 * time carries a check, and when that is wrong the thread stays here until the error has come,
 * catches it, and the hook is off for good.
 */
public final class Hook {
    private static final SlotFile FILE = Installed.file;
    private static final MappedByteBuffer MAP = FILE.map;
    private static final boolean HAS_EVENTS = FILE.events != 0;
    private static final ThreadLocal<ThreadSlot> SLOT = new ThreadLocal<>();
    /**
     * The class of virtual threads, where this JVM has them. They change carriers inside a call: no
     * slot can tell.
     */
    private static final Class<?> VIRTUAL = virtualThreads();

    private static final String CUT_SHORT =
            "the slot file was cut short; the hook is off until the server is restarted";

    /** Not volatile: to notice it a little late costs nothing. */
    private static boolean isOff;

    private Hook() {}

    /** The thread enters that method; the result goes to {@link #exit}. */
    public static int enter(int method) {
        if (isOff) {
            return ThreadSlot.NOT_RECORDED;
        }
        try {
            long enable = (long) WORD64.getOpaque(MAP, ENABLE);
            if ((int) (enable >>> 32) != CHECK_WORD) {
                return lost();
            }
            if ((enable & ENABLE_HOOK) == 0) {
                return ThreadSlot.NOT_RECORDED;
            }
            Thread thread = Thread.currentThread();
            if (thread.getClass() == VIRTUAL) {
                FILE.count(VIRTUAL_THREADS);
                return ThreadSlot.NOT_RECORDED;
            }
            ThreadSlot slot = SLOT.get();
            if (slot == null || slot.isTired()) {
                slot = register(thread);
            }
            return slot.enter(method, System.nanoTime());
        } catch (Throwable failure) {
            return fail(failure);
        }
    }

    /** The call is over that returned {@code token}. */
    public static void exit(int token, int method) {
        if (token == ThreadSlot.NOT_RECORDED || isOff) {
            return;
        }
        try {
            long enable = (long) WORD64.getOpaque(MAP, ENABLE);
            if ((int) (enable >>> 32) != CHECK_WORD) {
                lost();
                return;
            }
            boolean wantsTime = (enable & ENABLE_EXIT_TIMES) != 0;
            long now = wantsTime || HAS_EVENTS ? System.nanoTime() : 0;
            ThreadSlot.exit(FILE, token, method, wantsTime, now);
        } catch (Throwable failure) {
            fail(failure);
        }
    }

    private static ThreadSlot register(Thread thread) {
        int tid = Kernel.threadNumber();
        if (tid < 0) {
            FILE.count(NO_TID);
        }
        ThreadSlot slot = FILE.register(thread, tid);
        SLOT.set(slot);
        return slot;
    }

    /**
     * The file was cut short: waits until the JVM's error has come, which it does when a native
     * method returns.
     */
    private static int lost() {
        isOff = true;
        try {
            for (int i = 0; i < 3; i++) {
                Thread.yield();
            }
        } catch (InternalError fault) {
            // The one that was waited for.
        }
        say(CUT_SHORT);
        return ThreadSlot.NOT_RECORDED;
    }

    private static int fail(Throwable failure) {
        if (failure instanceof StackOverflowError) {
            // The server's own affair; this call is not recorded.
            return ThreadSlot.NOT_RECORDED;
        }
        isOff = true;
        try {
            if (failure instanceof InternalError) {
                // The JVM's word for a fault in a mapped file.
                say(CUT_SHORT);
                return ThreadSlot.NOT_RECORDED;
            }
            say("the hook is off: " + failure);
            FILE.count(ERRORS);
        } catch (Throwable again) {
            // There is no receiver left to tell.
        }
        return ThreadSlot.NOT_RECORDED;
    }

    private static void say(String what) {
        System.err.println("roost-agent: " + what);
    }

    private static Class<?> virtualThreads() {
        try {
            return Class.forName("java.lang.VirtualThread", false, null);
        } catch (ClassNotFoundException olderThan21) {
            return null;
        }
    }
}
