"""Calls beside a running stream: versions between its own; outcomes and outputs written once, after a crash too."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from test_flow import Alert, Read, Reading, meter, put, read_all, sources

import penstock as ps
from penstock.publish.files import OutcomeFiles
from penstock.spark import databases
from penstock.spark.backlog import Backlog
from penstock.spark.batch import MicroBatch
from penstock.spark.outcome_writer import OutcomeWriter
from penstock.testing import assert_same_outcomes, assert_same_tables

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:.*:DeprecationWarning:pyspark")]


def rows(start: int, count: int) -> list[dict[str, int]]:
    return [{"ts": i, "id": i, "meter": i % 5 + 1, "amount": i * 7 % 97} for i in range(start, start + count)]


def read(number: int) -> Any:
    """To be called: it has no ts."""
    return Read(id=10_000 + number, meter=number % 5 + 1, amount=90)


def right(state: Path, out: Path, alerts: Path, batches: list[list[dict[str, int]]], called: int) -> None:
    """The files hold every version's rows once, in order, and these are the reference's."""
    law = meter.reference()
    outcomes, wanted, emitted = [], [], []
    streamed = 0
    with meter.open(state, retain=1000) as db:
        for version in range(1, db.version + 1):
            outcomes.append(db.outcomes(version))
            emitted.append(db.emitted(Alert, version))
            if db.is_between(version):
                roots = [row["id"] for row in outcomes[-1].to_pylist() if row["step"] == 0]
                called -= len(roots)
                for id in roots:
                    law.call(read(id - 10_000))
                    wanted.append(law.outcomes(law.version))
            else:
                assert_same_outcomes(db.stored(streamed), outcomes[-1])  # the stream's own numbers have no gaps
                wanted.append(law.run([Read(**row) for row in batches[streamed]]))
                streamed += 1
        assert (streamed, called) == (len(batches), 0)
        assert_same_tables(db.table(Reading), law.table(Reading), ["id"])
    found = pa.concat_tables(outcomes)
    assert_same_outcomes(found.drop_columns("version"), pa.concat_tables(wanted).drop_columns("version"))
    assert_same_outcomes(read_all(out), found)
    assert pa.concat_tables(emitted).num_rows
    assert_same_outcomes(read_all(alerts), pa.concat_tables(emitted))


@pytest.mark.parametrize("kind", ["direct", "frame"])
def test_calls_run_between_the_batches_of_a_stream(spark: Any, tmp_path: Path, kind: str) -> None:
    state, out, alerts = tmp_path / "state", tmp_path / "out", tmp_path / "alerts"
    batches = [rows(100 * k, 100) for k in range(4)]
    put(tmp_path / "in", batches[0])
    given: dict[str, Any] = {"state": state, "outcomes": out, "outputs": {Alert: alerts}, "retain": 1000}
    query = meter.start(sources(spark, kind, tmp_path / "in"), calls=True, **given)
    try:
        with meter.connect(state) as there, ThreadPoolExecutor(3) as pool:
            first = there.call(read(0))
            answers = [pool.submit(there.call, read(k)) for k in range(1, 30)]
            for batch in batches[1:]:
                put(tmp_path / "in", batch)
                query.processAllAvailable()
                answers += [pool.submit(there.call, read(len(answers) + k)) for k in range(1, 30)]
            told = [first, *(answer.result(60) for answer in answers)]
            assert there.call(read(0)) == first
    finally:
        query.stop()
    assert {one["status"] for one in told} == {"committed"}
    right(state, out, alerts, batches, len(told))


def test_what_a_crash_keeps_from_the_files_is_written_at_the_next_start(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, out, alerts = tmp_path / "state", tmp_path / "out", tmp_path / "alerts"
    batches = [rows(0, 100), rows(100, 100)]
    put(tmp_path / "in", batches[0])
    given: dict[str, Any] = {"state": state, "outcomes": out, "outputs": {Alert: alerts}, "retain": 8}
    given |= {"snapshot_every": 2, "calls": [Read]}
    write, broken = OutcomeFiles.write, False

    def fails(self: OutcomeFiles, table: pa.Table, versions: pa.Array | None = None) -> None:
        if broken and self.path.endswith("alerts"):
            raise ps.StateError("as if killed")
        write(self, table, versions)

    monkeypatch.setattr(OutcomeFiles, "write", fails)
    query = meter.start(sources(spark, "direct", tmp_path / "in"), **given)
    called = 0
    with meter.connect(state) as there:
        assert list(there.events()) == ["Read"]
        for _ in range(10):
            there.call(read(called))
            called += 1
        query.processAllAvailable()
        assert there.call(read(called))["status"] == "committed"
        broken = True
        # As many versions as the log is sure to keep, and no more, may be in no file: then calls are refused.
        refused = None
        while refused is None and called < 40:
            called += 1
            try:
                there.call(read(called))
            except ps.StateError as error:
                refused = error
        assert "as if killed" in str(refused)
    assert len(list(out.iterdir())) < called
    with pytest.raises(Exception, match="as if killed"):
        query.stop()
    broken = False
    put(tmp_path / "in", batches[1])
    query = meter.start(sources(spark, "direct", tmp_path / "in"), **given)
    with meter.connect(state) as there:
        query.processAllAvailable()
        assert there.call(read(called))["status"] == "committed"
    query.stop()
    told = read_all(out).to_pylist()
    roots = [row["id"] for row in told if row["step"] == 0]
    assert sorted(roots) == [*range(200), *(10_000 + k for k in range(called + 1))]
    versions = [row["version"] for row in told]
    assert versions == sorted(versions) and set(versions) == set(range(1, max(versions) + 1))
    law = meter.reference()
    for id in roots:
        if id < 10_000:
            law.run([Read(**rows(id, 1)[0])])
        else:
            law.call(read(id - 10_000))
    with meter.open(state) as db:
        assert_same_tables(db.table(Reading), law.table(Reading), ["id"])
        assert db.version == max(versions)
    alarms = read_all(alerts).to_pylist()
    assert [row["version"] for row in alarms] == sorted(row["version"] for row in alarms)
    assert len(alarms) == len({(row["id"], row["step"]) for row in alarms}) > 0


def test_calls_do_not_crowd_out_the_batch_that_spark_may_send_again(tmp_path: Path) -> None:
    """A kill before Spark has noted batch 0; after the restart calls come first."""
    done = tmp_path / "state" / "checkpoint" / "commits"
    spec = databases.spec(meter.plan, tmp_path / "state", retain=2, snapshot_every=1, background=False)
    batch = MicroBatch(spec, OutcomeFiles(str(tmp_path / "out"), spec.path), None, calls=True)
    with meter.open(spec.path) as db:
        first = db.run([Read(**row) for row in rows(0, 3)], id=0, source="s", offsets="0")
    for noted in (False, True):
        if noted:
            done.mkdir(parents=True)
            (done / "0").write_text("v1")
        opened = databases.reserve(spec)
        try:
            batch.catch_up(opened, None)
            for k in range(10):
                opened.database.call(read(100 * noted + k))
            if noted:
                with pytest.raises(ps.StateError, match=r"batch 0 is not retained any more .* none is"):
                    opened.database.stored(0, "s", "0")
            else:
                assert_same_outcomes(opened.database.stored(0, "s", "0"), first)
        finally:
            databases.release(spec.path)


def test_damage_is_not_taken_for_what_is_long_since_written(tmp_path: Path) -> None:
    spec = databases.spec(meter.plan, tmp_path / "state", snapshot_every=2, background=False)
    with meter.open(spec.path, snapshot_every=2, background=False) as db:
        db.run([Read(**row) for row in rows(0, 3)], id=0, source="s", offsets="0")
        db.call(read(1))  # behind it is a snapshot, so that opening does not read these two
    segment = tmp_path / "state" / "log" / "000000000002.seg"
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 1
    segment.write_bytes(content)
    opened = databases.reserve(spec)
    try:
        with pytest.raises(ps.StateError, match=r"000000000002\.seg"):
            MicroBatch(spec, OutcomeFiles(str(tmp_path / "out"), spec.path), None).catch_up(opened, None)
    finally:
        databases.release(spec.path)


def test_calls_with_a_ts_of_their_own_lie_between_the_batches_too(tmp_path: Path) -> None:
    """Where there is a watermark they arrive as events do, and a crash keeps their outcomes from the files."""
    state, out, spec = tmp_path / "state", tmp_path / "out", SimpleNamespace(path=str(tmp_path), options={})
    db, writer = meter.open(state), OutcomeWriter()
    backlog: Any = Backlog(spec, db, OutcomeFiles(str(out), str(state)), (), writer)  # type: ignore[arg-type]
    db.set_outlet(backlog)
    for number in range(2):
        db.run([Read(**row) for row in rows(10 * number, 10)], id=number, source="s", offsets="", watermark=0)
        backlog.flush()
    for k in range(5):
        assert db.call(Read(ts=100 + k, id=k, meter=1, amount=1))["status"] == "committed"
        assert db.is_between(db.version)
    writer.close()
    db._store.close(None)  # as if killed
    with meter.open(state) as db:
        Backlog(spec, db, OutcomeFiles(str(out), str(state)), (), OutcomeWriter()).catch_up()  # type: ignore[arg-type]
        found = pa.concat_tables([db.outcomes(version) for version in range(1, db.version + 1)])
    assert_same_outcomes(read_all(out), found)


def test_what_is_held_is_written_by_a_query_to_which_nothing_comes(tmp_path: Path) -> None:
    """It ends, and runs what is held, in a process that has seen no batch: after a restart, or under Connect."""
    spec = databases.spec(meter.plan, tmp_path / "state", background=False)
    with meter.open(spec.path) as db:
        db.run([Read(**row) for row in rows(0, 200)], id=0, source="s", offsets="0", watermark=1000)
        assert db.held == 200
    (tmp_path / "state" / "checkpoint").mkdir()
    (tmp_path / "state" / "checkpoint" / "metadata").write_text('{"id":"s"}')
    databases.reserve(spec)
    try:
        outputs = ((Alert.definition.name, OutcomeFiles(str(tmp_path / "alerts"), spec.path)),)
        MicroBatch(spec, OutcomeFiles(str(tmp_path / "out"), spec.path), 1000, outputs).drain(None)
    finally:
        databases.release(spec.path)
    with meter.open(spec.path) as db:
        assert_same_outcomes(read_all(tmp_path / "out"), db.outcomes(2))
        assert_same_outcomes(read_all(tmp_path / "alerts"), db.emitted(Alert, 2))
        assert db.outcomes(2).num_rows >= 200 and db.emitted(Alert, 2).num_rows
