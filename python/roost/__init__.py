"""Roost's simulator: power policies of a latency-critical service, side by side.

    import roost

    result = roost.run("scenarios/mmk.toml", policies=["menu", "teo", "deep"], precision="1%@p99")
    result.summary[["contestant", "p99_ns", "p99_low_ns", "p99_high_ns", "cpu_watts"]]
    result.plot()

Everything is simulated and power is modelled: no machine is measured or touched. The same seed
gives the same figures as ``roost sim run``, bit for bit.
"""

from importlib.metadata import version as _version

from . import traces
from ._calls import AnyScenario
from ._figure import FigureResult, figure
from ._fleet import FleetResult, fleet
from ._folder import RunFolder, load_run
from ._policy import Policy
from ._progress import Progress
from ._roost import Commands, Knobs, Reading, Table
from ._run import Result, run
from ._sweep import SweepResult, sweep
from .errors import InternalError, PolicyError, ScenarioError
from .scenario import (
    Clients,
    Device,
    Distribution,
    Fleet,
    Machine,
    Nic,
    Noise,
    RequestClass,
    Run,
    Scenario,
    Server,
    Shards,
    Stealing,
    Threads,
    Variant,
    Workload,
)

__version__ = _version("roost-sim")

__all__ = [
    "AnyScenario",
    "Clients",
    "Commands",
    "Device",
    "Distribution",
    "FigureResult",
    "Fleet",
    "FleetResult",
    "InternalError",
    "Knobs",
    "Machine",
    "Nic",
    "Noise",
    "Policy",
    "PolicyError",
    "Progress",
    "Reading",
    "RequestClass",
    "Result",
    "Run",
    "RunFolder",
    "Scenario",
    "ScenarioError",
    "Server",
    "Shards",
    "Stealing",
    "SweepResult",
    "Table",
    "Threads",
    "Variant",
    "Workload",
    "figure",
    "fleet",
    "load_run",
    "run",
    "sweep",
    "traces",
]
