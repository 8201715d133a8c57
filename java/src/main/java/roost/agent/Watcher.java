package roost.agent;

import java.lang.instrument.ClassFileTransformer;
import java.security.ProtectionDomain;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.objectweb.asm.ClassReader;

/**
 * Finds the named methods in classes as they are loaded, and puts the hook around them.
 *
 * <p>A name that fits no method, or several, is refused, with the names there are; so is a class
 * whose loader cannot see the hook, because its call would fail in the middle of the server. A
 * refusal leaves the class as it was.
 */
final class Watcher implements ClassFileTransformer {
    private final Methods methods;
    /** By the class's internal name: the methods to watch there. */
    private final Map<String, List<Wanted>> wanted = new HashMap<>();

    private record Wanted(int id, Options.Target target) {}

    Watcher(Methods methods) {
        this.methods = methods;
    }

    synchronized void want(Options.Target target) {
        int id = methods.addMethod(target.toString());
        String name = target.className().replace('.', '/');
        wanted.computeIfAbsent(name, any -> new ArrayList<>()).add(new Wanted(id, target));
    }

    @Override
    public byte[] transform(
            ClassLoader loader, String name, Class<?> redefined, ProtectionDomain domain, byte[] bytes) {
        List<Wanted> here;
        // A class without a name of its own, such as a lambda's.
        if (name == null) {
            return null;
        }
        synchronized (this) {
            here = wanted.get(name);
        }
        if (here == null) {
            return null;
        }
        try {
            return watch(loader, name.replace('/', '.'), List.copyOf(here), bytes);
        } catch (Throwable failure) {
            Agent.say(name.replace('/', '.') + " is left as it was: " + failure);
            return null;
        }
    }

    private byte[] watch(ClassLoader loader, String className, List<Wanted> here, byte[] bytes) {
        ClassReader reader = new ClassReader(bytes);
        List<Watch.Found> there = Watch.methods(reader);
        Map<String, Integer> chosen = new HashMap<>();
        Map<String, Integer> locals = new HashMap<>();
        for (Wanted one : here) {
            if (!methods.isWanted(one.id())) {
                continue;
            }
            Options.Target target = one.target();
            List<Watch.Found> fitting = there.stream()
                    .filter(method -> method.name().equals(target.method()) && target.fits(method.descriptor()))
                    .toList();
            String refusal = refusal(loader, target, fitting, there);
            if (refusal != null) {
                methods.setMethod(one.id(), target.toString(), Layout.REFUSED);
                methods.tell(one.id(), refusal);
                continue;
            }
            Watch.Found method = fitting.get(0);
            if (chosen.putIfAbsent(method.toString(), one.id()) == null) {
                locals.put(method.toString(), method.locals());
                methods.setMethod(one.id(), className + "::" + method, Layout.WATCHED);
            }
        }
        return chosen.isEmpty() ? null : Watch.around(methods.hook(), reader, chosen, locals);
    }

    /** Why a method is not watched; null if it is. */
    private static String refusal(
            ClassLoader loader, Options.Target target, List<Watch.Found> fitting, List<Watch.Found> methods) {
        if (fitting.size() > 1) {
            return target + " is not watched, because there are " + fitting.size() + "; name one: "
                    + fitting.stream().map(method -> "method=" + target.className() + "::" + method)
                            .collect(Collectors.joining(" or "));
        }
        if (fitting.isEmpty()) {
            boolean isName = methods.stream().anyMatch(method -> method.name().equals(target.method()));
            // Where the name is right, the descriptor is wrong.
            List<String> near = isName
                    ? methods.stream().filter(method -> method.name().equals(target.method())).map(Watch.Found::toString).toList()
                    : nearest(target.method(), methods.stream().map(Watch.Found::name).distinct().toList());
            return target + " is not watched, because " + target.className() + " has no such method"
                    + (near.isEmpty() ? "" : "; the nearest: " + String.join(", ", near));
        }
        if (!fitting.get(0).hasCode()) {
            return target + " is not watched, because it is abstract or native; name the method that does the work";
        }
        try {
            if (Class.forName("roost.agent.Hook", false, loader) == Hook.class) {
                return null;
            }
        } catch (ClassNotFoundException | LinkageError hidden) {
            // The line below.
        }
        return target + " is not watched, because its class loader does not see the boot class path's roost.agent"
                + "; in OSGi add org.osgi.framework.bootdelegation=roost.agent";
    }

    /** The three names that are the fewest edits away. */
    static List<String> nearest(String name, List<String> names) {
        return names.stream().sorted(Comparator.comparingInt(other -> distance(name, other))).limit(3).toList();
    }

    /** Levenshtein's, without regard to case. */
    private static int distance(String a, String b) {
        String one = a.toLowerCase(java.util.Locale.ROOT);
        String two = b.toLowerCase(java.util.Locale.ROOT);
        int[] row = new int[two.length() + 1];
        for (int j = 0; j < row.length; j++) {
            row[j] = j;
        }
        for (int i = 1; i <= one.length(); i++) {
            int diagonal = row[0];
            row[0] = i;
            for (int j = 1; j < row.length; j++) {
                int change = diagonal + (one.charAt(i - 1) == two.charAt(j - 1) ? 0 : 1);
                diagonal = row[j];
                row[j] = Math.min(change, Math.min(row[j], row[j - 1]) + 1);
            }
        }
        return row[two.length()];
    }
}
