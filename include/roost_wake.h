/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * roost_wake.h: tells Roost's planner (`roost wake`) when this program will need a CPU awake. C11
 * and C++11, GCC or Clang, Linux, little endian; header only, nothing to link.
 *
 *     roost_wake planner;                                       // once per process, for all threads
 *     if (roost_wake_connect(&planner, NULL, "search") != 0)    // NULL: /run/roost/roost.sock
 *         perror("roost_wake");                                 // goes on; calls below do nothing
 *
 *     uint16_t cpus[] = {3};
 *     uint64_t id = roost_wake_at(&planner, cpus, 1, roost_wake_now_ns() + 350000, 100000);
 *     wait_for_the_reply();                                     // CPU 3 is woken in about 400 us
 *     roost_wake_came(&planner, id);                            // it may sleep again
 *
 *     id = roost_wake_began(&planner, KERNEL_A, cpus, 1);       // as runs before: its end is predicted
 *     ... roost_wake_ended(&planner, id);
 *
 *     roost_wake_disconnect(&planner);                          // takes every request back
 *
 * A call is a few stores, and one write to an eventfd if the planner sleeps. It never waits,
 * allocates, locks or fails: it returns 0 where nothing was sent, and counts why. The memory is the
 * one of docs/formats.md, "Wake requests"; crates/slots/src/wake is the same in Rust.
 */
#ifndef ROOST_WAKE_H
#define ROOST_WAKE_H

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "roost_wake.h: rings are little endian, and this machine is not"
#endif

/* Offsets and bounds of the format: crates/slots/src/wake/layout.rs. */
enum {
    ROOST_WAKE_VERSION = 1,
    ROOST_WAKE_ENTRIES_MAX = 1 << 14,
    ROOST_WAKE_CPUS_MAX = 4,
    ROOST_WAKE_HEADER = 4096,
    ROOST_WAKE_ENTRY = 64,
    /* header */
    ROOST_WAKE_H_VERSION = 8,
    ROOST_WAKE_H_CAPACITY = 12,
    ROOST_WAKE_H_ASLEEP = 64,
    ROOST_WAKE_H_LEAD = 128,
    ROOST_WAKE_H_CLOSED = 136,
    ROOST_WAKE_H_HEAD = 192,
    ROOST_WAKE_H_TOO_LATE = 256,
    ROOST_WAKE_H_FULL = 264,
    ROOST_WAKE_H_NOT_RUNG = 272,
    ROOST_WAKE_H_RUNG = 280,
    ROOST_WAKE_H_TAKEN = 320,
    ROOST_WAKE_H_ACCEPTED = 328,
    ROOST_WAKE_H_REFUSED = 336,
    /* entry */
    ROOST_WAKE_E_SEQUENCE = 0,
    ROOST_WAKE_E_WHAT = 8,
    ROOST_WAKE_E_ID = 16,
    ROOST_WAKE_E_READY = 24,
    ROOST_WAKE_E_STAY = 32,
    ROOST_WAKE_E_CPUS = 40,
    ROOST_WAKE_E_KEY = 48,
    /* the kind of an entry */
    ROOST_WAKE_WAKE = 1,
    ROOST_WAKE_CAME = 2,
    ROOST_WAKE_WITHDRAWN = 3,
    ROOST_WAKE_BEGAN = 4,
    ROOST_WAKE_ENDED = 5,
    ROOST_WAKE_ARMED = 6,
    ROOST_WAKE_ARRIVED = 7,
    ROOST_WAKE_FOLLOWS = 8
};

typedef struct roost_wake {
    unsigned char *map; /* NULL: there is no planner, and nothing below does anything */
    uint32_t capacity;
    int bell, stream;
    uint64_t ids;
} roost_wake;

static inline uint32_t *roost_wake_u32(unsigned char *at) { return (uint32_t *)(void *)at; }
static inline uint64_t *roost_wake_u64(unsigned char *at) { return (uint64_t *)(void *)at; }

