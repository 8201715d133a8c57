// Runs of real CUDA kernels beside Roost's planner of wake-ups: one block of one way of waiting.
//
//     kernels WAY ITERATIONS CPU,... [SOCKET]
//
// The first CPU is that of the thread that waits; the others take the device's interrupts. WAY is how it
// waits for a kernel:
//   interrupt      the thread sleeps until the driver's interrupt wakes it
//   anticipatory   the same, and it tells the planner at SOCKET when a kernel begins and has ended
//   callback       the same, and a callback of the stream tells the end
//   awake          as interrupt, beside processes of SCHED_IDLE that keep these CPUs from sleeping
//   busy           the thread polls
//
// The kernels are those of the paper's two programs: K-means (assignment and new centres) and
// StreamCluster (the gain of a candidate as a centre, and the reassignment where it gains). Each is
// scaled once, so that its first warm run takes the paper's 540 and 500 us; from then on its data
// decide. The host reads the result of each run and chooses the next by it.
//
// Prints a line of JSON for each kernel: its lengths by the device's own events, the time from the
// launch until the host had the result, and the CPU time of this process, all in microseconds.

#include "roost_wake.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sched.h>
#include <signal.h>
#include <string>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <vector>

#define CHECK(call)                                                                                  \
    do {                                                                                             \
        cudaError_t told = (call);                                                                   \
        if (told != cudaSuccess) {                                                                   \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(told));            \
            exit(3);                                                                                 \
        }                                                                                            \
    } while (0)

constexpr int DIMENSIONS = 32, CENTRES = 64, THREADS = 256;
constexpr size_t MOST_POINTS = size_t(1) << 24;
enum Key : uint64_t { KMEANS = 1, GAIN = 2, REASSIGN = 3 };

__device__ unsigned next_random(unsigned state) {
    state ^= state << 13;
    state ^= state >> 17;
    return state ^ (state << 5);
}

__global__ void fill(float *points, size_t count) {
    size_t at = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
    if (at >= count)
        return;
    unsigned state = unsigned(at) * 2654435761u + 1;
    for (int d = 0; d < DIMENSIONS; d++) {
        state = next_random(state);
        points[d * MOST_POINTS + at] = (state & 0xffff) / 65536.0f + float(at % CENTRES) / 16;
    }
}

__global__ void assign(const float *points, size_t count, const float *centres, int *nearest,
                       unsigned *changed) {
    __shared__ float all[CENTRES * DIMENSIONS];
    for (int n = threadIdx.x; n < CENTRES * DIMENSIONS; n += blockDim.x)
        all[n] = centres[n];
    __syncthreads();
    size_t at = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
    if (at >= count)
        return;
    float point[DIMENSIONS], least = 1e30f;
    int best = 0;
    for (int d = 0; d < DIMENSIONS; d++)
        point[d] = points[d * MOST_POINTS + at];
    for (int centre = 0; centre < CENTRES; centre++) {
        float sum = 0;
        for (int d = 0; d < DIMENSIONS; d++) {
            float apart = point[d] - all[centre * DIMENSIONS + d];
            sum += apart * apart;
        }
        if (sum < least) {
            least = sum;
            best = centre;
        }
    }
    if (nearest[at] != best) {
        nearest[at] = best;
        atomicAdd(changed, 1);
    }
}

// A block for each centre and dimension, over every 64th point: means of a sample, as mini-batches are.
__global__ void renew(const float *points, size_t count, const int *nearest, float *centres) {
    __shared__ float sums[THREADS];
    __shared__ int members[THREADS];
    int centre = blockIdx.x, d = blockIdx.y;
    float sum = 0;
    int here = 0;
    for (size_t at = threadIdx.x * 64; at < count; at += THREADS * 64)
        if (nearest[at] == centre) {
            sum += points[d * MOST_POINTS + at];
            here++;
        }
    sums[threadIdx.x] = sum;
    members[threadIdx.x] = here;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) {
            sums[threadIdx.x] += sums[threadIdx.x + half];
            members[threadIdx.x] += members[threadIdx.x + half];
        }
        __syncthreads();
    }
    if (threadIdx.x == 0 && members[0] > 0)
        centres[centre * DIMENSIONS + d] = sums[0] / members[0];
}

__global__ void gain(const float *points, size_t count, const float *costs, size_t candidate, float *saved) {
    __shared__ float sums[THREADS];
    size_t at = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
    float mine = 0;
    if (at < count) {
        float sum = 0;
        for (int d = 0; d < DIMENSIONS; d++) {
            float apart = points[d * MOST_POINTS + at] - points[d * MOST_POINTS + candidate];
            sum += apart * apart;
        }
        mine = max(0.0f, costs[at] - sum);
    }
    sums[threadIdx.x] = mine;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half)
            sums[threadIdx.x] += sums[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0 && sums[0] > 0)
        atomicAdd(saved, sums[0] / count);
}

