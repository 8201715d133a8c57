package roost.agent;

import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.AccessController;
import java.security.PrivilegedAction;

/**
 * The system calls that Java has no way to make: a thread's own number and a futex's wake.
 *
 * <p>Both are in a library of a few hundred instructions that the jar carries and {@link #load} loads before the
 * server's security is set up. Where it cannot be loaded (another processor, a temporary folder
 * that forbids execution) numbers come from /proc, and the slot file says that its doorbell cannot
 * be rung: the governor then looks by itself.
 */
final class Kernel {
    private static boolean isLoaded;

    private Kernel() {}

    /** Why the library could not be loaded; null if it was. */
    static synchronized String load(Path besides) {
        if (isLoaded) {
            return null;
        }
        String name = "libroost-" + System.getProperty("os.arch") + ".so";
        String why = null;
        // A folder mounted without execution is common for /tmp; the slot file's may be better.
        for (Path folder : new Path[] {Path.of(System.getProperty("java.io.tmpdir")), besides}) {
            Path copy = null;
            try (InputStream library = ClassLoader.getSystemResourceAsStream("roost/agent/" + name)) {
                InputStream bytes = library != null ? library : Kernel.class.getResourceAsStream(name);
                if (bytes == null) {
                    return "the jar has no " + name;
                }
                copy = Files.createTempFile(folder, "roost-agent", ".so");
                Files.write(copy, bytes.readAllBytes());
                System.load(copy.toAbsolutePath().toString());
                isLoaded = true;
                return null;
            } catch (IOException | RuntimeException | LinkageError failure) {
                why = failure.toString();
            } finally {
                remove(copy);
            }
        }
        return why;
    }

    /** It is mapped by now. */
    private static void remove(Path copy) {
        try {
            if (copy != null) {
                Files.deleteIfExists(copy);
            }
        } catch (IOException left) {
            // A file of a few kilobytes stays behind in a temporary folder.
        }
    }

    /** The calling thread's number in the kernel; -1 if it cannot be had. */
    static int threadNumber() {
        if (isLoaded) {
            return gettid();
        }
        // /proc/thread-self leads to PID/task/TID. The server's own code may be on the stack,
        // without the right to read.
        return AccessController.doPrivileged((PrivilegedAction<Integer>) () -> {
            try {
                Path target = Files.readSymbolicLink(Path.of("/proc/thread-self"));
                return Integer.parseInt(target.getFileName().toString());
            } catch (IOException | RuntimeException unknown) {
                return -1;
            }
        });
    }

    /** Whether a waiter could be told; there may have been none. */
    static boolean wake(ByteBuffer map, int offset) {
        return isLoaded && futexWake(map, offset) >= 0;
    }

    private static native int gettid();

    private static native int futexWake(ByteBuffer map, int offset);
}
