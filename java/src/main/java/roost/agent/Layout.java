package roost.agent;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;

/**
 * Where everything is in a slot file: docs/formats.md, "Hot-function slots";
 * crates/slots/src/layout.rs is its twin.
 */
final class Layout {
    static final byte[] MAGIC = {'R', 'O', 'O', 'S', 'T', 'H', 'O', 'T'};
    static final int FILE_VERSION = 1;
    static final int METHODS_MAX = 64;
    static final int SLOTS_MAX = 16_384;
    static final int EVENTS_MAX = 1 << 20;

    static final int VERSION = 8;
    static final int SLOT_COUNT = 12;
    static final int EVENT_COUNT = 16;
    static final int FLAGS = 20;
    static final int PID = 24;
    static final int METHOD_COUNT = 28;
    static final int PROCESS_STARTED = 32;
    static final int BOOT_ID = 40;
    static final int ENABLE = 64;
    static final int CHECK = 68;
    static final int ASLEEP = 72;
    static final int DOORBELL = 76;
    static final int NO_SLOT = 128;
    static final int NO_TID = 136;
    static final int VIRTUAL_THREADS = 144;
    static final int TOO_DEEP = 152;
    static final int NOT_RUNG = 160;
    static final int ERRORS = 168;
    static final int EVENTS_LOST = 176;
    static final int SLOTS_USED = 184;
    static final int EVENT_HEAD = 192;
    static final int WRITER = 256;
    static final int WRITER_LENGTH = 64;

    static final int FLAG_CANNOT_RING = 1;
    static final int ENABLE_HOOK = 1;
    static final int ENABLE_EXIT_TIMES = 2;
    /** "ROST": the value at CHECK, for as long as there is a file. */
    static final int CHECK_WORD = 0x54534f52;

    static final int METHODS = 4096;
    static final int METHOD = 512;
    static final int METHOD_NAME = METHOD - 8;
    static final int WAITING = 0;
    static final int WATCHED = 1;
    static final int REFUSED = 2;

    static final int SLOTS = METHODS + METHODS_MAX * METHOD;
    static final int SLOT = 64;
    static final int STATE = 0;
    static final int ENTERED_AT = 8;
    static final int EXITED_AT = 16;
    static final int NESTED = 24;
    static final int TID = 32;
    static final int CLAIMS = 36;

    static final int EVENT = 32;
    static final int EVENT_AT = 8;
    static final int EVENT_WHAT = 16;
    static final int EVENT_STATE = 24;
    static final long BUSY = -1;
    static final int ENTER = 1;
    static final int EXIT = 2;

    /** Words of a mapped file, by offset in bytes. */
    static final VarHandle WORD32 = MethodHandles.byteBufferViewVarHandle(int[].class, ByteOrder.LITTLE_ENDIAN);

    static final VarHandle WORD64 = MethodHandles.byteBufferViewVarHandle(long[].class, ByteOrder.LITTLE_ENDIAN);

    private Layout() {}

    static int slotOffset(int index) {
        return SLOTS + index * SLOT;
    }

    static int methodOffset(int index) {
        return METHODS + index * METHOD;
    }

    static int fileLength(int slots, int events) {
        return slotOffset(slots) + events * EVENT;
    }
}
