package roost.agent;

import java.io.IOException;
import java.lang.instrument.Instrumentation;
import java.nio.file.AccessDeniedException;
import java.nio.file.NoSuchFileException;
import java.security.AccessController;
import java.security.PrivilegedAction;

/**
 * The agent's life: read the options, make the slot file, watch classes as they come and those that
 * are there.
 *
 * <p>All that needs rights or files happens here, at once: later the server's security manager or
 * entitlements may be in force, and its own code on the stack.
 */
public final class Agent {
    /**
     * The last attachment's failure: the attaching process reads it, for it does not see this JVM's
     * standard error.
     */
    static final String REFUSED = "roost.agent.refused";

    private static Watcher watcher;

    private Agent() {}

    /**
     * Called by {@link Entry}, once per attachment. Under a security manager Entry has no rights;
     * this class has, if it asks.
     */
    public static synchronized void start(String text, Instrumentation instrumentation) {
        AccessController.doPrivileged((PrivilegedAction<Void>) () -> {
            tell("");
            begin(text, instrumentation);
            return null;
        });
    }

    private static void refuse(String why) {
        say(why);
        tell(why);
    }

    private static void tell(String why) {
        try {
            System.setProperty(REFUSED, why);
        } catch (RuntimeException forbidden) {
            // Its own standard error has it.
        }
    }

    private static void begin(String text, Instrumentation instrumentation) {
        if (Count.isAsked(text)) {
            try {
                Count.start(text, instrumentation);
            } catch (IllegalArgumentException wrong) {
                refuse(wrong.getMessage());
            }
            return;
        }
        Options options;
        try {
            options = Options.parse(text);
        } catch (IllegalArgumentException wrong) {
            refuse("the hook is off: " + wrong.getMessage());
            return;
        }
        if (watcher != null) {
            again(options, instrumentation);
            return;
        }
        try {
            Installed.file = open(options);
        } catch (IOException | RuntimeException failure) {
            refuse("the hook is off: file=" + options.file() + ": " + reason(failure));
            return;
        }
        watcher = new Watcher(Installed.file);
        want(options);
        instrumentation.addTransformer(watcher, true);
        retransform(options, instrumentation);
    }

    private static SlotFile open(Options options) throws IOException {
        String why = Kernel.load(options.file().getParent());
        if (why != null) {
            say("no doorbell, the governor has to look by itself: " + why);
        }
        return SlotFile.create(
                options.file(), options.slots(), options.events(), java.util.List.of(),
                "roost-agent " + version() + " java " + Runtime.version().feature(), Identity.own(),
                why == null ? 0 : Layout.FLAG_CANNOT_RING);
    }

    /** A second attachment adds methods to the file that there is. */
    private static void again(Options options, Instrumentation instrumentation) {
        if (!options.file().equals(Installed.file.path)) {
            refuse("this JVM writes " + Installed.file.path + " already, and does not write " + options.file()
                    + " too");
            return;
        }
        want(options);
        retransform(options, instrumentation);
    }

    private static void want(Options options) {
        for (Options.Target target : options.methods()) {
            try {
                watcher.want(target);
            } catch (IllegalArgumentException full) {
                say(target + " is not watched: " + full.getMessage());
            }
        }
    }

    /**
     * Classes that were loaded before. Calls that are under way stay as they are; the next ones are
     * watched.
     */
    private static void retransform(Options options, Instrumentation instrumentation) {
        for (Class<?> loaded : instrumentation.getAllLoadedClasses()) {
            boolean isWanted = options.methods().stream().anyMatch(target -> target.className().equals(loaded.getName()));
            if (!isWanted) {
                continue;
            }
            try {
                instrumentation.retransformClasses(loaded);
            } catch (Throwable failure) {
                say(loaded.getName() + " is left as it was: " + failure);
            }
        }
    }

    static void say(String what) {
        System.err.println("roost-agent: " + what);
    }

    private static String reason(Exception failure) {
        String user = System.getProperty("user.name");
        if (failure instanceof AccessDeniedException) {
            return "the folder must be writable by this JVM's user, " + user;
        }
        if (failure instanceof NoSuchFileException) {
            return "there is no such folder; make it, writable by this JVM's user, " + user;
        }
        return failure.getMessage() == null ? failure.toString() : failure.getMessage();
    }

    private static String version() {
        String version = Agent.class.getPackage().getImplementationVersion();
        return version == null ? "0.1.0" : version;
    }
}
