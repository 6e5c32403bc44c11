"""Values of Kafka messages as events, without a broker: each message is one event, or is told by its place."""

from __future__ import annotations

import datetime as dt
import io
import json
import struct
import threading
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps

pytest.importorskip("confluent_kafka")
pytest.importorskip("fastavro")
pytest.importorskip("pyspark")

from penstock.execute.request import Admission
from penstock.spark.kafka.source import kafka, shared
from penstock.spark.kafka.values import Messages, parse_arrow, parse_json, rows

app = ps.App("values")


@app.event
class Every:
    ts: dt.datetime = ps.order()
    id: str = ps.id()
    n: int
    x: float
    ok: bool
    money: ps.decimal(18, 2)
    day: dt.date
    span: dt.timedelta
    several: list[int]
    days: list[dt.date]


small, many = ps.App("small"), ps.App("many")


@small.event
class Small:
    ts: int = ps.order()
    name: str


GOOD = (
    b'{"ts": "2026-01-02T03:04:05Z", "id": "a", "n": 1, "x": 2.5, "ok": true, "money": 1.5, "day": "2026-01-02", '
    b'"span": 1500000, "several": [1, 2], "days": ["2026-01-02"], "more": {"is": ["passed", "over"]}}'
)


def messages(*values: bytes | None) -> Messages:
    """Two partitions, with holes among their offsets."""
    out, half = Messages("t"), len(values) // 2
    out.add(0, [3 * i for i in range(half)], list(values[:half]))
    out.add(4, [100 + i for i in range(len(values) - half)], list(values[half:]))
    return out


def parsed(event: Any, *values: bytes | None) -> tuple[list[dict[str, Any]], list[tuple[str, str]]]:
    found = rows(event.definition, messages(*values), parse_json)
    assert found.table.schema == event.definition.arrow()
    bad = [] if found.unreadable is None else found.unreadable.column("reason").to_pylist()
    return found.table.to_pylist(), [tuple(reason.split(": ", 1)) for reason in bad]


def test_json_of_every_type() -> None:
    (row,), bad = parsed(Every, GOOD)
    assert bad == []
    assert row["ts"] == dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
    assert (row["money"], row["day"], row["span"]) == (Decimal("1.50"), dt.date(2026, 1, 2), dt.timedelta(seconds=1.5))
    assert (row["several"], row["days"]) == ([1, 2], [dt.date(2026, 1, 2)])
    assert (row["n"], row["x"], row["ok"], row["id"]) == (1, 2.5, True, "a")


def test_a_name_that_is_missing_is_null_and_a_decimal_may_be_text() -> None:
    found, bad = parsed(Every, b'{"ts": "2026-01-02T03:04:05", "id": "a", "money": "7.25"}')
    assert (found[0]["n"], found[0]["days"], found[0]["money"], bad) == (None, None, Decimal("7.25"), [])


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "tombstone"),
        (b"", "no JSON object"),
        (b"null", "no JSON object"),
        (b"[1]", "no JSON object"),
        (b'{"ts": 1', "no JSON object"),
        (b'{"ts": 1, "name": }', "JSON parse error"),
        (b'{"ts": 1}{"ts": 2}', "2 JSON objects, not one"),
        (b'{"ts": "one"}', "JSON parse error"),
        (b'{"ts": 1.5}', "int64"),
        (b'{"ts": 9223372036854775808}', "int64"),
        (b'{"ts": 1, "ts": 2}', "twice"),
        (b'{"ts": 1, "name": "\xff"}', "UTF-8"),
        (b'{"ts": 1, "name": "a\nb"}', ""),
        (b'\x00\x00\x00\x00\x01{"ts": 1}', "no JSON object"),
    ],
)
@pytest.mark.parametrize("place", [0, 3, 7])
def test_one_bad_message_is_told_by_its_place_and_the_others_are_read(
    value: bytes | None, reason: str, place: int
) -> None:
    values: list[bytes | None] = [b'{"ts": %d, "name": "n"}' % i for i in range(8)]
    values[place] = value
    found, ((where, why),) = parsed(Small, *values)
    assert [row["ts"] for row in found] == [i for i in range(8) if i != place]
    assert where == f"topic t, partition {0 if place < 4 else 4}, offset {3 * place if place < 4 else 96 + place}"
    assert reason in why


def test_bad_messages_that_would_make_up_for_each_other_do_not() -> None:
    """As many objects as messages; but not one in each."""
    found, bad = parsed(Small, b'{"ts": 1}{"ts": 2}', b"", b'{"ts": 3}')
    assert ([row["ts"] for row in found], len(bad)) == ([3], 2)
    found, bad = parsed(Small, b'{"ts": 1', b', "name": "x"}', b'{"ts": 2}{"ts": 3}')
    assert (found, len(bad)) == ([], 3)


