package roost.agent;

import java.io.IOException;
import java.lang.instrument.Instrumentation;
import java.lang.instrument.UnmodifiableClassException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/**
 * Counts the calls of some methods for some seconds, puts every class back as it was, and writes a
 * file of the counts.
 *
 * <p>For {@code roost hot}, which has to know how often a function is called before it can call it
 * hot. The asking process may be gone when the time is over: a thread of this JVM ends the count by
 * itself. A method that is called so often that counting it would be felt is let go early, which is
 * an answer, too.
 */
final class Count implements Methods, Runnable {
    /** Calls a second that are enough to know. */
    private static final long TOO_OFTEN = 100_000;
    /** Between two looks at how often; the server bears it that long. */
    private static final long LOOK_MILLIS = 20;

    private static final String TOO_OFTEN_WORD = "too-often";

    /** The one under way. */
    private static Count current;
    private static int runs;

    private final Instrumentation instrumentation;
    private final Path file;
    private final long millis;
    private final List<Entry> entries = new ArrayList<>();
    private final Watcher watcher = new Watcher(this);
    private Tally.Run run;

    private static final class Entry {
        final Options.Target target;
        String name;
        String state = "waiting";
        String why = "";
        long began;
        long nanos;

        Entry(Options.Target target) {
            this.target = target;
            this.name = target.toString();
        }
    }

    private Count(Instrumentation instrumentation, Path file, long millis) {
        this.instrumentation = instrumentation;
        this.file = file;
        this.millis = millis;
    }

    /** Whether the options ask for a count and not for a slot file. */
    static boolean isAsked(String text) {
        return text != null && text.startsWith("count=");
    }

    /**
     * Begins: {@code count=FILE,millis=3000,method=...,method=...}; or {@code methods=FILE} with
     * one a line, because HotSpot takes no more than 1023 bytes on attach, and a method with its
     * descriptor may have hundreds.
     */
    static synchronized void start(String text, Instrumentation instrumentation) {
        Path file = null;
        long millis = 3000;
        List<Options.Target> targets = new ArrayList<>();
        for (String option : text.split(",")) {
            String value = option.substring(option.indexOf('=') + 1);
            switch (option.substring(0, Math.max(option.indexOf('='), 0))) {
                case "count" -> file = Path.of(value).toAbsolutePath();
                case "millis" -> millis = Long.parseLong(value);
                case "method" -> targets.add(Options.Target.parse(value));
                case "methods" -> lines(value).forEach(line -> targets.add(Options.Target.parse(line)));
                default -> throw new IllegalArgumentException("count: unknown option \"" + option + "\"");
            }
        }
        if (current != null) {
            throw new IllegalArgumentException("count: one is under way already, into " + current.file);
        }
        if (targets.isEmpty() || targets.size() > Layout.METHODS_MAX) {
            throw new IllegalArgumentException("count: 1 to " + Layout.METHODS_MAX + " methods, not " + targets.size());
        }
        Count count = new Count(instrumentation, file, Math.min(Math.max(millis, 1), 600_000));
        for (Options.Target target : targets) {
            count.entries.add(new Entry(target));
            count.watcher.want(target);
        }
        current = count;
        Thread thread = new Thread(null, count, "roost-count", 0, false);
        thread.setDaemon(true);
        thread.start();
    }

    private static List<String> lines(String file) {
        try {
            return Files.readAllLines(Path.of(file));
        } catch (IOException | RuntimeException failure) {
            throw new IllegalArgumentException("count: methods=" + file + ": " + failure);
        }
    }

    @Override
    public void run() {
        try {
            count();
            write();
        } catch (Throwable failure) {
            Agent.say("count: " + failure);
        } finally {
            synchronized (Count.class) {
                current = null;
            }
        }
    }

