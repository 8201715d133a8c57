"""M/M/10 at a load of 0.8 in SimPy: the slow reference of `roost-bench sim`.

As SimPy's users write it: a resource with ten places, a process for every request, one that sends
them. It knows no idle states, no energy and no histogram, which is in its favour. Times are in mean
service times.

    python mmk.py REQUESTS SEED

prints one JSON object. Timed is the simulation alone, in CPU time, without the
interpreter's start.
"""

import json
import random
import sys
import time

import simpy

SERVERS = 10
LOAD = 0.8


def simulate(requests, seed):
    draws = random.Random(seed)
    env = simpy.Environment()
    servers = simpy.Resource(env, capacity=SERVERS)
    total = 0.0

    def request():
        nonlocal total
        arrived = env.now
        with servers.request() as turn:
            yield turn
            yield env.timeout(draws.expovariate(1.0))
        total += env.now - arrived

    def source():
        for _ in range(requests):
            yield env.timeout(draws.expovariate(SERVERS * LOAD))
            env.process(request())

    env.process(source())
    began, began_cpu = time.perf_counter(), time.process_time()
    env.run()
    return {
        "requests": requests,
        "cpu_s": time.process_time() - began_cpu,
        "wall_s": time.perf_counter() - began,
        "mean": total / requests,
        "version": simpy.__version__,
    }


if __name__ == "__main__":
    print(json.dumps(simulate(int(sys.argv[1]), int(sys.argv[2]))))
