"""Scenarios as typed dicts: an editor completes their keys, and at run time they are plain dicts.

    roost.Scenario(
        policies=["menu", "deep"],
        machine=roost.Machine(preset="xeon-silver-4116", cores=4),
        workload=roost.Workload(rate="50k", service={"exponential": "10us"}),
        run=roost.Run(requests="200k"),
    )

A length of time is a text with a unit (``"500ns"``, ``"10us"``, ``"4ms"``, ``"1.5s"``, ``"2m"``,
``"1h"``), a rate a number of requests per second or a text (``800``, ``"80k"``), a share a number
from 0 to 1, a power a number of watts. docs/scenarios.md explains every key and its default.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

__all__ = [
    "Clients",
    "Device",
    "Distribution",
    "Fleet",
    "Machine",
    "Nic",
    "Noise",
    "RequestClass",
    "Run",
    "Scenario",
    "Server",
    "Shards",
    "Stealing",
    "Threads",
    "Variant",
    "Workload",
]

#: A length of time, such as ``"10us"``.
Time = str
#: Requests per second, such as ``800`` or ``"80k"``.
Rate = int | float | str
#: A distribution of times: the name of a preset (``"memcached"``), in short (``{"exponential":
#: "10us"}``), or in full (``{"distribution": "lognormal", "mean": "1ms", "cv": 1.5}``).
Distribution = str | Mapping[str, Any]


class Machine(TypedDict, total=False):
    """The simulated server: a preset, and how it differs from that."""

    preset: str
    """Its table of idle states, clocks and powers, such as ``"xeon-silver-4116"``; required."""
    sockets: int
    cores: int
    """Cores of a socket."""
    threads: int
    """Hyperthreads of a core, 1 or 2."""
    turbo: bool | Sequence[Mapping[str, Any]]
    """Whether few awake cores run faster: the preset's bins, or bins of one's own."""
    package: bool
    """False: sockets have no sleep of their own."""
    package_watts: float
    """Watts of a socket's uncore while it sleeps."""
    tick: Time
    """The scheduler's tick, or ``"never"``."""
    timer: Time
    """Each CPU's own timer, which the governors see coming."""
    waking_spread: float
    """Deviation of the logarithm of a wake-up's real time."""
    tick_cost: Time
    """CPU time of a tick that comes to an idle CPU."""
    poll_share: float
    """Power of a core that polls, as a share of its power at work."""
    waking: Literal["break-even", "full-power"]
    """How the energy of waking is settled."""
    uncore_watts: float
    """Watts of a socket beside its cores."""
    uncore_clock: str
    """The clock of the sockets' uncore, such as ``"1.6GHz"``; its fastest without one."""
    rest_watts: float
    """Watts of the rest of the server."""
    cap: Mapping[str, Any]
    """A bound on each socket's mean power: ``{"watts": 125.0, "window": "1s"}``."""
    warming: float
    """Leakage: the share by which each watt beyond sleep raises the power."""
    cstate: Mapping[str, Mapping[str, Any]]
    """Changes of single idle states, by name."""
    cstates: Sequence[Mapping[str, Any]]
    """All idle states anew, shallow to deep."""
    frequencies: Mapping[str, Any]
    """All operating points anew, slow to fast."""


class Threads(TypedDict, total=False):
    """Threads that serve a shared queue, each with connections of its own."""

    count: int
    before: Time
    """CPU time of a turn before its first request."""
    after: Time
    """CPU time of a turn after its last request."""


class Shards(TypedDict, total=False):
    """A request that forks."""

    count: int
    onto: Literal["random", "idle"]
    work: Literal["whole", "divided", "drawn"]
    fetch: Time


class Noise(TypedDict, total=False):
    """Work of other programs."""

    every: Time
    """Mean gap from one piece to the next."""
    per_request: float
    """In its place: so many for each request."""
    after_request: Time
    """In place of gap and length: each request wakes it, and it works for so long."""
    sends: bool
    length: Distribution
    """How much each time."""
    on: Literal["each", "any", "scheduled"]
    deferrable: bool
    """A quiescence policy may hold it back."""


class Nic(TypedDict, total=False):
    """Interrupts of the network."""

    receive: Time
    transmit: Time
    on: str


class Device(TypedDict, total=False):
    """A device that every request calls."""

    latency: Distribution
    before: float
    interrupt: Time
    on: str
    wait: Literal["block", "spin"]


