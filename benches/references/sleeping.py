"""Queues whose servers sleep, in SimPy: the reference of `roost-bench sim-cross-check`.

Written apart from Roost, from the words of docs/statistics.md, for an engine that is not Roost's.
One process serves each server, one sends the requests. Times are in the unit of the parameters.

    python sleeping.py PARAMETERS

takes one JSON object:

    servers          number of servers
    rate             requests per time unit, Poisson
    service          {"kind": "exponential" | "constant" | "erlang2" | "branches", "mean": ...};
                     "branches" has "first" as well, the probability of the first of two
                     exponential branches that each do half of the work
    queue            "shared", or "random": one for each server, drawn at random
    states           idle states from shallow to deep: {"exit": time to wake, "residency": least
                     sleep that it is worth, "watts": ...}; none: the server polls
    foresees         true: an idle server knows when it will be woken, and takes the deepest state
                     whose residency fits (one server only); false: the only state
    watts            of a server that works, wakes or polls
    requests, seeds  how many requests, and one run for each seed; a tenth is warm-up

and prints one: for each seed, the mean and the p99 of the response time, the mean watts of all
servers, and the shares of their time spent working and waking.
"""

import json
import random
import sys

import simpy


class Server:
    """Serves its queue, sleeps when that is empty, and counts its time by mode."""

    def __init__(self, system, queue):
        self.system, self.queue = system, queue
        self.woken = None
        self.mode, self.since = "asleep", 0.0
        self.state = 0
        self.spent = {}
        system.env.process(self.run())

    def enter(self, mode):
        now = self.system.env.now
        key = (self.mode, self.state if self.mode == "asleep" else 0)
        self.spent[key] = self.spent.get(key, 0.0) + now - self.since
        self.mode, self.since = mode, now

    def run(self):
        system = self.system
        while True:
            if not self.queue:
                self.woken = system.env.event()
                system.idle.append(self)
                self.enter("asleep")
                self.state = system.choose()
                yield self.woken
                self.enter("waking")
                exit_time = system.states[self.state]["exit"] if system.states else 0.0
                if exit_time > 0.0:
                    yield system.env.timeout(exit_time)
                # Another server may have taken the request meanwhile.
                if not self.queue:
                    continue
            self.enter("working")
            arrived, length = self.queue.pop(0)
            yield system.env.timeout(length)
            system.answered(system.env.now - arrived)


class System:
    def __init__(self, parameters, seed):
        self.parameters = parameters
        self.states = parameters["states"]
        self.draws = random.Random(seed)
        self.env = simpy.Environment()
        self.responses = []
        self.next_arrival = 0.0
        self.idle = []
        count = parameters["servers"]
        self.is_shared = parameters["queue"] == "shared"
        queues = [[]] * count if self.is_shared else [[] for _ in range(count)]
        self.servers = [Server(self, queue) for queue in queues]
        self.warm_up = parameters["requests"] // 10
        self.began = None
        self.env.process(self.source())

    def choose(self):
        if not self.parameters["foresees"]:
            return 0
        left = self.next_arrival - self.env.now
        fitting = [place for place, state in enumerate(self.states) if state["residency"] <= left]
        return max(fitting, default=0)

    def service(self):
        service, draw = self.parameters["service"], self.draws.expovariate
        mean = service["mean"]
        if service["kind"] == "constant":
            return mean
        if service["kind"] == "erlang2":
            return draw(2.0 / mean) + draw(2.0 / mean)
        if service["kind"] == "branches":
            first = service["first"]
            branch = first if self.draws.random() < first else 1.0 - first
            return draw(2.0 * branch / mean)
        return draw(1.0 / mean)

    def source(self):
        rate = self.parameters["rate"]
        for number in range(self.parameters["requests"]):
            self.next_arrival = self.env.now + self.draws.expovariate(rate)
            yield self.env.timeout(self.next_arrival - self.env.now)
            if number == self.warm_up:
                self.begin()
            if self.is_shared:
                self.servers[0].queue.append((self.env.now, self.service()))
                if self.idle:
                    self.idle.pop(0).woken.succeed()
            else:
                server = self.draws.choice(self.servers)
                server.queue.append((self.env.now, self.service()))
                if server in self.idle:
                    self.idle.remove(server)
                    server.woken.succeed()
        self.end()

    def begin(self):
        self.began = self.env.now
        for server in self.servers:
            server.enter(server.mode)
            server.spent = {}

    def end(self):
        self.ended = self.env.now
        for server in self.servers:
            server.enter(server.mode)

    def answered(self, response):
        self.responses.append(response)

    def result(self):
        # In the order of the answers; all of them, the last ones after the last arrival.
        counted = sorted(self.responses[self.warm_up :])
        time = (self.ended - self.began) * len(self.servers)
        spent = {}
        for server in self.servers:
            for key, length in server.spent.items():
                spent[key] = spent.get(key, 0.0) + length
        busy = self.parameters["watts"]
        watts = {
            key: (self.states[key[1]]["watts"] if key[0] == "asleep" and self.states else busy)
            for key in spent
        }
        joules = sum(length * watts[key] for key, length in spent.items())
        return {
            "mean": sum(counted) / len(counted),
            "p99": counted[max(0, -(-99 * len(counted) // 100) - 1)],
            "watts": joules / (self.ended - self.began),
            "working": spent.get(("working", 0), 0.0) / time,
            "waking": spent.get(("waking", 0), 0.0) / time,
        }


def simulate(parameters, seed):
    system = System(parameters, seed)
    # `end` is called by the source; the requests that are still inside are answered after it.
    system.env.run()
    return system.result()


if __name__ == "__main__":
    parameters = json.loads(sys.argv[1])
    runs = [simulate(parameters, seed) for seed in parameters["seeds"]]
    print(json.dumps({"version": simpy.__version__, "runs": runs}))
