"""A state directory as DataFrames: tables at a version, feeds in batches and as streams, beside a writer."""

import datetime as dt
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from test_stream import needs_limits

import penstock as ps
from penstock.declare.limits import LONGEST
from penstock.replica.directory import Directory, Position
from penstock.spark.compatibility import ADMITS, FILTERS

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:.*:DeprecationWarning:pyspark")]

NOW = {"availableNow": True}
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"

bank = ps.App("bank")


@bank.table
class Account:
    id: str = ps.key()
    balance: ps.decimal(18, 2) = 0


@bank.table
class Branch:
    city: str = ps.key()
    number: int = ps.key()
    staff: int = 0


@bank.event
class Put:
    ts: int = ps.order()
    id: str = ps.id()
    account: str
    amount: ps.decimal(18, 2)


@bank.transaction
def put(e: Put):
    """What is overdrawn is closed; 13 is refused."""
    ps.require(e.amount != 13, "unlucky")
    account = Account.get(e.account)
    account.balance += e.amount
    left = account.balance
    if left < 0:
        del Account[e.account]
    return {"left": left}


types = ps.App("types")


@types.table
class Thing:
    whole: int = ps.key()
    name: str = ps.key()
    price: ps.decimal(9, 3) = ps.key()
    day: dt.date = ps.key()
    at: dt.datetime = ps.key()
    on: bool = ps.key()
    gap: dt.timedelta = ps.key()
    whole_value: int = 0
    share: float = 0.0
    flag: bool = False
    text: str = ""
    money: ps.decimal(18, 2) = 0
    date: dt.date = dt.date(1970, 1, 1)
    moment: dt.datetime = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    wait: dt.timedelta = dt.timedelta(hours=-1)


@types.event
class Touch:
    at: dt.datetime = ps.order()
    whole: int
    name: str
    price: ps.decimal(9, 3)
    day: dt.date
    on: bool
    gap: dt.timedelta


@types.transaction
def touch(e: Touch):
    thing = Thing.get(e.whole, e.name, e.price, e.day, e.at, e.on, e.gap)
    thing.share += 0.5
    thing.text = e.name
    thing.wait += e.gap
    return {"wait": thing.wait, "share": thing.share, "day": e.day, "at": e.at, "on": e.on, "name": e.name}


@pytest.fixture(scope="module")
def plain(spark: Any) -> Any:
    """A session without pushdown, as Spark comes."""
    session = spark.newSession()
    ps.register(session)
    return session


@pytest.fixture(scope="module")
def pushing(spark: Any) -> Any:
    session = spark.newSession()
    session.conf.set(PUSHDOWN, "true")
    ps.register(session)
    return session


def event(n: int, account: str, amount: int) -> Any:
    return Put(ts=n, id=f"e{n}", account=account, amount=amount)


def batch(n: int) -> list[Any]:
    return [event(10 * n, "a", 1), event(10 * n + 1, f"n{n}", 5), event(10 * n + 2, "b", 13)]


