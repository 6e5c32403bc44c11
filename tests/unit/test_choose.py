"""The adaptive policy's model: which schedule it expects to take the least time, and that it does not flap."""

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.database import Database
from penstock.execute.native import Kernel
from penstock.execute.order import PASSED
from penstock.schedule.adaptive import Adaptive
from penstock.schedule.backoff import Backoff
from penstock.schedule.choose import Chooser, Features
from penstock.schedule.costs import Costs
from penstock.schedule.event_cost import EventCost
from penstock.schedule.executors import Executors
from penstock.schedule.graph_executor import Batch
from penstock.workloads import StreamingLedger

# A batch as it is when all is well: many dear events that reach different records.
EASY = Features(events=10_000, cost=10e-6, threads=2, accesses=3.0, splittable=True, chain=5)


@contextmanager
def opened(knobs: StreamingLedger) -> Iterator[Database]:
    with knobs.app().open() as db:
        for table, rows in knobs.tables().items():
            db.load(table, rows)
        yield db


@dataclass
class Clock:
    """Given times in place of measured ones: batches run, and however long they take, this is what they took."""

    serial: float  # seconds of an event in the serial loop, and of its own code by a graph
    graph: float  # seconds of an event by a graph, with all that it takes

    def install(self, db: Database, monkeypatch: pytest.MonkeyPatch) -> Adaptive:
        """The adaptive of an open app, of which nothing is known yet, by this clock."""
        adaptive = db._engine.scheduler.groups[0][1]
        adaptive.chooser = Chooser(Costs())

        def timed(running: Any, start: int, stop: int) -> float:
            Adaptive._time_serial(adaptive, running, start, stop)
            return self.serial * (stop - start)

        def timed_graph(batch: Batch, graph: Any) -> tuple[dict[str, float], float]:
            batch.run(graph)
            batch.ran, took = self.serial * batch.count, self.graph * batch.count
            rest = max(0.0, batch.threads * took - batch.ran)
            return {"useful": batch.ran, "abort": 0.0, "explore": 0.0, "sync": rest / 2, "construct": rest / 2}, took

        monkeypatch.setattr(adaptive, "_time_serial", timed)
        monkeypatch.setattr(adaptive, "_time_graph", timed_graph)
        return adaptive


def chosen(features: Features, last: str = "serial") -> str:
    chooser = Chooser(Costs(), last)
    assert chooser.graph_may_win(replace(features, chain=0, path=0.0))  # which only the graph will tell
    return chooser.choose(features).policy.name


@pytest.mark.parametrize(
    "less",
    [{"threads": 1}, {"events": 40}, {"cost": 0.1e-6}, {"cost": 0.5e-6, "accesses": 20.0}],
    ids=["one core", "few events", "cheap events", "dear graph"],
)
def test_a_batch_that_a_graph_would_not_pay_for_is_not_worth_one(less: dict[str, Any]) -> None:
    assert Chooser(Costs()).graph_may_win(EASY)
    assert not Chooser(Costs()).graph_may_win(replace(EASY, **less))


def test_the_choice_follows_what_the_batch_is_like() -> None:
    assert chosen(EASY) == "bfs/transaction/eager"
    # One chain of whole transactions, whose operations on other records need not wait.
    hot = replace(EASY, chain=3_000, path=9_000.0, threads=8)
    assert chosen(hot) in ("dfs/operation/lazy", "ready/operation/lazy")
    # But running ahead is no good where many abort.
    assert not chosen(replace(hot, abort_ratio=0.5)).endswith("lazy")
    assert "transaction" in chosen(replace(hot, threads=2, splittable=False))
    assert "transaction" in chosen(replace(EASY, abort_ratio=0.9), last="ready/operation/eager")
    # Who keeps to its own share waits at the hottest record.
    line = replace(EASY, splittable=False, threads=4, chain=2_000, path=6_000.0, strata=6_000, rounds=6_500)
    assert chosen(line) == "ready/transaction/eager"
    # Unless the threads are so many, and events so cheap, that they would wait for each other at the common heap.
    crowd = replace(line, threads=16, events=40_000, chain=1_000, path=1_000.0, strata=1_000, rounds=4_000)
    assert chosen(crowd) == "ready/transaction/eager"
    assert chosen(replace(crowd, cost=0.3e-6)) != "ready/transaction/eager"
    # All in one line, and the graph is there already: it still does not pay.
    assert chosen(replace(EASY, cost=1e-6, splittable=False, chain=9_000, path=10_000.0)) == "serial"


