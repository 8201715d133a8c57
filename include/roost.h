/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * roost.h: tells Roost which threads of this server are inside its hot function, and since when.
 * C11 and C++11, GCC or Clang, Linux, little endian; header only, nothing to link.
 *
 *     static roost_slots slots;                          // once per process
 *     static const char *const methods[] = {"search::score"};
 *     if (roost_create(&slots, "/dev/shm/search.slots", methods, 1, NULL) != 0)
 *         perror("roost: /dev/shm/search.slots");      // the server goes on; enters below do nothing
 *
 *     static _Thread_local roost_thread me;              // once per thread
 *     roost_register(&slots, &me);
 *
 *     uint32_t token = roost_enter(&me, 0);              // around the hot function, on every way out
 *     score(query);
 *     roost_exit(&me, 0, token);
 *
 *     roost_unregister(&me);                             // before the thread ends
 *
 * In C++, `roost::Inside inside(me, 0);` does enter and exit, also when an exception passes.
 *
 * Enter and exit never wait, allocate, lock or fail; a pair costs one reading of the clock and a
 * few stores. The file is the one of docs/formats.md, "Hot-function slots"; crates/slots writes the
 * same bytes, and tests hold both to that. The file should lie on a tmpfs, such as /run or
 * /dev/shm: no store then waits for a disk. Do not cut it short.
 */
#ifndef ROOST_H
#define ROOST_H

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "roost.h: slot files are little endian, and this machine is not"
#endif

/* Offsets and bounds of the format: crates/slots/src/layout.rs. */
enum {
    ROOST_VERSION = 1,
    ROOST_METHODS_MAX = 64,
    ROOST_SLOTS_MAX = 16384,
    ROOST_EVENTS_MAX = 1 << 20,
    ROOST_HEADER = 4096,
    ROOST_METHOD = 512,
    ROOST_SLOT = 64,
    ROOST_SLOTS = ROOST_HEADER + ROOST_METHODS_MAX * ROOST_METHOD,
    ROOST_EVENT = 32,
    /* header */
    ROOST_H_VERSION = 8,
    ROOST_H_SLOT_COUNT = 12,
    ROOST_H_EVENT_COUNT = 16,
    ROOST_H_PID = 24,
    ROOST_H_METHOD_COUNT = 28,
    ROOST_H_PROCESS_STARTED = 32,
    ROOST_H_BOOT_ID = 40,
    ROOST_H_ENABLE = 64,
    ROOST_H_CHECK = 68,
    ROOST_H_ASLEEP = 72,
    ROOST_H_DOORBELL = 76,
    ROOST_H_NO_SLOT = 128,
    ROOST_H_TOO_DEEP = 152,
    ROOST_H_NOT_RUNG = 160,
    ROOST_H_EVENTS_LOST = 176,
    ROOST_H_SLOTS_USED = 184,
    ROOST_H_EVENT_HEAD = 192,
    ROOST_H_WRITER = 256,
    ROOST_H_WRITER_LENGTH = 64,
    /* slot */
    ROOST_S_STATE = 0,
    ROOST_S_ENTERED_AT = 8,
    ROOST_S_EXITED_AT = 16,
    ROOST_S_NESTED = 24,
    ROOST_S_TID = 32,
    ROOST_S_CLAIMS = 36
};

/* The sizes of a file; NULL in roost_create: 256 slots, no events, this process. */
typedef struct roost_options {
    uint32_t slots;        /* threads at a time */
    uint32_t events;       /* entries of the event ring, a power of two; 0: none */
    const char *writer;    /* who writes, for people */
    uint32_t pid;          /* this and the next two: which process this is */
    uint64_t started;      /* field 22 of /proc/PID/stat */
    uint8_t boot_id[16];   /* /proc/sys/kernel/random/boot_id */
} roost_options;

typedef struct roost_slots {
    unsigned char *map; /* NULL: there is no file, and nothing below does anything */
    uint32_t slots, events;
} roost_slots;

typedef struct roost_thread {
    roost_slots *file;
    unsigned char *slot; /* NULL: all were taken */
    int32_t tid;
} roost_thread;

static inline uint32_t *roost_u32(unsigned char *at) { return (uint32_t *)(void *)at; }
static inline uint64_t *roost_u64(unsigned char *at) { return (uint64_t *)(void *)at; }

static inline uint64_t roost_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* When process `pid` began; 0 if there is none. The command stands in parentheses and may hold any
 * character. */
static inline uint64_t roost_process_started(uint32_t pid) {
    char path[32], text[1024], *field;
    snprintf(path, sizeof path, "/proc/%u/stat", (unsigned)pid);
    FILE *file = fopen(path, "re");
    if (file == NULL) return 0;
    size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = 0;
    field = strrchr(text, ')');
    for (int i = 0; field != NULL && i < 20; i++) field = strchr(field + 1, ' ');
    return field == NULL ? 0 : strtoull(field + 1, NULL, 10);
}

