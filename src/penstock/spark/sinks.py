"""Where outcomes and outputs go, by what a user gives: a directory, `ps.kafka_sink(…)`, or a function for outcomes."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from penstock.commit import Disk
from penstock.declare.model import Program
from penstock.declare.objects import EventType
from penstock.errors import InputError
from penstock.publish.files import OutcomeFiles
from penstock.spark.databases import DatabaseSpec
from penstock.spark.outcome_sink import OutcomeSink, SinkInput

Outcomes = str | os.PathLike[str] | SinkInput | Callable[[DataFrame, int], Any]


def of_outcomes(outcomes: Outcomes, spec: DatabaseSpec) -> OutcomeSink | Callable[[Any, int], Any]:
    if callable(outcomes):
        return outcomes
    return _sink(outcomes, "outcomes", spec)


def of_outputs(
    program: Program, outputs: dict[Any, Any], outcomes: Outcomes, spec: DatabaseSpec
) -> tuple[tuple[str, OutcomeSink], ...]:
    """Each event that goes out, and where to."""
    known = [event.name for event in program.outputs()]
    taken = {} if callable(outcomes) else {_place(outcomes): "outcomes"}
    out = list[tuple[str, OutcomeSink]]()
    for event, path in outputs.items():
        name = event.definition.name if isinstance(event, EventType) else event
        if name not in known:
            raise InputError(
                f"app '{program.name}' has no output {name!r}: an output is an event that is emitted, and that no "
                f"transaction takes; its outputs are {', '.join(known) or 'none'}"
            )
        if not isinstance(path, str | os.PathLike | SinkInput):
            raise InputError(f"output '{name}': {path!r} is not a directory, or ps.kafka_sink(…)")
        twin = taken.setdefault(_place(path), f"output '{name}'")
        if twin != f"output '{name}'":
            what = f"topic, '{path.place[1]}'" if isinstance(path, SinkInput) else f"directory, {path}"
            raise InputError(f"output '{name}' and {twin} have one {what}; give each its own")
        out.append((name, _sink(path, f"output-{name}", spec)))
    return tuple(out)


def warn_of_lost(program: Program, outputs: dict[Any, Any]) -> None:
    """Somebody wrote these emits for somebody to read them. It is no error: they may be read by `db.emitted`."""
    given = {event.definition.name if isinstance(event, EventType) else event for event in outputs}
    for event in program.outputs():
        if event.name not in given:
            logging.getLogger("penstock").warning(
                "app '%s' emits '%s', no transaction takes it, and outputs= does not name it: it goes to no file; give "
                "outputs={%s: DIR} (penstock run: --output %s=DIR)",
                *(program.name, event.name, event.name, event.name),
            )


def _sink(given: str | os.PathLike[str] | SinkInput, what: str, spec: DatabaseSpec) -> OutcomeSink:
    if isinstance(given, SinkInput):
        return given.of(what, spec.path)
    return OutcomeFiles(str(Path(given).absolute()), spec.path, spec.options.get("disk") or Disk())


def _place(given: Any) -> object:
    """Equal where two would write to the same."""
    return given.place if isinstance(given, SinkInput) else Path(given).absolute()
