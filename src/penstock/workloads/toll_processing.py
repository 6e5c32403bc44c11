"""Toll Processing: position reports keep a road's speed and cars, and charge tolls (Linear Road; TStream 6.1.1).

    Report  (vehicle, highway, segment, speed)    touches Road, Traffic and Vehicle, one record each

A road segment's key is (highway, segment). Its average speed takes in every report; its cars are
counted when one enters it, which is when a toll is due: twice the square of the cars above 50, if
traffic is slower than 40. A vehicle is entered at its first report. As in the paper, statistics
are the latest ones and do not expire. A share of the reports (`abort_ratio`) has a speed below zero.
"""

import numpy as np
import pyarrow as pa

import penstock as ps
from penstock.workloads.common import Workload, draw, split, spoil

SIZE = 100  # road segments
THETA = 0.2
VEHICLES = 100_000
SEGMENTS = 20  # of one highway

FREE_CARS = 50  # tolls begin above this many cars
FULL_CARS = 500  # and grow up to this many, since cars are never counted out
SLOW = 40.0


def app(keys: str = "int") -> "ps.App":
    tolls = ps.App("toll_processing")

    @tolls.table
    class Road:
        highway: int = ps.key()
        segment: int = ps.key()
        speed: float = 0.0
        reports: int = 0

    @tolls.table
    class Traffic:
        highway: int = ps.key()
        segment: int = ps.key()
        cars: int = 0

    @tolls.table
    class Vehicle:
        id: int = ps.key()
        highway: int = -1
        segment: int = -1
        owed: int = 0

    @tolls.event
    class Report:
        ts: int = ps.order()
        vehicle: int
        highway: int
        segment: int
        speed: float

    @tolls.transaction
    def report(e: Report):
        ps.require(e.speed >= 0.0, "bad speed")
        road = Road[e.highway, e.segment]
        road.reports += 1
        road.speed += (e.speed - road.speed) / road.reports
        vehicle = Vehicle.get(e.vehicle)
        toll = 0
        if vehicle.highway != e.highway or vehicle.segment != e.segment:
            traffic = Traffic[e.highway, e.segment]
            traffic.cars += 1
            if road.speed < SLOW and traffic.cars > FREE_CARS:
                above = min(traffic.cars, FULL_CARS) - FREE_CARS
                toll = 2 * above * above
            vehicle.highway = e.highway
            vehicle.segment = e.segment
            vehicle.owed += toll
        return {"toll": toll, "speed": road.speed}

    return tolls


def tables(*, size: int = SIZE, keys: str = "int") -> dict[str, pa.Table]:
    places = np.arange(size, dtype=np.int64)
    road = {"highway": places // SEGMENTS, "segment": places % SEGMENTS}
    zeros = np.zeros(size, np.int64)
    return {
        "Road": pa.table(road | {"speed": np.zeros(size), "reports": zeros}),
        "Traffic": pa.table(road | {"cars": zeros}),
    }


def batch(
    events: int,
    *,
    seed: int = 0,
    first: int = 0,
    size: int = SIZE,
    theta: float = THETA,
    abort_ratio: float = 0.01,
    keys: str = "int",
) -> dict[str, pa.Table]:
    rng = np.random.default_rng((seed, first))
    ts = split(rng, events, first, {"Report": 1.0})["Report"]
    places = draw(rng, events, size, theta)
    # Every segment has its usual speed, from 20 to 70, so that some roads are slow and some are not.
    usual = 20 + (places * 37) % 50
    return {
        "Report": pa.table(
            {
                "ts": ts,
                "vehicle": rng.integers(0, VEHICLES, events),
                "highway": places // SEGMENTS,
                "segment": places % SEGMENTS,
                "speed": spoil(rng, usual + rng.integers(-10, 11, events), abort_ratio, -1).astype(np.float64),
            }
        )
    }


WORKLOAD = Workload("tp", "Toll Processing", app, tables, batch, SIZE, THETA)
