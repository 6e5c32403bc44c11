"""What cannot be taken is refused before anything runs, and the same database then runs a good batch."""

import datetime as dt
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.execute.validate import refuse_unsound
from penstock.schedule.policy import Policy

door = ps.App("door")


@door.table
class Seen:
    name: str = ps.key()
    when: dt.datetime = dt.datetime(1970, 1, 1)
    day: dt.date = dt.date(1970, 1, 1)
    sum: ps.decimal(6, 2) = 0
    text: str = ""


@door.event
class See:
    ts: dt.datetime = ps.order()
    id: str = ps.id()
    name: str
    when: dt.datetime
    day: dt.date
    sum: ps.decimal(6, 2)
    words: list[str]
    times: list[dt.datetime]


@door.transaction
def see(e: See):
    seen = Seen.get(e.name)
    seen.when = max(seen.when, e.when)
    seen.day = max(seen.day, e.day)
    seen.sum += e.sum
    for word in e.words:
        seen.text = max(seen.text, word)
    for time in e.times:
        seen.when = max(seen.when, time)
    return {"when": seen.when, "text": seen.text}


NOON = dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC)


def good(**given: Any) -> Any:
    values = {"ts": NOON, "id": "a", "name": "n", "when": NOON, "day": NOON.date(), "sum": 1, "words": [], "times": []}
    return See(**(values | given))


def table(rows: int = 3, **columns: Any) -> pa.Table:
    """Good rows, but for these columns."""
    schema = See.definition.arrow()
    out = pa.Table.from_pylist([good(id=str(i)).values for i in range(rows)], schema=schema)
    for name, column in columns.items():
        out = out.set_column(schema.names.index(name), name, column)
    return out


@pytest.fixture(params=["engine", "durable", "reference"])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    opened = {"engine": door.open, "durable": lambda: door.open(tmp_path / "state"), "reference": door.reference}
    with opened[request.param]() as found:
        found.run([good()])
        yield found


def runs_on(db: Any) -> None:
    assert db.version == 1
    (outcome,) = db.run([good(ts=NOON + dt.timedelta(1), words=["é"])]).to_pylist()
    assert (outcome["status"], outcome["version"], outcome["text"]) == ("committed", 2, "é")
    assert db.table(Seen).to_pylist()[0]["sum"] == Decimal("2.00")


# --- what is asked for ------------------------------------------------------------------------

