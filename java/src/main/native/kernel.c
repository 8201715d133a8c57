/* The two system calls that the agent needs and JDK 17 cannot make: a thread's number, and the
 * doorbell's wake. Made without libc, so that one library serves glibc and musl alike. See
 * Kernel.java. */
#include <jni.h>

#define FUTEX_WAKE 1

#if defined(__x86_64__)
enum { GETTID = 186, FUTEX = 202 };
static long call3(long number, long a, long b, long c) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return result;
}
#elif defined(__aarch64__)
enum { GETTID = 178, FUTEX = 98 };
static long call3(long number, long a, long b, long c) {
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
    return x0;
}
#else
#error "kernel.c: add this processor's system call instruction"
#endif

JNIEXPORT jint JNICALL Java_roost_agent_Kernel_gettid(JNIEnv *env, jclass kernel) {
    (void)env, (void)kernel;
    return (jint)call3(GETTID, 0, 0, 0);
}

/* Wakes one that waits for the word at `offset` of a mapped buffer; how many were woken, or a
 * negative errno. */
JNIEXPORT jint JNICALL
Java_roost_agent_Kernel_futexWake(JNIEnv *env, jclass kernel, jobject buffer, jint offset) {
    (void)kernel;
    char *start = (*env)->GetDirectBufferAddress(env, buffer);
    return start == 0 ? -14 : (jint)call3(FUTEX, (long)(start + offset), FUTEX_WAKE, 1);
}
