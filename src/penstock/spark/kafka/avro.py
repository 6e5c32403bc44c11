"""Avro records: of one schema that the user gives, or each of the schema in a registry that it names.

schema=…      the record alone
registry=…    0, four bytes of a schema's number, the record: as Confluent's serializers write it
"""

from __future__ import annotations

import io
import json
import urllib.error
import urllib.request
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa

from penstock.declare.model import EventDef
from penstock.errors import InputError
from penstock.execute.casting import values, without_columns

_FRAME, _ASK_S = 5, 20.0
_INSTALL = "ps.kafka(value=\"avro\") needs fastavro: pip install 'penstock[kafka]'"


def fastavro() -> Any:
    try:
        import fastavro as found
        import fastavro.schema
    except ImportError as error:
        raise InputError(_INSTALL) from error
    return found


def checked_schema(who: str, schema: Any) -> str:
    """A schema as text; InputError where it is none."""
    try:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        fastavro().parse_schema(json.loads(text))
    except (TypeError, ValueError, KeyError, fastavro().schema.SchemaParseException) as error:
        raise InputError(f"{who}: schema= is no Avro schema: {error}; give it as JSON, or as a dict") from error
    return text


class AvroParser:
    def __init__(self, schema: str | None, registry: str | None) -> None:
        self._fixed = None if schema is None else fastavro().parse_schema(json.loads(schema))
        self._registry = registry

    def prepare(self, given: Sequence[bytes | None]) -> None:
        """Fetch the schemas that messages name. A registry that is away is no fault of a message."""
        if self._registry is not None:
            for number in {int.from_bytes(one[1:_FRAME], "big") for one in given if one is not None and _framed(one)}:
                _registered(self._registry, number)

    def __call__(self, event: EventDef, given: list[bytes]) -> tuple[pa.Table, None]:
        records = [self._record(one) for one in given]
        if not event.fields:
            return without_columns(len(given)), None
        arrays = []
        for f in event.fields:
            data = [record.get(f.name, f.left_out) for record in records]
            arrays.append(values(data, f.type, where=lambda _, name=f.name: f"field '{name}'"))  # type: ignore[misc]
        return pa.Table.from_arrays(arrays, schema=event.arrow()), None

    def _record(self, value: bytes) -> dict[str, Any]:
        schema, start = self._fixed, 0
        if self._registry is not None:
            if not _framed(value):
                raise InputError("it does not begin with 0 and the number of a schema")
            number, start = int.from_bytes(value[1:_FRAME], "big"), _FRAME
            schema = _registered(self._registry, number)
            if schema is None:
                raise InputError(f"the registry at {self._registry} has no Avro schema {number}")
        stream = io.BytesIO(value)
        stream.seek(start)
        try:
            record = fastavro().schemaless_reader(stream, schema)
        except Exception as error:  # It raises what it comes upon: EOFError, IndexError, UnicodeDecodeError and others.
            raise InputError(f"it is no Avro record of its schema: {type(error).__name__} {error}") from error
        if stream.tell() != len(value) or not isinstance(record, dict):
            raise InputError("it is no Avro record of its schema: something is left behind it")
        return record


def _framed(value: bytes) -> bool:
    return len(value) >= _FRAME and value[0] == 0


@lru_cache(maxsize=1000)
def _registered(registry: str, number: int) -> Any:
    """A schema by its number, which is another one's never; None where there is none of Avro."""
    try:
        with urllib.request.urlopen(f"{registry.rstrip('/')}/schemas/ids/{number}", timeout=_ASK_S) as answer:
            text = json.load(answer)["schema"]
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        raise InputError(f"the schema registry at {registry} does not answer: {error}") from error
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"the schema registry at {registry} does not answer: {error}") from error
    try:
        return fastavro().parse_schema(json.loads(text))
    except Exception:  # A registry has schemas of Protobuf and JSON, too, and fastavro raises what it comes upon.
        return None
