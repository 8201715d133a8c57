"""roost.gym: Gymnasium's own check, episodes that repeat, agents that are forgotten."""

from __future__ import annotations

import gc
import threading
import time
import warnings

import pytest
from conftest import scenario

import roost

gymnasium = pytest.importorskip("gymnasium")
np = pytest.importorskip("numpy")

from gymnasium.utils.env_checker import check_env  # noqa: E402

from roost.gym import Server  # noqa: E402

SHORT = scenario(goal="300us@p99")


def episodes() -> int:
    return sum(thread.name == "roost-episode" for thread in threading.enumerate())


def none_is_left() -> bool:
    """The threads of runs end on their own: in seconds, at the latest."""
    until = time.monotonic() + 30
    while episodes() and time.monotonic() < until:
        time.sleep(0.01)
    return episodes() == 0


def test_gymnasiums_own_check_passes() -> None:
    env = Server(SHORT, epoch="10ms")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env, skip_render_check=True)
    env.close()
    assert none_is_left()


def play(env: Server, seed: int, action: list[int]) -> list[tuple[list[float], float]]:
    env.reset(seed=seed)
    steps = []
    truncated = False
    while not truncated:
        seen, reward, terminated, truncated, info = env.step(np.array(action))
        assert not terminated and ("reading" in info) is not truncated
        steps.append((list(seen), reward))
    return steps


def test_the_same_seed_and_actions_are_the_same_episode() -> None:
    env = Server(SHORT, epoch="10ms")
    states = int(env.action_space.nvec[1])  # type: ignore[attr-defined]
    all_awake = [3, states - 1, -1]
    first = play(env, 7, all_awake)
    assert first == play(env, 7, all_awake) != play(env, 8, all_awake)
    # One epoch is told by reset, and the last step by the run's end.
    assert len(first) in (19, 20)
    # One core fewer than the load needs: the tail grows, and the reward falls.
    one = play(env, 7, [0, *all_awake[1:]])
    assert sum(reward for _, reward in one) < sum(reward for _, reward in first)
    assert one[3][0][0] == 0.25 and first[3][0][0] == 1.0


def test_several_at_once_and_one_that_is_forgotten() -> None:
    envs = gymnasium.vector.SyncVectorEnv([lambda: Server(SHORT, epoch="10ms")] * 3)
    envs.reset(seed=1)
    seen, rewards, *_ = envs.step(envs.action_space.sample())
    assert seen.shape == (3, 5) and (rewards < 0).all()
    envs.close()
    forgotten = Server(SHORT, epoch="10ms")
    forgotten.reset()
    del forgotten
    gc.collect()
    assert none_is_left()


def test_bad_input_names_the_fix() -> None:
    with pytest.raises(roost.ScenarioError, match="goal: none"):
        Server(scenario())
    with pytest.raises(roost.ScenarioError, match="it ends before the first epoch of 1s"):
        Server(SHORT, epoch="1s")
    with pytest.raises(roost.PolicyError, match="hint: from 10"):
        Server(SHORT, epoch="1ns")
    env = Server(SHORT)
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(env.action_space.sample())
    assert none_is_left()
