package roost.agent;

import java.util.List;
import java.util.Map;
import org.objectweb.asm.ClassReader;
import org.objectweb.asm.ClassVisitor;
import org.objectweb.asm.ClassWriter;
import org.objectweb.asm.Label;
import org.objectweb.asm.MethodVisitor;
import org.objectweb.asm.Opcodes;

/**
 * Puts the hook around methods of a class file.
 *
 * <pre>
 *   int token = Hook.enter(method);    or another hook's
 *   try {
 *       ... as it was; before each return: Hook.exit(token, method);
 *   } catch (Throwable any) {
 *       Hook.exit(token, method);
 *       throw any;
 *   }
 * </pre>
 *
 * <p>The token lies in a new local variable behind all others, so nothing moves; every stack map
 * frame is padded up to it. Frames are written as they were, never computed: computing them would
 * load the server's classes while it loads them.
 */
final class Watch {
    private Watch() {}

    /**
     * The class with the hook around some of its methods.
     *
     * @param hook the class that has enter and exit, by its internal name
     * @param chosen by name and descriptor: the method's number
     * @param locals by name and descriptor: how many local variables each has
     */
    static byte[] around(
            String hook, ClassReader reader, Map<String, Integer> chosen, Map<String, Integer> locals) {
        ClassWriter writer = new ClassWriter(reader, ClassWriter.COMPUTE_MAXS);
        reader.accept(
                new ClassVisitor(Opcodes.ASM9, writer) {
                    @Override
                    public MethodVisitor visitMethod(
                            int access,
                            String name,
                            String descriptor,
                            String signature,
                            String[] exceptions) {
                        MethodVisitor next = super.visitMethod(access, name, descriptor, signature, exceptions);
                        Integer id = chosen.get(name + descriptor);
                        return id == null ? next : new Around(hook, next, id, locals.get(name + descriptor));
                    }
                },
                ClassReader.EXPAND_FRAMES);
        return writer.toByteArray();
    }

    private static final class Around extends MethodVisitor {
        private final String hook;
        private final int id;
        private final int token;
        private final Label start = new Label();
        private final Label end = new Label();
        private final Label handler = new Label();

        Around(String hook, MethodVisitor next, int id, int locals) {
            super(Opcodes.ASM9, next);
            this.hook = hook;
            this.id = id;
            this.token = locals;
        }

        @Override
        public void visitCode() {
            super.visitCode();
            pushId();
            super.visitMethodInsn(Opcodes.INVOKESTATIC, hook, "enter", "(I)I", false);
            super.visitVarInsn(Opcodes.ISTORE, token);
            super.visitLabel(start);
        }

        @Override
        public void visitInsn(int opcode) {
            if (opcode >= Opcodes.IRETURN && opcode <= Opcodes.RETURN) {
                exit();
            }
            super.visitInsn(opcode);
        }

        @Override
        public void visitFrame(int type, int localCount, Object[] local, int stackCount, Object[] stack) {
            int size = 0;
            for (int i = 0; i < localCount; i++) {
                size += local[i] == Opcodes.LONG || local[i] == Opcodes.DOUBLE ? 2 : 1;
            }
            Object[] padded = new Object[localCount + token - size + 1];
            System.arraycopy(local, 0, padded, 0, localCount);
            for (int i = localCount; i < padded.length - 1; i++) {
                padded[i] = Opcodes.TOP;
            }
            padded[padded.length - 1] = Opcodes.INTEGER;
            super.visitFrame(type, padded.length, padded, stackCount, stack);
        }

        /** Behind the method's own handlers, so that those come first. */
        @Override
        public void visitMaxs(int maxStack, int maxLocals) {
            super.visitLabel(end);
            super.visitTryCatchBlock(start, end, handler, null);
            super.visitLabel(handler);
            visitFrame(Opcodes.F_NEW, 0, new Object[0], 1, new Object[] {"java/lang/Throwable"});
            exit();
            super.visitInsn(Opcodes.ATHROW);
            super.visitMaxs(maxStack, maxLocals);
        }

        private void exit() {
            super.visitVarInsn(Opcodes.ILOAD, token);
            pushId();
            super.visitMethodInsn(Opcodes.INVOKESTATIC, hook, "exit", "(II)V", false);
        }

        private void pushId() {
            // Fewer than 64.
            super.visitIntInsn(Opcodes.BIPUSH, id);
        }
    }

    /** A method as a class file has it. */
    record Found(String name, String descriptor, boolean hasCode, int locals) {
        @Override
        public String toString() {
            return name + descriptor;
        }
    }

    /** The methods of a class, constructors aside. */
    static List<Found> methods(ClassReader reader) {
        List<Found> found = new java.util.ArrayList<>();
        reader.accept(
                new ClassVisitor(Opcodes.ASM9) {
                    @Override
                    public MethodVisitor visitMethod(
                            int access,
                            String name,
                            String descriptor,
                            String signature,
                            String[] exceptions) {
                        boolean hasCode = (access & (Opcodes.ACC_ABSTRACT | Opcodes.ACC_NATIVE)) == 0;
                        if (name.startsWith("<")) {
                            return null;
                        }
                        return new MethodVisitor(Opcodes.ASM9) {
                            private int locals;

                            @Override
                            public void visitMaxs(int maxStack, int maxLocals) {
                                locals = maxLocals;
                            }

                            @Override
                            public void visitEnd() {
                                found.add(new Found(name, descriptor, hasCode, locals));
                            }
                        };
                    }
                },
                ClassReader.SKIP_DEBUG | ClassReader.SKIP_FRAMES);
        return found;
    }
}
