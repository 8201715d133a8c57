"""The compiled part of roost. The package's functions are the way to call it."""

from collections.abc import Callable, Mapping
from os import PathLike
from typing import Any, final

__all__: list[str]

#: Built without optimising, as tests are: no timing of it means anything.
IS_DEBUG: bool

_Asked = Mapping[str, Any]
_Watch = Callable[[int, int, str], object] | None

@final
class Table:
    """A table that Arrow's consumers take without a copy.

    ``polars.DataFrame(table)``, ``pyarrow.table(table)``, ``duckdb.sql("select * from table")``.
    """

    @property
    def column_names(self) -> list[str]:
        """Names of the columns, in order."""
    @property
    def column_types(self) -> list[str]:
        """Of each: ``text``, ``count`` (unsigned, 64 bits), ``number`` (a double) or ``truth``."""
    def __len__(self) -> int: ...
    def to_pydict(self) -> dict[str, list[Any]]:
        """The columns as lists; a cell that is not known is None."""
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...
    def __arrow_c_schema__(self) -> object: ...

@final
class Knobs:
    """The machine that a policy is made for, and its goal."""

    @property
    def workers(self) -> int:
        """CPUs that serve requests."""
    @property
    def clocks_khz(self) -> list[int]:
        """The clocks that a core can have, slow to fast."""
    @property
    def idle_states(self) -> list[tuple[str, int]]:
        """Name and exit latency in ns of each idle state, shallow to deep."""
    @property
    def goal_ns(self) -> int | None:
        """The response time that the goal names; None without a goal."""
    @property
    def goal_quantile(self) -> float | None:
        """The share of requests that is to be faster, such as 0.99."""

@final
class Reading:
    """An epoch that has ended."""

    @property
    def now_ns(self) -> int:
        """Time since the run began."""
    @property
    def span_ns(self) -> int:
        """The epoch's length."""
    @property
    def requests(self) -> int:
        """Requests that were answered in it."""
    @property
    def rate_per_s(self) -> float:
        """These, a second."""
    @property
    def mean_ns(self) -> int | None:
        """Their mean response time; None without requests."""
    @property
    def tail_ns(self) -> int | None:
        """The quantile of their response times that the policy asks for."""
    @property
    def active(self) -> int:
        """Cores that new work may go to."""
    @property
    def working(self) -> list[float]:
        """Of each CPU the share of the epoch that it spent at work on requests."""
    @property
    def core_watts(self) -> float:
        """Mean power of all cores in the epoch, modelled, without ``machine.warming``."""

@final
class Commands:
    """Orders for the epochs that come; what is left out stays as it is.

    :param cores: new work goes to so many cores, from 1 to ``Knobs.workers``.
    :param idle_limit_ns: active cores enter no idle state with a longer exit latency: 0 is polling,
        ``math.inf`` no limit. Parked cores have none.
    :param clock_khz: all cores take the slowest clock that is at least as fast, unless another
        policy of the line decides the frequency.
    """

    def __init__(
        self,
        *,
        cores: int | None = None,
        idle_limit_ns: float | None = None,
        clock_khz: float | None = None,
    ) -> None: ...
    @property
    def cores(self) -> int | None: ...
    @property
    def idle_limit_ns(self) -> float | None: ...
    @property
    def clock_khz(self) -> int | None: ...

@final
class Run:
    @property
    def title(self) -> str: ...
    @property
    def assumptions(self) -> list[str]: ...
    @property
    def tables(self) -> list[str]: ...
    def table(self, name: str) -> Table: ...
    def to_json(self) -> str: ...
    def page(self) -> str | None: ...

@final
class Sweep:
    @property
    def title(self) -> str: ...
    @property
    def axes(self) -> list[str]: ...
    def table(self, name: str) -> Table: ...
    def to_json(self) -> str: ...
    def page(self) -> str: ...

@final
class Elsewhere:
    def __init__(self, asked: _Asked, axes: Mapping[str, Any], out: str | None) -> None: ...
    def scenario(self) -> tuple[PathLike[str], str]: ...
    def missing(self) -> list[tuple[int, int]]: ...
    def keep(self, made: bytes) -> str: ...
    def end(self) -> Sweep: ...

@final
class Fleet:
    @property
    def title(self) -> str: ...
    def table(self, name: str) -> Table: ...
    def to_json(self) -> str: ...

@final
class Figures:
    @property
    def title(self) -> str: ...
    def table(self, name: str) -> Table: ...
    def to_json(self) -> str: ...
    def text(self) -> str: ...

@final
class Folder:
    @property
    def remarks(self) -> list[str]: ...
    def info(self) -> str: ...
    def table(self, name: str) -> Table: ...
    def simulated(self) -> Run | None: ...
    def fleets(self) -> Fleet | None: ...
    def cells(self) -> tuple[list[str], Table] | None: ...

def _fail_a_check() -> None: ...
def run(asked: _Asked, against: str | None, progress: _Watch) -> Run: ...
def sweep(asked: _Asked, axes: Mapping[str, Any], out: str | None, progress: _Watch) -> Sweep: ...
def cells_at(
    path: str | PathLike[str], text: str, points: list[int], own: Mapping[str, Any]
) -> bytes: ...
def fleet(asked: _Asked, progress: _Watch) -> Fleet: ...
def fleets_elsewhere(asked: _Asked) -> tuple[PathLike[str], str, str, int]: ...
def fleet_at(path: str | PathLike[str], text: str, place: int) -> str: ...
def fleets_joined(title: str, parts: list[str]) -> Fleet: ...
def figure(
    names: list[str],
    papers: str | None,
    out: str | None,
    short: bool,
    quick: bool,
    threads: int | None,
    progress: _Watch,
) -> Figures: ...
def load_run(place: str) -> Folder: ...
