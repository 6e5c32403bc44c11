"""SQL that only reads: one query, in DuckDB, over the tables that it is given.

DuckDB is a whole database: COPY writes files, ATTACH and read_csv open them, INSTALL fetches code. A query over a state
needs none of it, and one that was copied from somewhere must not be able to overwrite the log. So there are two walls,
and either would do:

    what is asked     one statement, of a kind that reads; the rest is refused before it runs
    where it runs     a connection in memory that reaches no file, no network, no extension and no Python variable,
                      and whose settings are locked

`read_rows` is for those whose queries come from elsewhere: it also limits memory, time and the rows that it gives.

allow_files takes both walls away. Names in a query are tables even then, never variables of whoever runs it.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.errors import InputError

if TYPE_CHECKING:
    import duckdb

_ALWAYS = {"python_enable_replacements": "false"}
_LOCKED = {
    **_ALWAYS,
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    # Else what does not fit into memory would go to files in the directory that the process happens to be in.
    "temp_directory": "",
}
# In this order, and once the connection is there: given when it is made, DuckDB would allow a file ':memory:'.
_THEN = ("set enable_external_access = false", "set lock_configuration = true")

# How a statement begins that reads, but that DuckDB does not call a SELECT because it takes several steps (PIVOT).
# A parenthesis has no first word.
_READING = frozenset(
    {"", "desc", "describe", "from", "pivot", "pivot_wider", "select", "show", "summarize", "table", "values", "with"}
)
# Microseconds whose nanoseconds an int64 holds.
_LONGEST_US = (2**63 - 1) // 1000
_WHOLE = "for DuckDB whole, files and all, ask with allow_files=True (penstock query --allow-files)"


@dataclass(frozen=True, slots=True)
class Limits:
    memory: int  # bytes
    threads: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Rows:
    names: list[str]  # each once: of two columns with one name, the second gets a number behind it
    types: list[str]  # DuckDB's
    batches: list[pa.RecordBatch]
    more: bool  # whether there were more
    schema: pa.Schema  # of the batches, by these names


def read(tables: Mapping[str, pa.Table], query: str, *, allow_files: bool = False) -> pa.Table:
    """What the query finds in the tables, by their names; an InputError that says why, if it finds nothing."""
    import duckdb  # a process that only runs batches needs none

    _check_text(query)
    whole = "" if allow_files else _WHOLE
    config: dict[str, Any] = dict(_ALWAYS if allow_files else _LOCKED)
    with _in_words(tables, whole), duckdb.connect(config=config) as connection:
        statements = connection.extract_statements(query)
        _check_some(statements)
        if not allow_files:
            _lock(connection, statements, whole)
        for name, table in tables.items():
            connection.register(name, table)
        found = connection.sql(query if allow_files else statements[0])
        _check_intervals(found)
        return found.to_arrow_table()


def read_rows(tables: Mapping[str, pa.Table], query: str, count: int, limits: Limits) -> Rows:
    """The same within limits, and at most so many rows."""
    import duckdb

    _check_text(query)
    config: dict[str, Any] = {**_LOCKED, "memory_limit": f"{limits.memory >> 20}MiB", "threads": str(limits.threads)}
    with _in_words(tables, ""), duckdb.connect(config=config) as connection:
        timer = threading.Timer(limits.seconds, connection.interrupt)
        timer.start()
        try:
            statements = connection.extract_statements(query)
            _check_some(statements)
            _lock(connection, statements, "")
            for name, table in tables.items():
                connection.register(name, table)
            found = connection.sql(statements[0])
            if found is None:
                raise InputError("the query gives no rows; ask for some")
            _check_intervals(found)
            names, types = _each_once(found.columns), [str(kind) for kind in found.types]
            batches, left = list[pa.RecordBatch](), count
            reader = found.to_arrow_reader(min(count + 1, 2048))
            for batch in reader:
                batches.append(batch.slice(0, left))
                left -= batch.num_rows
                if left < 0:
                    break
            fields = [field.with_name(name) for field, name in zip(reader.schema, names, strict=True)]
            return Rows(names, types, batches, left < 0, pa.schema(fields))
        except duckdb.InterruptException as error:
            raise InputError(f"the query took more than {limits.seconds:g} s; ask for less") from error
        finally:
            timer.cancel()


@contextmanager
def _in_words(tables: Mapping[str, pa.Table], whole: str) -> Iterator[None]:
    """What DuckDB raises, as an InputError. whole: how to ask without walls, if one may."""
    import duckdb

    try:
        yield
    except duckdb.OutOfMemoryException as error:
        disk = whole and f", or let it use the disk: {whole}"
        raise InputError(f"the query needs more memory than there is; ask for less of it{disk}") from error
    except duckdb.PermissionException as error:
        or_whole = whole and f"; {whole}"
        raise InputError(f"a query reads tables, and nothing else: {_first_line(error)}{or_whole}") from error
    except duckdb.CatalogException as error:
        known = f"; the tables are {', '.join(tables)}" if "Table" in _first_line(error) else ""
        raise InputError(f"the query failed: {_first_line(error)}{known}") from error
    except duckdb.Error as error:
        raise InputError(f"the query failed: {_first_line(error)}") from error


def _check_some(statements: list[duckdb.Statement]) -> None:
    if not statements:
        raise InputError("the query is empty; write one, for example: select count(*) from account")


def _lock(connection: duckdb.DuckDBPyConnection, statements: list[duckdb.Statement], whole: str) -> None:
    for step in _THEN:
        connection.execute(step)
    if len(statements) > 1:
        or_whole = whole and f", or, {whole}"
        raise InputError(f"the query holds {len(statements)} statements; give one at a time{or_whole}")
    kind = _kind(connection, statements[0])
    if kind != "SELECT":
        or_whole = whole and f"; {whole}"
        raise InputError(f"the query is of kind {kind}; only what reads is run, such as SELECT or EXPLAIN{or_whole}")


def _each_once(names: list[str]) -> list[str]:
    found: list[str] = []
    for name in names:
        unlike, number = name, 1
        while unlike in found:
            unlike, number = f"{name}_{number}", number + 1
        found.append(unlike)
    return found


def _check_intervals(found: Any) -> None:
    """DuckDB gives an interval to Arrow in nanoseconds, and where these are too many, other ones: it says nothing."""
    if found is None:  # a statement that gives no rows
        return
    for place, (name, kind) in enumerate(zip(found.columns, found.types, strict=True), 1):
        microseconds = _microseconds(f"#{place}", kind) if "INTERVAL" in str(kind) else None
        if microseconds is not None:
            ((longest,),) = found.aggregate(f"max({microseconds})").fetchall()
            if longest is not None and longest > _LONGEST_US:
                raise InputError(
                    f"the query gives in '{name}' a timedelta of more than 292 years, which SQL cannot give back; "
                    f"ask for epoch_us({name if kind == 'INTERVAL' else '…'}), its microseconds"
                )


def _microseconds(of: str, kind: Any, depth: int = 0) -> str | None:
    """SQL for the most microseconds that an interval in a value of this type has, either way; None: it holds none."""
    if kind.id == "interval":
        return f"abs(epoch_us({of}))"
    if kind.id in ("list", "array"):
        item = f"item{depth}"
        inner = _microseconds(item, kind.children[0][1], depth + 1)
        return inner and f"list_max(list_transform({of}, lambda {item}: {inner}))"
    parts: list[str | None] = []
    if kind.id == "map":
        for all_of, (_, child) in zip(("map_keys", "map_values"), kind.children, strict=True):
            item = f"item{depth}"
            inner = _microseconds(item, child, depth + 1)
            parts.append(inner and f"list_max(list_transform({all_of}({of}), lambda {item}: {inner}))")
    elif kind.id in ("struct", "tuple"):
        for place, (name, child) in enumerate(kind.children, 1):
            parts.append(_microseconds(f"struct_extract({of}, {_text(name) if name else place})", child, depth))
    elif kind.id == "union":
        for name, child in kind.children[1:]:  # the first is which of them it is
            parts.append(_microseconds(f"union_extract({of}, {_text(name)})", child, depth))
    known = [part for part in parts if part is not None]
    return f"list_max([{', '.join(known)}])" if known else None


def _text(name: str) -> str:
    return "'" + name.replace("'", "''") + "'"


def _check_text(query: object) -> None:
    if not isinstance(query, str):
        raise InputError(f"a query is text, not {type(query).__name__}; write SQL as a str")
    try:
        query.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"the query has a character that is no text, {query[error.start]!r}; write it in UTF-8"
        ) from error


def _kind(connection: duckdb.DuckDBPyConnection, statement: duckdb.Statement) -> str:
    """The kind of a statement; of what is explained, for EXPLAIN, and of what its steps lead to, for several steps."""
    import duckdb

    try:
        kind = str(statement.type.name)
    except ValueError:  # one that DuckDB's Python has no name for, as UPDATE EXTENSIONS
        return _first_word(statement)
    if kind not in ("EXPLAIN", "MULTI"):
        return kind
    first = _first_word(statement)
    if first != "EXPLAIN":
        return "SELECT" if first.lower() in _READING else first
    # Its options are a language of their own; what it explains is the first rest that is a statement.
    text = statement.query.encode()
    for start, _ in duckdb.tokenize(statement.query)[1:]:
        try:
            found = connection.extract_statements(text[start:].decode())
        except duckdb.Error:
            continue
        return _kind(connection, found[0])
    return kind


def _first_word(statement: duckdb.Statement) -> str:
    return re.split(r"\W", statement.query, maxsplit=1)[0].upper()


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
