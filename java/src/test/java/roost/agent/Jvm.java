package roost.agent;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

/** A JVM with {@link tiny.Server} in it, driven line by line. */
final class Jvm implements AutoCloseable {
    static final Path JAR = Path.of(System.getProperty("roost.jar", "../target/java/roost-agent.jar"));

    private final Process process;
    private final BufferedReader answers;
    private final Path errors;
    final long pid;

    private Jvm(Process process, Path errors) throws IOException {
        this.process = process;
        this.errors = errors;
        this.answers = new BufferedReader(new InputStreamReader(process.getInputStream()));
        String ready = answers.readLine();
        if (ready == null || !ready.startsWith("ready ")) {
            throw new IOException("the JVM said " + ready + ", and: " + said());
        }
        this.pid = Long.parseLong(ready.substring(6));
    }

    /** With the agent, if there are options for it. */
    static Jvm start(Path home, String options, Path folder) throws IOException {
        return start(List.of(), home, options, folder);
    }

    /** By a user who may write hardly anywhere; for root, who may become any user. */
    static Jvm startAsNobody(String options, Path folder) throws IOException {
        boolean isRoot = "root".equals(System.getProperty("user.name"));
        org.junit.jupiter.api.Assumptions.assumeTrue(isRoot, "only root may be another");
        List<String> nobody = List.of("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups");
        return start(nobody, home(), options, folder);
    }

    private static Jvm start(List<String> as, Path home, String options, Path folder) throws IOException {
        List<String> command = new ArrayList<>(as);
        command.add(home.resolve("bin/java").toString());
        if (version(home) >= 24) {
            // Otherwise the JDK warns that a library is loaded.
            command.add("--enable-native-access=ALL-UNNAMED");
        }
        if (options != null) {
            command.add("-javaagent:" + JAR + "=" + options);
        }
        command.addAll(List.of("-Xshare:auto", "-Xmx128m", "-cp", classes().toString(), "tiny.Server"));
        Path errors = Files.createTempFile(folder, "stderr", ".txt");
        return new Jvm(new ProcessBuilder(command).redirectError(errors.toFile()).start(), errors);
    }

    static Jvm start(String options, Path folder) throws IOException {
        return start(home(), options, folder);
    }

    static Path home() {
        return Path.of(System.getProperty("java.home"));
    }

    /** Every JDK here of at least 17: this one, and the others below /usr/lib/jvm. */
    static List<Path> homes() {
        try (Stream<Path> found = Files.list(Path.of("/usr/lib/jvm"))) {
            Stream<Path> others = found.filter(path -> !Files.isSymbolicLink(path) && version(path) >= 17);
            return Stream.concat(Stream.of(home()), others).map(Jvm::real).distinct().toList();
        } catch (IOException none) {
            return List.of(home());
        }
    }

    private static Path real(Path path) {
        try {
            return path.toRealPath();
        } catch (IOException gone) {
            throw new UncheckedIOException(gone);
        }
    }

    /** 0 where there is no JDK. */
    static int version(Path home) {
        try (Stream<String> lines = Files.lines(home.resolve("release"))) {
            return lines.filter(line -> line.startsWith("JAVA_VERSION="))
                    .map(line -> line.replaceAll("JAVA_VERSION=\"([0-9]+).*", "$1"))
                    .mapToInt(Integer::parseInt)
                    .findFirst()
                    .orElse(0);
        } catch (IOException | RuntimeException none) {
            return 0;
        }
    }

    private static Path classes() throws IOException {
        try {
            return Path.of(tiny.Server.class.getProtectionDomain().getCodeSource().getLocation().toURI());
        } catch (java.net.URISyntaxException impossible) {
            throw new IOException(impossible);
        }
    }

    void tell(String line) throws IOException {
        process.getOutputStream().write((line + "\n").getBytes());
        process.getOutputStream().flush();
    }

    String ask(String line) throws IOException {
        tell(line);
        return answers.readLine();
    }

    String answer() throws IOException {
        return answers.readLine();
    }

    /** Its standard error so far. */
    String said() throws IOException {
        return Files.readString(errors);
    }

    /** Waits until its standard error holds that text; all of it. */
    String waitFor(String text) throws Exception {
        for (int i = 0; i < 400 && !said().contains(text); i++) {
            Thread.sleep(25);
        }
        return said();
    }

    @Override
    public void close() throws Exception {
        process.getOutputStream().close();
        if (!process.waitFor(10, TimeUnit.SECONDS)) {
            process.destroyForcibly();
        }
    }
}
