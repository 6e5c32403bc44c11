"""Toll Processing with knobs: position reports keep a segment's speed and cars, and charge tolls (MorphStream 6.1).

    Report  Road     takes the speed into the segment's mean
            Traffic  counts the car, and whether it or a road nearby is slow        length records

The two tables are those of TStream 6.1.1: no write reads another record but for `accesses`, which beyond 1 makes the
count read the mean speeds of accesses - 1 roads nearby. `length` 2 is the papers': one segment a report; more is a
trip over several. Where a vehicle enters a segment (`entering`, a share of the reports) a toll is due: twice the square
of the cars above 50, if traffic is slower than 40.

A report aborts when its speed would bring the segment's mean below zero.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

import penstock as ps
from penstock.workloads.common import int_keys, lists
from penstock.workloads.cost import spin
from penstock.workloads.tuned.knobs import TOO_MUCH, Knobs

FREE_CARS = 50  # tolls begin above this many cars
FULL_CARS = 500  # and grow up to this many, since cars are never counted out
SLOW = 40.0


@dataclass(frozen=True, kw_only=True)
class TollProcessing(Knobs):
    name: ClassVar[str] = "tp"
    title: ClassVar[str] = "Toll Processing"

    keys: int = 1_000  # segments
    batch: int = 40_960
    length: int = 2
    accesses: int = 1
    entering: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        self.need("length", self.length >= 2 and self.length % 2 == 0, "an even number")
        self.need("accesses", self.accesses >= 1, "at least 1")
        self.need("entering", 0 <= self.entering <= 1, "from 0 to 1")

    @property
    def plain(self) -> bool:
        """As in the papers, without lists."""
        return self.length == 2 and self.accesses == 1

    def app(self) -> ps.App:
        return plain_app() if self.plain else list_app()

    def tables(self) -> dict[str, pa.Table]:
        segments = int_keys(np.arange(self.keys, dtype=np.int64))
        zeros = np.zeros(self.keys, np.int64)
        return {
            "Road": pa.table({"segment": segments, "speed": np.zeros(self.keys), "reports": zeros}),
            "Traffic": pa.table({"segment": segments, "cars": zeros, "slow": zeros}),
        }

    def make(self, rng: np.random.Generator, first: int, place: int = 0) -> dict[str, pa.Table]:
        """The segments begin at `place`."""
        nearby = self.accesses - 1
        places = place + self.draw(rng, self.batch, nearby + self.length // 2)
        keys, segments = int_keys(places), places[:, nearby:]
        # Every segment has its usual speed, from 20 to 70, so that some roads are slow and some are not.
        speeds = 20.0 + (segments * 37) % 50 + rng.integers(-10, 11, segments.shape)
        # It is the last segment that aborts, so that the others are undone.
        speeds[rng.random(self.batch) < self.abort_ratio, -1] = -float(TOO_MUCH)
        columns = {
            "ts": np.arange(first, first + self.batch, dtype=np.int64),
            "rounds": self.rounds(rng, self.batch),
            "entered": (rng.random(self.batch) < self.entering).astype(np.int64),
        }
        if self.plain:
            columns |= {"segment": keys[:, 0], "speed": speeds[:, 0]}
        else:
            columns |= {name: lists(v) for name, v in (("segments", keys[:, nearby:]), ("speeds", speeds))}
            columns["nearby"] = lists(keys[:, :nearby])
        return {"Report": pa.table(columns)}


def plain_app() -> ps.App:
    tolls = ps.App("tuned_toll_processing")

    @tolls.table
    class Road:
        segment: int = ps.key()
        speed: float = 0.0
        reports: int = 0

        @ps.check("bad speed")
        def forwards(self):
            return self.speed >= 0.0

    @tolls.table
    class Traffic:
        segment: int = ps.key()
        cars: int = 0
        slow: int = 0

    @tolls.event
    class Report:
        ts: int = ps.order()
        rounds: int
        entered: int
        segment: int
        speed: float

    @tolls.transaction
    def report(e: Report):
        road, traffic = Road[e.segment], Traffic[e.segment]
        road.reports += 1 + spin(road.reports, e.rounds)
        road.speed += (e.speed - road.speed) / road.reports
        traffic.cars += e.entered + spin(traffic.cars, e.rounds)
        if e.speed < SLOW:
            traffic.slow += 1
        toll = 0
        if e.entered == 1 and road.speed < SLOW and traffic.cars > FREE_CARS:
            above = min(traffic.cars, FULL_CARS) - FREE_CARS
            toll = 2 * above * above
        return {"toll": toll, "speed": road.speed}

    return tolls


def list_app() -> ps.App:
    tolls = ps.App("tuned_toll_processing_lists")

    @tolls.table
    class Road:
        segment: int = ps.key()
        speed: float = 0.0
        reports: int = 0

        @ps.check("bad speed")
        def forwards(self):
            return self.speed >= 0.0

    @tolls.table
    class Traffic:
        segment: int = ps.key()
        cars: int = 0
        slow: int = 0

    @tolls.event
    class Report:
        ts: int = ps.order()
        rounds: int
        entered: int
        segments: list[int]
        speeds: list[float]
        nearby: list[int]

    @tolls.transaction
    def report(e: Report):
        toll = 0
        for segment, speed in zip(e.segments, e.speeds):
            road, traffic = Road[segment], Traffic[segment]
            road.reports += 1 + spin(road.reports, e.rounds)
            road.speed += (speed - road.speed) / road.reports
            slowest = speed
            for key in e.nearby:
                slowest = min(slowest, Road[key].speed)
            traffic.cars += e.entered + spin(traffic.cars, e.rounds)
            if slowest < SLOW:
                traffic.slow += 1
            if e.entered == 1 and road.speed < SLOW and traffic.cars > FREE_CARS:
                above = min(traffic.cars, FULL_CARS) - FREE_CARS
                toll += 2 * above * above
        return {"toll": toll}

    return tolls