OPTIONS: list[dict[str, Any]] = [
    *({"policy": one} for one in ("serial", 1, Policy, ["serial"], "")),
    *({"watermark": one} for one in ("5 seconds", 1.5, True, -1, np.int64(5), dt.timedelta(1))),
    *({"id": one} for one in ("1", 1.0, True, [1], np.int64(1))),
    *({"flush": one} for one in (1, "yes", None)),
    *({"source": one, "id": 0} for one in (1, b"query", ["query"])),
    *({"offsets": one, "id": 0, "source": "query"} for one in (1, {"a": 1})),
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("durable", [False, True])
def test_wrong_options(options: dict[str, Any], durable: bool, tmp_path: Path) -> None:
    with door.open(tmp_path / "state") if durable else door.open() as db:
        db.run([good()])
        with pytest.raises(ps.InputError, match=next(iter(options))):
            db.run([good()], **options)
        runs_on(db)


@pytest.mark.parametrize("policy", ["serial", 1, [], Policy])
@pytest.mark.parametrize("batch", [None, [], [1]])
def test_a_wrong_policy_to_explain(policy: Any, batch: Any) -> None:
    with door.open() as db:
        db.run([good()])
        with pytest.raises(ps.InputError, match=r"policy=.*ps\.Policy"):
            db.explain(batch, policy=policy)
        runs_on(db)


@pytest.mark.parametrize(
    "given",
    [
        *({"threads": one} for one in (-1, "x", 1.5, None, True)),
        *({"partitions": one} for one in (-1, "x", 0.5)),
        *({name: one} for name in ("explore", "unit", "on_abort", "scheme") for one in ("x", None, 1, [])),
    ],
    ids=str,
)
def test_a_policy_of_nonsense_cannot_be_made(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="a policy's"):
        Policy(**given)


def test_a_policy_of_no_threads_has_those_of_the_machine() -> None:
    assert Policy(threads=0).threads >= 1


# --- times ------------------------------------------------------------------------------------

EARLIER, LATER = (dt.timezone(dt.timedelta(hours=h)) for h in (-1, 1))
NOWHERE = [dt.datetime.max.replace(tzinfo=EARLIER), dt.datetime.min.replace(tzinfo=LATER)]


@pytest.mark.parametrize("moment", NOWHERE, ids=str)
def test_a_datetime_that_utc_does_not_have(db: Any, moment: dt.datetime) -> None:
    for given in ({"ts": moment}, {"when": moment}, {"times": [NOON, moment]}):
        with pytest.raises(ps.InputError, match=rf"event 1 \(See\), field '{next(iter(given))}': needs"):
            db.run([good(), good(**given)])
    with pytest.raises(ps.InputError, match="column 'when', row 0: needs datetime"):
        db.load(Seen, [{"name": "x", "when": moment}])
    runs_on(db)


def test_a_default_that_utc_does_not_have() -> None:
    app = ps.App("defaults")
    with pytest.raises(ps.DeclarationError, match="is not a datetime"):

        @app.table
        class T:
            id: int = ps.key()
            when: dt.datetime = NOWHERE[0]


def year(number: int, unit: str) -> pa.Array:
    """Two moments, the second one in this year."""
    days = 366 * (number - 1970) if number > 1970 else 365 * (number - 1971)
    second = 86_400 * days
    value = second * {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    return pa.array([0, value, 0], pa.int64()).view(pa.timestamp(unit, "UTC"))


YEARS = [(10_000, "us"), (10_000, "s"), (10_000, "ms"), (0, "us"), (0, "s"), (-200_000, "s"), (290_000, "us")]


@pytest.mark.parametrize(("number", "unit"), YEARS)
def test_an_arrow_timestamp_outside_pythons_years(db: Any, number: int, unit: str) -> None:
    moments = year(number, unit)
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 3, 3], pa.int32()), moments)
    for name, column in (("ts", moments), ("when", moments), ("times", lists)):
        with pytest.raises(ps.InputError, match=f"event 'See', column '{name}': "):
            db.run({See: table(**{name: column})})
        with pytest.raises(ps.InputError, match=f"column '{name}'"):
            db.run({See: table(1_500, **{name: pa.chunked_array([column] * 500)})})
    with pytest.raises(ps.InputError, match="table 'Seen', column 'when': "):
        db.load(Seen, pa.table({"name": ["x", "y", "z"], "when": moments}))
    runs_on(db)


def test_an_arrow_id_outside_pythons_range_is_no_int(db: Any) -> None:
    with pytest.raises(ps.InputError, match="column 'id'"):
        db.run({See: table(id=year(2024, "us"))})
    runs_on(db)


@pytest.mark.parametrize("days", [-719_163, 2_932_897, 2**31 - 1, -(2**31)])
def test_an_arrow_date_outside_pythons_years(db: Any, days: int) -> None:
    column = pa.array([0, 0, days], pa.int32()).view(pa.date32())
    with pytest.raises(ps.InputError, match=r"column 'day': holds what is no date \(value 2 is outside"):
        db.run({See: table(day=column)})
    with pytest.raises(ps.InputError, match="column 'day'"):
        db.load(Seen, pa.table({"name": ["x", "y", "z"], "day": column}))
    runs_on(db)


def test_the_first_and_the_last_moment_of_pythons_years_pass(db: Any) -> None:
    ends = [dt.datetime.min.replace(tzinfo=dt.UTC), dt.datetime.max.replace(tzinfo=dt.UTC), None]
    days = [dt.date.min, dt.date.max, None]
    columns = {"when": pa.array(ends, pa.timestamp("us", "UTC")), "day": pa.array(days, pa.date32())}
    assert db.run({See: table(**columns)})["status"].to_pylist() == ["committed", "committed", "aborted"]
    assert max(db.table(Seen)["when"].to_pylist()) == ends[1]


