package roost.agent;

import static roost.agent.Layout.WORD64;

import java.lang.instrument.Instrumentation;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.nio.MappedByteBuffer;
import java.util.Map;
import java.util.Set;

/**
 * The words of a mapped file, for the path that every call takes.
 *
 * <p>A {@code VarHandle} on the buffer checks bounds, alignment, kind and life of the buffer at each access: eight accesses
 * a call cost 15 ns that way and 3 ns by address (docs/journal/2026-11-22-agent.md). So where the JDK lets us
 * ({@link #open}), words are read and written by address with the very class that the VarHandle ends in; where it does
 * not, the VarHandle does it. Offsets are made from slot numbers that {@link SlotFile} gave out: they are inside.
 *
 * <p>A record, because the compiler takes a constant record's fields for constants too.
 *
 * @param address of the buffer's first byte; 0: go through the buffer
 */
record Words(MappedByteBuffer map, long address) {
    private static final MethodHandle GET = raw("getLongOpaque", MethodType.methodType(long.class, Object.class, long.class));
    private static final MethodHandle SET =
            raw("putLongOpaque", MethodType.methodType(void.class, Object.class, long.class, long.class));
    private static final MethodHandle RELEASE =
            raw("putLongRelease", MethodType.methodType(void.class, Object.class, long.class, long.class));

    /** By address if that is possible here. */
    static Words of(MappedByteBuffer map) {
        boolean isRaw = GET != null && SET != null && RELEASE != null;
        return new Words(map, isRaw ? Kernel.address(map) : 0);
    }

    /** Asks the JDK for its internal memory access; must come before the first {@link #of}. A refusal costs speed only. */
    static void open(Instrumentation instrumentation) {
        try {
            instrumentation.redefineModule(
                    Object.class.getModule(),
                    Set.of(),
                    Map.of("jdk.internal.misc", Set.of(Words.class.getModule())),
                    Map.of(),
                    Set.of(),
                    Map.of());
        } catch (RuntimeException | LinkageError refused) {
            // Through the buffer, then.
        }
    }

    private static MethodHandle raw(String name, MethodType type) {
        try {
            Class<?> unsafe = Class.forName("jdk.internal.misc.Unsafe");
            MethodHandles.Lookup lookup = MethodHandles.publicLookup();
            Object one = lookup.findStatic(unsafe, "getUnsafe", MethodType.methodType(unsafe)).invoke();
            return MethodHandles.insertArguments(lookup.findVirtual(unsafe, name, type), 0, one, null);
        } catch (Throwable notHere) {
            return null;
        }
    }

    long get(int offset) {
        if (address == 0) {
            return (long) WORD64.getOpaque(map, offset);
        }
        try {
            return (long) GET.invokeExact(address + offset);
        } catch (Throwable failure) {
            throw thrown(failure);
        }
    }

    void set(int offset, long word) {
        if (address == 0) {
            WORD64.setOpaque(map, offset, word);
            return;
        }
        try {
            SET.invokeExact(address + offset, word);
        } catch (Throwable failure) {
            throw thrown(failure);
        }
    }

    void release(int offset, long word) {
        if (address == 0) {
            WORD64.setRelease(map, offset, word);
            return;
        }
        try {
            RELEASE.invokeExact(address + offset, word);
        } catch (Throwable failure) {
            throw thrown(failure);
        }
    }

    /** None of the three declares an exception: what comes is an error. */
    private static Error thrown(Throwable failure) {
        return failure instanceof Error ? (Error) failure : new AssertionError(failure);
    }
}
