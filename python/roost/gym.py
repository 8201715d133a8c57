"""One simulated server as an environment of Gymnasium: a step is an epoch.

    from roost.gym import Server

    env = Server(scenario, epoch="20ms")
    observation, info = env.reset(seed=1)
    observation, reward, terminated, truncated, info = env.step(env.action_space.sample())

Needs ``pip install roost-sim[gym]``. An episode is one run: it is truncated when the run's requests
are over, and never terminated. The same seed and actions give the same episode.
"""

from __future__ import annotations

import itertools
import math
import threading
import weakref
from queue import SimpleQueue
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from . import _roost
from ._calls import AnyScenario
from ._policy import Policy
from ._run import run
from .errors import PolicyError, ScenarioError

__all__ = ["Server"]


#: Names of policies that no episode uses: a name lives for ever, and is one class's at a time.
_free: list[str] = []
_named = itertools.count(1)


class _Over(BaseException):
    """Ends a run that its environment has left."""


class _Episode:
    """A run in a thread of its own, which waits for an action after each epoch."""

    def __init__(self, scenario: AnyScenario, epoch: str, seed: int) -> None:
        self.knobs: _roost.Knobs | None = None
        #: A reading, None at the run's end, or the exception that ended it.
        self.told: SimpleQueue[_roost.Reading | BaseException | None] = SimpleQueue()
        #: An action, or None: the run is to end.
        self.orders: SimpleQueue[_roost.Commands | None] = SimpleQueue()
        episode = weakref.proxy(self)
        told, orders = self.told, self.orders

        class Waits(Policy):
            time_limit_s = 86_400.0

            def __init__(self, knobs: _roost.Knobs) -> None:
                super().__init__(knobs)
                self.epoch = epoch
                self.quantile = knobs.goal_quantile or 0.99
                episode.knobs = knobs

            def on_epoch(self, reading: _roost.Reading) -> _roost.Commands:
                told.put(reading)
                if (order := orders.get()) is None:
                    raise _Over
                return order

        def serve() -> None:
            try:
                name = _free.pop()
            except IndexError:
                name = f"agent-{next(_named)}"
            try:
                run(scenario, name, seed=seed, own={name: Waits}, threads=1, progress=False)
                told.put(None)
            except PolicyError as error:
                told.put(None if isinstance(error.__cause__, _Over) else error)
            except BaseException as error:
                told.put(error)
            finally:
                _free.append(name)

        threading.Thread(target=serve, name="roost-episode", daemon=True).start()
        # The thread ends with the episode, whether it is closed or forgotten.
        self.end = weakref.finalize(self, orders.put, None)

    def next(self) -> _roost.Reading | None:
        told = self.told.get()
        if isinstance(told, BaseException):
            raise told
        return told


class Server(gymnasium.Env[np.ndarray[Any, Any], np.ndarray[Any, Any]]):
    """How many cores, how deep active cores may sleep, and how fast all cores run.

    **Observation**, five numbers of type float32 from 0 to 10:

    0. active cores, as a share of all that serve requests;
    1. their utilisation: time at work on requests, as a share of the active cores' time;
    2. the rate of the epoch, as a share of the fastest that all cores have worked off so far;
    3. the tail of the epoch, at the goal's quantile, as a share of the goal;
    4. the mean response time, as a share of the goal.

    **Action**, three choices: the number of active cores less 1; the deepest idle state of active
    cores, in the order of ``Knobs.idle_states``, the last being no limit; the clock, in the order
    of ``Knobs.clocks_khz``.

    **Reward**, at most 0: the modelled power of all cores as a share of the highest seen, and
    ``miss_cost`` for each goal's length that the tail lies above the goal, up to 10; both negated.

    ``info`` has ``reading``, the ``roost.Reading`` of the epoch; it is missing where a run has
    ended.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012

    def __init__(self, scenario: AnyScenario, epoch: str = "20ms", miss_cost: float = 1.0) -> None:
        """
        :param scenario: of one server, with a goal; ``run.requests`` is an episode's length.
        :param epoch: a step's length in simulated time.
        :param miss_cost: the price of a tail that is twice the goal.
        :raises roost.ScenarioError: bad input; the message names the key and the fix.
        """
        self._scenario, self._epoch, self._miss_cost = scenario, epoch, miss_cost
        self._episode: _Episode | None = None
        self._knobs = self._look()
        if self._knobs.goal_ns is None:
            raise ScenarioError('goal: none\n\nhint: such as goal = "300us@p99"')
        self._goal_ns = self._knobs.goal_ns
        self._fastest = self._watts_max = 0.0
        states, clocks = len(self._knobs.idle_states), len(self._knobs.clocks_khz)
        self.action_space = spaces.MultiDiscrete([self._knobs.workers, states, clocks])
        self.observation_space = spaces.Box(0.0, 10.0, (5,), np.float32)

    def _look(self) -> _roost.Knobs:
        """The knobs, from the first moment of a run."""
        episode = _Episode(self._scenario, self._epoch, 1)
        self._first(episode)
        episode.end()
        assert episode.knobs is not None
        return episode.knobs

    def _first(self, episode: _Episode) -> _roost.Reading:
        if (reading := episode.next()) is None:
            hint = "more run.requests, or a shorter epoch"
            raise ScenarioError(
                f"run: it ends before the first epoch of {self._epoch}\n\nhint: {hint}"
            )
        return reading

    def reset(  # noqa: D102
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray[Any, Any], dict[str, Any]]:
        super().reset(seed=seed)
        self.close()
        self._fastest = self._watts_max = 0.0
        self._episode = _Episode(self._scenario, self._epoch, int(self.np_random.integers(1 << 31)))
        reading = self._first(self._episode)
        self._seen = self._observe(reading)
        return self._seen, {"reading": reading}

    def step(  # noqa: D102
        self, action: np.ndarray[Any, Any]
    ) -> tuple[np.ndarray[Any, Any], float, bool, bool, dict[str, Any]]:
        if self._episode is None:
            raise gymnasium.error.ResetNeeded("the episode is over, or has not begun: call reset")
        cores, state, clock = (int(choice) for choice in action)
        deepest = state == len(self._knobs.idle_states) - 1
        limit = math.inf if deepest else float(self._knobs.idle_states[state][1])
        self._episode.orders.put(
            _roost.Commands(
                cores=cores + 1,
                idle_limit_ns=limit,
                clock_khz=self._knobs.clocks_khz[clock],
            )
        )
        reading = self._episode.next()
        if reading is None:
            self._episode = None
            return self._seen, 0.0, False, True, {}
        self._seen = self._observe(reading)
        return self._seen, self._reward(reading), False, False, {"reading": reading}

    def close(self) -> None:
        """End the run that goes on."""
        if self._episode is not None:
            self._episode.end()
            self._episode = None

    def _observe(self, reading: _roost.Reading) -> np.ndarray[Any, Any]:
        self._fastest = max(self._fastest, reading.rate_per_s)
        self._watts_max = max(self._watts_max, reading.core_watts)
        seen = [
            reading.active / self._knobs.workers,
            sum(reading.working) / reading.active,
            reading.rate_per_s / self._fastest if self._fastest else 0.0,
            (reading.tail_ns or 0) / self._goal_ns,
            (reading.mean_ns or 0) / self._goal_ns,
        ]
        return np.clip(np.array(seen, np.float32), 0.0, 10.0)

    def _reward(self, reading: _roost.Reading) -> float:
        power = reading.core_watts / self._watts_max if self._watts_max else 0.0
        missed = min(max((reading.tail_ns or 0) / self._goal_ns - 1.0, 0.0), 10.0)
        return -power - self._miss_cost * missed
