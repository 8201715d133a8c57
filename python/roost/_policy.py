"""Policies of one's own."""

from __future__ import annotations

import ctypes
import os
import traceback
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from ._roost import Commands, Knobs, Reading
from .errors import ScenarioError

__all__ = ["Own", "Policy"]


class Policy:
    """A policy that decides once an epoch.

        class Half(roost.Policy):
            epoch = "50ms"

            def on_epoch(self, reading):
                return roost.Commands(cores=self.knobs.workers // 2)

        roost.run(scenario, policies=["menu", "half + teo"], own={"half": Half})

    Each run makes an object of its own, in a thread of its own, so a class may keep state. The same
    seed gives the same figures as long as ``on_epoch`` looks at nothing but its readings. The line
    may name policies for other questions beside it: which idle state, which frequency.
    """

    #: Time between two calls of ``on_epoch``, such as ``"100ms"``.
    epoch: str = "100ms"
    #: Of response times, the tail that ``Reading.tail_ns`` tells.
    quantile: float = 0.99
    #: A call that lasts longer ends the run.
    time_limit_s: float = 10.0

    def __init__(self, knobs: Knobs) -> None:
        self.knobs = knobs

    def on_epoch(self, reading: Reading) -> Commands | None:
        """An epoch has ended: the orders for the next ones, or None for no change."""
        raise NotImplementedError(f"{type(self).__name__} has no on_epoch")


class _Decides(Protocol):
    def on_epoch(self, reading: Reading) -> Commands | None: ...


#: Names for ``policies``, and the classes (or functions) that make the policies.
Own = Mapping[str, Callable[[Knobs], _Decides]]


class _TookTooLong(BaseException):
    """Raised in a call that is to end, by another thread: no handler of Exception catches it."""

    def __str__(self) -> str:
        return "on_epoch lasted longer than its time_limit_s"


def end_calls(threads: Iterable[int]) -> None:
    """Raise an exception in these threads."""
    for thread in threads:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(thread), ctypes.py_object(_TookTooLong)
        )


def traits_of(policy: Any) -> tuple[str, float, float]:
    """Its epoch, quantile and time limit, checked as far as Python can."""
    if not callable(getattr(policy, "on_epoch", None)):
        raise TypeError(f"{type(policy).__name__} has no method on_epoch(reading)")
    epoch = getattr(policy, "epoch", Policy.epoch)
    quantile = getattr(policy, "quantile", Policy.quantile)
    limit = getattr(policy, "time_limit_s", Policy.time_limit_s)
    if not isinstance(epoch, str):
        raise ScenarioError(f'epoch = {epoch!r}\n\nhint: a text with a unit, such as "100ms"')
    if not isinstance(quantile, int | float) or not 0.5 <= quantile <= 0.9999:
        raise ScenarioError(f"quantile = {quantile!r}\n\nhint: from 0.5 to 0.9999")
    if not isinstance(limit, int | float) or not 0 < limit <= 86_400:
        raise ScenarioError(f"time_limit_s = {limit!r}\n\nhint: seconds above 0, up to a day")
    return epoch, float(quantile), float(limit)


def told(error: BaseException) -> str:
    """The exception in a line, with its place."""
    name = type(error).__name__.lstrip("_")
    places = traceback.extract_tb(error.__traceback__)
    place = ""
    if places:
        place = f" ({os.path.basename(places[-1].filename)}, line {places[-1].lineno})"
    said = " ".join(str(error).split())
    return f"{name}: {said}{place}" if said else f"{name}{place}"
