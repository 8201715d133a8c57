/**
 * The Roost agent: tells, through a mapped file, which threads of a JVM are inside the server's hot
 * function.
 *
 * <pre>
 *   Entry (the application's loader) -> Agent -> Options, Kernel, SlotFile      once, at the start
 *                                        Watcher -> Watch                        once per class that is named
 *                                        Count -> Tally                          for some seconds, when asked
 *                                        Hook -> ThreadSlot -> the mapped file   on every call
 * </pre>
 *
 * <p>The file is docs/formats.md's "Hot-function slots". Every class but Entry and Attach is on the
 * boot class path.
 */
package roost.agent;
