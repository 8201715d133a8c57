package roost.agent;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/**
 * The text after the {@code =} of {@code -javaagent:roost-agent.jar=}.
 *
 * @param methods at least one
 * @param file absolute
 * @param slots threads at a time
 * @param events entries of the event ring; 0: none
 */
record Options(List<Target> methods, Path file, int slots, int events) {
    private static final String USAGE =
            "method=pkg.Class::method[(descriptor)][,method=...],file=/path/slots[,slots=N][,events=N]";

    /**
     * A method that is to be watched: class and method, and a descriptor where there are several of
     * that name.
     */
    record Target(String className, String method, String descriptor) {
        static Target parse(String text) {
            int separator = text.indexOf("::");
            int parenthesis = text.indexOf('(');
            int nameEnd = parenthesis < 0 ? text.length() : parenthesis;
            if (separator <= 0 || nameEnd <= separator + 2) {
                throw new IllegalArgumentException("method=" + text + " is not pkg.Class::method; " + USAGE);
            }
            String className = text.substring(0, separator).replace('/', '.');
            String method = text.substring(separator + 2, nameEnd);
            if (List.of("java.", "jdk.", "sun.").stream().anyMatch(className::startsWith)) {
                throw new IllegalArgumentException(
                        className + " is the JDK's own, which the hook itself calls; name a method of the server");
            }
            if (method.startsWith("<")) {
                throw new IllegalArgumentException(
                        "method=" + text + ": constructors cannot be watched; name a method");
            }
            return new Target(className, method, parenthesis < 0 ? "" : text.substring(parenthesis));
        }

        /**
         * Whether a descriptor is the one that was meant; the text after the parenthesis may be
         * left away.
         */
        boolean fits(String found) {
            return descriptor.endsWith(")") ? found.startsWith(descriptor) : descriptor.isEmpty() || found.equals(descriptor);
        }

        @Override
        public String toString() {
            return className + "::" + method + descriptor;
        }
    }

    static Options parse(String text) {
        List<Target> methods = new ArrayList<>();
        Path file = null;
        int slots = 1024;
        int events = 0;
        for (String option : text == null ? new String[0] : text.split(",")) {
            int equals = option.indexOf('=');
            String key = equals < 0 ? option : option.substring(0, equals);
            String value = option.substring(equals + 1);
            switch (key) {
                case "method" -> methods.add(Target.parse(value));
                case "file" -> file = Path.of(value.replace("%p", Long.toString(ProcessHandle.current().pid()))).toAbsolutePath();
                case "slots" -> slots = number(key, value, 1, Layout.SLOTS_MAX);
                case "events" -> events = number(key, value, 0, Layout.EVENTS_MAX);
                default -> throw new IllegalArgumentException("unknown option \"" + key + "\"; " + USAGE);
            }
        }
        if (methods.isEmpty() || file == null) {
            throw new IllegalArgumentException((file == null ? "file=" : "method=") + " is missing; " + USAGE);
        }
        if (methods.size() > Layout.METHODS_MAX) {
            throw new IllegalArgumentException(methods.size() + " methods, of at most " + Layout.METHODS_MAX);
        }
        if (Integer.bitCount(events) > 1) {
            throw new IllegalArgumentException("events=" + events + " must be a power of two");
        }
        return new Options(methods, file, slots, events);
    }

    private static int number(String key, String value, int least, int most) {
        try {
            int number = Integer.parseInt(value);
            if (number >= least && number <= most) {
                return number;
            }
        } catch (NumberFormatException none) {
            // The same line below.
        }
        throw new IllegalArgumentException(key + "=" + value + " must be a number from " + least + " to " + most);
    }
}