__global__ void reassign(const float *points, size_t count, float *costs, size_t candidate) {
    size_t at = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
    if (at >= count)
        return;
    float sum = 0;
    for (int d = 0; d < DIMENSIONS; d++) {
        float apart = points[d * MOST_POINTS + at] - points[d * MOST_POINTS + candidate];
        sum += apart * apart;
    }
    costs[at] = min(costs[at], sum);
}

struct Said {
    roost_wake *planner;
    uint64_t id;
};

void CUDART_CB tell_the_end(void *argument) {
    Said *said = static_cast<Said *>(argument);
    roost_wake_ended(said->planner, said->id);
}

struct Bench {
    std::string way;
    int iterations;
    std::vector<uint16_t> cpus;
    bool tells; // the planner
    roost_wake planner;
    cudaStream_t stream;
    cudaEvent_t began, ended, done;
    float *points, *centres, *costs;
    int *nearest;
    unsigned *result, *seen; // on the device, and on the host

    // One run of `launch`, and its result: a number of 32 bits. `lengths` may be null.
    template <class Launch>
    unsigned run(Key key, std::vector<float> *lengths, std::vector<float> *waits, Launch launch) {
        CHECK(cudaMemsetAsync(result, 0, sizeof *result, stream));
        uint64_t from = roost_wake_now_ns();
        Said said{&planner, 0};
        if (tells)
            said.id = roost_wake_began(&planner, key, cpus.data(), unsigned(cpus.size()));
        CHECK(cudaEventRecord(began, stream));
        launch();
        CHECK(cudaEventRecord(ended, stream));
        CHECK(cudaMemcpyAsync(seen, result, sizeof *result, cudaMemcpyDeviceToHost, stream));
        CHECK(cudaEventRecord(done, stream));
        if (said.id && way == "callback")
            CHECK(cudaLaunchHostFunc(stream, tell_the_end, &said));
        CHECK(cudaEventSynchronize(done));
        if (way == "anticipatory")
            roost_wake_ended(&planner, said.id);
        uint64_t until = roost_wake_now_ns();
        float length = 0;
        CHECK(cudaEventElapsedTime(&length, began, ended));
        if (way == "callback")
            CHECK(cudaStreamSynchronize(stream)); // `said` is used until then
        if (lengths) {
            lengths->push_back(length * 1e3f);
            waits->push_back((until - from) * 1e-3f);
        }
        return *seen;
    }

    // As many points as make a run take `wanted_us`. The planner hears of the runs after these.
    template <class Launch> size_t scaled(Key key, float wanted_us, Launch launch) {
        size_t count = MOST_POINTS / 16;
        tells = false;
        for (int round = 0; round < 4; round++) {
            std::vector<float> lengths, waits;
            for (int n = 0; n < 20; n++)
                run(key, &lengths, &waits, [&] { launch(count); });
            std::sort(lengths.begin(), lengths.end());
            double next = double(count) * wanted_us / lengths[lengths.size() / 2];
            count = std::min(MOST_POINTS, std::max(size_t(1024), size_t(next))) / THREADS * THREADS;
        }
        tells = planner.map != nullptr;
        return count;
    }

    void print(const char *kernel, size_t count, const std::vector<float> &lengths,
               const std::vector<float> &waits, double cpu_us) {
        printf("{\"kernel\":\"%s\",\"way\":\"%s\",\"points\":%zu,\"cpu_us\":%.2f,\"waits_us\":[", kernel,
               way.c_str(), count, cpu_us / std::max(size_t(1), waits.size()));
        for (size_t n = 0; n < waits.size(); n++)
            printf("%s%.1f", n ? "," : "", waits[n]);
        printf("],\"lengths_us\":[");
        for (size_t n = 0; n < lengths.size(); n++)
            printf("%s%.1f", n ? "," : "", lengths[n]);
        printf("]}\n");
    }
};

static double cpu_us() {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1e6 + used.ru_utime.tv_usec +
           used.ru_stime.tv_usec;
}

static void stay_on(uint16_t cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0)
        perror("sched_setaffinity");
}

// A process that ends with this one, and that any other task takes the CPU from.
static void spin_on(uint16_t cpu) {
    if (fork() != 0)
        return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct sched_param none = {};
    sched_setscheduler(0, SCHED_IDLE, &none);
    stay_on(cpu);
    for (volatile unsigned long turns = 0;; turns = turns + 1) {
    }
}

static unsigned blocks(size_t count) { return unsigned((count + THREADS - 1) / THREADS); }