def test_pretty_printed_json_and_blanks_around_it() -> None:
    found, bad = parsed(Small, b'{\n  "ts": 1,\n  "name": "a"\n}\n', b'  {"ts": 2}\r\n')
    assert ([row["ts"] for row in found], bad) == ([1, 2], [])


def test_more_than_one_block_of_json() -> None:
    many = [b'{"ts": %d, "name": "%s"}' % (i, b"x" * 100) for i in range(30_000)]
    many[20_000] = b'{"ts": 20000, "name": "%s"}' % (b"y" * 3_000_000)  # longer than a block
    found, bad = parsed(Small, *many)
    assert ([row["ts"] for row in found], bad) == ([*range(30_000)], [])
    many[12_345] = b"{}{"
    found, bad = parsed(Small, *many)
    assert (len(found), len(bad)) == (29_999, 1)


def test_nothing_but_bad_messages() -> None:
    assert parsed(Small, None, b"x") == (
        [],
        [
            ("topic t, partition 0, offset 0", "it has no value (a tombstone)"),
            ("topic t, partition 4, offset 100", "it is no JSON object: 'x'"),
        ],
    )


def ipc(table: pa.Table) -> bytes:
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, table.schema) as stream:
        stream.write_table(table)
    return out.getvalue().to_pybytes()


def test_arrow_streams_hold_any_number_of_events() -> None:
    two = pa.table({"name": ["a", "b"], "ts": pa.array([1, 2], pa.int32()), "more": [0, 0]})
    given = messages(ipc(two), ipc(two.slice(0, 0)), b"no stream", ipc(two.drop(["ts"])), ipc(two.slice(1)))
    found = rows(Small.definition, given, parse_arrow)
    assert found.table.to_pylist() == [{"ts": 1, "name": "a"}, {"ts": 2, "name": "b"}, {"ts": 2, "name": "b"}]
    assert found.unreadable is not None
    first, second = found.unreadable.column("reason").to_pylist()
    assert first.startswith("topic t, partition 4, offset 100: ")
    assert second == "topic t, partition 4, offset 101: it has no column 'ts'; it has name, more"
    assert found.where is not None
    places = [(0, 0), (0, 0), (4, 102)]
    assert [found.where(row) for row in range(3)] == [
        f"topic t, partition {p}, offset {offset}" for p, offset in places
    ]


def test_an_arrow_stream_is_judged_by_itself() -> None:
    """Not as what it and another one have in common: beside floats, a decimal became one."""
    of = dict.fromkeys(("id", "n", "ok", "money", "day", "span", "several", "days"), pa.nulls(1))
    ts = pa.array([dt.datetime(2026, 1, 1)], pa.timestamp("us"))
    floats, decimals = (pa.table({**of, "ts": ts, "x": pa.array([x])}) for x in (1.5, Decimal("1.5")))
    for given in ([floats, decimals], [decimals, floats], [floats, decimals.slice(0, 0)]):
        found = rows(Every.definition, messages(*map(ipc, given)), parse_arrow)
        assert found.table.column("x").to_pylist() == [1.5]
        assert found.unreadable is not None
        assert (
            "column 'x': needs float, got Arrow type decimal128(2, 1)" in found.unreadable.column("reason")[0].as_py()
        )


lists = ps.App("lists")


@lists.event
class Lists:
    ts: int = ps.order()
    several: list[int]


def test_bytes_that_are_no_arrow_stream_are_told_of() -> None:
    good = ipc(pa.table({"ts": [1], "several": [[7, 9]]}))
    flipped = good[:8] + b"\xff" * 8 + good[16:]
    ends = good.rindex(struct.pack("<ii", 0, 2))
    beyond = good[:ends] + struct.pack("<ii", 0, 2**30) + good[ends + 8 :]  # a list that ends behind its items
    twice = pa.table([[1], [2], [[3]]], names=["ts", "ts", "several"])
    given = messages(good, good[:-60], flipped, good + good, good + b"x", beyond, ipc(twice), good)
    found = rows(Lists.definition, given, parse_arrow)
    assert found.table.to_pylist() == [{"ts": 1, "several": [7, 9]}] * 2
    assert found.unreadable is not None
    reasons = [reason.split(": ", 1)[1] for reason in found.unreadable.column("reason").to_pylist()]
    assert [reason.startswith("it is no Arrow stream: ") for reason in reasons] == [True] * 4 + [False] * 2
    assert reasons[2] == reasons[3] == "it is no Arrow stream: something is left behind it"
    assert reasons[5] == "it has column 'ts' twice; it has ts, ts, several"


later = ps.App("later")


@later.event
class Later:
    """With fields that have come since messages of it were written."""

    ts: int = ps.order()
    kind: str = "card"
    note: str | None


