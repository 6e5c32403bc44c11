"""What Prometheus is told: counts and times of each route, and what else has something to say.

    penstock_http_requests_total{route="/v1/get",status="200"} 17
    penstock_http_request_seconds_bucket{route="/v1/get",le="0.001"} 16

Others add theirs: `metrics.add(source)`, where a source gives Samples when it is asked.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
TEXT = b"text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Sample:
    name: str
    says: str
    value: float
    kind: Literal["counter", "gauge"] = "gauge"
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class _Times:
    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_S) + 1))
    total_s: float = 0.0


class Metrics:
    def __init__(self) -> None:
        self._requests: dict[tuple[str, int], int] = {}
        self._times: dict[str, _Times] = {}
        self._sources: list[Callable[[], Iterable[Sample]]] = []

    def add(self, source: Callable[[], Iterable[Sample]]) -> None:
        self._sources.append(source)

    def note(self, route: str, status: int, seconds: float) -> None:
        """A request that has been answered."""
        key = route, status
        self._requests[key] = self._requests.get(key, 0) + 1
        times = self._times.get(route)
        if times is None:
            times = self._times[route] = _Times()
        times.counts[bisect_left(BOUNDS_S, seconds)] += 1
        times.total_s += seconds

    def text(self) -> bytes:
        return "".join(f"{line}\n" for line in self._lines()).encode()

    def _lines(self) -> Iterator[str]:
        samples = [one for source in self._sources for one in source()]
        for (route, status), count in sorted(self._requests.items()):
            labels = (("route", route), ("status", str(status)))
            samples.append(Sample("penstock_http_requests_total", "Requests answered.", count, "counter", labels))
        by_name: dict[str, list[Sample]] = {}
        for sample in samples:
            by_name.setdefault(sample.name, []).append(sample)
        for name, several in by_name.items():
            yield f"# HELP {name} {several[0].says}"
            yield f"# TYPE {name} {several[0].kind}"
            for sample in several:
                yield f"{name}{_labels(sample.labels)} {_number(sample.value)}"
        yield from self._histogram()

    def _histogram(self) -> Iterator[str]:
        name = "penstock_http_request_seconds"
        if self._times:
            yield f"# HELP {name} How long requests took, until their answer was handed to the network."
            yield f"# TYPE {name} histogram"
        for route, times in sorted(self._times.items()):
            below = 0
            for bound, count in zip((*BOUNDS_S, None), times.counts, strict=True):
                below += count
                upto = "+Inf" if bound is None else f"{bound:g}"
                yield f"{name}_bucket{_labels((('route', route), ('le', upto)))} {below}"
            yield f"{name}_sum{_labels((('route', route),))} {times.total_s:.6f}"
            yield f"{name}_count{_labels((('route', route),))} {below}"


def _labels(labels: tuple[tuple[str, str], ...]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else f"{value:.6f}"
