package roost.agent;

import java.io.File;
import java.lang.instrument.Instrumentation;
import java.util.jar.JarFile;

/**
 * Where the JVM enters: at its start ({@code -javaagent}) or later ({@link Attach}).
 *
 * <p>This class is loaded by the application's class loader. All others must be the boot class
 * path's, because instrumented code calls {@link Hook} from any class loader and under any security
 * manager; so the jar is put there first, and only then is the next class named.
 *
 * <p>Nothing that goes wrong in the agent may harm the server: it is one line on standard error,
 * and the hook is off.
 */
public final class Entry {
    private Entry() {}

    /** The JVM starts. */
    public static void premain(String options, Instrumentation instrumentation) {
        enter(options, instrumentation);
    }

    /** The JVM runs already. */
    public static void agentmain(String options, Instrumentation instrumentation) {
        enter(options, instrumentation);
    }

    private static void enter(String options, Instrumentation instrumentation) {
        try {
            if (!isThere(instrumentation)) {
                File jar = new File(Entry.class.getProtectionDomain().getCodeSource().getLocation().toURI());
                instrumentation.appendToBootstrapClassLoaderSearch(new JarFile(jar));
            }
            // By this class's own loader, which asks its parents first: to name the boot loader is
            // a right that a security manager may refuse to an agent that comes late.
            Class.forName("roost.agent.Agent")
                    .getMethod("start", String.class, Instrumentation.class)
                    .invoke(null, options, instrumentation);
        } catch (Throwable failure) {
            System.err.println("roost-agent: the hook is off: " + failure);
        }
    }

    /**
     * On the boot class path, from an attachment before, whose jar may be gone. Asking for
     * that loader needs no permission.
     */
    private static boolean isThere(Instrumentation instrumentation) {
        for (Class<?> loaded : instrumentation.getAllLoadedClasses()) {
            if (loaded.getName().equals("roost.agent.Agent") && loaded.getClassLoader() == null) {
                return true;
            }
        }
        return false;
    }
}