static inline void roost_boot_id(uint8_t id[16]) {
    char text[64] = {0};
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    memset(id, 0, 16);
    if (file == NULL) return;
    size_t length = fread(text, 1, sizeof text - 1, file), digits = 0;
    fclose(file);
    for (size_t i = 0; i < length && digits < 32; i++) {
        int c = text[i], digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (digit < 0) continue;
        id[digits / 2] = (uint8_t)(id[digits / 2] << 4 | digit);
        digits++;
    }
}

/* Whether a living process other than `pid` writes the file at `path`. */
static inline int roost_in_use(const char *path, uint32_t pid) {
    unsigned char head[64];
    uint8_t boot_id[16];
    uint32_t writer;
    uint64_t started;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return 0;
    ssize_t length = pread(fd, head, sizeof head, 0);
    close(fd);
    if (length != (ssize_t)sizeof head || memcmp(head, "ROOSTHOT", 8) != 0) return 0;
    memcpy(&writer, head + ROOST_H_PID, 4);
    memcpy(&started, head + ROOST_H_PROCESS_STARTED, 8);
    roost_boot_id(boot_id);
    return writer != pid && started != 0 && memcmp(boot_id, head + ROOST_H_BOOT_ID, 16) == 0 &&
           roost_process_started(writer) == started;
}

/* Makes the file, with the methods' names. 0, or -1 with errno: EBUSY if a living process writes
 * it, EINVAL if a number is out of range, otherwise the system's. It appears whole: it is written
 * under another name and renamed. */
static inline int roost_create(roost_slots *file, const char *path, const char *const *methods, uint32_t method_count,
                               const roost_options *options) {
    roost_options own;
    memset(file, 0, sizeof *file);
    memset(&own, 0, sizeof own);
    own.slots = 256;
    own.writer = "roost.h C";
    own.pid = (uint32_t)getpid();
    own.started = roost_process_started(own.pid);
    roost_boot_id(own.boot_id);
    if (options == NULL) options = &own;
    if (options->slots < 1 || options->slots > ROOST_SLOTS_MAX || method_count < 1 ||
        method_count > ROOST_METHODS_MAX || options->events > ROOST_EVENTS_MAX ||
        (options->events & (options->events - 1)) != 0) {
        errno = EINVAL;
        return -1;
    }
    if (roost_in_use(path, options->pid)) {
        errno = EBUSY;
        return -1;
    }
    size_t length = ROOST_SLOTS + (size_t)options->slots * ROOST_SLOT + (size_t)options->events * ROOST_EVENT;
    size_t path_length = strlen(path);
    char *new_path = (char *)malloc(path_length + 20);
    unsigned char *image = (unsigned char *)calloc(1, length), *map = (unsigned char *)MAP_FAILED;
    int fd = -1, error = 0;
    if (new_path == NULL || image == NULL) {
        error = ENOMEM;
    } else {
        const uint32_t version = ROOST_VERSION, enable = 1, watched = 1;
        size_t writer = strlen(options->writer);
        memcpy(image, "ROOSTHOT", 8);
        memcpy(image + ROOST_H_VERSION, &version, 4);
        memcpy(image + ROOST_H_SLOT_COUNT, &options->slots, 4);
        memcpy(image + ROOST_H_EVENT_COUNT, &options->events, 4);
        memcpy(image + ROOST_H_PID, &options->pid, 4);
        memcpy(image + ROOST_H_METHOD_COUNT, &method_count, 4);
        memcpy(image + ROOST_H_PROCESS_STARTED, &options->started, 8);
        memcpy(image + ROOST_H_BOOT_ID, options->boot_id, 16);
        memcpy(image + ROOST_H_ENABLE, &enable, 4);
        memcpy(image + ROOST_H_CHECK, "ROST", 4);
        memcpy(image + ROOST_H_WRITER, options->writer,
               writer < ROOST_H_WRITER_LENGTH ? writer : (size_t)ROOST_H_WRITER_LENGTH);
        for (uint32_t i = 0; i < method_count; i++) {
            unsigned char *entry = image + ROOST_HEADER + i * ROOST_METHOD;
            size_t name = strlen(methods[i]);
            uint32_t kept = (uint32_t)(name < ROOST_METHOD - 8 ? name : (size_t)(ROOST_METHOD - 8));
            memcpy(entry, &watched, 4);
            memcpy(entry + 4, &kept, 4);
            memcpy(entry + 8, methods[i], kept);
        }
        snprintf(new_path, path_length + 20, "%s.%u.new", path, (unsigned)options->pid);
        unlink(new_path);
        fd = open(new_path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd < 0) error = errno;
    }
    /* Every byte is written, so that a full disk is an error now and not a SIGBUS later. */
    for (size_t done = 0; error == 0 && done < length;) {
        ssize_t written = pwrite(fd, image + done, length - done, (off_t)done);
        if (written > 0) {
            done += (size_t)written;
        } else if (written == 0 || errno != EINTR) {
            error = written == 0 ? ENOSPC : errno;
        }
    }
    if (error == 0) {
        map = (unsigned char *)mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (map == (unsigned char *)MAP_FAILED || rename(new_path, path) != 0) error = errno;
    }
    if (fd >= 0) {
        close(fd);
        if (error != 0) unlink(new_path);
    }
    free(new_path);
    free(image);
    if (error != 0) {
        if (map != (unsigned char *)MAP_FAILED) munmap(map, length);
        errno = error;
        return -1;
    }
    file->map = map;
    file->slots = options->slots;
    file->events = options->events;
    return 0;
}

