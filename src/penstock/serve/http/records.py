"""The routes of tables and records.

GET  /v1/tables                          what there is
GET  /v1/tables/T                        one table's columns
GET  /v1/tables/T/records/K              one record           the hot ones: answered on the event loop,
POST /v1/get                             many, at one version    from the replica's index
GET  /v1/tables/T/records/K/history      every retained change of one record
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.declare.model import TableDef
from penstock.serve.http.answers import Answer, Refusal
from penstock.serve.http.call import ANY_VERSION, NEWEST, Call
from penstock.serve.http.options import Options
from penstock.serve.http.routes import Route, texts_of
from penstock.serve.http.site import Site
from penstock.serve.http.values import dumps, finite, floats_of, key_of_path, keys_of_json

if TYPE_CHECKING:
    from penstock.replica.cut import Cut

KEYS_MAX = 10_000
# As many are found within a millisecond or two, for which others may wait.
AT_ONCE = 1_000
HISTORY_MAX = 10_000


def table_of(tables: dict[str, TableDef], name: str, version: int) -> TableDef:
    table = tables.get(name)
    if table is None:
        known = ", ".join(tables) or "none"
        raise Refusal(404, "no_table", f"there is no table {name[:60]!r}; there is {known}", version=version)
    return table


async def record(call: Call) -> Answer:
    version = await call.moment() if call.scope["query_string"] else None
    if version is None:
        with call.site.reader.cut() as cut:
            return _record(call, cut)
    return await call.site.in_thread(_at, call, version, _record)


def _at(call: Call, version: int, answer: Callable[..., Answer], *args: Any) -> Answer:
    with call.site.cuts.at(version) as cut:
        return answer(call, cut, *args)


def _record(call: Call, cut: Cut) -> Answer:
    now = cut.version
    table = table_of(cut.tables, call.part("table"), now)
    key = key_of_path(table, texts_of(call.raw["key"]))
    found = cut.get(table.name, key)
    if found is None:
        raise Refusal(404, "no_record", f"table '{table.name}' has no record {_shown(key)}", version=now)
    finite(found, floats_of(table))
    return Answer(b'{"version":%d,"record":%b}' % (now, dumps(found)), now)


async def get(call: Call) -> Answer:
    wanted = await call.json()
    given = wanted.get("get") if isinstance(wanted, dict) and len(wanted) == 1 else None
    if not isinstance(given, dict) or not all(isinstance(keys, list) for keys in given.values()):
        raise Refusal(400, "bad_request", 'the body is to be {"get": {TABLE: [KEY, …], …}}')
    count = sum(len(keys) for keys in given.values())
    if count > KEYS_MAX:
        raise Refusal(413, "too_large", f"{count} keys are more than {KEYS_MAX}; ask several times, with at_least=")
    version = await call.moment() if call.scope["query_string"] else None
    if version is not None:
        return await call.site.in_thread(_at, call, version, _get, given)
    with call.site.reader.cut() as cut:
        if count <= AT_ONCE:
            return _get(call, cut, given)
        return await call.site.in_thread(_get, call, cut, given)


def _get(call: Call, cut: Cut, given: dict[str, list[Any]]) -> Answer:
    found: dict[str, list[dict[str, Any] | None]] = {}
    now = cut.version
    for name, keys in given.items():
        table = table_of(cut.tables, name, now)
        found[name] = cut.get_many(name, keys_of_json(table, keys))
        floats = floats_of(table)
        for one in found[name] if floats else ():
            if one is not None:
                finite(one, floats)
    return Answer(b'{"version":%d,"records":%b}' % (now, dumps(found)), now)


async def history(call: Call) -> Answer:
    await call.moment()
    return await call.site.in_thread(_history, call)


def _history(call: Call) -> Answer:
    reader = call.site.reader
    now = reader.version
    table = table_of(reader.tables, call.part("table"), now)
    rows = reader.history(table.name, key_of_path(table, texts_of(call.raw["key"])))
    left_out = max(rows.num_rows - HISTORY_MAX, 0)
    changes = [finite(row, floats_of(table)) for row in rows.slice(left_out).to_pylist()]
    # The log is read anew, so it may be ahead of the replica; a client is never shown an older version after this.
    now = max([now, *(change["version"] for change in changes)])
    more = {"left_out": left_out} if left_out else {}
    return Answer(dumps({"version": now, "history": changes, **more}), now)


async def tables(call: Call) -> Answer:
    version = await call.moment()
    now, known = await _tables(call, version)
    return Answer(dumps({"version": now, "tables": [told_of(table) for table in known.values()]}), now)


async def one_table(call: Call) -> Answer:
    version = await call.moment()
    now, known = await _tables(call, version)
    return Answer(dumps({"version": now, "table": told_of(table_of(known, call.part("table"), now))}), now)


async def _tables(call: Call, version: int | None) -> tuple[int, dict[str, TableDef]]:
    def read() -> tuple[int, dict[str, TableDef]]:
        with call.site.cuts.at(version) as cut:
            return cut.version, cut.tables

    return read() if version is None else await call.site.in_thread(read)


def told_of(table: TableDef) -> dict[str, Any]:
    columns = [
        {"name": column.name, "type": str(column.type), "key": column.key, "nullable": column.nullable}
        for column in table.columns
    ]
    return {"name": table.name, "key": [column.name for column in table.keys], "columns": columns}


def _shown(key: Any) -> str:
    text = ", ".join(str(part) for part in key) if isinstance(key, tuple) else str(key)
    return repr(text if len(text) <= 60 else f"{text[:57]}...")


_RECORD = {"type": "object", "additionalProperties": True}
_TABLE = {"type": "object", "properties": {"name": {}, "key": {}, "columns": {"type": "array"}}}
_GET = {
    "type": "object",
    "properties": {"get": {"type": "object", "additionalProperties": {"type": "array"}}},
    "required": ["get"],
    "example": {"get": {"Account": ["a", "b"]}},
}

ROUTES = (
    Route(
        "GET",
        "/v1/tables",
        tables,
        says="All tables and their columns.",
        params=ANY_VERSION,
        answer={"tables": {"type": "array", "items": _TABLE}},
    ),
    Route(
        "GET",
        "/v1/tables/{table}",
        one_table,
        says="A table's columns and its key.",
        params=ANY_VERSION,
        answer={"table": _TABLE},
    ),
    Route(
        "GET",
        "/v1/tables/{table}/records/{key}",
        record,
        params=ANY_VERSION,
        answer={"record": _RECORD},
        says="One record. Parts of a composite key are percent-encoded and joined by commas.",
    ),
    Route(
        "GET",
        "/v1/tables/{table}/records/{key}/history",
        history,
        params=NEWEST,
        says="Every retained change of one record, oldest first.",
        answer={"history": {"type": "array", "items": _RECORD}},
    ),
    Route(
        "POST",
        "/v1/get",
        get,
        says=f"Up to {KEYS_MAX} records by their keys, of several tables, at one version.",
        params=ANY_VERSION,
        body=_GET,
        answer={"records": {"type": "object", "additionalProperties": {"type": "array"}}},
    ),
)


def add(site: Site, options: Options) -> None:
    site.add(ROUTES)
