package roost.agent;

import static roost.agent.Layout.*;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/** A copy of a slot file, for tests. The governor's own reader is crates/slots. */
record FileView(ByteBuffer bytes) {
    static FileView of(Path path) throws IOException {
        return new FileView(ByteBuffer.wrap(Files.readAllBytes(path)).order(ByteOrder.LITTLE_ENDIAN));
    }

    record Slot(int tid, int sequence, int depth, int method, long nested, int claims) {}

    /** Of all threads that have one. */
    List<Slot> slots() {
        List<Slot> slots = new ArrayList<>();
        for (int i = 0; i < bytes.getInt(SLOTS_USED); i++) {
            int offset = slotOffset(i);
            if (bytes.getInt(offset + TID) != 0) {
                slots.add(new Slot(
                        bytes.getInt(offset + TID),
                        bytes.getInt(offset),
                        bytes.getShort(offset + 4) & 0xffff,
                        bytes.getShort(offset + 6) & 0xffff,
                        bytes.getLong(offset + NESTED),
                        bytes.getInt(offset + CLAIMS)));
            }
        }
        return slots;
    }

    long failures(int which) {
        return bytes.getLong(which);
    }

    int methodState(int id) {
        return bytes.getInt(methodOffset(id));
    }

    String method(int id) {
        byte[] name = new byte[bytes.getInt(methodOffset(id) + 4)];
        bytes.get(methodOffset(id) + 8, name);
        return new String(name, StandardCharsets.UTF_8);
    }

    static void enable(Path path, int word) throws IOException {
        try (var channel = java.nio.channels.FileChannel.open(path, java.nio.file.StandardOpenOption.WRITE)) {
            channel.write(ByteBuffer.allocate(4).order(ByteOrder.LITTLE_ENDIAN).putInt(0, word), ENABLE);
        }
    }
}