def test_two_that_are_nearly_as_good_do_not_take_turns() -> None:
    chooser = Chooser(Costs())
    seen = set()
    for k in range(20):
        chooser.choose(replace(EASY, events=10_000 + 7 * (k % 2), chain=5 + 20 * (k % 2)))
        seen.add(chooser.last)
    assert len(seen) == 1
    near = chooser.estimates["ready/transaction/eager"] / chooser.estimates["dfs/transaction/eager"]
    assert 1.0 < near < 1 / 0.97
    assert chosen(EASY, last="ready/transaction/eager") == "ready/transaction/eager"


def spent_by(costs: Costs, name: str, *, entry: float, overhead: float, work: float = 1e-6) -> None:
    """A batch of 10,000 events that reach three records each. Seconds: of an access; work: of an event."""
    spent = {"construct": 2 * (0.25e-3 + 30_000 * entry), "explore": 10_000 * overhead, "abort": 0.0}
    spent["useful"] = 10_000 * work + 20_000 * overhead  # versions make the work itself dearer
    costs.learn(name, 2, events=10_000, entries=30_000, work=10_000 * work, spent=spent)


def test_what_is_learned_of_one_policy_is_thought_of_all(tmp_path: Path) -> None:
    """Or one that never ran would be preferred for nothing but its being unknown."""
    costs = Costs(tmp_path)
    ran, other = "dfs/transaction/eager", "bfs/transaction/eager"
    first, before = costs.of(ran, 2, 10_000), costs.of(other, 2, 10_000)
    for _ in range(60):  # dearer than was thought
        spent_by(costs, ran, entry=180e-9, overhead=250e-9)
        spent_by(costs, ran, entry=180e-9, overhead=9e-9, work=19e-6)  # which nothing can be said of then
    learned, guessed = costs.of(ran, 2, 10_000), costs.of(other, 2, 10_000)
    assert learned.entry == pytest.approx(180e-9, rel=0.05) and learned.overhead == pytest.approx(250e-9, rel=0.05)
    assert guessed.overhead - before.overhead == pytest.approx(learned.overhead - first.overhead, rel=0.3)
    assert guessed.exploring == before.exploring  # which is its own
    # Other threads, and batches of another size, are another matter.
    assert costs.of(other, 4, 10_000) == before
    assert costs.of(other, 2, 1_000).overhead == before.overhead / 2
    (tmp_path / "schedule-costs-.json").touch()  # of an older release
    costs.save()
    assert [path.name for path in tmp_path.iterdir()] == ["schedule-learned-2-.json"]
    assert Costs(tmp_path).of(ran, 2, 10_000) == learned
    costs.forget(2, 10_000)
    assert costs.of(ran, 2, 10_000) == first


@pytest.mark.parametrize(
    "damaged", ["{", "[1, 2]", '{"2:large": 1}', '{"2:large": [1, 2]}', '{"2:large": [NaN, 1, 1]}']
)
def test_a_damaged_file_of_what_was_learned_is_not_read(tmp_path: Path, damaged: str) -> None:
    (tmp_path / "schedule-learned-2-.json").write_text(damaged)
    assert Costs(tmp_path).factors == {}
    (tmp_path / "schedule-learned-2-.json").write_text('{"2:large": [0, -1, 1e99]}')
    costs = Costs(tmp_path)
    spent_by(costs, "bfs/transaction/eager", entry=50e-9, overhead=60e-9)
    assert all(0.1 < factor <= 10.0 for factors in costs.factors.values() for factor in factors)


def test_a_policy_that_always_runs_comes_to_look_no_worse_than_the_others() -> None:
    """Though what is lower is taken over sooner than what is higher, and times vary."""
    costs, chance = Costs(), random.Random(0)
    used, other = "bfs/transaction/eager", "dfs/transaction/eager"
    for _ in range(400):
        spent_by(costs, used, entry=60e-9 * chance.lognormvariate(0.0, 0.3), overhead=0.0)
    assert costs.of(used, 2, 10_000).entry == pytest.approx(costs.of(other, 2, 10_000).entry, rel=0.05)
    # Versions seem to cost nothing at all, less than any factor can say, but for a batch that is held up now and then.
    exploring = costs.of(other, 2, 10_000).exploring
    for _ in range(400):
        spent_by(costs, other, entry=60e-9, overhead=chance.choice((0.0, 0.0, 0.0, 300e-9)))
    assert costs.of(other, 2, 10_000).exploring == pytest.approx(exploring, rel=0.2)


