// A server in C++ with four threads that go in and out as fast as they can, some of them by an
// exception, then one call that lasts until standard input ends: `pairs FILE PAIRS`. Driven by
// tests/it/native.rs.
#include "roost.h"

#include <stdexcept>
#include <thread>
#include <vector>

static roost_slots file;

static void score(roost_thread &me, long call) {
    roost::Inside inside(me, 0);
    if (call % 7 == 0) throw std::runtime_error("no such index");
}

int main(int argc, char **argv) {
    static const char *const methods[] = {"search::score"};
    if (argc != 3) return 2;
    if (roost_create(&file, argv[1], methods, 1, nullptr) != 0) {
        perror(argv[1]);
        return 1;
    }
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++) {
        threads.emplace_back([argv] {
            static thread_local roost_thread me;
            roost_register(&file, &me);
            for (long call = 0; call < atol(argv[2]); call++) {
                try {
                    score(me, call);
                } catch (const std::runtime_error &) {
                }
            }
        });
    }
    for (auto &thread : threads) thread.join();
    puts("done");
    fflush(stdout);
    roost_thread me;
    roost_register(&file, &me);
    while (getchar() == '\n') {
        roost::Inside inside(me, 0);
        getchar();
    }
    roost_unregister(&me);
    return 0;
}