/* A slot for thread `tid`. Where all are taken its enters are counted, no more. */
static inline void roost_register_as(roost_slots *file, roost_thread *thread, int32_t tid) {
    thread->file = file;
    thread->slot = NULL;
    thread->tid = tid;
    for (uint32_t i = 0; file->map != NULL && i < file->slots; i++) {
        unsigned char *slot = file->map + ROOST_SLOTS + i * ROOST_SLOT;
        uint32_t none = 0, used;
        if (!__atomic_compare_exchange_n(roost_u32(slot + ROOST_S_TID), &none, (uint32_t)tid, 0, __ATOMIC_ACQ_REL,
                                         __ATOMIC_RELAXED))
            continue;
        __atomic_fetch_add(roost_u32(slot + ROOST_S_CLAIMS), 1, __ATOMIC_RELEASE);
        used = __atomic_load_n(roost_u32(file->map + ROOST_H_SLOTS_USED), __ATOMIC_RELAXED);
        while (used < i + 1 &&
               !__atomic_compare_exchange_n(roost_u32(file->map + ROOST_H_SLOTS_USED), &used, i + 1, 0,
                                            __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {
        }
        thread->slot = slot;
        return;
    }
}

/* A slot for the calling thread. */
static inline void roost_register(roost_slots *file, roost_thread *thread) {
    roost_register_as(file, thread, (int32_t)syscall(SYS_gettid));
}

/* The slot is free for another thread. */
static inline void roost_unregister(roost_thread *thread) {
    unsigned char *slot = thread->slot;
    thread->slot = NULL;
    if (slot == NULL) return;
    for (int at = ROOST_S_STATE; at <= ROOST_S_NESTED; at += 8)
        __atomic_store_n(roost_u64(slot + at), 0, __ATOMIC_RELEASE);
    __atomic_store_n(roost_u32(slot + ROOST_S_TID), 0, __ATOMIC_RELEASE);
}

static inline void roost_count(roost_slots *file, int what) {
    __atomic_fetch_add(roost_u64(file->map + what), 1, __ATOMIC_RELAXED);
}

/* The writer that clears `asleep` rings; the others find it cleared. */
static __attribute__((noinline, unused, cold)) void roost_ring(roost_slots *file) {
    uint32_t *doorbell = roost_u32(file->map + ROOST_H_DOORBELL);
    int saved = errno;
    if (__atomic_exchange_n(roost_u32(file->map + ROOST_H_ASLEEP), 0, __ATOMIC_ACQ_REL) == 0) return;
    __atomic_fetch_add(doorbell, 1, __ATOMIC_RELEASE);
    if (syscall(SYS_futex, doorbell, FUTEX_WAKE, 1, NULL, NULL, 0) < 0) roost_count(file, ROOST_H_NOT_RUNG);
    errno = saved;
}

/* An entry is owned between two stores of its ticket; one that is busy or newer is left, and the
 * event lost. */
static __attribute__((noinline, unused)) void roost_record(roost_thread *thread, uint64_t at_ns, uint16_t method,
                                                           uint16_t kind, uint64_t state) {
    roost_slots *file = thread->file;
    uint64_t number = __atomic_fetch_add(roost_u64(file->map + ROOST_H_EVENT_HEAD), 1, __ATOMIC_RELAXED);
    unsigned char *entry = file->map + ROOST_SLOTS + (size_t)file->slots * ROOST_SLOT +
                           (size_t)(number & (file->events - 1)) * ROOST_EVENT;
    uint64_t old = __atomic_load_n(roost_u64(entry), __ATOMIC_RELAXED);
    if (old > number ||
        !__atomic_compare_exchange_n(roost_u64(entry), &old, UINT64_MAX, 0, __ATOMIC_ACQUIRE,
                                     __ATOMIC_RELAXED)) {
        roost_count(file, ROOST_H_EVENTS_LOST);
        return;
    }
    __atomic_thread_fence(__ATOMIC_RELEASE);
    __atomic_store_n(roost_u64(entry + 8), at_ns, __ATOMIC_RELAXED);
    __atomic_store_n(roost_u64(entry + 16),
                     (uint64_t)(uint32_t)thread->tid | (uint64_t)method << 32 | (uint64_t)kind << 48,
                     __ATOMIC_RELAXED);
    __atomic_store_n(roost_u64(entry + 24), state & 0x0000ffffffffffffu, __ATOMIC_RELAXED);
    __atomic_store_n(roost_u64(entry), number + 1, __ATOMIC_RELEASE);
}

/* The thread is inside since `now_ns`. The returned value goes to roost_exit. */
static inline uint32_t roost_enter_at(roost_thread *thread, uint16_t method, uint64_t now_ns) {
    unsigned char *slot = thread->slot;
    roost_slots *file = thread->file;
    if (slot == NULL) {
        if (file != NULL && file->map != NULL) roost_count(file, ROOST_H_NO_SLOT);
        return 0;
    }
    /* Only this thread writes it. */
    uint64_t state = __atomic_load_n(roost_u64(slot), __ATOMIC_RELAXED);
    uint32_t depth = (uint16_t)(state >> 32);
    if (depth == 0) {
        __atomic_thread_fence(__ATOMIC_RELEASE);
        __atomic_store_n(roost_u64(slot + ROOST_S_ENTERED_AT), now_ns, __ATOMIC_RELAXED);
        state = (uint64_t)((uint32_t)state + 1) | (uint64_t)1 << 32 | (uint64_t)method << 48;
    } else if (depth < 65534) {
        uint64_t nested = __atomic_load_n(roost_u64(slot + ROOST_S_NESTED), __ATOMIC_RELAXED);
        __atomic_store_n(roost_u64(slot + ROOST_S_NESTED), nested + 1, __ATOMIC_RELAXED);
        state += (uint64_t)1 << 32;
    } else {
        roost_count(file, ROOST_H_TOO_DEEP);
        return 0;
    }
    __atomic_store_n(roost_u64(slot), state, __ATOMIC_RELEASE);
    if (file->events != 0) roost_record(thread, now_ns, method, 1, state);
    if (__atomic_load_n(roost_u32(file->map + ROOST_H_ASLEEP), __ATOMIC_RELAXED) != 0) roost_ring(file);
    return depth + 1;
}

/* The thread is inside; not recorded while the hook is off. */
static inline uint32_t roost_enter(roost_thread *thread, uint16_t method) {
    if (thread->file == NULL || thread->file->map == NULL ||
        (__atomic_load_n(roost_u32(thread->file->map + ROOST_H_ENABLE), __ATOMIC_RELAXED) & 1) == 0)
        return 0;
    return roost_enter_at(thread, method, roost_now_ns());
}

/* As roost_exit, at a given time (0: now). */
static inline void roost_exit_at(roost_thread *thread, uint16_t method, uint32_t token, uint64_t now_ns) {
    unsigned char *slot = thread->slot;
    if (token == 0 || slot == NULL) return;
    roost_slots *file = thread->file;
    uint32_t depth = token - 1;
    uint64_t state = __atomic_load_n(roost_u64(slot), __ATOMIC_RELAXED);
    int wants_time =
        depth == 0 && (__atomic_load_n(roost_u32(file->map + ROOST_H_ENABLE), __ATOMIC_RELAXED) & 2) != 0;
    if (now_ns == 0 && (wants_time || file->events != 0)) now_ns = roost_now_ns();
    if (wants_time) __atomic_store_n(roost_u64(slot + ROOST_S_EXITED_AT), now_ns, __ATOMIC_RELAXED);
    state = (uint64_t)((uint32_t)state + (depth == 0)) | (uint64_t)depth << 32 | (state >> 48) << 48;
    __atomic_store_n(roost_u64(slot), state, __ATOMIC_RELEASE);
    if (file->events != 0) roost_record(thread, now_ns, method, 2, state);
}

/* The call is over that returned `token`; calls inside it that never told their end are over too.
 */
static inline void roost_exit(roost_thread *thread, uint16_t method, uint32_t token) {
    roost_exit_at(thread, method, token, 0);
}

#ifdef __cplusplus
namespace roost {
/* Inside for as long as this lives. */
class Inside {
public:
    Inside(roost_thread &thread, uint16_t method)
        : thread_(thread), method_(method), token_(roost_enter(&thread, method)) {}
    ~Inside() { roost_exit(&thread_, method_, token_); }
    Inside(const Inside &) = delete;
    Inside &operator=(const Inside &) = delete;

private:
    roost_thread &thread_;
    uint16_t method_;
    uint32_t token_;
};
} // namespace roost
#endif

#endif