def test_a_slow_spell_of_the_machine_speaks_against_no_policy() -> None:
    costs = Costs()
    used, other = "bfs/transaction/eager", "ready/transaction/eager"

    def apart() -> float:
        return costs.of(other, 2, 10_000).overhead - costs.of(used, 2, 10_000).overhead

    for name, overhead in ((used, 60e-9), (other, 150e-9)) * 20:
        spent_by(costs, name, entry=50e-9, overhead=overhead)
    before = apart()
    assert before == pytest.approx(90e-9, rel=0.1)
    for _ in range(10):
        spent_by(costs, used, entry=150e-9, overhead=180e-9)
    assert costs.of(used, 2, 10_000).overhead > 100e-9
    assert apart() > 0.8 * before  # by far the most of it is thought of both


def test_where_versions_seem_to_cost_nothing_policies_still_differ() -> None:
    """What is thought of the work may be all that a batch took."""
    costs, used = Costs(), "bfs/transaction/eager"
    for _ in range(60):
        spent_by(costs, used, entry=50e-9, overhead=0.0)
    assert costs.of(used, 2, 10_000).overhead < 10e-9
    assert costs.of("ready/transaction/eager", 2, 10_000).overhead > 90e-9


def test_another_that_promises_to_be_somewhat_faster_for_a_while_takes_over() -> None:
    chooser = Chooser(Costs(), "ready/transaction/eager")
    chose = [chooser.choose(EASY).policy.name for _ in range(6)]
    assert 0.97 < chooser.estimates["bfs/transaction/eager"] / chooser.estimates["ready/transaction/eager"] < 0.99
    assert chose == 3 * ["ready/transaction/eager"] + 3 * ["bfs/transaction/eager"]


def test_a_batch_is_sampled_where_those_before_it_say_nothing_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one; and the first whose transactions are others."""
    deposits = StreamingLedger(cost_us=1.0, batch=4_000, keys=5_000, transfer_ratio=0.0, abort_ratio=0.0)
    with opened(deposits) as db:
        db.warm()
        adaptive, sampled = Clock(serial=3e-6, graph=2e-6).install(db, monkeypatch), []

        def sample(running: Any, start: int) -> int:
            sampled.append(db.version)
            return Adaptive._sample(adaptive, running, start)

        monkeypatch.setattr(adaptive, "_sample", sample)
        for number, transfers in enumerate((0.0, 0.0, 0.0, 0.9, 0.9, 1.0, 0.0)):
            adaptive.similarity.reset()  # every one is looked at
            db.run(replace(deposits, transfer_ratio=transfers).events(number), policy=ps.Policy.adaptive(2))
            assert adaptive.event_cost.seconds is not None
        assert sampled == [0, 3, 6]
        db.run(replace(deposits, batch=1_000, transfer_ratio=1.0).events(7), policy=ps.Policy.adaptive(2))
        assert sampled == [0, 3, 6]  # a small one would be over by then


def test_an_empty_batch_that_is_held_up_costs_nothing_an_event(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of a batch may be held back by a watermark; and a busy machine may stop its thread for a while."""
    run = Kernel.run

    def held_up(*arguments: Any) -> None:
        run(*arguments)
        time.sleep(0.005)

    monkeypatch.setattr(Kernel, "run", held_up)
    with StreamingLedger(batch=1, keys=2).app().open() as db:
        assert db.run([]).num_rows == 0
        assert db.last_batch is not None and db.last_batch.why == "there is nothing to run"


