package roost.agent;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Fork;
import org.openjdk.jmh.annotations.Measurement;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.Warmup;

/**
 * One enter and its exit, through the very class that watched methods call: with the hook on, off,
 * with exit times; beside it the clock alone, which is most of the cost.
 */
@State(Scope.Benchmark)
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
@Fork(3)
@Warmup(iterations = 3, time = 1)
@Measurement(iterations = 5, time = 1)
public class PairBench {
    private void install(int enable, int events) throws Exception {
        Path folder = Files.createTempDirectory(Path.of("/dev/shm"), "roost-bench");
        Kernel.load(folder);
        SlotFile file = SlotFile.create(
                folder.resolve("slots"), 64, events, List.of("m"), "bench", Identity.own(), 0);
        file.map.putInt(Layout.ENABLE, Integer.reverseBytes(enable));
        Files.delete(folder.resolve("slots"));
        Files.delete(folder);
        Installed.file = file;
    }

    @State(Scope.Benchmark)
    public static class On {
        @Setup
        public void install() throws Exception {
            new PairBench().install(1, 0);
        }
    }

    @State(Scope.Benchmark)
    public static class Off {
        @Setup
        public void install() throws Exception {
            new PairBench().install(0, 0);
        }
    }

    @State(Scope.Benchmark)
    public static class ExitTimes {
        @Setup
        public void install() throws Exception {
            new PairBench().install(3, 0);
        }
    }

    @State(Scope.Benchmark)
    public static class Events {
        @Setup
        public void install() throws Exception {
            new PairBench().install(1, 4096);
        }
    }

    @Benchmark
    public void on(On state) {
        Hook.exit(Hook.enter(0), 0);
    }

    @Benchmark
    public void off(Off state) {
        Hook.exit(Hook.enter(0), 0);
    }

    @Benchmark
    public void exitTimes(ExitTimes state) {
        Hook.exit(Hook.enter(0), 0);
    }

    @Benchmark
    public void events(Events state) {
        Hook.exit(Hook.enter(0), 0);
    }

    @Benchmark
    public long clockAlone() {
        return System.nanoTime();
    }
}
