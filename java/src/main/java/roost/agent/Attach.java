package roost.agent;

import com.sun.tools.attach.VirtualMachine;
import java.io.File;

/**
 * Puts the agent into a JVM that runs: {@code java -jar roost-agent.jar PID OPTIONS}, as that JVM's user.
 *
 * <p>What it has to say it says on that JVM's standard error.
 */
public final class Attach {
    private Attach() {}

    /** PID, and what would stand after the {@code =} of {@code -javaagent:roost-agent.jar=}. */
    public static void main(String[] arguments) {
        if (arguments.length != 2) {
            System.err.println("usage: java -jar roost-agent.jar PID method=pkg.Class::method,file=/path/slots");
            System.exit(2);
        }
        try {
            boolean isCount = Count.isAsked(arguments[1]);
            // A wrong option is better told here than over there.
            Options options = isCount ? null : Options.parse(arguments[1]);
            File jar = new File(Attach.class.getProtectionDomain().getCodeSource().getLocation().toURI());
            VirtualMachine machine = VirtualMachine.attach(arguments[0]);
            try {
                // The other JVM has a folder of its own for names that are relative.
                String text = isCount ? arguments[1] : arguments[1].replaceAll("(^|,)file=[^,]*", "") + ",file=" + file(arguments[1], options);
                machine.loadAgent(jar.getAbsolutePath(), text.startsWith(",") ? text.substring(1) : text);
            } finally {
                machine.detach();
            }
        } catch (Exception failure) {
            String why = failure.getMessage() == null ? failure.toString() : failure.getMessage();
            System.err.println("roost-agent: process " + arguments[0] + ": " + why);
            System.exit(1);
        }
    }

    /** With %p left to the other JVM. */
    private static String file(String text, Options options) {
        String given = text.replaceAll(".*?(^|,)file=([^,]*).*", "$2");
        return given.contains("%p") ? new File(given).getAbsolutePath() : options.file().toString();
    }
}
