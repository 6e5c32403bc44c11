"""Transactions that emit events, on Spark: rows with their step, outputs written once, also after a kill."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_stream import NOW, finish

import penstock as ps
from penstock.publish.files import OutcomeFiles
from penstock.testing import assert_same_outcomes

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:.*:DeprecationWarning:pyspark")]

meter = ps.App("meter")


@meter.table
class Reading:
    id: int = ps.key()
    total: int = 0


@meter.event
class Read:
    ts: int = ps.order()
    id: int = ps.id()
    meter: int
    amount: int


@meter.event
class Added:
    meter: int
    amount: int


@meter.event
class Alert:
    meter: int
    total: int


@meter.transaction
def read(e: Read):
    ps.emit(Added(meter=e.meter, amount=e.amount))
    if e.amount > 50:
        ps.emit(Added(meter=-e.meter, amount=1))


@meter.transaction
def added(e: Added):
    reading = Reading.get(e.meter)
    reading.total += e.amount
    ps.require(reading.total < 3_000, "broken")
    if reading.total > 1_000:
        ps.emit(Alert(meter=e.meter, total=reading.total))
    return {"total": reading.total}


sums = ps.App("sums")


@sums.event
class Moment:
    ts: int = ps.order()
    id: int = ps.id()
    n: int


@sums.event
class Count:
    ts: int = ps.order()
    id: int = ps.id()
    n: int


@sums.transaction(batch="ts")
def of_a_moment(several: list[Moment]):
    total = 0
    for one in several:
        total += one.n
    return {"total": total}


@sums.transaction(batch=7)
def of_seven(several: list[Count]):
    total = 0
    for one in several:
        total += one.n
    return {"total": total}


def rows(count: int) -> list[dict[str, int]]:
    return [{"ts": i, "id": i, "meter": i % 5 + 1, "amount": i * 7 % 97} for i in range(count)]


def put(folder: Path, some: list[dict[str, int]]) -> None:
    """One more file."""
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist(some), folder / f"{len(list(folder.iterdir())):04d}.parquet")


def sources(spark: Any, kind: str, folder: Path) -> dict[Any, Any]:
    if kind == "direct":
        return {Read: ps.parquet(folder, files_per_batch=1)}
    schema = "ts long, id long, meter long, amount long"
    return {Read: spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))}


def read_all(folder: Path) -> pa.Table:
    files = sorted(folder.glob("version-*.parquet"))
    return pa.concat_tables([pq.read_table(file) for file in files])


@pytest.mark.parametrize(("kind", "steps"), [("direct", "all"), ("frame", "roots")])
def test_rounds_and_outputs_are_those_of_the_reference(spark: Any, tmp_path: Path, kind: str, steps: Any) -> None:
    state, out, alerts = tmp_path / "state", tmp_path / "out", tmp_path / "alerts"
    reference = meter.reference(steps=steps)
    outcomes, emitted = [], []
    for start in (0, 1):
        put(tmp_path / "in", rows(400)[start * 200 : start * 200 + 200])
        given: dict[str, Any] = {"state": state, "outcomes": out, "outputs": {Alert: alerts}, "steps": steps}
        query = meter.start(sources(spark, kind, tmp_path / "in"), trigger=NOW, **given)
        finish(query)
        outcomes.append(reference.run([Read(**row) for row in rows(400)[start * 200 : start * 200 + 200]]))
        emitted.append(reference.emitted(Alert))
    assert_same_outcomes(read_all(out), pa.concat_tables(outcomes))
    wanted = pa.concat_tables(emitted)
    assert wanted.num_rows > 20
    assert_same_outcomes(read_all(alerts), wanted)


def test_no_function_of_the_users_travels_with_the_plan() -> None:
    from penstock.spark.databases import portable

    app = ps.App("watched")

    @app.window(rows=3)
    class Last:
        amount: int

    @app.event
    class Pay:
        ts: int = ps.order()
        amount: int

    @app.trigger
    def entered(w: Last) -> None:
        ps.require(len(w) < 9, "never")

    @app.transaction
    def pay(e: Pay) -> None:
        Last.add(amount=e.amount)

    program = portable(app.plan).program
    assert {one.function for one in (*program.transactions, *program.triggers)}.isdisjoint({pay, entered})


def test_outputs_that_a_kill_kept_from_being_written_are_written_at_the_next_start(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, out, alerts = tmp_path / "state", tmp_path / "out", tmp_path / "alerts"
    put(tmp_path / "in", rows(300))
    given: dict[str, Any] = {"state": state, "outcomes": out, "outputs": {Alert: alerts}, "trigger": NOW}
    write = OutcomeFiles.write

    def fails(self: OutcomeFiles, table: pa.Table, versions: Any = None) -> None:
        if self.path.endswith("alerts"):
            raise OSError("as if killed")
        write(self, table, versions)

    monkeypatch.setattr(OutcomeFiles, "write", fails)
    with pytest.raises(Exception, match="as if killed"):
        finish(meter.start(sources(spark, "direct", tmp_path / "in"), **given))
    monkeypatch.undo()
    assert not alerts.exists()
    finish(meter.start(sources(spark, "direct", tmp_path / "in"), **given))
    reference = meter.reference()
    assert_same_outcomes(read_all(out), reference.run([Read(**row) for row in rows(300)]))
    assert_same_outcomes(read_all(alerts), reference.emitted(Alert))


def changed() -> tuple[ps.App, Any, Any]:
    """The same app with another Alert."""
    app = ps.App("meter")
    app.table(type("Reading", (), {"__annotations__": {"id": int, "total": int}, "id": ps.key(), "total": 0}))

    @app.event
    class Read:
        ts: int = ps.order()
        id: int = ps.id()
        meter: int
        amount: int

    @app.event
    class Alert:
        reason: str
        meter: int

    @app.transaction
    def read(e: Read):
        ps.emit(Alert(reason="read", meter=e.meter))

    return app, Read, Alert


def test_a_query_whose_output_has_changed_goes_on(spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    state, out, alerts = tmp_path / "state", tmp_path / "out", tmp_path / "alerts"
    put(tmp_path / "in", rows(300))
    given: dict[str, Any] = {"state": state, "outcomes": out, "trigger": NOW}
    finish(meter.start(sources(spark, "direct", tmp_path / "in"), **given))  # its alerts are in the log alone
    warned = [record.getMessage() for record in caplog.records if record.name == "penstock"]
    assert len(warned) == 1
    assert "emits 'Alert', no transaction takes it" in warned[0]
    assert "give outputs={Alert: DIR}" in warned[0]
    caplog.clear()
    put(tmp_path / "in", rows(2))
    app, later, alert = changed()
    source = {later: ps.parquet(tmp_path / "in", files_per_batch=1)}
    finish(app.start(source, outputs={alert: alerts}, **given))
    assert not [record for record in caplog.records if record.name == "penstock"]
    reference = meter.reference()
    reference.run([Read(**row) for row in rows(300)])
    first, second = sorted(alerts.glob("version-*.parquet"))
    assert_same_outcomes(pq.read_table(first), reference.emitted(Alert))
    assert [row["reason"] for row in pq.read_table(second).to_pylist()] == ["read", "read"]


def test_outputs_that_cannot_be(spark: Any, tmp_path: Path) -> None:
    put(tmp_path / "in", rows(10))
    for outputs, says in (
        ({Added: "a"}, "has no output 'Added': an output is an event that is emitted.*its outputs are Alert"),
        ({Alert: None}, "output 'Alert': None is not a directory"),
        ({Alert: tmp_path / "out"}, "output 'Alert' and outcomes have one directory"),
    ):
        with pytest.raises(ps.InputError, match=says):
            meter.start(
                sources(spark, "direct", tmp_path / "in"),
                state=tmp_path / "state",
                outcomes=tmp_path / "out",
                outputs=outputs,  # type: ignore[arg-type]
            )


def test_what_atomic_batches_wait_for_is_run_at_the_end_of_all_there_is(spark: Any, tmp_path: Path) -> None:
    """Without a watermark too; the place at which files are cut does not matter."""
    state, out = tmp_path / "state", tmp_path / "out"
    moments = [{"ts": i // 3, "id": i, "n": i} for i in range(40)]
    counts = [{"ts": i // 4, "id": i, "n": i} for i in range(40)]
    for start in range(0, 40, 10):
        put(tmp_path / "moments", moments[start : start + 10])
        put(tmp_path / "counts", counts[start : start + 10])
    given = {Moment: tmp_path / "moments", Count: tmp_path / "counts"}
    query = sums.start(
        {event: ps.parquet(folder, files_per_batch=1) for event, folder in given.items()},
        state=state,
        outcomes=out,
        trigger=NOW,
    )
    finish(query)
    reference = sums.reference()
    for start in range(0, 40, 10):
        reference.run({Moment: moments[start : start + 10], Count: counts[start : start + 10]})
    with sums.open(state) as db:
        assert db.held == 0
    found = read_all(out)
    assert found.num_rows == 80
    totals = {(r["transaction"], r["total"]) for r in found.to_pylist()}
    assert {total for name, total in totals if name == "of_seven"} == {21, 70, 119, 168, 217, 185}
    assert ("of_a_moment", 39) in totals
    wanted = reference.run([], flush=True)
    assert_same_outcomes(found.slice(80 - wanted.num_rows).drop_columns("version"), wanted.drop_columns("version"))
