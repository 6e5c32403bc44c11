"""`/v1/status` for probes, `/metrics` for Prometheus: how far the replica is, and whether anybody writes.

Status needs no token, and tells nothing of what is in the tables.
"""

from __future__ import annotations

import datetime as dt
import math
import os
import time
from collections.abc import Iterator
from typing import Any

from penstock._version import __version__
from penstock.replica.lag import Lag
from penstock.serve.http.answers import Answer
from penstock.serve.http.call import Call
from penstock.serve.http.metrics import TEXT, Sample
from penstock.serve.http.options import Options
from penstock.serve.http.routes import NONE, READ, Route
from penstock.serve.http.site import Site
from penstock.serve.http.values import dumps
from penstock.serve.http.versions import behind_s


async def status(call: Call) -> Answer:
    site = call.site
    lag = await site.in_thread(site.reader.lag)
    now = lag.version
    told: dict[str, Any] = {
        "version": now,
        "app": site.reader.app,
        "newest": lag.newest,
        "behind_ms": _behind_ms(lag),
        "committed_at": None if lag.committed_at is None else dt.datetime.fromtimestamp(lag.committed_at, dt.UTC),
        "writer": {"pid": lag.writer, "host": lag.host, "is_there": lag.writer_is_there},
        "penstock": __version__,
    }
    if site.versions.broken is not None:
        told |= {"error": "state", "says": "the replica stands still; the server's log says why"}
        return Answer(dumps(told), now, 503)
    return Answer(dumps(told), now)


async def metrics(call: Call) -> Answer:
    return Answer(await call.site.in_thread(call.site.metrics.text), type=TEXT)


def _behind_ms(lag: Lag) -> float | None:
    behind = behind_s(lag)
    return round(behind * 1000, 3) if math.isfinite(behind) else None


def samples(site: Site) -> Iterator[Sample]:
    """What the replica and this process have to tell."""
    lag = site.reader.lag()
    yield Sample("penstock_version", "The version that is answered from.", lag.version)
    if lag.newest is not None:
        yield Sample("penstock_version_durable", "The newest version on the disk.", lag.newest)
    if math.isfinite(behind_s(lag)):
        yield Sample("penstock_behind_seconds", "How far the replica is behind what is durable.", behind_s(lag))
    if lag.committed_at is not None:
        says = "When the newest applied commit was made, in seconds since 1970."
        yield Sample("penstock_committed_timestamp_seconds", says, lag.committed_at)
    yield Sample(
        "penstock_writer_up", "Whether a writer has the directory; -1: cannot be told.", _UP[lag.writer_is_there]
    )
    yield Sample("penstock_replica_broken", "Whether the replica stands still.", int(site.versions.broken is not None))
    yield Sample("penstock_http_connections", "Connections that are open.", len(site.connections))
    yield Sample("penstock_http_waiting", "Requests that wait for a thread.", site.queued)
    used = os.times()
    yield Sample("penstock_process_cpu_seconds_total", "CPU time of this process.", used.user + used.system, "counter")
    yield Sample("penstock_process_resident_bytes", "Memory of this process.", _resident())
    yield Sample("penstock_uptime_seconds", "Since this server was started.", time.monotonic() - site.begun)


_UP = {True: 1, False: 0, None: -1}


def _resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


ROUTES = (
    Route(
        "GET", "/v1/status", status, NONE, says="How far the replica is, and whether anybody writes. Needs no token."
    ),
    Route("GET", "/metrics", metrics, READ, says="For Prometheus.", type="text/plain"),
)


def add(site: Site, options: Options) -> None:
    site.add(ROUTES)
    site.metrics.add(lambda: samples(site))