int main(int count_of_words, char **words) {
    Bench bench{};
    bench.way = count_of_words > 1 ? words[1] : "";
    bench.iterations = count_of_words > 2 ? atoi(words[2]) : 0;
    char *rest = count_of_words > 3 ? words[3] : nullptr;
    while (rest && *rest) {
        bench.cpus.push_back(uint16_t(strtoul(rest, &rest, 10)));
        rest += *rest == ',';
    }
    const char *ways[] = {"interrupt", "anticipatory", "callback", "awake", "busy"};
    if (bench.iterations < 1 || bench.cpus.empty() || std::find(ways, ways + 5, bench.way) == ways + 5) {
        fprintf(stderr, "usage: kernels interrupt|anticipatory|callback|awake|busy ITERATIONS CPU,... "
                        "[SOCKET]\n");
        return 2;
    }
    if (bench.way == "awake")
        for (uint16_t cpu : bench.cpus)
            spin_on(cpu);
    if ((bench.way == "anticipatory" || bench.way == "callback") &&
        roost_wake_connect(&bench.planner, count_of_words > 4 ? words[4] : NULL, "kernels") != 0) {
        perror("the planner");
        return 3;
    }
    CHECK(cudaSetDeviceFlags(bench.way == "busy" ? cudaDeviceScheduleSpin : cudaDeviceScheduleBlockingSync));
    CHECK(cudaStreamCreate(&bench.stream));
    CHECK(cudaEventCreate(&bench.began));
    CHECK(cudaEventCreate(&bench.ended));
    CHECK(cudaEventCreateWithFlags(&bench.done, cudaEventDisableTiming |
                                                    (bench.way == "busy" ? 0 : cudaEventBlockingSync)));
    CHECK(cudaMalloc(&bench.points, sizeof(float) * DIMENSIONS * MOST_POINTS));
    CHECK(cudaMalloc(&bench.centres, sizeof(float) * DIMENSIONS * CENTRES));
    CHECK(cudaMalloc(&bench.costs, sizeof(float) * MOST_POINTS));
    CHECK(cudaMalloc(&bench.nearest, sizeof(int) * MOST_POINTS));
    CHECK(cudaMalloc(&bench.result, sizeof *bench.result));
    CHECK(cudaMallocHost(&bench.seen, sizeof *bench.seen));
    CHECK(cudaMemset(bench.nearest, 0, sizeof(int) * MOST_POINTS));
    fill<<<blocks(MOST_POINTS), THREADS, 0, bench.stream>>>(bench.points, MOST_POINTS);
    CHECK(cudaStreamSynchronize(bench.stream));
    // After CUDA has made its own threads, which may run elsewhere.
    stay_on(bench.cpus[0]);

    std::vector<float> start(DIMENSIONS * CENTRES);
    auto restart = [&](unsigned seed) {
        for (float &value : start) {
            seed = seed * 1664525u + 1013904223u;
            value = (seed >> 8) / 16777216.0f * 5;
        }
        CHECK(cudaMemcpyAsync(bench.centres, start.data(), sizeof(float) * start.size(),
                              cudaMemcpyHostToDevice, bench.stream));
        CHECK(cudaStreamSynchronize(bench.stream));
    };
    auto kmeans = [&](size_t count) {
        assign<<<blocks(count), THREADS, 0, bench.stream>>>(bench.points, count, bench.centres,
                                                            bench.nearest, bench.result);
        renew<<<dim3(CENTRES, DIMENSIONS), THREADS, 0, bench.stream>>>(bench.points, count, bench.nearest,
                                                                       bench.centres);
    };
    restart(1);
    size_t count = bench.scaled(KMEANS, 540, kmeans);
    restart(2);
    std::vector<float> lengths, waits;
    double before = cpu_us();
    for (int n = 0; n < bench.iterations; n++)
        if (bench.run(KMEANS, &lengths, &waits, [&] { kmeans(count); }) * 1000 < count)
            restart(n + 3);
    bench.print("k-means", count, lengths, waits, cpu_us() - before);

    size_t candidate = 0;
    auto gains = [&](size_t count) {
        gain<<<blocks(count), THREADS, 0, bench.stream>>>(bench.points, count, bench.costs, candidate,
                                                          reinterpret_cast<float *>(bench.result));
    };
    auto forget = [&] {
        std::vector<float> far(MOST_POINTS, 1e3f);
        CHECK(cudaMemcpy(bench.costs, far.data(), sizeof(float) * far.size(), cudaMemcpyHostToDevice));
    };
    auto keep = [&] {
        bench.run(REASSIGN, NULL, NULL, [&] {
            reassign<<<blocks(MOST_POINTS), THREADS, 0, bench.stream>>>(bench.points, MOST_POINTS,
                                                                        bench.costs, candidate);
        });
    };
    // Scaled where few points gain, as in most of its runs.
    bench.tells = false;
    forget();
    for (candidate = 0; candidate < CENTRES; candidate++)
        keep();
    count = bench.scaled(GAIN, 500, gains);
    forget();
    lengths.clear();
    waits.clear();
    unsigned seed = 7, kept = 0;
    before = cpu_us();
    for (int n = 0; n < bench.iterations; n++) {
        seed = seed * 1664525u + 1013904223u;
        candidate = seed % count;
        unsigned bits = bench.run(GAIN, &lengths, &waits, [&] { gains(count); });
        float saved;
        memcpy(&saved, &bits, sizeof saved);
        // A centre has its own price, so that a few dozen are kept.
        if (saved > 0.05f) {
            kept++;
            keep();
        }
    }
    bench.print("stream-cluster", count, lengths, waits, cpu_us() - before);
    fprintf(stderr, "%s: %u centres were kept\n", bench.way.c_str(), kept);
    CHECK(cudaGetLastError());
    roost_wake_disconnect(&bench.planner);
    return 0;
}
