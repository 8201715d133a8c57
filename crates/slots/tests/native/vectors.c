/* Makes the slot file that a test vector's steps describe: `vectors OUT < steps.txt`. Driven by
 * tests/it/native.rs. */
#include "roost.h"

struct open_call {
    uint32_t token;
    uint16_t method;
};

static roost_slots file;
static roost_thread threads[26];
static struct open_call calls[26][64];
static int depths[26];

int main(int argc, char **argv) {
    char line[600], writer[65] = "", boot[33] = "", methods[64][505], name;
    const char *names[64];
    unsigned slots = 0, events = 0, pid = 0, method;
    unsigned long long started = 0, at;
    uint32_t enable = 1, method_count = 0;
    int tid;
    if (argc != 2) return 2;
    while (fgets(line, sizeof line, stdin) != NULL) {
        if (sscanf(line, "file slots %u events %u", &slots, &events) == 2) continue;
        if (sscanf(line, "writer %64[^\n]", writer) == 1) continue;
        if (sscanf(line, "process %u %llu %32s", &pid, &started, boot) == 3) continue;
        if (sscanf(line, "enable %u", &enable) == 1) continue;
        if (sscanf(line, "method %504[^\n]", methods[method_count]) == 1) {
            names[method_count] = methods[method_count];
            method_count++;
            continue;
        }
        int is_thread = sscanf(line, "thread %c %d", &name, &tid) == 2;
        if (is_thread && file.map == NULL) {
            roost_options options = {slots, events, writer, pid, started, {0}};
            for (int i = 0; i < 16; i++) sscanf(boot + 2 * i, "%2hhx", &options.boot_id[i]);
            if (roost_create(&file, argv[1], names, method_count, &options) != 0) {
                perror(argv[1]);
                return 1;
            }
            *roost_u32(file.map + ROOST_H_ENABLE) = enable;
        }
        if (is_thread) {
            roost_register_as(&file, &threads[name - 'a'], tid);
        } else if (sscanf(line, "enter %c %u %llu", &name, &method, &at) == 3) {
            struct open_call *call = &calls[name - 'a'][depths[name - 'a']++];
            call->method = (uint16_t)method;
            call->token = roost_enter_at(&threads[name - 'a'], call->method, at);
        } else if (sscanf(line, "exit %c %llu", &name, &at) == 2) {
            struct open_call *call = &calls[name - 'a'][--depths[name - 'a']];
            roost_exit_at(&threads[name - 'a'], call->method, call->token, at);
        } else if (sscanf(line, "end %c", &name) == 1) {
            roost_unregister(&threads[name - 'a']);
        }
    }
    return 0;
}
