package roost.agent;

import com.sun.tools.attach.VirtualMachine;
import java.io.File;
import java.nio.charset.StandardCharsets;

/**
 * Puts the agent into a JVM that runs: {@code java -jar roost-agent.jar PID OPTIONS}, as that JVM's
 * user.
 *
 * <p>The agent's messages go to that JVM's standard error. A failed request is reported here as
 * well, with exit code 1.
 */
public final class Attach {
    /**
     * HotSpot's limit for a jar's path and its options, up to JDK 23; beyond it HotSpot says
     * "connection reset".
     */
    private static final int BYTES_MAX = 1023;

    private Attach() {}

    /**
     * PID, and the text that would stand after the {@code =} of
     * {@code -javaagent:roost-agent.jar=}.
     */
    public static void main(String[] arguments) {
        if (arguments.length != 2) {
            System.err.println("usage: java -jar roost-agent.jar PID method=pkg.Class::method,file=/path/slots");
            System.exit(2);
        }
        String sent = "";
        try {
            boolean isCount = Count.isAsked(arguments[1]);
            // A wrong option is better told here than over there.
            Options options = isCount ? null : Options.parse(arguments[1]);
            File jar = new File(Attach.class.getProtectionDomain().getCodeSource().getLocation().toURI());
            VirtualMachine machine = VirtualMachine.attach(arguments[0]);
            try {
                // The other JVM has a folder of its own for names that are relative.
                String text = isCount
                        ? arguments[1]
                        : arguments[1].replaceAll("(^|,)file=[^,]*", "") + ",file=" + file(arguments[1], options);
                text = text.startsWith(",") ? text.substring(1) : text;
                sent = jar.getAbsolutePath() + "=" + text;
                machine.loadAgent(jar.getAbsolutePath(), text);
                String refused = machine.getSystemProperties().getProperty(Agent.REFUSED, "");
                if (!refused.isEmpty()) {
                    System.err.println("roost-agent: process " + arguments[0] + ": " + refused);
                    System.exit(1);
                }
            } finally {
                machine.detach();
            }
        } catch (Exception failure) {
            String why = failure.getMessage() == null ? failure.toString() : failure.getMessage();
            int bytes = sent.getBytes(StandardCharsets.UTF_8).length;
            String hint = bytes <= BYTES_MAX
                    ? ""
                    : "; the jar's path and the options have " + bytes + " bytes, and a JVM before 24 takes "
                            + BYTES_MAX + ": leave away what follows ) in descriptors, or attach several times,"
                            + " with some of the methods each";
            System.err.println("roost-agent: process " + arguments[0] + ": " + why + hint);
            System.exit(1);
        }
    }

    /** With %p left to the other JVM. */
    private static String file(String text, Options options) {
        String given = text.replaceAll(".*?(^|,)file=([^,]*).*", "$2");
        return given.contains("%p") ? new File(given).getAbsolutePath() : options.file().toString();
    }
}
