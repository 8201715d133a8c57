package tiny;

/**
 * Methods of every shape that the hook has to go around: frames, wide locals, handlers of their
 * own, locks, switches.
 */
public final class Shapes {
    private long field = 3;

    private Shapes() {}

    static void all() {
        Shapes shapes = new Shapes();
        check(shapes.wide(1, 2.5, 'c', 4L) == 10);
        check(shapes.locked(5) == 8);
        check(handled("12") == 12 && handled("x") == -1);
        check(loops(100) == 4950);
        check(switches("two") == 2 && switches("none") == 0);
        shapes.nothing();
        check(array(3).length == 3);
        check(number(2f) == 4f && number(2d) == 8d);
        try {
            rethrow(null);
            throw new AssertionError("no exception");
        } catch (NullPointerException expected) {
            // As it was.
        }
    }

    private static void check(boolean holds) {
        if (!holds) {
            throw new AssertionError("the hook changed what a method does");
        }
    }

    private double wide(long a, double b, char c, long d) {
        double sum = a + b;
        for (long i = 0; i < d; i++) {
            if (i == c) {
                return -1;
            }
            sum += i;
        }
        String text = c == 'c' ? "x" : "yy";
        return Math.floor(sum) + text.length() + (field - 3);
    }

    private synchronized long locked(int more) {
        synchronized (Shapes.class) {
            if (more > 100) {
                throw new IllegalArgumentException();
            }
            return field + more;
        }
    }

    private static int handled(String text) {
        try {
            return Integer.parseInt(text);
        } catch (NumberFormatException wrong) {
            return -1;
        } finally {
            text = null;
        }
    }

    private static int loops(int n) {
        int sum = 0;
        do {
            n--;
            sum += n;
        } while (n > 0);
        return sum;
    }

    private static int switches(String word) {
        return switch (word) {
            case "one" -> 1;
            case "two" -> 2;
            default -> 0;
        };
    }

    private void nothing() {}

    private static int[] array(int n) {
        int[] made = new int[n];
        for (int i = 0; i < n; i++) {
            made[i] = i;
        }
        return made;
    }

    private static float number(float a) {
        return a * 2;
    }

    private static double number(double a) {
        return a * 4;
    }

    private static void rethrow(Object nothing) {
        try {
            nothing.hashCode();
        } catch (RuntimeException seen) {
            throw seen;
        }
    }
}
