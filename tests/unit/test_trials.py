"""What is near by its estimate is tried, and believed if it is quicker twice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from penstock.schedule.choose import Chooser, Features
from penstock.schedule.costs import Costs
from penstock.schedule.trials import Trials

# Nearly all the same to bfs, dfs and ready: few accesses, hardly a path. A fifth of the time goes to building.
NEAR = Features(events=10_000, cost=0.3e-6, threads=2, accesses=0.1, chain=5)
BFS, DFS, READY = (f"{explore}/transaction/eager" for explore in ("bfs", "dfs", "ready"))


def run(chooser: Chooser, features: Features, batches: int, times: dict[str, float], **held_up: float) -> list[str]:
    """Who ran; times: of an event under each policy, in us; held_up: a batch's number, and how many times as long."""
    ran = []
    for number in range(batches):
        name = chooser.choose(features).policy.name
        ran.append(name)
        chooser.trials.observe(name, times[name] * held_up.get(f"b{number}", 1.0), chooser.estimates)
    return ran


def test_a_rival_that_is_quicker_twice_takes_over() -> None:
    chooser = Chooser(Costs())
    ran = run(chooser, NEAR, 20, {BFS: 10.0, DFS: 9.5, READY: 10.5})
    assert ran[:6] == [BFS, DFS, BFS, DFS, BFS, DFS]
    assert chooser.last == DFS and set(ran[5:]) <= {DFS, READY} and set(ran[10:]) == {DFS}
    assert chooser.estimates[DFS] / chooser.estimates[BFS] == pytest.approx(0.95)


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
    # The batch before the first trial took three times as long: it looks as if DFS were that much quicker.
    ran = run(chooser, NEAR, 60, {BFS: 10.0, DFS: 10.3, READY: 10.6}, b0=3.0)
    assert chooser.last == BFS and set(ran[12:]) == {BFS}
    assert chooser.estimates[DFS] / chooser.estimates[BFS] == pytest.approx(thought)


def test_what_is_believed_is_of_what_a_policy_takes_besides_the_work() -> None:
    """So it holds for events of another cost."""
    chooser = Chooser(Costs())
    run(chooser, NEAR, 20, {BFS: 10.0, DFS: 10.5, READY: 11.0})
    besides = chooser.estimates[DFS] - NEAR.work / 2
    dearer = replace(NEAR, cost=0.5e-6)
    chooser.choose(dearer)
    assert chooser.estimates[DFS] - dearer.work / 2 == pytest.approx(besides, rel=0.01)


def test_what_is_not_near_is_not_tried() -> None:
    hot = replace(NEAR, cost=1e-6, accesses=3.0, chain=2_000, path=2_000.0, strata=2_000, rounds=9_000)
    chooser = Chooser(Costs())
    best = chooser.choose(hot).policy.name
    least = chooser.estimates[best]
    near = {name for name, seconds in chooser.estimates.items() if 0.94 * seconds <= least}
    assert len(near) < len(chooser.estimates) - 1  # but for the serial loop
    assert set(run(chooser, hot, 30, dict.fromkeys(chooser.estimates, 1.0))) <= near


@pytest.mark.parametrize("features", [replace(NEAR, events=2_000), replace(NEAR, cost=3e-6)])
def test_small_batches_have_no_time_for_trials_and_dear_ones_nothing_to_gain(features: Features) -> None:
    assert set(run(Chooser(Costs(), last=BFS), features, 30, {BFS: 10.0, DFS: 9.0, READY: 9.0})) == {BFS}


def test_who_runs_ahead_is_not_tried() -> None:
    """If events begin to abort just then, it would do nearly all of them twice."""
    trials, estimates = Trials(Costs()), {BFS: 1.9e-3, DFS: 1.95e-3, "ready/operation/lazy": 1.9e-3, "serial": 1.9e-3}
    trials.apply_corrections(NEAR, estimates)
    assert trials.rival(BFS, estimates) is None
    trials.observe(BFS, 1e-7, estimates)
    assert trials.rival(BFS, estimates) == DFS


