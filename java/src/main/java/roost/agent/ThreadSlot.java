package roost.agent;

import static roost.agent.Layout.*;

import java.lang.invoke.VarHandle;
import java.nio.MappedByteBuffer;

/**
 * A thread's slot, written by that thread alone.
 *
 * <p>Sequence, depth and method are one word of 64 bits and change in one store. Enter: a store
 * fence (so that nothing of this call is seen before the last exit), the time, then that word with
 * release. There is no full fence between it and the look at "asleep": the reader makes up for it,
 * because it sleeps seldom and calls are many.
 */
final class ThreadSlot {
    /** A token for a call that is not recorded; its exit does nothing. */
    static final int NOT_RECORDED = 0;

    private static final int DEPTH_MAX = 65_534;
    /** Enters without a slot, after which one is looked for again. */
    private static final int MISSES = 1024;

    private final SlotFile file;
    private final MappedByteBuffer map;
    private final int events;
    private final int index;
    private final int tid;
    private int misses;

    ThreadSlot(SlotFile file, int index, int tid) {
        this.file = file;
        this.map = file.map;
        this.events = file.events;
        this.index = index;
        this.tid = tid;
    }

    boolean hasRoom() {
        return index >= 0;
    }

    int index() {
        return index;
    }

    /** Whether it is time to ask for a slot again. */
    boolean isTired() {
        return index < 0 && ++misses >= MISSES;
    }

    /**
     * The thread is inside. The returned value goes to {@link #exit}: the slot, and the depth
     * before.
     */
    int enter(int method, long now) {
        if (index < 0) {
            file.count(NO_SLOT);
            return NOT_RECORDED;
        }
        int offset = slotOffset(index);
        // Only this thread writes it.
        long state = (long) WORD64.get(map, offset);
        int depth = (int) (state >>> 32) & 0xffff;
        if (depth == 0) {
            VarHandle.storeStoreFence();
            WORD64.setOpaque(map, offset + ENTERED_AT, now);
            state = state + 1 & 0xffff_ffffL | 1L << 32 | (long) method << 48;
        } else if (depth < DEPTH_MAX) {
            WORD64.setOpaque(map, offset + NESTED, (long) WORD64.get(map, offset + NESTED) + 1);
            state += 1L << 32;
        } else {
            file.count(TOO_DEEP);
            return NOT_RECORDED;
        }
        WORD64.setRelease(map, offset, state);
        if (events != 0) {
            file.record(now, tid, method, ENTER, state);
        }
        if ((int) WORD32.getOpaque(map, ASLEEP) != 0) {
            file.ring();
        }
        return index + 1 << 16 | depth;
    }

    /**
     * When a call is over; calls inside it that never told their end are over too. Once more does
     * nothing.
     */
    static void exit(SlotFile file, int token, int method, boolean wantsTime, long now) {
        MappedByteBuffer map = file.map;
        int offset = slotOffset((token >>> 16) - 1);
        int depth = token & 0xffff;
        long state = (long) WORD64.get(map, offset);
        if (((int) (state >>> 32) & 0xffff) <= depth) {
            return;
        }
        if (depth == 0) {
            if (wantsTime) {
                WORD64.setOpaque(map, offset + EXITED_AT, now);
            }
            state = state & 0xffff_0000_0000_0000L | state + 1 & 0xffff_ffffL;
        } else {
            state = state & 0xffff_0000_ffff_ffffL | (long) depth << 32;
        }
        WORD64.setRelease(map, offset, state);
        if (file.events != 0) {
            file.record(now, file.map32(offset + TID), method, EXIT, state);
        }
    }
}
