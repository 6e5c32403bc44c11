"""What is near by its estimate is tried, and believed if it is quicker twice."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.schedule.choose import Chooser, Features
from penstock.schedule.costs import Costs

# Nearly all the same to bfs, dfs and ready: dear events, hardly a path.
NEAR = Features(events=10_000, cost=10e-6, threads=2, accesses=3.0, chain=5)
BFS, DFS, READY = (f"{explore}/transaction/eager" for explore in ("bfs", "dfs", "ready"))


def run(chooser: Chooser, features: Features, batches: int, times: dict[str, float], **held_up: float) -> list[str]:
    """Who ran; times: of an event under each policy, in us; held_up: a batch's number, and how many times as long."""
    ran = []
    for number in range(batches):
        name = chooser.choose(features).policy.name
        ran.append(name)
        chooser.trials.ran(name, times[name] * held_up.get(f"b{number}", 1.0), chooser.estimates)
    return ran


def test_a_rival_that_is_quicker_twice_takes_over() -> None:
    chooser = Chooser(Costs())
    ran = run(chooser, NEAR, 20, {BFS: 10.0, DFS: 9.0, READY: 10.5})
    assert ran[:6] == [BFS, BFS, DFS, BFS, BFS, DFS]
    assert ran[6] == BFS and ran[7] == DFS  # the last one tells, and DFS it is
    assert chooser.last == DFS and set(ran[8:]) <= {DFS, READY}
    assert chooser.estimates[DFS] / chooser.estimates[BFS] == pytest.approx(0.9)


@pytest.mark.parametrize("times", [{BFS: 10.0, DFS: 11.0, READY: 12.0}, {BFS: 10.0, DFS: 10.0, READY: 10.0}])
def test_a_rival_that_is_not_quicker_is_tried_twice_and_left_alone(times: dict[str, float]) -> None:
    chooser = Chooser(Costs())
    ran = run(chooser, NEAR, 60, times)
    assert chooser.last == BFS
    assert ran.count(DFS) == ran.count(READY) == 2 and set(ran[12:]) == {BFS}


def test_what_was_held_up_once_says_nothing() -> None:
    chooser = Chooser(Costs())
    chooser.choose(NEAR)
    thought = chooser.estimates[DFS] / chooser.estimates[BFS]
    # The neighbours of the first trial took three times as long: it looks as if DFS were that much quicker.
    ran = run(chooser, NEAR, 60, {BFS: 10.0, DFS: 10.3, READY: 10.6}, b1=3.0, b3=3.0)
    assert chooser.last == BFS and set(ran[12:]) == {BFS}
    assert chooser.estimates[DFS] / chooser.estimates[BFS] == pytest.approx(thought)


def test_what_is_not_near_is_not_tried() -> None:
    hot = replace(NEAR, cost=1e-6, chain=2_000, path=2_000.0, strata=2_000, rounds=9_000)
    chooser = Chooser(Costs())
    best = chooser.choose(hot).policy.name
    least = chooser.estimates[best]
    near = {name for name, seconds in chooser.estimates.items() if 0.97 * seconds <= least}
    assert set(run(chooser, hot, 30, dict.fromkeys(chooser.estimates, 1.0))) <= near


def test_small_batches_have_no_time_for_trials() -> None:
    assert set(run(Chooser(Costs()), replace(NEAR, events=1_000), 30, {BFS: 10.0, DFS: 9.0, READY: 9.0})) == {BFS}


@pytest.mark.parametrize(
    "other",
    [
        replace(NEAR, events=20_000),
        replace(NEAR, cost=20e-6),
        replace(NEAR, chain=50),
        replace(NEAR, abort_ratio=0.2),
        replace(NEAR, threads=4),
    ],
)
def test_batches_of_another_kind_are_tried_anew(other: Features) -> None:
    chooser, times = Chooser(Costs()), {BFS: 10.0, DFS: 9.0, READY: 10.5}
    run(chooser, NEAR, 20, times)
    corrected = chooser.estimates[DFS]
    chooser.choose(other)
    chooser.choose(NEAR)
    assert chooser.estimates[DFS] > 1.05 * corrected
    assert DFS in run(chooser, NEAR, 20, times)


def test_a_trial_says_that_it_is_one() -> None:
    chooser = Chooser(Costs())
    for _ in range(2):
        choice = chooser.choose(NEAR)
        assert not choice.tried
        chooser.trials.ran(choice.policy.name, 1e-5, chooser.estimates)
    choice = chooser.choose(NEAR)
    assert choice.tried and choice.why.startswith("to see how it compares: ") and chooser.last != choice.policy.name


def test_how_long_threads_wait_for_the_heap_is_learned_from_hot_batches() -> None:
    costs = Costs()
    chooser = Chooser(costs)
    hot = replace(NEAR, events=40_000, cost=1e-6, chain=5_000)
    explored = 40_000 * 3 * 90e-9  # thread-seconds: an access took 90 ns
    assert chooser.waited(BFS, hot, explored) is None and chooser.waited(DFS, hot, explored) is None
    assert chooser.waited(READY, replace(hot, chain=5), explored) is None  # where no record is hot nobody waits
    waited = chooser.waited(READY, hot, explored)
    assert waited is not None and waited > 2 * costs.of(READY, 2, 40_000).heap
    chooser.choose(hot)
    thought = chooser.estimates[READY] / chooser.estimates[DFS]
    spent = {"construct": 0.01, "useful": 0.04, "abort": 0.0, "explore": explored}
    for _ in range(40):
        heap = chooser.waited(READY, hot, explored)
        costs.learn(READY, 2, events=40_000, entries=120_000, work=0.04, spent=spent, heap=heap)
    assert costs.of(READY, 2, 40_000).heap == pytest.approx(waited, rel=0.2)
    assert costs.of(DFS, 2, 40_000).heap == costs.of(READY, 2, 40_000).heap > costs.of(READY, 4, 40_000).heap
    chooser.choose(hot)
    assert chooser.estimates[READY] / chooser.estimates[DFS] > 1.02 * thought
    costs.forget(2, 40_000)
    assert costs.of(READY, 2, 40_000).heap == Costs().of(READY, 2, 40_000).heap