def test_what_lies_under_a_null_is_not_judged(db: Any) -> None:
    """Arrow leaves any bytes there."""

    def hidden(array: pa.Array) -> pa.Array:
        _, *rest = array.buffers()
        return pa.Array.from_buffers(array.type, 3, [pa.py_buffer(b"\x05"), *rest], 1)

    columns = {
        "when": hidden(year(10_000, "us")),
        "day": hidden(pa.array([0, 2**31 - 1, 0], pa.int32()).view(pa.date32())),
        "name": hidden(text([b"a", b"\xff", b"c"])),
        "sum": hidden(wide()),
    }
    assert db.run({See: table(**columns)})["status"].to_pylist() == ["committed", "aborted", "committed"]
    many = {name: pa.chunked_array([one] * 400).combine_chunks() for name, one in columns.items()}
    assert db.run({See: table(1_200, **many)})["status"].to_pylist()[:3].count("aborted") <= 3


# --- decimals ---------------------------------------------------------------------------------


def wide() -> pa.Array:
    """The second has more digits than its type."""
    words = np.array([1, 0, 10**6, 0, 1, 0], np.int64)
    return pa.Array.from_buffers(pa.decimal128(6, 2), 3, [None, pa.py_buffer(words)])


@pytest.mark.parametrize(
    "type_", [pa.decimal128(8, 41), pa.decimal128(8, 2**29), pa.decimal128(8, -37), pa.decimal256(8, 79)], ids=str
)
def test_an_arrow_decimal_whose_point_lies_beyond_all_digits(db: Any, type_: pa.DataType) -> None:
    """Arrow's own cast reads behind its tables, and may take the process with it."""
    column = pa.Array.from_buffers(type_, 3, [None, pa.py_buffer(bytes(32 * 3))])
    with pytest.raises(ps.InputError, match="more digits after its point than there are"):
        db.run({See: table(sum=column)})
    runs_on(db)


@pytest.mark.parametrize(
    "words", [[10**6, 0], [-(10**6), -1], [1, 1], [-1, 0], [0, -(2**63)], [10**18, 0]], ids=lambda w: f"{w[0]}, {w[1]}"
)
@pytest.mark.parametrize("rows", [1, 1_000])
def test_an_arrow_decimal_of_too_many_digits(db: Any, words: list[int], rows: int) -> None:
    data = np.array([[1, 0]] * (rows - 1) + [words], np.int64)
    column = pa.Array.from_buffers(pa.decimal128(6, 2), rows, [None, pa.py_buffer(data)])
    with pytest.raises(ps.InputError, match=r"column 'sum': holds what is no decimal\(6, 2\)"):
        db.run({See: table(rows, sum=column)})
    with pytest.raises(ps.InputError, match="column 'sum'"):
        db.load(Seen, pa.table({"name": [f"x{i}" for i in range(rows)], "sum": column}))
    runs_on(db)


# --- text -------------------------------------------------------------------------------------

# A byte that never occurs, a cut character, one that is written too long, half of a surrogate pair, beyond Unicode.
BROKEN = [b"\xff", b"\xc3", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"ab\x80"]


def text(values: list[bytes]) -> pa.Array:
    _, offsets, data = pa.array(values, pa.binary()).buffers()
    return pa.Array.from_buffers(pa.string(), len(values), [None, offsets, data])


def view(values: list[bytes]) -> pa.Array:
    given = pa.array(values, pa.binary_view())
    return pa.Array.from_buffers(pa.string_view(), len(values), given.buffers())


def large(values: list[bytes]) -> pa.Array:
    _, offsets, data = pa.array(values, pa.large_binary()).buffers()
    return pa.Array.from_buffers(pa.large_string(), len(values), [None, offsets, data])


def coded(values: list[bytes]) -> pa.Array:
    places = pa.array(range(len(values)), pa.int32())
    return pa.DictionaryArray.from_arrays(places, text(values))


def small_coded(values: list[bytes]) -> pa.Array:
    places = pa.array([i % 100 for i in range(len(values))], pa.int8())
    return pa.DictionaryArray.from_arrays(places, large([*values[-1:], *values[:99]]))


