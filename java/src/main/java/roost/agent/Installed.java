package roost.agent;

/**
 * The slot file of this JVM; set before {@link Hook} is first touched, which makes a constant of
 * it.
 */
final class Installed {
    static SlotFile file;

    private Installed() {}
}