/* Now, on the clock that requests are on. */
static inline uint64_t roost_wake_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline int roost_wake_fail(roost_wake *planner, int fds[2], int error) {
    for (int n = 0; n < 2; n++)
        if (fds[n] >= 0)
            close(fds[n]);
    if (planner->stream >= 0)
        close(planner->stream);
    planner->stream = -1;
    errno = error;
    return -1;
}

/* Asks the planner for a ring, under a name that people will see. 0, or -1 and errno: ECONNREFUSED
 * or ENOENT where no planner listens, EAGAIN where it does not answer for five seconds, as while it
 * measures wake-up times, EACCES where the planner refuses, EPROTO where it speaks another version. */
static inline int roost_wake_connect(roost_wake *planner, const char *socket_path, const char *name) {
    struct sockaddr_un address;
    struct timeval patience = {5, 0};
    struct iovec part;
    struct msghdr message;
    struct stat stat;
    union {
        char bytes[CMSG_SPACE(2 * sizeof(int))];
        struct cmsghdr align;
    } control;
    char line[256], plain[81];
    int fds[2] = {-1, -1};
    size_t length = 0;
    void *map;

    memset(planner, 0, sizeof *planner);
    planner->bell = -1;
    memset(&address, 0, sizeof address);
    address.sun_family = AF_UNIX;
    if (!socket_path)
        socket_path = "/run/roost/roost.sock";
    planner->stream = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (planner->stream < 0)
        return -1;
    if (strlen(socket_path) >= sizeof address.sun_path)
        return roost_wake_fail(planner, fds, ENAMETOOLONG);
    memcpy(address.sun_path, socket_path, strlen(socket_path) + 1);
    /* Without a send timeout connect() waits for as long as the listener's queue is full. */
    setsockopt(planner->stream, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    setsockopt(planner->stream, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (connect(planner->stream, (struct sockaddr *)(void *)&address, sizeof address) != 0)
        return roost_wake_fail(planner, fds, errno);
    /* Only characters that need no escape in JSON. */
    for (; name && *name && length < sizeof plain - 1; name++)
        if ((unsigned char)*name >= ' ' && (unsigned char)*name < 127 && *name != '"' && *name != '\\')
            plain[length++] = *name;
    plain[length] = 0;
    length = (size_t)snprintf(line, sizeof line, "{\"ring\":{\"name\":\"%s\"}}\n", length ? plain : "unnamed");
    if (send(planner->stream, line, length, MSG_NOSIGNAL) != (ssize_t)length)
        return roost_wake_fail(planner, fds, EPIPE);
    memset(&message, 0, sizeof message);
    part.iov_base = line;
    part.iov_len = sizeof line;
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.bytes;
    message.msg_controllen = sizeof control.bytes;
    ssize_t answered = recvmsg(planner->stream, &message, MSG_CMSG_CLOEXEC);
    if (answered <= 0)
        return roost_wake_fail(planner, fds, answered < 0 && errno == EAGAIN ? EAGAIN : EPROTO);
    struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
    if (!rights || rights->cmsg_type != SCM_RIGHTS || rights->cmsg_len != CMSG_LEN(sizeof fds))
        return roost_wake_fail(planner, fds, EACCES);
    memcpy(fds, CMSG_DATA(rights), sizeof fds);
    if (fstat(fds[0], &stat) != 0 || stat.st_size < ROOST_WAKE_HEADER)
        return roost_wake_fail(planner, fds, EPROTO);
    map = mmap(NULL, (size_t)stat.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0);
    if (map == MAP_FAILED)
        return roost_wake_fail(planner, fds, errno);
    planner->map = (unsigned char *)map;
    planner->capacity = __atomic_load_n(roost_wake_u32(planner->map + ROOST_WAKE_H_CAPACITY), __ATOMIC_ACQUIRE);
    if (memcmp(planner->map, "ROOSTWKE", 8) != 0 ||
        *roost_wake_u32(planner->map + ROOST_WAKE_H_VERSION) != ROOST_WAKE_VERSION || planner->capacity == 0 ||
        planner->capacity > ROOST_WAKE_ENTRIES_MAX || (planner->capacity & (planner->capacity - 1)) != 0 ||
        (uint64_t)stat.st_size < ROOST_WAKE_HEADER + (uint64_t)planner->capacity * ROOST_WAKE_ENTRY) {
        munmap(map, (size_t)stat.st_size);
        planner->map = NULL;
        return roost_wake_fail(planner, fds, EPROTO);
    }
    close(fds[0]);
    planner->bell = fds[1];
    return 0;
}

/* Takes back whatever was asked. */
static inline void roost_wake_disconnect(roost_wake *planner) {
    if (!planner->map)
        return;
    munmap(planner->map, ROOST_WAKE_HEADER + (size_t)planner->capacity * ROOST_WAKE_ENTRY);
    close(planner->bell);
    close(planner->stream);
    planner->map = NULL;
}

static inline void roost_wake_count(roost_wake *planner, int what) {
    __atomic_fetch_add(roost_wake_u64(planner->map + what), 1, __ATOMIC_RELAXED);
}

/* Nearer than this is too late: doorbell, exit latency and margin, in ns. */
static inline uint64_t roost_wake_lead_ns(roost_wake *planner) {
    if (!planner->map)
        return 0;
    return __atomic_load_n(roost_wake_u64(planner->map + ROOST_WAKE_H_LEAD), __ATOMIC_RELAXED);
}

/* The name of the message; 0: none was sent. */
static inline uint64_t roost_wake_say(roost_wake *planner, uint32_t what, uint64_t id, uint64_t key,
                                      const uint16_t *cpus, unsigned cpu_count, uint64_t time,
                                      uint64_t stay) {
    uint64_t *head, ticket, named = ~(uint64_t)0, one = 1;
    uint32_t *asleep;
    unsigned char *entry;

    if (!planner->map || __atomic_load_n(roost_wake_u32(planner->map + ROOST_WAKE_H_CLOSED), __ATOMIC_RELAXED))
        return 0;
    if (!id)
        id = __atomic_add_fetch(&planner->ids, 1, __ATOMIC_RELAXED);
    head = roost_wake_u64(planner->map + ROOST_WAKE_H_HEAD);
    ticket = __atomic_load_n(head, __ATOMIC_RELAXED);
    for (;;) {
        entry = planner->map + ROOST_WAKE_HEADER + (ticket & (planner->capacity - 1)) * ROOST_WAKE_ENTRY;
        int64_t turn =
            (int64_t)(__atomic_load_n(roost_wake_u64(entry + ROOST_WAKE_E_SEQUENCE), __ATOMIC_ACQUIRE) - ticket);
        if (turn < 0) {
            roost_wake_count(planner, ROOST_WAKE_H_FULL);
            return 0;
        }
        if (turn > 0)
            ticket = __atomic_load_n(head, __ATOMIC_RELAXED);
        else if (__atomic_compare_exchange_n(head, &ticket, ticket + 1, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            break;
    }
    for (unsigned n = 0; n < cpu_count && n < ROOST_WAKE_CPUS_MAX; n++)
        named = (named & ~((uint64_t)0xffff << (16 * n))) | (uint64_t)cpus[n] << (16 * n);
    __atomic_store_n(roost_wake_u32(entry + ROOST_WAKE_E_WHAT), what, __ATOMIC_RELAXED);
    __atomic_store_n(roost_wake_u64(entry + ROOST_WAKE_E_ID), id, __ATOMIC_RELAXED);
    __atomic_store_n(roost_wake_u64(entry + ROOST_WAKE_E_READY), time, __ATOMIC_RELAXED);
    __atomic_store_n(roost_wake_u64(entry + ROOST_WAKE_E_STAY), stay, __ATOMIC_RELAXED);
    __atomic_store_n(roost_wake_u64(entry + ROOST_WAKE_E_CPUS), named, __ATOMIC_RELAXED);
    __atomic_store_n(roost_wake_u64(entry + ROOST_WAKE_E_KEY), key, __ATOMIC_RELAXED);
    __atomic_store_n(roost_wake_u64(entry + ROOST_WAKE_E_SEQUENCE), ticket + 1, __ATOMIC_RELEASE);
    /* The entry before the look at `asleep`; the planner does it the other way round. */
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    asleep = roost_wake_u32(planner->map + ROOST_WAKE_H_ASLEEP);
    if (__atomic_load_n(asleep, __ATOMIC_RELAXED) && __atomic_exchange_n(asleep, 0, __ATOMIC_RELAXED))
        roost_wake_count(planner, write(planner->bell, &one, sizeof one) == sizeof one ? ROOST_WAKE_H_RUNG
                                                                                      : ROOST_WAKE_H_NOT_RUNG);
    return id;
}

/* These CPUs shall be ready from `ready_ns` on, for `stay_ns`. 0: too late (counted), no room
 * (counted), or no planner. */
static inline uint64_t roost_wake_at(roost_wake *planner, const uint16_t *cpus, unsigned cpu_count, uint64_t ready_ns,
                                     uint64_t stay_ns) {
    uint64_t soonest = roost_wake_now_ns() + roost_wake_lead_ns(planner);

    if (planner->map && ready_ns < soonest) {
        roost_wake_count(planner, ROOST_WAKE_H_TOO_LATE);
        if (ready_ns + stay_ns <= soonest)
            return 0;
    }
    return roost_wake_say(planner, ROOST_WAKE_WAKE, 0, 0, cpus, cpu_count, ready_ns, stay_ns);
}

/* The event of that request came: its CPUs need not be kept awake. */
static inline void roost_wake_came(roost_wake *planner, uint64_t id) {
    if (id)
        roost_wake_say(planner, ROOST_WAKE_CAME, id, 0, NULL, 0, 0, 0);
}

/* That request is taken back. */
static inline void roost_wake_withdraw(roost_wake *planner, uint64_t id) {
    if (id)
        roost_wake_say(planner, ROOST_WAKE_WITHDRAWN, id, 0, NULL, 0, 0, 0);
}

/* A computation of the kind `key` begins; these CPUs will be needed at its end. */
static inline uint64_t roost_wake_began(roost_wake *planner, uint64_t key, const uint16_t *cpus,
                                        unsigned cpu_count) {
    return roost_wake_say(planner, ROOST_WAKE_BEGAN, 0, key, cpus, cpu_count, roost_wake_now_ns(), 0);
}

/* It has ended: a computation, a timer, or an announced send. */
static inline void roost_wake_ended(roost_wake *planner, uint64_t id) {
    if (id)
        roost_wake_say(planner, ROOST_WAKE_ENDED, id, 0, NULL, 0, roost_wake_now_ns(), 0);
}

/* A timer is set; how late it will be is learned. */
static inline uint64_t roost_wake_armed(roost_wake *planner, uint64_t expiry_ns, const uint16_t *cpus,
                                        unsigned cpu_count) {
    return roost_wake_say(planner, ROOST_WAKE_ARMED, 0, 0, cpus, cpu_count, expiry_ns, roost_wake_now_ns());
}

/* Something came that comes again and again; when the next will is predicted. */
static inline void roost_wake_arrived(roost_wake *planner, uint64_t key, const uint16_t *cpus,
                                      unsigned cpu_count) {
    roost_wake_say(planner, ROOST_WAKE_ARRIVED, 0, key, cpus, cpu_count, roost_wake_now_ns(), 0);
}

/* `key` says that it will send at `due_ns`; how punctual it is, is learned. */
static inline uint64_t roost_wake_follows(roost_wake *planner, uint64_t key, uint64_t due_ns, const uint16_t *cpus,
                                          unsigned cpu_count) {
    return roost_wake_say(planner, ROOST_WAKE_FOLLOWS, 0, key, cpus, cpu_count, due_ns, roost_wake_now_ns());
}

#endif
