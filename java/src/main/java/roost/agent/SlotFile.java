package roost.agent;

import static roost.agent.Layout.*;

import java.io.IOException;
import java.lang.ref.WeakReference;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;

/**
 * The slot file of this process: made, mapped, and shared out to threads.
 *
 * <p>Slots are found and given back under this object's lock, once in a thread's life. A JVM does
 * not report that a thread has ended, so the dead are looked for whenever a new one comes: between
 * two such moments a dead thread's slot tells "outside", which it is.
 */
final class SlotFile implements Methods {
    final MappedByteBuffer map;
    final Path path;
    private final int slots;
    final int events;
    private final List<WeakReference<Thread>> owners = new ArrayList<>();

    private SlotFile(MappedByteBuffer map, Path path, int slots, int events) {
        this.map = map;
        this.path = path;
        this.slots = slots;
        this.events = events;
    }

    /** Makes the file; it appears whole, under another name first. */
    static SlotFile create(
            Path path, int slots, int events, List<String> methods, String writer, Identity identity, int flags)
            throws IOException {
        refuseIfInUse(path, identity);
        int length = fileLength(slots, events);
        ByteBuffer image = ByteBuffer.allocate(length).order(ByteOrder.LITTLE_ENDIAN);
        image.put(0, MAGIC);
        image.putInt(VERSION, FILE_VERSION);
        image.putInt(SLOT_COUNT, slots);
        image.putInt(EVENT_COUNT, events);
        image.putInt(FLAGS, flags);
        image.putInt(PID, identity.pid());
        image.putLong(PROCESS_STARTED, identity.started());
        image.put(BOOT_ID, identity.bootId());
        image.putInt(ENABLE, ENABLE_HOOK);
        image.putInt(CHECK, CHECK_WORD);
        image.put(WRITER, cut(writer, WRITER_LENGTH));
        Path fresh = path.resolveSibling(path.getFileName() + "." + identity.pid() + ".new");
        Files.deleteIfExists(fresh);
        Set<StandardOpenOption> how =
                Set.of(StandardOpenOption.CREATE_NEW, StandardOpenOption.READ, StandardOpenOption.WRITE);
        var ownerOnly = PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rw-------"));
        SlotFile file;
        try (FileChannel channel = FileChannel.open(fresh, how, ownerOnly)) {
            // Every byte is written, so that a full disk is an error now and not a fault later.
            while (image.hasRemaining()) {
                channel.write(image);
            }
            file = new SlotFile(channel.map(FileChannel.MapMode.READ_WRITE, 0, length), path, slots, events);
            for (String method : methods) {
                file.addMethod(method);
            }
            Files.move(fresh, path, StandardCopyOption.ATOMIC_MOVE);
        } finally {
            // After the renaming there is none of that name.
            Files.deleteIfExists(fresh);
        }
        return file;
    }

    private static void refuseIfInUse(Path path, Identity own) throws IOException {
        ByteBuffer head = ByteBuffer.allocate(64).order(ByteOrder.LITTLE_ENDIAN);
        if (!Files.isRegularFile(path)) {
            return;
        }
        try (FileChannel channel = FileChannel.open(path)) {
            channel.read(head, 0);
        }
        byte[] magic = new byte[8];
        byte[] bootId = new byte[16];
        head.get(0, magic);
        head.get(BOOT_ID, bootId);
        int pid = head.getInt(PID);
        boolean isOurs = java.util.Arrays.equals(magic, MAGIC);
        if (isOurs && pid != own.pid() && Identity.isAlive(pid, head.getLong(PROCESS_STARTED), bootId)) {
            throw new IOException("in use by process " + pid
                    + ": give each JVM a file of its own (%p in file= is the process)");
        }
    }

    @Override
    public synchronized int addMethod(String name) {
        int id = map32(METHOD_COUNT);
        if (id >= METHODS_MAX) {
            throw new IllegalArgumentException("more than " + METHODS_MAX + " methods");
        }
        setMethod(id, name, WAITING);
        WORD32.setRelease(map, METHOD_COUNT, id + 1);
        return id;
    }

