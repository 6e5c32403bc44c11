"""`GET /v1/tables/T/records?where=…&limit=…&page=…`: records by their key, a page at a time.

A page is what follows a key, not a number of rows: so it is right at whatever version it is read, and a token of the
page before only has to say where that ended and which version it was of. Each page is of that version, as long as it is
retained. The token has a checksum over what was asked: it goes on with this question, and with no other.
"""

from __future__ import annotations

import base64
import binascii
import functools
import json
import zlib
from dataclasses import dataclass
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from penstock.declare.model import TableDef
from penstock.serve.http.answers import Answer, Refusal
from penstock.serve.http.call import ANY_VERSION, Call
from penstock.serve.http.options import Options
from penstock.serve.http.records import table_of
from penstock.serve.http.routes import Param, Route
from penstock.serve.http.site import Site
from penstock.serve.http.values import dumps, finite, floats_of, key_of_json
from penstock.serve.http.where import condition

LIMIT, LIMIT_MAX = 100, 10_000
PARAMS = (
    Param("where", "string", "Which records: amount >= 10 and branch in ('Rome', 'Oslo')."),
    Param("limit", "integer", f"How many, at most; {LIMIT} unless told, and {LIMIT_MAX} at most."),
    Param("page", "string", "`next` of the answer before."),
    *ANY_VERSION,
)


@dataclass(frozen=True, slots=True)
class _Page:
    version: int
    after: Any  # the key as JSON has it

    def token(self, asked: str) -> str:
        text = dumps([self.version, self.after])
        return base64.urlsafe_b64encode(b"%08x" % _crc(text, asked) + text).rstrip(b"=").decode()

    @classmethod
    def of_token(cls, token: str, asked: str) -> _Page:
        try:
            found = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
            text = found[8:]
            if int(found[:8], 16) == _crc(text, asked):
                version, after = orjson.loads(text)
                return cls(version, after)
        except (ValueError, TypeError, binascii.Error):
            pass
        raise Refusal(400, "bad_request", "page= is no `next` of an answer to this question; begin without it")


def _crc(text: bytes, asked: str) -> int:
    return zlib.crc32(text, zlib.crc32(asked.encode()))


async def records(call: Call) -> Answer:
    query = call.query
    limit = query.get("limit", LIMIT)
    if not 1 <= limit <= LIMIT_MAX:
        raise Refusal(400, "bad_request", f"limit={limit} is not 1 to {LIMIT_MAX}")
    asked = json.dumps([call.part("table"), query.get("where")])
    page = _Page.of_token(query["page"], asked) if "page" in query else None
    version = await call.moment()
    if page is not None:
        if version not in (None, page.version):
            raise Refusal(400, "bad_request", f"version={version} is not that of page=, {page.version}; leave it out")
        version = page.version
    return await call.site.in_thread(_read, call, version, limit, asked, page)


def _read(call: Call, version: int | None, limit: int, asked: str, page: _Page | None) -> Answer:
    where = call.query.get("where")
    with call.site.cuts.at(version, keep=True) as cut:
        now = cut.version
        table = table_of(cut.tables, call.part("table"), now)
        only = condition(table, where) if where is not None else None
        rows = cut.table(table.name)
        if page is not None:
            follows = _follows(table, key_of_json(table, page.after))
            only = follows if only is None else only & follows
        rows = rows if only is None else rows.filter(only)
        # One more than wanted tells whether there is a next page.
        rows = _first(table, rows, limit + 1)
        found = [finite(row, floats_of(table)) for row in rows.slice(0, limit).to_pylist()]
    answer: dict[str, Any] = {"version": now, "records": found, "next": None}
    if rows.num_rows > limit:
        key = [found[-1][column.name] for column in table.keys]
        answer["next"] = _Page(now, key).token(asked)
    return Answer(dumps(answer), now)


def _first(table: TableDef, rows: pa.Table, count: int) -> pa.Table:
    keys = [(column.name, "ascending") for column in table.keys]
    if rows.num_rows > count:
        return rows.take(pc.select_k_unstable(rows.select([name for name, _ in keys]), count, keys))
    return rows.sort_by(keys)


def _follows(table: TableDef, key: Any) -> pc.Expression:
    """Keys after this one, part by part."""
    values = key if isinstance(key, tuple) else (key,)
    parts = [
        (pc.field(column.name), pa.scalar(value, column.type.arrow()))
        for column, value in zip(table.keys, values, strict=True)
    ]
    either = []
    for place, (field, value) in enumerate(parts):
        same = [earlier == held for earlier, held in parts[:place]]
        either.append(functools.reduce(lambda a, b: a & b, same, _above(field, value)))
    return functools.reduce(lambda a, b: a | b, either)


def _above(field: pc.Expression, value: pa.Scalar) -> pc.Expression:
    if pa.types.is_boolean(value.type):  # Arrow does not compare them.
        return field & pc.scalar(not value.as_py())
    return field > value


_ANSWER = {
    "records": {"type": "array", "items": {"type": "object"}},
    "next": {"type": "string", "nullable": True, "description": "Give it as page= for those that follow."},
}
ROUTE = Route(
    "GET",
    "/v1/tables/{table}/records",
    records,
    params=PARAMS,
    answer=_ANSWER,
    says="Records by their key, a page at a time; where= says which.",
)


def add(site: Site, options: Options) -> None:
    site.add([ROUTE])
