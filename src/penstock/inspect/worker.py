"""Answers about one app's batches, in a process of its own: a line of JSON in, a line of JSON out.

    {"again": [version, place]}     one event's round, run again            {"graph": version}     a batch's graph
    {"app": true}                   the plan of each transaction, and the source that is compiled

The app's module is the user's code, and to run it takes processor time: neither is for the process that answers
requests. It ends when nobody can ask any more.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.errors import InputError, PenstockError
from penstock.inspect.graph import graph
from penstock.inspect.trace import again
from penstock.plan.ir import Plan


def answer(plan: Plan, state: Path, asked: dict[str, Any]) -> dict[str, Any]:
    if "again" in asked:
        version, place = asked["again"]
        return again(plan, state, version, place)
    if "graph" in asked:
        return graph(plan, state, asked["graph"])
    return about(plan)


def about(plan: Plan) -> dict[str, Any]:
    from penstock.execute.native import Kernel

    return {"explain": plan.explain(), "source": Kernel(plan).source}


def work(state: Path, load: Callable[[], Plan], dumps: Callable[[Any], bytes]) -> None:
    """load: gives the app's plan; dumps: writes plain values as JSON."""
    out = sys.stdout.buffer
    sys.stdout = sys.stderr  # what the app's module prints is no answer

    def say(told: dict[str, Any]) -> None:
        out.write(dumps(told) + b"\n")
        out.flush()

    try:
        plan = load()
    except Exception as error:
        say({"error": "app", "says": f"{type(error).__name__}: {error}"})
        return
    say({"app": plan.program.name})
    for line in sys.stdin.buffer:
        try:
            told = answer(plan, state, json.loads(line))
        except InputError as error:
            told = {"error": "not_kept", "says": str(error)}
        except PenstockError as error:
            told = {"error": "state", "says": str(error)}
        except Exception as error:
            told = {"error": "app", "says": f"running it again failed: {type(error).__name__}: {error}"}
        say(told)
