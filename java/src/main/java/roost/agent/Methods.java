package roost.agent;

/** Where it is kept which methods are watched: a slot file, or a count of calls. */
interface Methods {
    /** The number of one more method; its class is waited for. */
    int addMethod(String name);

    /** Its state: {@link Layout#WAITING}, {@link Layout#WATCHED} or {@link Layout#REFUSED}. */
    void setMethod(int id, String name, int state);

    /** Whether it is to be watched still. */
    boolean isWanted(int id);

    /** The class whose {@code enter} and {@code exit} the methods call, by its internal name. */
    String hook();

    /** One line for the user, about the methods found or refused. */
    void tell(int id, String line);
}
