package roost.agent;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.invoke.VarHandle;
import java.nio.MappedByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** Slots, without an agent: the shared vectors, and a racing reader. */
class SlotFileTest {
    @TempDir
    Path folder;

    static Stream<Path> vectors() throws Exception {
        return Files.list(Path.of("../testdata/slots")).filter(path -> path.toString().endsWith(".txt")).sorted();
    }

    /** A thread of a vector: only its name, for the file's book of owners. */
    private record Actor(Thread thread, ThreadSlot slot, Deque<int[]> calls) {}

    /** The grammar is in crates/slots/tests/it/vectors.rs. */
    @ParameterizedTest
    @MethodSource("vectors")
    void leavesTheBytesThatRustAndCLeave(Path steps) throws Exception {
        Path made = folder.resolve("made");
        List<String> methods = new ArrayList<>();
        Map<String, Actor> actors = new HashMap<>();
        String writer = "";
        Identity identity = null;
        int slots = 0;
        int events = 0;
        int enable = 1;
        SlotFile file = null;
        for (String line : Files.readAllLines(steps)) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "file" -> {
                    slots = Integer.parseInt(words[2]);
                    events = Integer.parseInt(words[4]);
                }
                case "writer" -> writer = line.substring(7);
                case "process" -> identity = new Identity(
                        Integer.parseInt(words[1]), Long.parseLong(words[2]), HexFormat.of().parseHex(words[3]));
                case "method" -> methods.add(line.substring(7));
                case "enable" -> enable = Integer.parseInt(words[1]);
                case "thread" -> {
                    if (file == null) {
                        file = SlotFile.create(made, slots, events, methods, writer, identity, 0);
                        for (int id = 0; id < methods.size(); id++) {
                            file.setMethod(id, methods.get(id), Layout.WATCHED);
                        }
                        file.map.putInt(Layout.ENABLE, Integer.reverseBytes(enable));
                    }
                    Thread thread = new Thread(() -> {
                        try {
                            Thread.sleep(Long.MAX_VALUE);
                        } catch (InterruptedException end) {
                            // It is over.
                        }
                    });
                    thread.setDaemon(true);
                    thread.start();
                    ThreadSlot slot = file.register(thread, Integer.parseInt(words[2]));
                    actors.put(words[1], new Actor(thread, slot, new ArrayDeque<>()));
                }
                case "enter" -> {
                    Actor actor = actors.get(words[1]);
                    int method = Integer.parseInt(words[2]);
                    actor.calls().push(new int[] {actor.slot().enter(method, Long.parseLong(words[3])), method});
                }
                case "exit" -> {
                    Actor actor = actors.get(words[1]);
                    int[] call = actor.calls().pop();
                    if (call[0] != ThreadSlot.NOT_RECORDED) {
                        ThreadSlot.exit(file, call[0], call[1], enable == 3, Long.parseLong(words[2]));
                    }
                }
                case "end" -> file.free(actors.get(words[1]).slot().index());
                default -> assertTrue(line.isEmpty() || line.startsWith("#") || line.startsWith("expect "), line);
            }
        }
        byte[] kept = Files.readAllBytes(Path.of(steps.toString().replace(".txt", ".bin")));
        assertArrayEquals(kept, Files.readAllBytes(made));
    }

    /** Each call's time follows from its sequence, so a mixture of two calls would show. */
    @Test
    void aRacingReaderSeesNoTornSlot() throws Exception {
        int pairs = 2_000_000;
        SlotFile file = SlotFile.create(
                folder.resolve("slots"), 4, 0, List.of("a", "b"), "a test", Identity.own(), 0);
        AtomicInteger running = new AtomicInteger(2);
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < 2; i++) {
            ThreadSlot[] slot = new ThreadSlot[1];
            Thread thread = new Thread(() -> {
                for (int pair = 0; pair < pairs; pair++) {
                    int sequence = 2 * pair + 1;
                    int token = slot[0].enter(sequence % 3, time(sequence));
                    for (int wait = pair % 32; wait > 0; wait--) {
                        Thread.onSpinWait();
                    }
                    ThreadSlot.exit(file, token, sequence % 3, false, 0);
                }
                running.decrementAndGet();
            });
            slot[0] = file.register(thread, 100 + i);
            threads.add(thread);
        }
        threads.forEach(Thread::start);
        MappedByteBuffer map = file.map;
        long inside = 0;
        while (running.get() > 0) {
            for (int i = 0; i < 2; i++) {
                int offset = Layout.slotOffset(i);
                long before = (long) Layout.WORD64.getAcquire(map, offset);
                long time = (long) Layout.WORD64.getOpaque(map, offset + Layout.ENTERED_AT);
                VarHandle.acquireFence();
                long after = (long) Layout.WORD64.getOpaque(map, offset);
                if (before == after && before % 2 != 0) {
                    assertEquals(time((int) before), time);
                    assertEquals((int) before % 3, (int) (before >>> 48));
                    inside++;
                }
            }
        }
        assertTrue(inside > 1000, inside + " calls met");
        for (int i = 0; i < 2; i++) {
            threads.get(i).join();
            long sequence = file.map64(Layout.slotOffset(i)) & 0xffff_ffff_ffffL;
            assertEquals(2 * pairs, sequence, "sequence, and depth 0");
        }
    }

    private static long time(int sequence) {
        return sequence * 0x9e37_79b9_7f4a_7c15L;
    }

    @Test
    void namesThatAreNearComeFirst() {
        assertEquals(
                List.of("executeQueryPhase", "executeFetchPhase", "loadOrExecuteQueryPhase"),
                Watcher.nearest(
                        "executeQueryFase",
                        List.of("close", "executeFetchPhase", "loadOrExecuteQueryPhase", "executeQueryPhase")));
    }
}
