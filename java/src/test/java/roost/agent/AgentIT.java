package roost.agent;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** The jar in real JVMs: every JDK from 17 that this machine has. */
class AgentIT {
    @TempDir
    Path folder;

    static Stream<Path> homes() {
        return Jvm.homes().stream();
    }

    private Path file() {
        return folder.resolve("slots");
    }

    private String watching(String methods) {
        StringBuilder options = new StringBuilder("file=" + file());
        for (String method : methods.split(" ")) {
            options.append(",method=tiny.").append(method);
        }
        return options.toString();
    }

    @ParameterizedTest
    @MethodSource("homes")
    void countsEveryCallOfEveryThreadAndItsWayOut(Path home) throws Exception {
        try (Jvm jvm = Jvm.start(home, watching("Server::search Server::recurse Server::hold"), folder)) {
            assertEquals("ok", jvm.ask("calls 3 200000"));
            FileView view = FileView.of(file());
            assertEquals(3, view.slots().size());
            for (FileView.Slot slot : view.slots()) {
                assertEquals(400_000, slot.sequence());
                assertEquals(0, slot.depth());
                assertTrue(Files.isDirectory(Path.of("/proc/" + jvm.pid + "/task/" + slot.tid())), slot.toString());
            }
            assertEquals("ok", jvm.ask("throw 1000"));
            FileView.Slot main = FileView.of(file()).slots().get(3);
            assertEquals(2000, main.sequence());
            assertEquals(0, main.depth());
            assertEquals("ok", jvm.ask("recurse 500"));
            main = FileView.of(file()).slots().get(3);
            assertEquals(2002, main.sequence());
            assertEquals(500, main.nested());
            assertEquals("inside", jvm.ask("hold"));
            main = FileView.of(file()).slots().get(3);
            assertEquals(new FileView.Slot(main.tid(), 2003, 1, 2, 500, 1), main);
            assertEquals("ok", jvm.ask("go"));
            assertEquals(2004, FileView.of(file()).slots().get(3).sequence());
            assertEquals("tiny.Server::search(I)J", view.method(0));
            for (int failure = Layout.NO_SLOT; failure <= Layout.EVENTS_LOST; failure += 8) {
                assertEquals(0, view.failures(failure), "failure counter at " + failure);
            }
            assertEquals(0, view.bytes().getInt(Layout.FLAGS), jvm.said());
            assertFalse(jvm.said().contains("WARNING"), jvm.said());
        }
    }

    @ParameterizedTest
    @MethodSource("homes")
    void changesNothingThatAMethodDoes(Path home) throws Exception {
        String all = Stream.of("wide", "locked", "handled", "loops", "switches", "nothing", "array", "rethrow",
                        "number(F)F", "number(D)D")
                .map(name -> "Shapes::" + name)
                .reduce((a, b) -> a + " " + b)
                .orElseThrow();
        try (Jvm jvm = Jvm.start(home, watching(all), folder)) {
            assertEquals("ok", jvm.ask("shapes"), jvm.said());
            FileView view = FileView.of(file());
            for (int id = 0; id < 10; id++) {
                assertEquals(Layout.WATCHED, view.methodState(id), view.method(id));
            }
            // Twelve calls, one of which ended by an exception.
            assertEquals(24, view.slots().get(0).sequence());
            assertEquals(0, view.slots().get(0).depth());
        }
    }

    @ParameterizedTest
    @MethodSource("homes")
    void virtualThreadsAreCountedAndLeftOut(Path home) throws Exception {
        assumeTrue(Jvm.version(home) >= 21, home + " has no virtual threads");
        try (Jvm jvm = Jvm.start(home, watching("Server::search"), folder)) {
            assertEquals("ok", jvm.ask("virtual 10"));
            assertEquals("ok", jvm.ask("throw 5"));
            FileView view = FileView.of(file());
            assertEquals(10, view.failures(Layout.VIRTUAL_THREADS));
            assertEquals(List.of(10), view.slots().stream().map(FileView.Slot::sequence).toList());
        }
    }

