/* A client in C11 and C++11. It makes one request whose event comes. Then four threads make fifty
 * requests each, far ahead, and withdraw them. */
#include "roost_wake.h"
#include <pthread.h>
#include <stdlib.h>

#define THREADS 4
#define EACH 50

static roost_wake planner;
static uint16_t cpus[1];

static void *ask(void *nothing) {
    (void)nothing;
    for (int n = 0; n < EACH; n++) {
        /* A ring that is full now has room soon. */
        uint64_t id;
        while ((id = roost_wake_at(&planner, cpus, 1, roost_wake_now_ns() + 30000000000u, 1000)) == 0)
            usleep(100);
        roost_wake_withdraw(&planner, id);
    }
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t threads[THREADS];

    if (argc != 4)
        return 2;
    cpus[0] = (uint16_t)atoi(argv[3]);
    if (roost_wake_connect(&planner, argv[1], argv[2]) != 0) {
        perror("roost_wake_connect");
        return 1;
    }
    /* Nearer than the lead: counted, and not sent. */
    if (roost_wake_at(&planner, cpus, 1, roost_wake_now_ns(), 0) != 0) {
        fprintf(stderr, "what is too late was sent\n");
        return 1;
    }
    uint64_t id = roost_wake_at(&planner, cpus, 1, roost_wake_now_ns() + 5000000, 50000000000);
    usleep(10000);
    roost_wake_came(&planner, id);
    for (int n = 0; n < THREADS; n++)
        if (pthread_create(&threads[n], NULL, ask, NULL) != 0)
            return 1;
    for (int n = 0; n < THREADS; n++)
        pthread_join(threads[n], NULL);
    while (*roost_wake_u64(planner.map + ROOST_WAKE_H_TAKEN) < *roost_wake_u64(planner.map + ROOST_WAKE_H_HEAD))
        usleep(100);
    roost_wake_disconnect(&planner);
    return 0;
}