    private void count() throws InterruptedException {
        synchronized (Count.class) {
            runs = runs % Integer.MAX_VALUE + 1;
            run = new Tally.Run(runs, entries.size());
        }
        instrumentation.addTransformer(watcher, true);
        try {
            // All at once: each retransformation stops the server for a moment.
            again(entries);
            // Not before: until all classes are made anew some calls pass the hook and others do
            // not.
            long beginning = System.nanoTime();
            watched().forEach(entry -> entry.began = beginning);
            Tally.install(run);
            // A loop that began before goes on calling the old code.
            Agent.say("counting the calls of " + entries.size() + " methods for " + millis + " ms");
            long over = System.nanoTime() + millis * 1_000_000;
            for (long now = System.nanoTime(); now < over; now = System.nanoTime()) {
                Thread.sleep(Math.min(LOOK_MILLIS, (over - now) / 1_000_000 + 1));
                letGo();
            }
        } finally {
            long now = System.nanoTime();
            watched().forEach(entry -> entry.nanos = now - entry.began);
            Tally.install(null);
            instrumentation.removeTransformer(watcher);
            again(entries);
        }
        Agent.say("counted; every class is as it was");
    }

    private Stream<Entry> watched() {
        return entries.stream().filter(entry -> entry.state.equals("watched"));
    }

    /** Methods that are called too often are no longer counted. */
    private void letGo() {
        List<Entry> often = new ArrayList<>();
        long now = System.nanoTime();
        for (int id = 0; id < entries.size(); id++) {
            Entry entry = entries.get(id);
            long nanos = now - entry.began;
            if (entry.state.equals("watched") && run.calls(id) > Math.max(nanos / 1e9, 0.01) * TOO_OFTEN) {
                entry.state = TOO_OFTEN_WORD;
                entry.nanos = nanos;
                often.add(entry);
            }
        }
        if (!often.isEmpty()) {
            again(often);
        }
    }

    /**
     * Has the classes of these methods made anew, with the hook around whatever is still counted.
     */
    private void again(List<Entry> of) {
        Set<String> names = of.stream().map(entry -> entry.target.className()).collect(Collectors.toSet());
        Class<?>[] loaded = Arrays.stream(instrumentation.getAllLoadedClasses())
                .filter(one -> names.contains(one.getName()) && instrumentation.isModifiableClass(one))
                .toArray(Class<?>[]::new);
        try {
            if (loaded.length > 0) {
                instrumentation.retransformClasses(loaded);
            }
        } catch (UnmodifiableClassException | LinkageError failure) {
            Agent.say("count: " + failure);
        }
    }

    private void write() throws IOException {
        StringBuilder text = new StringBuilder("roost-count 2\n");
        for (int id = 0; id < entries.size(); id++) {
            Entry entry = entries.get(id);
            text.append("method ").append(entry.state).append(' ').append(run.calls(id)).append(' ')
                    .append(entry.began).append(' ').append(entry.nanos).append(' ')
                    .append(entry.target).append(' ').append(entry.name).append('\n');
            text.append("times");
            for (int bucket = 0; bucket < Tally.BUCKETS; bucket++) {
                long many = run.times(id, bucket);
                if (many > 0) {
                    text.append(' ').append(Tally.lower(bucket)).append(':').append(many);
                }
            }
            text.append("\nwhy ").append(entry.why.replace('\n', ' ')).append('\n');
        }
        text.append("end\n");
        Path fresh = file.resolveSibling(file.getFileName() + ".new");
        Files.write(fresh, text.toString().getBytes(StandardCharsets.UTF_8));
        Files.move(fresh, file, StandardCopyOption.ATOMIC_MOVE);
    }

    @Override
    public int addMethod(String name) {
        return entries.size() - 1;
    }

    @Override
    public void setMethod(int id, String name, int state) {
        Entry entry = entries.get(id);
        if (state == Layout.WATCHED && entry.state.equals("waiting")) {
            entry.state = "watched";
            entry.name = name;
            entry.began = System.nanoTime();
        } else if (state == Layout.REFUSED) {
            entry.state = "refused";
        }
    }

    @Override
    public boolean isWanted(int id) {
        return !entries.get(id).state.equals(TOO_OFTEN_WORD);
    }

    @Override
    public String hook() {
        return "roost/agent/Tally";
    }

    @Override
    public void tell(int id, String line) {
        entries.get(id).why = line;
    }
}