    @Override
    public synchronized void setMethod(int id, String name, int state) {
        int offset = methodOffset(id);
        byte[] bytes = cut(name, METHOD_NAME);
        map.put(offset + 8, bytes);
        WORD32.setRelease(map, offset + 4, bytes.length);
        WORD32.setRelease(map, offset, state);
        if (state == WATCHED) {
            tell(id, "watching " + name + " in " + path);
        }
    }

    @Override
    public boolean isWanted(int id) {
        return true;
    }

    @Override
    public String hook() {
        return "roost/agent/Hook";
    }

    @Override
    public void tell(int id, String line) {
        Agent.say(line);
    }

    /** A slot for a thread; one without room where all are taken. */
    synchronized ThreadSlot register(Thread thread, int tid) {
        int index = -1;
        for (int i = 0; i < owners.size(); i++) {
            Thread owner = owners.get(i) == null ? null : owners.get(i).get();
            if (owner == thread) {
                // It comes again if the server has cleared its thread locals.
                return new ThreadSlot(this, i, map32(slotOffset(i) + TID));
            }
            if (owners.get(i) != null && (owner == null || owner.getState() == Thread.State.TERMINATED)) {
                free(i);
            }
            if (owners.get(i) == null && index < 0) {
                index = i;
            }
        }
        if (index < 0 && owners.size() < slots) {
            index = owners.size();
            owners.add(null);
        }
        if (index < 0) {
            return new ThreadSlot(this, -1, tid);
        }
        int offset = slotOffset(index);
        owners.set(index, new WeakReference<>(thread));
        WORD32.setRelease(map, offset + TID, tid);
        WORD32.getAndAdd(map, offset + CLAIMS, 1);
        if (index >= map32(SLOTS_USED)) {
            WORD32.setRelease(map, SLOTS_USED, index + 1);
        }
        return new ThreadSlot(this, index, tid);
    }

    /** The slot is another's to take. */
    synchronized void free(int index) {
        int offset = slotOffset(index);
        for (int word : new int[] {STATE, ENTERED_AT, EXITED_AT, NESTED}) {
            WORD64.setRelease(map, offset + word, 0L);
        }
        WORD32.setRelease(map, offset + TID, 0);
        owners.set(index, null);
    }

    void count(int what) {
        WORD64.getAndAdd(map, what, 1L);
    }

    /** The writer that clears "asleep" rings; the others find it cleared. */
    void ring() {
        if ((int) WORD32.getAndSet(map, ASLEEP, 0) == 0) {
            return;
        }
        WORD32.getAndAdd(map, DOORBELL, 1);
        if (!Kernel.wake(map, DOORBELL)) {
            count(NOT_RUNG);
        }
    }

    /**
     * An entry is owned between two stores of its ticket; one that is busy or newer is left, and
     * the event lost.
     */
    void record(long at, int tid, int method, int kind, long state) {
        long number = (long) WORD64.getAndAdd(map, EVENT_HEAD, 1L);
        int entry = slotOffset(slots) + (int) (number & (events - 1)) * EVENT;
        long old = (long) WORD64.getOpaque(map, entry);
        if (Long.compareUnsigned(old, number) > 0 || !WORD64.compareAndSet(map, entry, old, BUSY)) {
            count(EVENTS_LOST);
            return;
        }
        WORD64.setOpaque(map, entry + EVENT_AT, at);
        WORD64.setOpaque(map, entry + EVENT_WHAT, tid & 0xffff_ffffL | (long) method << 32 | (long) kind << 48);
        WORD64.setOpaque(map, entry + EVENT_STATE, state & 0xffff_ffff_ffffL);
        WORD64.setRelease(map, entry, number + 1);
    }

    int map32(int offset) {
        return (int) WORD32.getAcquire(map, offset);
    }

    long map64(int offset) {
        return (long) WORD64.getAcquire(map, offset);
    }

    /** At most so many bytes, whole characters. */
    private static byte[] cut(String text, int length) {
        String kept = text;
        while (kept.getBytes(StandardCharsets.UTF_8).length > length) {
            kept = kept.substring(0, kept.offsetByCodePoints(kept.length(), -1));
        }
        return kept.getBytes(StandardCharsets.UTF_8);
    }
}