class Clients(TypedDict, total=False):
    """Clients that wait for replies: a closed loop, or a bound on outstanding requests."""

    count: int
    think: Distribution
    cycle: Distribution
    in_step: bool
    phases: Literal["even", "random"]
    depth: int
    measured: Literal["sent", "due"]
    timer: bool


class Stealing(TypedDict, total=False):
    """Idle workers take requests that wait for others."""

    cost: Time
    after: Time


class Server(TypedDict, total=False):
    """How requests come to cores."""

    dispatch: Literal["shared", "random", "round-robin", "connections", "fork-join"]
    pick: Literal["shallowest", "lowest", "random"]
    workers: int
    """CPUs that serve; all if left out."""
    stealing: Stealing
    transfer: Time
    active_idle: Literal["halt", "poll", "stock"]
    learned_limit: Rate
    shard_cv: float
    shards: Shards
    threads: Threads
    noise: Sequence[Noise]
    outside: Time
    """Added to every response time: client, wire."""
    nic: Nic
    device: Device
    clients: Clients


class RequestClass(TypedDict, total=False):
    """A class of requests."""

    name: str
    share: float
    service: Distribution
    memory: float
    memory_most: Time
    deadline: Time


# `class` is no name that Python lets a field have.
_Classes = TypedDict("_Classes", {"class": Sequence[RequestClass]}, total=False)


class Workload(_Classes, total=False):
    """The load: when requests come, and how much work each is."""

    seed: int
    """Ignored: a run has one seed, ``Run.seed``."""
    rate: Rate
    """Requests per second; the highest rate of a shape."""
    shape: str
    """The rate over time, such as ``"diurnal"``; ``"constant"`` if left out."""
    compression: float
    """Times of a shape that has its own, and of a trace, are divided by it."""
    arrivals: str
    """``"poisson"``, ``"uniform"``, ``"gpareto"``, ``"etc"``, ``"h2:CV"``."""
    batch: int | Mapping[str, Any]
    """Requests that arrive at a time: a number, or ``{"geometric": 4}``."""
    service: Distribution
    """A request's service time at the nominal clock."""
    memory: float
    """Share of it that a faster clock does not shorten."""
    deadline: Time
    """When an answer is late, or ``"never"``."""
    trace: str
    """A file of requests instead."""
    connections: int | Mapping[str, Any]


class Run(TypedDict, total=False):
    """The run's length and its precision."""

    requests: int | str
    """At most so many, such as ``200_000`` or ``"200k"``."""
    length: Time
    """At most so long, in simulated time."""
    utilisation: float
    """Instead of ``Workload.rate``: the load as a share of the workers' capacity."""
    seed: int
    """Everything random follows from it."""
    precision: str
    """``"1%@p99"``, ``"0.5%@mean"``: go on until that half-width is reached."""
    horizon: Literal["steady", "whole"]
    replications: int
    """Of a story; at least ten for intervals."""
    samples: int
    """Points of the time series."""


class Variant(TypedDict, total=False):
    """A contestant that differs in more than its policies."""

    name: str
    policies: str
    set: Mapping[str, Any]
    """Dotted keys and their values."""


class Fleet(TypedDict, total=False):
    """Servers behind a root."""

    servers: int
    fanout: int
    """How many of them each request asks."""
    policies: Sequence[str]
    """Server by server in turn; left out: each line of ``Scenario.policies`` is a fleet."""
    sample: int
    """Only so many servers are simulated and stand for all; five times ``fanout`` or more."""


class Scenario(TypedDict, total=False):
    """Machine, service, load and contestants."""

    title: str
    assumptions: Sequence[str]
    policies: Sequence[str]
    """The contestants, each a line of policies such as ``"peafowl + teo"``."""
    goal: str
    """``"300us@p99"``: a response time and the percentile that shall stay below it."""
    machine: Machine
    """Required."""
    server: Server
    workload: Workload
    params: Mapping[str, Mapping[str, Any]]
    """Parameters of the policies, by policy."""
    run: Run
    sweep: Mapping[str, Sequence[Any]]
    """Dotted keys and the values that each takes, for ``roost.sweep``."""
    variant: Sequence[Variant]
    fleet: Fleet
    """For ``roost.fleet``."""
    figure: Mapping[str, Any]
    base: str
    """The file of another scenario, whose keys hold where this one has none."""
    shared: Mapping[str, Any]
    """Values by name: ``"shared:NAME"`` stands for one."""
