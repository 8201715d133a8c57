package tiny;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;

/**
 * A small server on a socket, for those who look for its hot function: a line in, a line out.
 *
 * <pre>
 *   serve        the loop of a connection's thread: never over
 *     answer     once a request
 *       parse    once a request, and next to no work
 *       search   once a request, and nearly all of it: the hot function
 *         score  forty times a request
 * </pre>
 */
public final class Requests {
    private Requests() {}

    /** Says "ready PID PORT", then serves; a thread for each connection. */
    public static void main(String[] arguments) throws Exception {
        try (ServerSocket listener = new ServerSocket(0, 64, InetAddress.getLoopbackAddress())) {
            System.out.println("ready " + ProcessHandle.current().pid() + " " + listener.getLocalPort());
            for (int number = 1; ; number++) {
                Socket socket = listener.accept();
                socket.setTcpNoDelay(true);
                Thread thread = new Thread(() -> serve(socket), "request-" + number);
                thread.setDaemon(true);
                thread.start();
            }
        }
    }

    private static void serve(Socket socket) {
        try (socket) {
            BufferedReader input = new BufferedReader(new InputStreamReader(socket.getInputStream()));
            OutputStream output = socket.getOutputStream();
            for (String line = input.readLine(); line != null; line = input.readLine()) {
                output.write(answer(line).getBytes());
            }
        } catch (java.io.IOException gone) {
            // The client left.
        }
    }

    static String answer(String line) {
        return search(parse(line)) + "\n";
    }

    static int parse(String line) {
        return line.length();
    }

    /** The hot function. */
    static long search(int query) {
        long sum = 0;
        for (int document = 0; document < 40; document++) {
            sum += score(query, document);
        }
        return sum;
    }

    static long score(int query, int document) {
        long hash = query * 31L + document;
        for (int i = 0; i < 20_000; i++) {
            hash = hash * 6364136223846793005L + 1442695040888963407L;
            hash ^= hash >>> 29;
        }
        return hash;
    }
}
