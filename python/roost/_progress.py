"""How far a simulation is: tqdm's bar where that is installed, else a plain line."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, nullcontext
from typing import Any

#: The values of ``progress``: None shows a bar on runs that take long, where a person looks on;
#: True always; False never; a function is called with the runs that are over, all runs, and the
#: name of the last.
Progress = bool | Callable[[int, int, str], object] | None

#: Seconds after which a run is long.
LONG_S = 2.0
#: Seconds between two plain lines where there is no terminal.
LINE_EVERY_S = 10.0


def watched(progress: Progress) -> AbstractContextManager[Watch | None]:
    """The watch of a simulation, or None if there is none to keep; it is closed in the end."""
    if progress is False or (progress is None and not _is_looked_at()):
        return nullcontext()
    return closing(_Told(progress) if callable(progress) else _Bar(0.0 if progress else LONG_S))


class Watch:
    """Called with the runs that are over, all, and the last one's name, 20 times a second."""

    def __call__(self, done: int, total: int, last: str) -> None:
        """So many runs are over."""
        raise NotImplementedError

    def close(self) -> None:
        """The simulation is over."""


class _Told(Watch):
    def __init__(self, tell: Callable[[int, int, str], object]) -> None:
        self.tell = tell

    def __call__(self, done: int, total: int, last: str) -> None:
        self.tell(done, total, last)


class _Bar(Watch):
    def __init__(self, after_s: float) -> None:
        self.after_s = after_s
        self.began = time.monotonic()
        self.bar: Any = None

    def __call__(self, done: int, total: int, last: str) -> None:
        if time.monotonic() - self.began < self.after_s:
            return
        if self.bar is None:
            bar = _tqdm(total)
            # A bar without a total is no truth value.
            self.bar = _Plain(total, self.began) if bar is None else bar
        if done > self.bar.n:
            self.bar.set_postfix_str(last, refresh=False)
            self.bar.update(done - self.bar.n)
        else:
            # One run can take minutes: the clock goes on.
            self.bar.refresh()

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()


class _Plain:
    """The few methods of tqdm's bar that are used here, as a line of text."""

    def __init__(self, total: int, began: float) -> None:
        self.n, self.total, self.began, self.last = 0, total, began, ""
        self.is_terminal = sys.stderr.isatty()
        self.told = 0.0

    def set_postfix_str(self, last: str, refresh: bool = True) -> None:
        self.last = last

    def update(self, more: int) -> None:
        self.n += more
        self.refresh()

    def refresh(self) -> None:
        now = time.monotonic()
        if now - self.told < (0.2 if self.is_terminal else LINE_EVERY_S):
            return
        self.told = now
        of = f" of {self.total}" if self.total else ""
        line = f"roost: {self.n}{of} runs, {now - self.began:.0f} s gone  {self.last}"
        print(
            f"\r{line:<79.79}" if self.is_terminal else line,
            end="" if self.is_terminal else "\n",
            file=sys.stderr,
            flush=True,
        )

    def close(self) -> None:
        if self.is_terminal:
            print(f"\r{'':<79}\r", end="", file=sys.stderr, flush=True)


def _tqdm(total: int) -> Any:
    try:
        with warnings.catch_warnings():
            # A notebook without widgets gets the plain bar.
            warnings.simplefilter("ignore")
            from tqdm.auto import tqdm
    except ImportError:
        return None
    return tqdm(total=total or None, unit="run", desc="roost", leave=False)


def _is_looked_at() -> bool:
    return sys.stderr.isatty() or "ipykernel" in sys.modules
