/* A small server on a socket for those who look for its hot function, or watch it: a byte in, a
 * byte out; a thread for each connection. Says "ready PID PORT".
 *
 *   serve          the loop of a connection's thread
 *     answer       once a request
 *       search     once a request, nearly all of the work: the hot function; the byte says how it ends
 *         score    forty times
 *
 *   's' returns, 't' throws, 'j' jumps out by longjmp, 'c' leaves by a tail call, 'h' holds until
 *   the next byte, 'd' makes the thread end inside, 'r' recurses, 'b' computes until the next byte,
 *   'e' does so and throws
 */
#include <arpa/inet.h>
#include <csetjmp>
#include <cstdint>
#include <cstdio>
#include <pthread.h>
#include <stdexcept>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#define APART __attribute__((noinline, noclone))

static thread_local std::jmp_buf out;

extern "C" APART uint64_t score(uint64_t query, uint64_t document)
{
    uint64_t hash = query * 31 + document;
    for (int i = 0; i < 5000; i++) {
        hash = hash * 6364136223846793005u + 1442695040888963407u;
        hash ^= hash >> 29;
    }
    return hash;
}

extern "C" APART uint64_t elsewhere(uint64_t sum)
{
    asm volatile("" : "+r"(sum));
    return sum ^ 1;
}

extern "C" APART uint64_t search(int connection, char how, int depth)
{
    uint64_t sum = 0;
    for (int document = 0; document < 40; document++)
        sum += score(how, document);
    if (how == 'b' || how == 'e') {
        char byte = 'i';
        if (write(connection, &byte, 1) != 1)
            return 0;
        while (recv(connection, &byte, 1, MSG_DONTWAIT) != 1)
            sum += score(how, sum);
    }
    if (how == 't' || how == 'e')
        throw std::runtime_error("as asked");
    if (how == 'j')
        std::longjmp(out, 1);
    if (how == 'd')
        pthread_exit(nullptr);
    if (how == 'h') {
        char byte = 'i';
        if (write(connection, &byte, 1) != 1 || read(connection, &byte, 1) != 1)
            return 0;
    }
    if (how == 'r' && depth < 5)
        sum += search(connection, how, depth + 1);
    if (how == 'c')
        return elsewhere(sum);
    asm volatile("" : "+r"(sum));
    return sum;
}

extern "C" APART char answer(int connection, char how)
{
    volatile char reply = 'o';
    try {
        if (setjmp(out) == 0)
            reply = search(connection, how, 0) == 42 ? '?' : 'o';
    } catch (const std::runtime_error &) {
        reply = 'x';
    }
    return reply;
}

static APART void serve(int connection)
{
    char byte;
    while (read(connection, &byte, 1) == 1) {
        byte = answer(connection, byte);
        if (write(connection, &byte, 1) != 1)
            break;
    }
    close(connection);
}

int main()
{
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = {};
    socklen_t length = sizeof(address);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(listener, reinterpret_cast<sockaddr *>(&address), length) || listen(listener, 64) ||
        getsockname(listener, reinterpret_cast<sockaddr *>(&address), &length))
        return 1;
    std::printf("ready %d %d\n", static_cast<int>(getpid()), ntohs(address.sin_port));
    std::fflush(stdout);
    for (;;) {
        int connection = accept(listener, nullptr, nullptr);
        if (connection >= 0)
            std::thread(serve, connection).detach();
    }
}
