"""The effect that frequencies would have had on the recorded requests: the simulator, fed with the
time that each spent in the hot function.

This machine may have no cpufreq. The recorded calls of a run (when each entered the hot function,
and how long it stayed) are a trace of requests; the simulator plays it on the paper's own machine,
a socket of 12 cores, under each frequency policy. Our calls are much shorter than the paper's, and
450 ms would never fire. So they are played twice: as recorded, the paper's settings of time
(threshold, sleep, deadline) scaled down; and stretched to the paper's times, its settings as they
were. Stretched, a change of clock and a sleep cost as little beside a call as they did there; as
recorded, they cost as much as they would here."""

import json
import os
import pathlib
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# Another build, for who works on Roost itself.
ROOST = pathlib.Path(os.environ.get("ROOST", ROOT / "target/release/roost"))

# The paper's settings, in seconds (sections V-B, V-F), and cores of the socket that its server had
# (V-A).
DEADLINE, THRESHOLD, SLEEP = 1.0, 0.450, 0.050
THRESHOLDS = [0.150, 0.300, 0.450, 0.600]
SLEEPS = [0.005, 0.010, 0.020, 0.050, 0.100]
CORES = 12

POLICIES = ["ondemand", "performance", "powersave", "hurry-up-paper", "hurry-up"]


def nanoseconds(seconds):
    return f"{max(1, round(seconds * 1e9))}ns"


def write_trace(path, calls, stretch=1):
    """A trace of the recorded calls, the first at 0, each gap and each call so many times as long.
    """
    begin = calls[0][0]
    with open(path, "w") as trace:
        print("time,class,service", file=trace)
        for entered, inside, _ in calls:
            print(f"{(entered - begin) * stretch / 1e9:.9f},query,{round(inside * stretch)}ns", file=trace)


def simulate(folder, name, trace, cpus, scale, policies=POLICIES, threshold=THRESHOLD, sleep=SLEEP):
    """Plays `trace`.csv, recorded on `cpus` CPUs, under each policy, as the run `name`; {policy:
    figures}.

    The simulated socket has more cores than this machine, so the calls come as much faster: the
    load of a core is the recorded one.
    """
    scenario = folder / f"{name}.toml"
    contestants = []
    for policy in policies:
        # The published scheduler is a thread that wakes once every sleep, on any core.
        every = nanoseconds(sleep * scale)
        own = f"""[variant.set]
"server.noise" = [
    {{ every = "estimate:kernel.noise.every", length = {{ exponential = "estimate:kernel.noise.length" }} }},
    {{ every = "{every}", length = {{ exponential = "estimate:hurryup.agent.work" }}, on = "any" }},
]
"""
        contestants.append(
            f'[[variant]]\nname = "{policy}"\npolicies = "menu + {policy}"\n'
            + (own if policy == "hurry-up-paper" else "")
        )
    parameters = ""
    if "hurry-up-paper" in policies:
        parameters = (
            f'[params.hurry-up-paper]\nthreshold = {{ fixed = "{nanoseconds(threshold * scale)}" }}\n'
            f'sleep = "{nanoseconds(sleep * scale)}"\n'
        )
    scenario.write_text(f"""title = "Recorded calls of the hot function: {trace}"
assumptions = [
    "requests arrive and work as recorded in {trace}.csv",
    "the machine and its power are the Hurry-up paper's",
]

[machine]
preset = "xeon-gold-6126"
sockets = 1
uncore_watts = "estimate:hurryup.uncore"
package_watts = "estimate:hurryup.package"
rest_watts = 0.0
turbo = [{{ cores = 6, khz = "estimate:hurryup.turbo.khz", watts = "estimate:hurryup.turbo.watts" }}]
tick_cost = "estimate:tick.cost"

[server]
dispatch = "shared"
pick = "shallowest"
noise = [
    {{ every = "estimate:kernel.noise.every", length = {{ exponential = "estimate:kernel.noise.length" }} }},
]

[workload]
trace = "{trace}.csv"
compression = {CORES / cpus}

[[workload.class]]
name = "query"
memory = "estimate:hurryup.memory"
deadline = "{nanoseconds(DEADLINE * scale)}"

{parameters}
[run]
horizon = "whole"
replications = 1

{chr(10).join(contestants)}""")
    command = [ROOST, "sim", "run", scenario, "--json", "--out", folder / name]
    asked = subprocess.run(command, capture_output=True, text=True)
    if asked.returncode != 0:
        raise SystemExit(f"roost sim run {scenario}:\n{asked.stderr}")
    return {found["contestant"]: found for found in json.loads(asked.stdout)["contestants"]}


def energy(found):
    """Joules of cores and uncore for each request."""
    return found["power"]["cpu_watts"] * found["length_s"] / found["requests"]


def p99(found):
    """Seconds; None where the run cannot tell."""
    told = found["responses"]["p99_ns"]
    return told and told["value"] / 1e9


def shares(found):
    """Share of working time at each frequency, {GHz: share}."""
    return {khz / 1e6: share for khz, share in found["frequencies"] if share > 0}
