package roost.agent;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * Which process wrote a file: a number alone is used again, also after a restart of the machine.
 *
 * @param pid in this pid namespace
 * @param started field 22 of /proc/PID/stat; 0: not known
 * @param bootId 16 bytes
 */
record Identity(int pid, long started, byte[] bootId) {
    static Identity own() {
        int pid = (int) ProcessHandle.current().pid();
        return new Identity(pid, started(pid), ownBootId());
    }

    static boolean isAlive(int pid, long started, byte[] bootId) {
        return started != 0 && java.util.Arrays.equals(bootId, ownBootId()) && started(pid) == started;
    }

    private static long started(int pid) {
        try {
            String stat = Files.readString(Path.of("/proc/" + pid + "/stat"), java.nio.charset.StandardCharsets.ISO_8859_1);
            // The command stands in parentheses and may hold any character.
            return Long.parseLong(stat.substring(stat.lastIndexOf(')') + 2).split(" ")[19]);
        } catch (IOException | RuntimeException unknown) {
            return 0;
        }
    }

    private static byte[] ownBootId() {
        try {
            String text = Files.readString(Path.of("/proc/sys/kernel/random/boot_id"));
            return java.util.HexFormat.of().parseHex(text.strip().replace("-", ""));
        } catch (IOException | RuntimeException unknown) {
            return new byte[16];
        }
    }
}