def test_small_batches_that_are_alike_run_as_the_first_of_them_did(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are looked at from time to time; and at once where they are larger."""
    knobs = StreamingLedger(cost_us=10.0, batch=600, keys=5_000, abort_ratio=0.0)
    with opened(knobs) as db:
        db.warm()
        Clock(serial=30e-6, graph=18e-6).install(db, monkeypatch)
        looked, look = [], Chooser.choose

        def choose(chooser: Chooser, features: Features) -> Any:
            looked.append(db.version)
            return look(chooser, features)

        monkeypatch.setattr(Chooser, "choose", choose)
        for number in range(14):
            db.run(knobs.events(number), policy=ps.Policy.adaptive(2))
        assert looked == [1, 2, 3, 12]  # the first of all shows what an event costs, the next two that it is so
        db.run(replace(knobs, batch=1_000).events(14), policy=ps.Policy.adaptive(2))
        assert looked == [1, 2, 3, 12, 14]
        report = db.last_batch
        assert report is not None and report.policy != "serial" and sum(report.spent.values()) > 0


def test_a_batch_too_small_for_a_graph_is_heard_only_if_it_is_not_as_thought(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice in a row, for one may have been held up; and so is the one behind them, which tells whether these were."""
    knobs = StreamingLedger(cost_us=0.0, batch=1_000, keys=5_000, abort_ratio=0.0)
    with opened(knobs) as db:
        adaptive = db._engine.scheduler.groups[0][1]
        event_cost, heard, why = adaptive.event_cost, [], []
        taken = iter([100, 101, 99, 200, 100, 60, 61, 62, 63, 64])

        def timed(*arguments: Any) -> float:
            type(adaptive)._time_serial(adaptive, *arguments)
            return next(taken) * 1e-6

        def observe_serial(took: float, *others: Any) -> None:
            heard.append(round(1e6 * took))
            EventCost.observe_serial(event_cost, took, *others)

        monkeypatch.setattr(adaptive, "_time_serial", timed)
        monkeypatch.setattr(event_cost, "observe_serial", observe_serial)
        for number in range(10):
            db.run(knobs.events(number), policy=ps.Policy.adaptive(2))
            assert db.last_batch is not None
            why.append(db.last_batch.why)
        assert heard == [100, 101, 61, 62]
        assert event_cost.seconds == pytest.approx(61e-9) and event_cost.last == pytest.approx(62e-9)
        assert "of 0.1 us" in why[5] and "of 0.061 us" in why[9]


def test_a_tiny_batch_says_nothing_of_a_larger_one() -> None:
    event_cost = EventCost()
    event_cost.observe_serial(200e-6, 10)
    assert event_cost.seconds == 20e-6  # at most
    event_cost.observe_serial(30e-6, 10)
    assert event_cost.seconds == 3e-6
    event_cost.observe_serial(2e-3, 200)
    event_cost.observe_serial(10e-6, 10)
    assert event_cost.seconds == 10e-6


def test_what_a_small_batch_is_waiting_for_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as the kernels are missing, every batch asks for them."""
    asked = []

    def missing(compiled: Executors, threads: int, *, sure: bool) -> str:
        asked.append(sure)
        return "not there"

    monkeypatch.setattr(Executors, "missing", missing)
    knobs = StreamingLedger(cost_us=10.0, batch=600, keys=5_000, abort_ratio=0.0)
    with opened(knobs) as db:
        Clock(serial=30e-6, graph=18e-6).install(db, monkeypatch)
        for number in range(5):
            db.run(knobs.events(number), policy=ps.Policy.adaptive(2))
    assert asked == [False, True, True, True]


@pytest.mark.parametrize("batch", [4_000, 2_500])
def test_events_that_become_dear_are_not_run_as_the_cheap_ones_were(
    monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    cheap = StreamingLedger(cost_us=0.0, batch=4_000, keys=5_000, abort_ratio=0.0)
    dear = replace(cheap, cost_us=5.0, batch=batch)
    with opened(cheap) as db:
        db.warm()
        clock = Clock(serial=80e-9, graph=400e-9)
        clock.install(db, monkeypatch)

        def ran(knobs: StreamingLedger, number: int) -> str:
            db.run(knobs.events(number), policy=ps.Policy.adaptive(2))
            assert db.last_batch is not None
            return db.last_batch.policy

        assert {ran(cheap, number) for number in range(20)} == {"serial"}
        clock.serial, clock.graph = 20e-6, 12e-6
        after = [ran(dear, number) for number in range(20, 26)]
        assert "serial" not in after[4:]


def test_a_graph_tells_what_an_event_would_cost_without_it() -> None:
    event_cost, policy = EventCost(), "bfs/transaction/eager"
    event_cost.observe_sample(4e-6)  # the first events, which find nothing in the caches
    event_cost.observe_graph(policy, 3e-6, accesses=4.0, abort_ratio=0.0)
    assert event_cost.seconds == 3e-6
    event_cost.observe_serial(2.8, 1_000_000)
    event_cost.observe_serial(2.8, 1_000_000)
    for _ in range(10):  # a graph's versions make an access dearer by 50 ns
        event_cost.observe_graph(policy, 3e-6, accesses=4.0, abort_ratio=0.0)
        event_cost.observe_serial(2.8, 1_000_000)
    event_cost.observe_graph(policy, 3e-6, accesses=4.0, abort_ratio=0.0)
    assert event_cost.seconds == pytest.approx(2.8e-6, rel=0.01)
    event_cost.observe_graph(policy, 5.2e-6, accesses=4.0, abort_ratio=0.0)
    event_cost.observe_graph(policy, 5.2e-6, accesses=4.0, abort_ratio=0.0)
    assert event_cost.seconds == pytest.approx(5e-6, rel=0.01)  # events have become dearer
    event_cost.observe_sample(20e-6)
    assert event_cost.seconds == 20e-6  # they are others
    crowded = EventCost()
    crowded.observe_graph(policy, 3e-6, accesses=4.0, threads=16)
    # Sixteen threads wait for each other's caches.
    assert crowded.seconds is not None and 2e-6 < crowded.seconds < 2.6e-6


@pytest.mark.parametrize("batch", [600, 3_000])
def test_late_events_say_nothing_of_what_the_others_cost(monkeypatch: pytest.MonkeyPatch, batch: int) -> None:
    """Behind batches with a hot record, whose shape is thought of the next, and in front of others that are dear."""
    knobs = StreamingLedger(cost_us=10.0, batch=batch, keys=20, transfer_ratio=1.0, theta=1.0, abort_ratio=0.0)
    with opened(knobs) as db:
        db.warm()
        event_cost = Clock(serial=40e-6, graph=30e-6).install(db, monkeypatch).event_cost
        last = 0

        def run(number: int, late: int = 0) -> Any:
            nonlocal last
            ts = np.concatenate([np.arange(late), last + 1 + np.arange(batch - late)]) if late else None
            events = knobs.events(number)["Transfer"]
            if ts is not None:
                events = events.set_column(0, "ts", pa.array(ts.astype(np.int64)))
            last = max(last, int(events["ts"][-1].as_py()))
            return db.run({"Transfer": events}, policy=ps.Policy.adaptive(2), watermark=0)

        for number in range(3):
            run(number)
        known = event_cost.seconds
        assert known is not None and known > 10e-6
        assert run(3, late=batch).column("status").to_pylist() == ["late"] * batch
        assert event_cost.seconds == known
        for number in (4, 5):
            assert run(number, late=batch // 2).column("status").to_pylist().count("late") == batch // 2
        assert event_cost.seconds > 10e-6


@pytest.mark.parametrize("others", [False, True])
def test_graphs_are_left_after_three_losses_and_for_longer_each_time(others: bool) -> None:
    backoff = Backoff()
    left = []
    for _ in range(3):
        for _ in range(3):
            assert not backoff.next_is_serial(False, 1e-6)
            backoff.record_loss(1e-6, 1.5e-6)
        count = 0
        while backoff.next_is_serial(others and count == 2, 1e-6):
            backoff.observe_serial(1e-6)
            count += 1
        left.append(count)
    assert left == ([2, 2, 2] if others else [4, 8, 16])
    backoff.record_loss(1e-6, 1.5e-6)
    backoff.record_loss(1e-6, 1.5e-6)
    backoff.record_win()
    backoff.record_loss(1e-6, 1.5e-6)
    assert not backoff.next_is_serial(False, 1e-6)
    for _ in range(2):
        backoff.record_loss(1e-6, 1.5e-6)
    assert not backoff.next_is_serial(False, 10e-6)  # dearer by far
    for _ in range(2):
        backoff.record_loss(10e-6, 10.5e-6)
        assert not backoff.next_is_serial(False, 10e-6)  # they begin again
    backoff.record_loss(10e-6, 10.5e-6)
    assert backoff.next_is_serial(False, 10e-6)


def test_graphs_that_seem_to_have_lost_are_left_no_longer_than_it_takes_to_see_that_they_had_not() -> None:
    """What a batch would have taken without its graph is only thought."""
    backoff = Backoff()
    for _ in range(3):
        for took in (1.7e-6, 1.5e-6, 1.6e-6):
            backoff.record_loss(1e-6, took)
        assert backoff.next_is_serial(False, 1e-6)
        backoff.observe_serial(1.5e-6)  # as long as the quickest of them
        assert backoff.next_is_serial(False, 1e-6)
        backoff.observe_serial(1.6e-6)
        assert not backoff.next_is_serial(False, 1e-6)


def test_what_seems_too_dear_is_tried_after_a_while() -> None:
    backoff, tried = Backoff(), []
    for batch in range(100):
        backoff.record_skip()
        if backoff.retry_due:
            backoff.start_retry()
            tried.append(batch)
    assert tried == [3, 11, 27, 59]


def test_large_batches_that_are_alike_are_looked_at_every_other_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless more abort."""
    knobs = StreamingLedger(cost_us=10.0, batch=2_500, keys=50_000, theta=0.0, transfer_ratio=1.0, abort_ratio=0.0)
    with opened(knobs) as db:
        db.warm()
        Clock(serial=40e-6, graph=22e-6).install(db, monkeypatch)
        looked, look = [], Chooser.choose

        def choose(chooser: Chooser, features: Features) -> Any:
            looked.append(db.version)
            return look(chooser, features)

        monkeypatch.setattr(Chooser, "choose", choose)
        for number in range(8):
            db.run(replace(knobs, abort_ratio=0.5 if number == 5 else 0.0).events(number), policy=ps.Policy.adaptive(2))
        assert looked == [0, 1, 3, 5, 6, 7]


def test_a_graph_that_did_not_pay_is_not_built_again_at_once() -> None:
    """What was in the way of one batch is thought to be in that of the next, if it is as large."""
    chooser = Chooser(Costs())
    events = replace(EASY, cost=1e-6, splittable=False)
    assert chooser.graph_may_win(events)
    line = replace(events, chain=9_000, path=10_000.0, strata=9_000, rounds=9_500)
    assert chooser.choose(line).policy.name == "serial"
    assert not chooser.graph_may_win(replace(events, events=9_500))
    assert chooser.graph_may_win(replace(events, events=20_000))
    assert chooser.graph_may_win(replace(events, threads=8))
    chooser.forget(events)
    assert chooser.graph_may_win(events)


def test_operations_are_not_given_up_for_what_whole_transactions_would_take() -> None:
    hot = replace(EASY, threads=8, chain=3_000, path=9_900.0, strata=9_900, rounds=9_950)
    chooser = Chooser(Costs())
    assert "operation" in chooser.choose(hot).policy.name
    assert chooser.graph_may_win(replace(EASY, threads=8))


@pytest.mark.parametrize(("keys", "chained"), [(1, True), (100_000, False)])
def test_what_a_graph_is_like_is_told_by_a_part_of_it(
    monkeypatch: pytest.MonkeyPatch, keys: int, chained: bool
) -> None:
    knobs = StreamingLedger(cost_us=3.0, batch=24_000, keys=keys, theta=0.0, transfer_ratio=0.0, abort_ratio=0.0)
    with opened(knobs) as db:
        db.warm()
        adaptive = Clock(serial=6e-6, graph=4e-6).install(db, monkeypatch)
        db.run(knobs.events(), policy=ps.Policy.adaptive(2))
        found = adaptive.chooser.last_features
    assert found is not None and found.accesses == 2.0
    if chained:
        assert found.chain == found.path == found.strata == found.rounds == found.events
    else:
        assert found.chain < 20 and found.path == found.strata == found.rounds == 0


def test_late_events_at_the_head_of_a_batch_do_not_hide_what_the_others_reach() -> None:
    with opened(StreamingLedger(keys=10)) as db:
        versioned = db._engine.scheduler.groups[0][1].executors.graph
        late = np.full(3_000, PASSED, np.uint8)
        assert versioned.accesses(np.concatenate([late, np.zeros(1_000, np.uint8)])) == pytest.approx(0.5, rel=0.05)
        assert versioned.accesses(late) == 0.0
        assert versioned.accesses(late[:0]) == 0.0


def test_graphs_that_lose_are_left_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever makes threads wait: more of them than cores, say, which no estimate knows."""
    knobs = StreamingLedger(cost_us=1.0, batch=4_096, keys=50_000, theta=0.0, abort_ratio=0.0)
    with opened(knobs) as db:
        db.warm()
        clock, ran = Clock(serial=3e-6, graph=25e-6), []
        clock.install(db, monkeypatch)
        for number in range(80):
            if number == 40:
                clock.graph = 2e-6
            db.run(knobs.events(number), policy=ps.Policy.adaptive(2))
            assert db.last_batch is not None
            ran.append(db.last_batch.policy)
    assert ran[0] != "serial" and ran[:40].count("serial") > 24
    assert {*ran[40:]} != {"serial"}