def test_a_field_that_is_missing_has_its_default() -> None:
    values = [
        b'{"ts": 1}',
        b'{"ts": 2, "kind": null}',
        b'{"ts": 3, "kind": "cash", "note": "n"}',
        b'{"ts": 4, "more": {"kind": null, "it": "\\u00e9"}}',
        b'{"ts": 5, "k\\u0069nd": null}',
        b'{"ts": 6, "more": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ]
    out = Messages("t")
    out.add(0, list(range(len(values))), list(values))
    found = rows(Later.definition, out, parse_json)
    assert found.unreadable is None
    rows_ = [tuple(row.values()) for row in found.table.to_pylist()]
    assert rows_ == [
        (1, "card", None),
        (2, None, None),
        (3, "cash", "n"),
        (4, "card", None),
        (5, None, None),
        (6, "card", None),
    ]
    (row,) = rows(Later.definition, messages(ipc(pa.table({"ts": [1]}))), parse_arrow).table.to_pylist()
    assert row == {"ts": 1, "kind": "card", "note": None}


def test_whether_a_name_is_missing_may_be_beyond_telling() -> None:
    deep = b'{"ts": 1, "more": {"kind": ' + b"[" * 100_000 + b"]" * 100_000 + b"}}"
    found = rows(Later.definition, messages(b'{"ts": 0}', deep, b'{"ts": 2}'), parse_json)
    assert found.table.column("ts").to_pylist() == [0, 2]
    assert found.unreadable is not None
    assert "whether it has a value for 'kind' cannot be told" in found.unreadable.column("reason")[0].as_py()
    assert found.unreadable.column("ts").to_pylist() == [1]


@many.table
class Sum:
    id: str = ps.key()
    n: int = 0


@many.event
class Add:
    ts: int = ps.order()
    id: str = ps.id()
    n: int


@many.transaction
def add(e: Add):
    Sum.get(e.id).n += e.n


BAD: dict[str, tuple[bytes | None, int | None, str | None, str]] = {
    "no JSON": (b"x", None, None, "topic t, partition 0, offset 3: it is no JSON object: 'x'"),
    "tombstone": (None, None, None, "topic t, partition 0, offset 3: it has no value (a tombstone)"),
    "no ts": (b'{"id": "a", "n": 1}', None, "a", "ts: null (topic t, partition 0, offset 3)"),
    "no id": (b'{"ts": 7, "n": 1}', 7, None, "id: null (topic t, partition 0, offset 3)"),
    "far ahead": (
        b'{"ts": 999, "id": "a"}',
        999,
        "a",
        "ts: 999 is more than 100 ahead (topic t, partition 0, offset 3)",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_event_is_rejected_with_its_place_and_what_can_be_read_of_it(name: str) -> None:
    value, ts, id, reason = BAD[name]
    good = [b'{"ts": %d, "id": "%d", "n": 1}' % (i, i) for i in range(1, 5)]
    with many.open() as db:
        db.run([Add(ts=1, id="0", n=1)])
        batch = {"Add": rows(Add.definition, messages(good[0], value, *good[1:]), parse_json)}
        with pytest.raises(ps.InputError) as refused:
            db.run(batch, _admission=Admission(on_bad="fail", ahead=100))
        assert str(refused.value) == f"event 'Add': {reason}"
        out = db.run(batch, _admission=Admission(on_bad="reject", ahead=100)).to_pylist()
        assert [row["status"] for row in out] == ["committed"] * 4 + ["rejected"]
        assert (out[4]["transaction"], out[4]["ts"], out[4]["id"], out[4]["reason"]) == ("add", ts, id, reason)
        assert db.table(Sum).num_rows == 5


def test_of_a_message_with_a_wrong_column_ts_and_id_are_read() -> None:
    with many.open() as db:
        batch = {"Add": rows(Add.definition, messages(b'{"ts": 3, "id": "a", "n": "one"}'), parse_json)}
        (row,) = db.run(batch, _admission=Admission(on_bad="reject")).to_pylist()
        assert (row["ts"], row["id"], row["status"]) == (3, "a", "rejected")
        assert row["reason"].startswith("topic t, partition 4, offset 100: JSON parse error")


@pytest.mark.parametrize(
    ("have", "limit", "wanted"),
    [
        ([10, 10], 10, [5, 5]),
        ([10, 10], 5, [3, 2]),
        ([1, 10], 8, [1, 7]),
        ([10, 0, 3], 100, [10, 0, 3]),
        ([10, 0, 3], 8, [5, 0, 3]),
        ([9, 9, 9], 1, [1, 0, 0]),
        ([0, 0], 5, [0, 0]),
    ],
)
def test_a_batch_is_shared_by_its_partitions(have: list[int], limit: int, wanted: list[int]) -> None:
    start = {p: 100 * p for p in range(len(have))}
    out = shared(start, {p: start[p] + n for p, n in enumerate(have)}, limit)
    assert [out[p] - start[p] for p in range(len(have))] == wanted


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"bootstrap": ""}, "bootstrap='' names no broker"),
        ({"value": "xml"}, "value='xml' is not one of json"),
        ({"starting": "now"}, "starting='now' is not one of earliest, latest"),
        ({"lost": "ok"}, "lost='ok' is not one of fail, skip"),
        ({"rows_per_batch": 0}, "rows_per_batch must be 1 or more, not 0"),
    ],
)
def test_odd_arguments_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ps.InputError, match=said):
        kafka("t", **{"bootstrap": "localhost:9092", **given})