@pytest.fixture(scope="module")
def five(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Five versions with a load before and one between them; 'c' is closed in the fourth."""
    path = tmp_path_factory.mktemp("five") / "state"
    with bank.open(path) as db:
        db.load(Account, [{"id": "a", "balance": 10}, {"id": "b"}, {"id": "c"}])
        db.load(Branch, [{"city": c, "number": n, "staff": n} for c in ("Rome", "Oslo") for n in range(3)])
        for n in (1, 2, 3):
            db.run(batch(n))
        db.load(Account, [{"id": "late", "balance": 7}])
        db.run([*batch(4), event(49, "c", -1)])
        db.run(batch(5))
    return str(path)


def read(session: Any, path: str, **options: Any) -> Any:
    return session.read.format("penstock").options(**options).load(path)


def rows(table: Any, *by: str) -> list[dict[str, Any]]:
    table = table if isinstance(table, pa.Table) else table.toArrow()
    return sorted(table.to_pylist(), key=lambda row: tuple(row[name] for name in by or ("id",)))


# --- tables ----------------------------------------------------------------------------------


def test_a_table_is_read_as_of_its_newest_version(plain: Any, five: str) -> None:
    found = read(plain, five, table="Account")
    with bank.open(five) as db:
        assert rows(found) == rows(db.table(Account))
    assert found.schema.simpleString() == "struct<id:string,balance:decimal(18,2)>"
    assert found.where("id = 'a'").collect()[0].balance == Decimal("15.00")
    assert read(plain, "file://" + five, table="Branch").count() == 6


def test_an_older_version_is_read_as_it_was(plain: Any, five: str) -> None:
    with bank.open(five) as db:
        for version in range(6):
            assert rows(Directory(five).table("Account", version)) == rows(db.table(Account, version))
        found = [rows(read(plain, five, table="Account", version=version)) for version in (3, 4)]
        assert found == [rows(db.table(Account, version)) for version in (3, 4)]
    assert ["c" in {row["id"] for row in table} for table in found] == [True, False]


def test_every_type_comes_through(plain: Any, pushing: Any, tmp_path: Path) -> None:
    path, day = str(tmp_path / "state"), dt.date(2024, 2, 29)
    at = [dt.datetime(2024, 2, 29, 23, 59, 59, 999999 - k, tzinfo=dt.UTC) for k in range(3)]
    with types.open(path) as db:
        loaded = {"whole": -(2**63), "name": "é", "price": Decimal("-1.005"), "day": day, "at": at[0], "on": True}
        loaded |= {"gap": LONGEST, "wait": -LONGEST}
        values = {"whole_value": 2**63 - 1, "share": float("inf"), "money": Decimal("-9999999999999999.99")}
        db.load(Thing, [{**loaded, **values, "moment": at[1], "date": dt.date(1, 1, 1)}])
        fields = {
            "whole": 1,
            "name": "x",
            "price": Decimal("2.5"),
            "day": day,
            "on": False,
            "gap": dt.timedelta(minutes=5),
        }
        db.run([Touch(at=t, **fields) for t in at])
        db.run([Touch(at=at[0], **{**fields, "whole": 2})])
        expected, outcomes = db.table(Thing), db.outcomes(2)
    for session in (plain, pushing):
        found = read(session, path, table="Thing").toArrow()
        moments = {name: pa.timestamp("us", "UTC") for name in ("at", "moment")}
        found = found.cast(pa.schema([pa.field(f.name, moments.get(f.name, f.type), False) for f in found.schema]))
        assert found.schema == expected.schema
        assert rows(found, "whole", "at") == rows(expected, "whole", "at")
        last = read(session, path, feed="outcomes", start=2).toArrow()
        assert last.drop_columns(["ts", "at"]).to_pylist() == outcomes.drop_columns(["ts", "at"]).to_pylist()
        assert last["at"].cast(pa.timestamp("us", "UTC")).to_pylist() == [at[0]]
        by_key = read(session, path, table="Thing")
        for key in (
            "whole = 1",
            "whole in (1, 5, null)",
            "name = 'x'",
            "price = 2.5",
            "price = 2.50000",
            "day = date'2024-02-29' and whole = 1",
            "gap = interval '5' minute",
            "gap in (interval '5' minute, interval '6' minute) and name = 'x'",
            f"at in (timestamp'{at[2].isoformat()}', timestamp'{at[1].isoformat()}', timestamp'{at[0].isoformat()}') "
            "and on = false",
        ):
            assert {r.name for r in by_key.where(key).collect()} == {"x"}, key
        assert by_key.where("price = 2.5001 or price = 1e3").count() == 0
        assert by_key.where("price = 2.5001").count() == 0
        assert by_key.where("on = true").count() == 1


def test_filters_on_keys_are_pushed_where_spark_allows_it(plain: Any, pushing: Any, five: str) -> None:
    for session in (plain, pushing):
        accounts, branches = read(session, five, table="Account"), read(session, five, table="Branch")
        assert [r.id for r in accounts.where("id = 'a'").collect()] == ["a"]
        assert accounts.where("id in ('a', 'late', 'nobody') and balance > 10").count() == 1
        assert accounts.where("id = 'a' and id in ('b', 'late')").count() == 0
        assert accounts.where("id = 'c'").count() == 0
        assert branches.where("city = 'Oslo' and number in (1, 2)").agg({"staff": "sum"}).first()[0] == 3
        assert branches.where("number = 1 and staff = 1").count() == 2
        changed = read(session, five, feed="changes", table="Account").where("id = 'c'")
        assert [(r.version, r.change) for r in changed.collect()] == [(0, "loaded"), (4, "deleted")]


@pytest.mark.skipif(not FILTERS, reason="sources take filters from Spark 4.1 on")
def test_a_pushed_filter_is_not_applied_by_spark_again(five: str) -> None:
    from pyspark.sql.datasource import EqualTo, GreaterThan, In

    from penstock.spark.reader import PushingStateDirectory

    source = PushingStateDirectory({"path": five, "table": "Account"})
    reader = source.reader(source.schema())
    exact, many, other = EqualTo(("id",), "a"), In(("id",), ("a", "b", None)), GreaterThan(("balance",), 1)
    unfit = EqualTo(("id",), 5)
    assert list(reader.pushFilters([exact, many, other, unfit])) == [other, unfit]
    assert [b.to_pylist() for p in reader.partitions() for b in reader.read(p)] == [
        [{"id": "a", "balance": Decimal("15.00")}]
    ]


# --- feeds -----------------------------------------------------------------------------------


def test_the_feed_of_changes_says_what_each_version_did(plain: Any, five: str) -> None:
    found = read(plain, five, feed="changes", table="Account", start=3, end=4).collect()
    assert [(r.version, r.change, r.id, r.balance) for r in found] == [
        (3, "written", "a", 13),
        (3, "written", "n3", 5),
        (3, "loaded", "late", 7),
        (4, "deleted", "c", None),
        (4, "written", "a", 14),
        (4, "written", "n4", 5),
    ]
    assert read(plain, five, feed="changes", table="Account").where("version = 0").count() == 3
    assert read(plain, five, feed="changes", table="Branch", start=1).count() == 0
    assert read(plain, five, feed="changes", table="Account", start=6).count() == 0  # what comes next: nothing yet


def test_the_feed_of_outcomes_is_what_run_gave(plain: Any, five: str) -> None:
    found = read(plain, five, feed="outcomes", start=2, end=3)
    with bank.open(five) as db:
        assert found.toArrow().to_pylist() == [row for v in (2, 3) for row in db.outcomes(v).to_pylist()]
    assert read(plain, five, feed="outcomes").count() == 16
    assert read(plain, five, feed="outcomes").where("reason = 'unlucky'").count() == 5


def test_a_field_that_older_outcomes_lack_is_null_in_them(plain: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "state")
    for fields in (("x",), ("x", "y")):
        app = ps.App("grows")

        @app.table
        class Row:
            id: int = ps.key()

        @app.event
        class Tick:
            ts: int = ps.order()

        if len(fields) == 1:

            @app.transaction
            def old(e: Tick):
                return {"x": e.ts}
        else:

            @app.transaction
            def new(e: Tick):
                return {"x": e.ts, "y": Decimal("1.5")}

        with app.open(path) as db:
            db.run([Tick(ts=len(fields))])
    found = read(plain, path, feed="outcomes").collect()
    assert [(r.version, r.transaction, r.x, r.y) for r in found] == [(1, "old", 1, None), (3, "new", 2, Decimal("1.5"))]


class Follower:
    """A second query: what its batches brought, and where its checkpoint is."""

    def __init__(self, session: Any, path: str, checkpoint: Path, **options: Any) -> None:
        self.stream = session.readStream.format("penstock").options(**options).load(path)
        self.checkpoint, self.batches = checkpoint, {}

    def run(self, fail: bool = False) -> list[list[Any]]:
        """All that is available now; its rows, by batch."""
        self.batches: dict[int, list[Any]] = {}

        def take(frame: Any, id: int) -> None:
            self.batches[id] = frame.collect()
            assert not fail, "the follower dies"

        writer = self.stream.writeStream.foreachBatch(take).option("checkpointLocation", str(self.checkpoint))
        writer.trigger(**NOW).start().awaitTermination()
        return list(self.batches.values())


def test_a_follower_sees_each_version_once_whatever_restarts(plain: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "state")
    with bank.open(path) as db:
        db.run(batch(1))
        db.run(batch(2))
        follower = Follower(plain, path, tmp_path / "checkpoint", feed="outcomes")
        versions = [[r.version for r in found] for found in follower.run()]
        assert versions == [[1, 1, 1, 2, 2, 2]]
        db.load(Account, [{"id": "z"}])  # no outcomes, and no batch; an older Spark has one of nothing
        assert [found for found in follower.run() if found or ADMITS] == []
        db.run(batch(3))
        with pytest.raises(Exception, match="the follower dies"):
            follower.run(fail=True)
        db.run(batch(4))
        again = Follower(plain, path, tmp_path / "checkpoint", feed="outcomes")
        # The batch that failed, as it was; an older Spark takes what has come since at the next start.
        found = again.run() if ADMITS else [*again.run(), *again.run()]
        assert [{r.version for r in rows} for rows in found] == [{3}, {4}]
        assert again.run() == []


@needs_limits
def test_a_follower_of_changes_builds_the_table_again(plain: Any, tmp_path: Path) -> None:
    path, copy = str(tmp_path / "state"), {}
    with bank.open(path) as db:
        db.load(Account, [{"id": "a"}])
        options = {"feed": "changes", "table": "Account", "versions_per_batch": 2}
        follower = Follower(plain, path, tmp_path / "checkpoint", **options)
        sizes = []
        for n in range(1, 6):
            db.run([*batch(n), event(10 * n + 3, f"n{n - 1}", -100)])
            db.load(Account, [{"id": f"loaded{n}", "balance": n}])
            if n not in (1, 5):
                continue
            for found in follower.run():
                sizes.append(len({r.version for r in found}))
                for r in found:
                    if r.change == "deleted":
                        copy.pop(r.id, None)  # made and deleted in one batch: it was never there
                    else:
                        copy[r.id] = r.balance
        assert sizes == [2, 2, 2]  # versions 0 and 1; then 2 and 3, 4 and 5
        assert copy == {r["id"]: r["balance"] for r in db.table(Account).to_pylist()}
    offset = json.loads((tmp_path / "checkpoint" / "offsets" / "2").read_text().splitlines()[-1])
    assert offset == {"version": 5, "commit": 11}


def test_a_follower_that_falls_behind_is_told_to_retain_more(plain: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "state")
    with bank.open(path, retain=1, snapshot_every=2, background=False) as db:
        db.run(batch(1))
        follower = Follower(plain, path, tmp_path / "checkpoint", feed="outcomes", start=1)
        assert len(follower.run()) == 1
        for n in range(2, 9):
            db.run(batch(n))
        with pytest.raises(Exception, match=r"what follows version 1 of .* is not retained .* larger retain"):
            follower.run()
        oldest = Directory(path).oldest
        with pytest.raises(ps.StateError, match=r"version 2 of the feed .* oldest is \d, .* larger retain"):
            planned(path, feed="outcomes", start=2)
        with pytest.raises(ps.StateError, match=f"version 1 of state .* oldest is {oldest}, is not retained"):
            planned(path, table="Account", version=1)
        with pytest.raises(ps.StateError, match=f"version 1 of state .* oldest is {oldest}, is not retained"):
            Directory(path).table("Account", 1)  # pruned after it was planned
        assert {r.version for r in read(plain, path, feed="outcomes").collect()} == set(range(oldest + 1, 9))


def test_a_checkpoint_of_another_directory_is_refused(plain: Any, tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in ("long", "short")]
    for path, count in zip(paths, (3, 1)):
        with bank.open(path) as db:
            for n in range(count):
                db.run(batch(n))
    Follower(plain, paths[0], tmp_path / "checkpoint", feed="outcomes").run()
    with pytest.raises(Exception, match="do not belong together"):
        Follower(plain, paths[1], tmp_path / "checkpoint", feed="outcomes").run()


# --- beside a writer -------------------------------------------------------------------------


@contextmanager
def writing(path: str, retain: int) -> Iterator[None]:
    """Moves 1 from a to b over and over, in another thread; snapshots and prunes all the while."""
    stop, failed = threading.Event(), []
    with bank.open(path, retain=retain, snapshot_every=10) as db:
        db.load(Account, [{"id": "a", "balance": 10**6}, {"id": "b"}])
        db.run([event(0, "b", 0)])

        def write() -> None:
            try:
                n = 0
                while not stop.wait(0.02):
                    n += 1
                    db.run([event(2 * n, "a", -1), event(2 * n + 1, "b", 1)])
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=write)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
    assert not failed


def test_a_reader_beside_a_writer_sees_whole_versions(tmp_path: Path) -> None:
    path, seen = str(tmp_path / "state"), set()
    with writing(path, retain=1):
        directory = Directory(path)
        while directory.oldest < 30:  # by then it has pruned
            table = directory.table("Account")
            assert sum(row["balance"] for row in table.to_pylist()) == 10**6
            seen.add(str(table.to_pylist()))
    assert len(seen) > 1


@needs_limits
def test_spark_beside_a_writer_reads_whole_versions_and_misses_none(plain: Any, tmp_path: Path) -> None:
    path, seen = str(tmp_path / "state"), []
    with writing(path, retain=10_000):  # Spark may be slow here, and this is not about pruning
        stream = plain.readStream.format("penstock").options(feed="outcomes", versions_per_batch=50).load(path)
        query = (
            stream.writeStream.foreachBatch(lambda frame, _: seen.extend(r.version for r in frame.collect()))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
        assert read(plain, path, table="Account").agg({"balance": "sum"}).first()[0] == 10**6
        enough = Directory(path).version + 5
        while query.isActive and (not seen or seen[-1] < enough):
            query.awaitTermination(0.1)
        query.stop()
    assert seen == [1, *(v for v in range(2, seen[-1] + 1) for _ in range(2))]


# --- what is refused -------------------------------------------------------------------------


def planned(path: str, **options: Any) -> Any:
    """What Spark's planner does, without Spark."""
    from penstock.spark.reader import StateDirectory

    source = StateDirectory({"path": path, **{name: str(value) for name, value in options.items()}})
    return source.reader(source.schema()).partitions()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "needs a table"),
        ({"table": "Acount"}, "app 'bank' has no table 'Acount'; it has Account, Branch"),
        ({"tabel": "Account"}, "has no option 'tabel'; it has path, table"),
        ({"table": "Account", "version": "new"}, "version is a number from 0, not 'new'"),
        ({"table": "Account", "version": 9}, "has no version 9: its newest is 5"),
        ({"table": "Account", "start": 1}, "a table takes no option start; it is for a feed"),
        ({"table": "Account", "feed": "change"}, 'feed is "changes" or "outcomes", not \'change\''),
        ({"feed": "changes"}, "needs a table"),
        ({"feed": "outcomes", "table": "Account"}, "leave the option table out"),
        ({"feed": "outcomes", "version": 1}, "takes no option version; choose versions by start and end"),
        ({"feed": "outcomes", "start": 4, "end": 2}, "cannot start at version 4 and end at 2"),
        ({"feed": "outcomes", "end": 6}, "has no version 6: its newest is 5"),
        ({"feed": "outcomes", "versions_per_batch": 6}, "versions_per_batch is for spark.readStream"),
    ],
)
def test_wrong_options_are_refused(five: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ps.PenstockError) as caught:
        planned(five, **options)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"table": "Account"}, "a stream follows a feed"),
        ({"feed": "outcomes", "end": 3}, "a stream takes no option end"),
        ({"feed": "outcomes", "versions_per_batch": 0}, "must be 1 or more"),
    ],
)
def test_wrong_options_of_a_stream_are_refused(five: str, options: dict[str, Any], message: str) -> None:
    from penstock.spark.reader import StateDirectory

    source = StateDirectory({"path": five, **{name: str(value) for name, value in options.items()}})
    with pytest.raises(ps.InputError) as caught:
        source.streamReader(source.schema())
    assert message in str(caught.value)


