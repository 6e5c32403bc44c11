"""Threads that are handed native steps: all run, each once, however many, and they may go and come back."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numba as nb
import numpy as np
import pytest

from penstock.schedule import atomics, cores
from penstock.schedule.policy import cores as cores_of_this_process
from penstock.schedule.team import (
    _AWAY,
    _CORES,
    _HELPERS,
    _LINE,
    _SLEEP,
    _SLEEPING,
    ALL,
    Team,
    dispatch,
    entry_point,
    share,
)

kernel = nb.njit(nogil=True)  # not kept on disk: what it has inlined is under test


@kernel
def mark(box: Any, me: Any, threads: Any, found: Any, calls: Any) -> Any:
    """Every thread adds its number plus 1 to its share, and counts itself; they wait for each other."""
    if me == ALL:
        return dispatch(box, threads, entry_point((box, me, threads, found, calls)))
    start, stop = share(found.size, me, threads)
    for i in range(start, stop):
        found[i] += me + 1
    atomics.add(calls, 0, 1)
    looks = 0
    while atomics.load(calls, 0) < threads:
        looks = atomics.pause(looks)
    return 0


@kernel
def fail(box: Any, me: Any, threads: Any, who: Any) -> Any:
    if me == ALL:
        return dispatch(box, threads, entry_point((box, me, threads, who)))
    if me == who:
        raise ValueError("as asked")
    return 0


@pytest.fixture
def team() -> Any:
    team = Team()
    yield team
    team.close()


def runs(team: Team, threads: int, size: int = 1000) -> None:
    found, calls = np.zeros(size, np.int64), np.zeros(1, np.int64)
    team.run(mark, threads, found, calls)
    assert calls[0] == threads
    bounds = [size * k // threads for k in range(threads + 1)]
    assert (found == np.repeat(np.arange(1, threads + 1), np.diff(bounds))).all()


@pytest.mark.parametrize("threads", [1, 2, 3, 8, 32])
def test_every_thread_runs_its_share_once(team: Team, threads: int) -> None:
    for _ in range(200):
        runs(team, threads)


def test_the_number_of_threads_may_change_from_step_to_step(team: Team) -> None:
    chance = np.random.default_rng(0)
    for threads in chance.integers(1, 17, 500):
        runs(team, int(threads), int(chance.integers(0, 50)))


def test_helpers_go_when_nobody_wants_them_and_come_back(team: Team) -> None:
    for pause in (0.0, 0.0005, 0.001, 0.002, 0.02) * 4:
        time.sleep(pause)
        runs(team, 4)


@pytest.mark.parametrize("who", [0, 1, 3])
def test_a_step_that_fails_is_told_and_the_next_one_runs(team: Team, who: int) -> None:
    for _ in range(3):
        with pytest.raises(RuntimeError, match="fail failed in 1 of 4 threads"):
            team.run(fail, 4, who)
        runs(team, 4)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_process_has_helpers_of_its_own(team: Team) -> None:
    runs(team, 4)
    child = os.fork()
    if child == 0:
        try:
            runs(team, 4)
            os._exit(0)
        except BaseException:
            os._exit(1)
    for _ in range(3000):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        time.sleep(0.02)
    else:
        os.kill(child, 9)
        pytest.fail("the child waits for helpers that it does not have")
    assert status == 0
    runs(team, 4)


def test_a_helper_that_cannot_be_had_is_asked_for_again(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_thread(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(ThreadPoolExecutor, "submit", no_thread)
        with pytest.raises(RuntimeError, match="can't start"):
            runs(team, 3)
    runs(team, 3)


def asleep(team: Team, helpers: int) -> bool:
    """Whether so many helpers come to sleep, or have gone; on a machine that is too busy for them, after a while."""
    for _ in range(60_000):
        gone = sum(int(team._box[_HELPERS + k * _LINE]) == _AWAY for k in range(1, helpers + 1))
        if team._box[_SLEEPING] + gone == helpers:
            return True
        time.sleep(0.001)
    return False


def test_a_closed_team_lets_its_helpers_go_at_once(team: Team) -> None:
    for _ in range(5):
        team._make_room(4)
        team._box[_SLEEP] = 120  # seconds, after which they would go by themselves
        runs(team, 4)
        assert asleep(team, 3)
        closing = threading.Thread(target=team.close)
        closing.start()
        closing.join(60)
        assert not closing.is_alive(), "helpers sleep on"
    runs(team, 4)


@kernel
def leave(taken: Any, me: Any) -> None:
    cores.leave(taken, me, 1)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="needs Linux")
def test_a_thread_leaves_the_cores_of_others_if_it_may() -> None:
    may = os.sched_getaffinity(0)
    for other in may:
        taken = np.array([other, -1])
        leave(taken, 1)
        assert taken[0] == other and taken[1] in may
        assert len(may) == 1 or taken[1] != other
        assert os.sched_getaffinity(0) == may
    taken = np.array([*may, -1])
    leave(taken, len(may))  # there is none that is free
    assert taken[-1] in may and os.sched_getaffinity(0) == may


@pytest.mark.skipif(cores_of_this_process() < 2, reason="needs two cores")
def test_helpers_that_slept_run_beside_the_caller(team: Team) -> None:
    runs(team, 2)
    apart = 0
    for pause in (0.0, 0.08) * 8:
        time.sleep(pause)  # in which they may go
        assert asleep(team, 1)
        runs(team, 2)
        caller, helper = team._box[_CORES::_LINE]
        apart += int(caller != helper)
    assert apart > 10