AVRO = {
    "type": "record",
    "name": "Every",
    "fields": [
        {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "id", "type": ["null", "string"]},
        {"name": "n", "type": "int"},
        {"name": "money", "type": {"type": "bytes", "logicalType": "decimal", "precision": 18, "scale": 2}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "several", "type": {"type": "array", "items": "long"}},
        {"name": "more", "type": "string"},
    ],
}
RECORD = {
    "ts": dt.datetime(2026, 1, 2, tzinfo=dt.UTC),
    "id": "a",
    "n": 1,
    "money": Decimal("1.50"),
    "day": dt.date(2026, 1, 2),
    "several": [1, 2],
    "more": "passed over",
}


def avro(record: dict[str, Any]) -> bytes:
    import fastavro

    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(AVRO), record)
    return out.getvalue()


def test_avro_of_one_schema() -> None:
    parser = kafka("t", bootstrap="b", value="avro", schema=AVRO).parser
    good = avro(RECORD)
    found = rows(Every.definition, messages(good, good[:5], good + b"x", b"", avro({**RECORD, "id": None})), parser)
    first, last = found.table.to_pylist()
    assert {name: first[name] for name in RECORD if name != "more"} == {k: v for k, v in RECORD.items() if k != "more"}
    assert (first["x"], first["days"], last["id"]) == (None, None, None)
    assert found.unreadable is not None
    assert all("is no Avro record" in reason for reason in found.unreadable.column("reason").to_pylist())
    assert found.unreadable.num_rows == 3


def test_avro_records_lack_what_has_come_since() -> None:
    import fastavro

    schema = {"type": "record", "name": "Later", "fields": [{"name": "ts", "type": "long"}]}
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), {"ts": 1})
    parser = kafka("t", bootstrap="b", value="avro", schema=schema).parser
    found = rows(Later.definition, messages(out.getvalue()), parser)
    assert found.table.to_pylist() == [{"ts": 1, "kind": "card", "note": None}]


class Registry(BaseHTTPRequestHandler):
    """As far as a reader asks: GET /schemas/ids/7."""

    def do_GET(self) -> None:
        known = {"7": json.dumps(AVRO), "9": 'syntax = "proto3";', "10": '{"type": "object"}', "11": '"Unknown"'}
        number = self.path.removeprefix("/schemas/ids/")
        self.send_response(200 if number in known else 404)
        self.end_headers()
        self.wfile.write(json.dumps({"schema": known[number]} if number in known else {"error_code": 40403}).encode())

    def log_message(self, *_: Any) -> None:
        pass


def test_avro_of_a_registry() -> None:
    with HTTPServer(("127.0.0.1", 0), Registry) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}"
        parser: Any = kafka("t", bootstrap="b", value="avro", registry=address).parser
        framed = b"\0" + (7).to_bytes(4, "big") + avro(RECORD)
        unknown = [b"\0" + number.to_bytes(4, "big") + avro(RECORD) for number in (8, 9, 10, 11)]
        given = messages(framed, *unknown, avro(RECORD), framed)
        parser.prepare(given.values)
        server.shutdown()
    found = rows(Every.definition, given, parser)
    assert found.table.column("id").to_pylist() == ["a", "a"]
    assert found.unreadable is not None
    *several, last = (reason.split(": ", 1)[1] for reason in found.unreadable.column("reason").to_pylist())
    assert several == [f"the registry at {address} has no Avro schema {number}" for number in (8, 9, 10, 11)]
    assert last == "it does not begin with 0 and the number of a schema"
    with pytest.raises(ps.InputError, match="does not answer"):
        kafka("t", bootstrap="b", value="avro", registry=address).parser.prepare([b"\0\0\0\0\x0c"])  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "given", [{"value": "avro"}, {"value": "json", "schema": AVRO}, {"value": "avro", "schema": AVRO, "registry": "r"}]
)
def test_avro_takes_one_place_of_schemas(given: dict[str, Any]) -> None:
    with pytest.raises(ps.InputError, match=r'value="avro" takes a schema= or a registry='):
        kafka("t", bootstrap="b", **given)
    with pytest.raises(ps.InputError, match="is no Avro schema"):
        kafka("t", bootstrap="b", value="avro", schema="{")