def test_what_is_no_state_directory_is_refused(plain: Any, tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"there is no directory .*; name the state directory of an app"):
        read(plain, str(tmp_path / "nothing"), table="Account")
    with pytest.raises(ps.StateError, match=r"is not a state directory: it has no penstock\.json"):
        planned(str(tmp_path), table="Account")
    with pytest.raises(ps.InputError, match="needs a state directory"):
        planned("", table="Account")


def test_a_new_directory_has_empty_tables_and_no_outcomes(plain: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "state")
    with bank.open(path), pytest.raises(ps.StateError, match=r"has no outcomes yet, .*; run a batch first"):
        planned(path, feed="outcomes")
    assert read(plain, path, table="Account").count() == 0
    assert Directory(path).span() == (Position(0, 0), Position(0, 0))


def test_batches_logged_as_input_need_the_app_until_there_is_a_snapshot(plain: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "state")
    with bank.open(path, log="input") as db:
        db.run(batch(1))
        with pytest.raises(Exception, match=r"version 1 was logged as its input.* close the database"):
            read(plain, path, table="Account").count()
        with pytest.raises(Exception, match=r'version 1 was logged as its input.* open it with log="changes"'):
            read(plain, path, feed="changes", table="Account").count()
        assert read(plain, path, feed="outcomes").count() == 3
        expected = rows(db.table(Account))
    assert rows(read(plain, path, table="Account")) == expected