def test_what_is_known_is_tried_again_now_and_then_if_it_is_nearer() -> None:
    chooser, times = Chooser(Costs()), {BFS: 10.0, DFS: 10.1, READY: 11.0}
    assert [who for who in run(chooser, NEAR, 20, times) if who != BFS] == [DFS, DFS, READY, READY]
    assert chooser.estimates[DFS] / chooser.estimates[BFS] == pytest.approx(1.01)
    assert set(run(chooser, NEAR, 40, times)) == {BFS}
    again = run(chooser, NEAR, 40, times)
    assert again.count(DFS) == 2 and READY not in again  # which is known to be farther off than is worth it


@pytest.mark.parametrize(
    "other",
    [
        replace(NEAR, events=20_000),
        replace(NEAR, cost=0.8e-6),
        replace(NEAR, chain=2_000),
        replace(NEAR, abort_ratio=0.3),
        replace(NEAR, threads=4),
    ],
)
def test_batches_that_differ_are_not_compared(other: Features) -> None:
    chooser, ran = Chooser(Costs(), last=BFS), []
    for number in range(40):
        choice = chooser.choose(other if number % 2 else NEAR)
        ran.append(choice.trial)
        chooser.trials.observe(choice.policy.name, 1.0, chooser.estimates)
    assert not any(ran)


def test_what_trials_tell_is_kept_and_holds_where_a_record_is_as_hot(tmp_path: Path) -> None:
    costs = Costs(tmp_path)
    assert costs.correction(DFS, 2, 10_000, False) is None
    for ratio in (0.9, 0.95, 0.1, 1.5):
        costs.correct(DFS, 2, 10_000, False, ratio)
    assert costs.correction(DFS, 2, 10_000, False) == pytest.approx(0.5 * 1.5)
    assert costs.correction(DFS, 2, 10_000, True) is None is costs.correction(DFS, 2, 1_000, False)
    assert costs.correction(DFS, 4, 10_000, False) is None is costs.correction(BFS, 2, 10_000, False)
    costs.save()
    again = Costs(tmp_path)
    assert again.correction(DFS, 2, 10_000, False) == pytest.approx(0.75)
    assert again.of(DFS, 2, 10_000) == Costs().of(DFS, 2, 10_000)
    again.forget(2, 10_000)  # that graphs are dear now says nothing of which is the best
    assert again.correction(DFS, 2, 10_000, False) == pytest.approx(0.75)


def test_that_a_rival_says_something_else_of_an_events_cost_does_not_make_batches_another_kind() -> None:
    """What a policy's threads wait for each other looks like work."""
    chooser, ran = Chooser(Costs()), []
    for _ in range(60):
        # The event's cost is the lesser of what the last two batches told.
        cheap = any(who != BFS for who in ran[-2:])
        ran.append(chooser.choose(replace(NEAR, cost=0.2e-6 if cheap else 0.3e-6)).policy.name)
        chooser.trials.observe(ran[-1], {BFS: 10.0, DFS: 10.5, READY: 11.0}[ran[-1]], chooser.estimates)
    assert chooser.last == BFS and ran.count(DFS) == ran.count(READY) == 2


def test_events_that_reach_no_record_are_tried_too() -> None:
    alone = replace(NEAR, cost=0.2e-6, accesses=0.0, chain=0)
    assert set(run(Chooser(Costs()), alone, 30, {BFS: 1.0, DFS: 1.0, READY: 1.0})) == {BFS, DFS, READY}


def test_a_trial_says_that_it_is_one() -> None:
    chooser = Chooser(Costs())
    choice = chooser.choose(NEAR)
    assert not choice.trial
    chooser.trials.observe(choice.policy.name, 1e-5, chooser.estimates)
    choice = chooser.choose(NEAR)
    assert choice.trial and choice.why.startswith("to see how it compares: ") and chooser.last != choice.policy.name
