package tiny;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.concurrent.CountDownLatch;

/**
 * A small server for the agent's tests, in Java and in Rust: it carries out each line of its
 * standard input and answers "ok", or the exception.
 *
 * <pre>
 *   calls THREADS N    each thread calls search N times, then stays alive
 *   throw N            N calls that end by an exception
 *   recurse DEPTH      one call that calls itself
 *   hold               one call that lasts until the next line
 *   spin MS            one thread makes a call that computes for so long, not waited for
 *   collect MB N       keeps so much alive in small objects, and collects garbage N times
 *   short N            N threads, one after the other, that call once and end
 *   virtual N          N calls on virtual threads (JDK 21)
 *   shapes             every kind of method that a compiler makes
 * </pre>
 */
public final class Server {
    private static final BufferedReader INPUT = new BufferedReader(new InputStreamReader(System.in));

    private Server() {}

    public static void main(String[] arguments) throws Exception {
        System.out.println("ready " + ProcessHandle.current().pid());
        for (String line = INPUT.readLine(); line != null; line = INPUT.readLine()) {
            try {
                obey(line.split(" "));
                System.out.println("ok");
            } catch (Throwable escaped) {
                System.out.println("escaped: " + escaped);
            }
        }
    }

    private static void obey(String[] words) throws Exception {
        int number = words.length > 1 ? Integer.parseInt(words[words.length - 1]) : 0;
        switch (words[0]) {
            case "calls" -> calls(Integer.parseInt(words[1]), number);
            case "throw" -> {
                for (int i = 0; i < number; i++) {
                    try {
                        search(-1);
                    } catch (IllegalStateException expected) {
                        // That is the exercise.
                    }
                }
            }
            case "recurse" -> recurse(number);
            case "hold" -> hold();
            case "spin" -> {
                Thread thread = new Thread(() -> spin(number), "spinner");
                thread.setDaemon(true);
                thread.start();
            }
            case "collect" -> collect(Integer.parseInt(words[1]), number);
            case "short" -> {
                for (int i = 0; i < number; i++) {
                    Thread thread = new Thread(() -> search(1));
                    thread.start();
                    thread.join();
                }
            }
            case "virtual" -> virtual(number);
            case "shapes" -> Shapes.all();
            default -> throw new IllegalArgumentException(String.join(" ", words));
        }
    }

    private static void calls(int threads, int number) throws InterruptedException {
        CountDownLatch over = new CountDownLatch(threads);
        for (int i = 0; i < threads; i++) {
            Thread thread = new Thread(() -> {
                for (int call = 0; call < number; call++) {
                    search(call);
                }
                over.countDown();
                try {
                    Thread.sleep(Long.MAX_VALUE);
                } catch (InterruptedException end) {
                    // The server ends.
                }
            });
            thread.setDaemon(true);
            thread.start();
        }
        over.await();
    }

    private static void virtual(int number) throws Exception {
        for (int i = 0; i < number; i++) {
            // By reflection: this is compiled for JDK 17.
            Thread thread = (Thread) Thread.class
                    .getMethod("startVirtualThread", Runnable.class)
                    .invoke(null, (Runnable) () -> search(1));
            thread.join();
        }
    }

    /** The hot function. */
    static long search(int query) {
        if (query < 0) {
            throw new IllegalStateException("no such query");
        }
        return query * 31L;
    }

    static long recurse(int depth) {
        return depth == 0 ? 0 : 1 + recurse(depth - 1);
    }

    static String hold() throws Exception {
        System.out.println("inside");
        return INPUT.readLine();
    }

    static long spin(int millis) {
        long end = System.nanoTime() + millis * 1_000_000L;
        long turns = 0;
        while (System.nanoTime() < end) {
            turns++;
        }
        return turns;
    }

    /** Each object is small and points to another one, so that all of them must be followed. */
    private static void collect(int megabytes, int times) {
        Object[] alive = null;
        for (int i = 0; i < megabytes * 16_384; i++) {
            alive = new Object[] {alive, new byte[16]};
        }
        for (int i = 0; i < times; i++) {
            System.gc();
        }
        java.lang.ref.Reference.reachabilityFence(alive);
    }

    static int twice(int a) {
        return a;
    }

    static int twice(long a, String b) {
        return b.length();
    }
}