def chunked(values: list[bytes]) -> pa.ChunkedArray:
    return pa.chunked_array([text(values[:1]), text(values[1:])])


def sliced(values: list[bytes]) -> pa.Array:
    return text([b"\xff\xfe", *values, b"\xff"]).slice(1, len(values))


FORMS = [text, view, large, coded, small_coded, chunked, sliced]


def lists(items: Any) -> pa.Array:
    items = items.combine_chunks() if isinstance(items, pa.ChunkedArray) else items
    ends = np.arange(len(items) + 1, dtype=np.int32)
    return pa.ListArray.from_arrays(pa.array(ends), items)


@pytest.mark.parametrize("form", FORMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("rows", [3, 2_000])
def test_text_that_is_no_utf8(db: Any, form: Callable[[list[bytes]], Any], rows: int) -> None:
    for bytes_ in BROKEN:
        column = form([*(b"x%d" % i for i in range(rows - 1)), bytes_])
        for name in ("id", "name", "words"):
            given = lists(column) if name == "words" else column
            with pytest.raises(ps.InputError, match=f"event 'See', column '{name}': .*UTF-8"):
                db.run({See: table(rows, **{name: given})})
        for name in ("name", "text"):
            names = {"name": pa.array([f"x{i}" for i in range(rows)])}
            with pytest.raises(ps.InputError, match=f"table 'Seen', (key|column) '{name}': .*UTF-8"):
                db.load(Seen, pa.table(names | {name: column}))
    runs_on(db)


@pytest.mark.parametrize("form", FORMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("rows", [3, 2_000])
def test_text_beyond_ascii_passes(db: Any, form: Callable[[list[bytes]], Any], rows: int) -> None:
    values = [*(f"x{i}" for i in range(rows - 2)), "é", "\U0001f600 日本"]
    column = form([value.encode() for value in values])
    out = db.run({See: table(rows, name=column, words=lists(column))})
    assert set(out["status"].to_pylist()) == {"committed"}
    assert set(out["text"].to_pylist()) == set(column.to_pylist())


def test_what_lies_outside_a_slice_is_not_judged(db: Any) -> None:
    words = lists(text([b"\xff", b"a", b"b", b"c", b"\xff"])).slice(1, 3)
    out = db.run({See: table(name=sliced([b"a", b"b", b"c"]), words=words)})
    assert set(out["status"].to_pylist()) == {"committed"}


@pytest.mark.parametrize("rows", [3, 2_000])
def test_offsets_that_fall_and_places_beyond_a_dictionary(rows: int) -> None:
    ends = np.arange(rows + 1, dtype=np.int32)
    ends[1] = 3
    falling = pa.Array.from_buffers(pa.string(), rows, [None, pa.py_buffer(ends), pa.py_buffer(b"x" * rows)])
    beyond = pa.DictionaryArray.from_arrays(pa.array([0] * (rows - 1) + [7], pa.int32()), pa.array(["x"]), safe=False)
    listed = pa.Array.from_buffers(
        pa.list_(pa.string()), rows, [None, pa.py_buffer(ends)], children=[pa.array(["x"] * rows)]
    )
    with door.open() as db:
        db.run([good()])
        for name, column in (("name", falling), ("name", beyond), ("words", listed)):
            with pytest.raises(ps.InputError, match=f"column '{name}'"):
                db.run({See: table(rows, **{name: column})})
        runs_on(db)


def test_a_key_of_history_that_is_no_utf8(tmp_path: Path) -> None:
    with door.open(tmp_path / "state") as db:
        db.run([good()])
        for key in ("\ud800", b"n", 1, None):
            with pytest.raises(ps.InputError, match="table 'Seen', key 'name'"):
                db.history(Seen, key)
        assert db.history(Seen, "n").num_rows == 1
        runs_on(db)


def test_a_sound_array_is_said_to_be_so() -> None:
    for name, type_ in ((f.name, f.type) for f in See.definition.fields):
        for rows in (0, 1, 600):
            refuse_unsound(table(rows)[name].combine_chunks(), type_, where=name)