    @ParameterizedTest
    @MethodSource("homes")
    void attachesToARunningJvmOnceAndAgain(Path home) throws Exception {
        try (Jvm jvm = Jvm.start(home, null, folder)) {
            assertEquals("ok", jvm.ask("throw 100"));
            attach(home, jvm, watching("Server::search"));
            assertEquals("ok", jvm.ask("throw 100"));
            assertEquals(200, FileView.of(file()).slots().get(0).sequence());
            attach(home, jvm, watching("Server::recurse"));
            assertEquals("ok", jvm.ask("recurse 2"));
            assertEquals("ok", jvm.ask("throw 1"));
            FileView.Slot slot = FileView.of(file()).slots().get(0);
            assertEquals(204, slot.sequence());
            assertEquals(2, slot.nested());
            String told = refused(home, jvm, "method=tiny.Server::search,file=" + folder.resolve("other"));
            assertTrue(told.contains("writes " + file() + " already"), told);
            // A refusal is that attachment's own.
            attach(home, jvm, watching("Server::search"));
            assertTrue(jvm.waitFor("already").contains("writes " + file() + " already"), jvm.said());
        }
    }

    /** Attaches in vain; returns the attaching process's message. */
    private String refused(Path home, Jvm jvm, String options) throws Exception {
        Process attach = new ProcessBuilder(
                        home.resolve("bin/java").toString(),
                        "-jar",
                        Jvm.JAR.toString(),
                        Long.toString(jvm.pid),
                        options)
                .redirectErrorStream(true)
                .start();
        String said = new String(attach.getInputStream().readAllBytes());
        assertEquals(1, attach.waitFor(), said);
        return said;
    }

    private void attach(Path home, Jvm jvm, String options) throws Exception {
        Process attach = new ProcessBuilder(
                        home.resolve("bin/java").toString(),
                        "-jar",
                        Jvm.JAR.toString(),
                        Long.toString(jvm.pid),
                        options)
                .inheritIO()
                .start();
        assertEquals(0, attach.waitFor());
    }

    /** The lines of a count's file, once it is there. */
    private List<String> counted(Path out) throws Exception {
        for (int i = 0; i < 800 && !Files.exists(out); i++) {
            Thread.sleep(25);
        }
        return Files.readAllLines(out);
    }

    @ParameterizedTest
    @MethodSource("homes")
    void countsCallsForAWhileAndPutsEveryClassBack(Path home) throws Exception {
        Path out = folder.resolve("counts");
        try (Jvm jvm = Jvm.start(home, null, folder)) {
            assertEquals("ok", jvm.ask("recurse 1"));
            String methods = "method=tiny.Server::search,method=tiny.Server::recurse,method=tiny.Server::serch,method=tiny.Nothing::here";
            long asked = System.nanoTime();
            attach(home, jvm, "count=" + out + ",millis=3000," + methods);
            jvm.waitFor("counting the calls of 4 methods");
            // The classes are made anew at the beginning: calls of then may go uncounted, and so
            // one is waited for.
            for (int i = 0; i < 100; i++) {
                assertEquals("ok", jvm.ask("throw 10"));
                assertEquals("ok", jvm.ask("recurse 5"));
                Thread.sleep(5);
            }
            List<String> lines = counted(out);
            assertEquals("roost-count 2", lines.get(0));
            assertEquals("end", lines.get(lines.size() - 1));
            String[] search = lines.get(1).split(" ");
            String[] recurse = lines.get(4).split(" ");
            assertEquals("tiny.Server::search(I)J", search[6]);
            // By the asking process's clock, and not before it asked.
            long began = Long.parseLong(search[3]);
            long ended = began + Long.parseLong(search[4]);
            assertTrue(began >= asked && ended <= System.nanoTime(), asked + ": " + lines.get(1));
            assertTrue(Long.parseLong(search[4]) >= 3_000_000_000L, lines.get(1));
            long calls = Long.parseLong(recurse[2]);
            // Recursion is one call; each way out counts, also an exception.
            assertTrue(calls > 0 && calls <= 100, lines.get(4));
            assertTrue(Math.abs(Long.parseLong(search[2]) - 10 * calls) <= 10, lines.get(1) + " / " + lines.get(4));
            assertTrue(lines.get(7).startsWith("method refused 0 0 0 tiny.Server::serch"), lines.get(7));
            assertTrue(lines.get(9).contains("the nearest: search"), lines.get(9));
            assertTrue(lines.get(10).startsWith("method waiting 0 0 0 tiny.Nothing::here"), lines.get(10));
            assertTrue(jvm.waitFor("every class is as it was").contains("every class is as it was"), jvm.said());
            // Another count, and then slots: nothing of the first is in their way.
            Files.delete(out);
            // In a file, because HotSpot takes a kilobyte of options, and these are more.
            List<String> many = new ArrayList<>(List.of("tiny.Server::search"));
            for (int i = 0; i < 30; i++) {
                many.add("tiny.Nothing::somewhere" + i + "(Ltiny/AnArgumentWithALongName;Ltiny/AnotherOneOfThatKind;)V");
            }
            Path named = Files.write(folder.resolve("methods"), many);
            attach(home, jvm, "count=" + out + ",millis=200,methods=" + named);
            assertEquals("end", counted(out).get(3 * many.size() + 1));
            assertTrue(counted(out).get(1).startsWith("method watched"), counted(out).get(1));
            attach(home, jvm, watching("Server::search"));
            assertEquals("ok", jvm.ask("throw 100"));
            assertEquals(200, FileView.of(file()).slots().get(0).sequence());
        }
    }

    @Test
    void aMethodThatIsCalledTooOftenIsLetGo() throws Exception {
        Path out = folder.resolve("counts");
        try (Jvm jvm = Jvm.start(Jvm.home(), null, folder)) {
            assertEquals("ok", jvm.ask("throw 1"));
            attach(Jvm.home(), jvm, "count=" + out + ",millis=1500,method=tiny.Server::search,method=tiny.Server::recurse");
            jvm.waitFor("counting the calls of 2 methods");
            // As long as it is counted, and longer.
            jvm.tell("calls 2 2000000000");
            List<String> lines = counted(out);
            assertTrue(lines.get(1).startsWith("method too-often "), lines.get(1));
            assertTrue(lines.get(4).startsWith("method watched 0 "), lines.get(4));
        }
    }

    @Test
    void aCountThatCannotBeIsALine() throws Exception {
        try (Jvm jvm = Jvm.start(Jvm.home(), null, folder)) {
            String told = refused(Jvm.home(), jvm, "count=" + folder.resolve("counts") + ",colour=red");
            assertTrue(told.contains("unknown option"), told);
            assertTrue(jvm.waitFor("unknown option").contains("unknown option \"colour=red\""), jvm.said());
            assertEquals("ok", jvm.ask("throw 3"));
        }
    }

    @Test
    void timesFallIntoBucketsThatHoldThem() {
        for (long nanos : new long[] {0, 1, 15, 16, 17, 31, 32, 1000, 123_456_789, Long.MAX_VALUE}) {
            int bucket = Tally.bucket(nanos);
            assertTrue(Tally.lower(bucket) <= nanos, nanos + " in " + bucket);
            assertTrue(bucket + 1 >= Tally.BUCKETS || Tally.lower(bucket + 1) > nanos, nanos + " in " + bucket);
        }
    }

    @ParameterizedTest
    @MethodSource("homes")
    void aFileCutShortTurnsTheHookOffAndHarmsNobody(Path home) throws Exception {
        try (Jvm jvm = Jvm.start(home, watching("Server::search"), folder)) {
            assertEquals("ok", jvm.ask("calls 2 100000"));
            var write = java.nio.file.StandardOpenOption.WRITE;
            try (var channel = java.nio.channels.FileChannel.open(file(), write)) {
                channel.truncate(0);
            }
            assertEquals("ok", jvm.ask("throw 10"));
            assertEquals("ok", jvm.ask("calls 2 100000"));
            assertEquals("ok", jvm.ask("throw 100000"));
            assertTrue(jvm.said().contains("the slot file was cut short"), jvm.said());
        }
    }

    @Test
    void theEnableWordSwitches() throws Exception {
        try (Jvm jvm = Jvm.start(watching("Server::search"), folder)) {
            assertEquals("ok", jvm.ask("throw 10"));
            FileView.enable(file(), 0);
            assertEquals("ok", jvm.ask("throw 10"));
            assertEquals(20, FileView.of(file()).slots().get(0).sequence());
            FileView.enable(file(), 3);
            assertEquals("ok", jvm.ask("throw 10"));
            FileView view = FileView.of(file());
            assertEquals(40, view.slots().get(0).sequence());
            long entered = view.bytes().getLong(Layout.SLOTS + Layout.ENTERED_AT);
            assertTrue(view.bytes().getLong(Layout.SLOTS + Layout.EXITED_AT) > entered);
        }
    }

    @Test
    void slotsOfThreadsThatEndedAreTakenAgain() throws Exception {
        try (Jvm jvm = Jvm.start(watching("Server::search") + ",slots=4", folder)) {
            assertEquals("ok", jvm.ask("short 100"));
            FileView view = FileView.of(file());
            assertEquals(0, view.failures(Layout.NO_SLOT));
            assertTrue(view.slots().size() <= 4);
            assertEquals(100, view.slots().stream().mapToInt(FileView.Slot::claims).max().orElse(0), 3);
        }
    }

    @Test
    void aNameOfSeveralMethodsIsRefusedWithAllOfThem() throws Exception {
        try (Jvm jvm = Jvm.start(watching("Server::twice"), folder)) {
            String both = "method=tiny.Server::twice(I)I or method=tiny.Server::twice(JLjava/lang/String;)I";
            assertTrue(jvm.said().contains(both), jvm.said());
            assertEquals(Layout.REFUSED, FileView.of(file()).methodState(0));
        }
        Files.delete(file());
        try (Jvm jvm = Jvm.start(watching("Server::twice(JLjava/lang/String;)"), folder)) {
            assertTrue(jvm.said().contains("watching tiny.Server::twice(JLjava/lang/String;)I"), jvm.said());
        }
    }

    @Test
    void aNameOfNoMethodIsRefusedWithTheNearest() throws Exception {
        try (Jvm jvm = Jvm.start(watching("Server::serch Server::twice(F)F"), folder)) {
            assertTrue(jvm.said().contains("has no such method; the nearest: search,"), jvm.said());
            assertTrue(jvm.said().contains("the nearest: twice(I)I, twice(JLjava/lang/String;)I"), jvm.said());
            assertEquals("ok", jvm.ask("throw 10"));
        }
    }

    @Test
    void wrongOptionsAreALineAndTheServerGoesOn() throws Exception {
        Path closed = Files.createDirectory(folder.resolve("closed"));
        String[][] cases = {
            {"method=tiny.Server::search", "file= is missing"},
            {"file=" + file(), "method= is missing"},
            {"file=" + file() + ",method=search", "is not pkg.Class::method"},
            {"file=" + file() + ",method=java.lang.Math::max", "JDK's own"},
            {"file=" + file() + ",method=tiny.Server::<init>", "constructors"},
            {"file=" + file() + ",method=a.B::c,slots=0", "from 1 to 16384"},
            {"file=" + file() + ",method=a.B::c,events=3", "power of two"},
            {"file=" + file() + ",method=a.B::c,colour=red", "unknown option \"colour\""},
            {"method=a.B::c,file=" + closed.resolve("none/slots"), "there is no such folder"},
        };
        for (String[] one : cases) {
            try (Jvm jvm = Jvm.start(one[0], folder)) {
                String said = jvm.said();
                assertTrue(said.contains("roost-agent: the hook is off: ") && said.contains(one[1]), said);
                assertEquals("ok", jvm.ask("throw 3"));
            }
        }
    }

    @Test
    void aFolderThatIsNotWritableNamesTheUser() throws Exception {
        Path closed = Files.createDirectory(folder.resolve("closed"));
        Files.setPosixFilePermissions(folder, PosixFilePermissions.fromString("rwxr-xr-x"));
        Files.setPosixFilePermissions(closed, PosixFilePermissions.fromString("r-xr-xr-x"));
        String options = "method=tiny.Server::search,file=" + closed.resolve("slots");
        try (Jvm jvm = Jvm.startAsNobody(options, folder)) {
            assertTrue(jvm.said().contains("must be writable by this JVM's user, nobody"), jvm.said());
            assertEquals("ok", jvm.ask("throw 3"));
        }
    }

    /** Where the documentation says that the file should be: a service has a user of its own. */
    @Test
    void anotherUsersJvmWritesBelowDevShm() throws Exception {
        Files.setPosixFilePermissions(folder, PosixFilePermissions.fromString("rwxr-xr-x"));
        String options = "method=tiny.Server::search,file=/dev/shm/roost-test-%p.slots";
        try (Jvm jvm = Jvm.startAsNobody(options, folder)) {
            Path slots = Path.of("/dev/shm/roost-test-" + jvm.pid + ".slots");
            try {
                assertEquals("ok", jvm.ask("throw 3"), jvm.said());
                assertEquals(6, FileView.of(slots).slots().get(0).sequence(), jvm.said());
                assertEquals("nobody", Files.getOwner(slots).getName());
            } finally {
                Files.deleteIfExists(slots);
            }
        }
    }

    @Test
    void twoJvmsDoNotShareAFile() throws Exception {
        try (Jvm first = Jvm.start(watching("Server::search"), folder);
                Jvm second = Jvm.start(watching("Server::search"), folder)) {
            assertTrue(second.said().contains("in use by process " + first.pid), second.said());
            assertEquals("ok", second.ask("throw 3"));
            assertEquals(0, FileView.of(file()).slots().size());
        }
        try (Jvm third = Jvm.start(watching("Server::search"), folder)) {
            assertEquals("ok", third.ask("throw 3"));
            assertEquals(6, FileView.of(file()).slots().get(0).sequence());
        }
    }
}
