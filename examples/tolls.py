"""Tolls without Spark, durably: cars report where they are, slow and crowded segments cost, and history is kept.

python examples/tolls.py
"""

import random
import tempfile

import penstock as ps

CROWDED = 5  # cars in a segment from which on a toll is due

roads = ps.App("roads")


@roads.table
class Segment:
    road: int = ps.key()
    mile: int = ps.key()
    speed: float = 0.0  # the mean of all reports
    reports: int = 0
    cars: int = 0


@roads.table
class Car:
    id: int = ps.key()
    road: int = -1
    mile: int = -1
    owed: int = 0


@roads.event
class Report:
    ts: int = ps.order()
    car: int
    road: int
    mile: int
    speed: float


@roads.transaction
def report(e: Report) -> dict[str, int]:
    ps.require(e.speed >= 0.0, "bad speed")
    here, car = Segment.get(e.road, e.mile), Car.get(e.car)
    here.reports += 1
    here.speed += (e.speed - here.speed) / here.reports
    toll = 0
    if car.road != e.road or car.mile != e.mile:
        if car.road >= 0:
            Segment[car.road, car.mile].cars -= 1
        here.cars += 1
        if here.speed < 40.0 and here.cars > CROWDED:
            toll = 2 * (here.cars - CROWDED)
        car.road = e.road
        car.mile = e.mile
        car.owed += toll
    return {"toll": toll}


def drive(minute: int) -> list[Report]:
    rng = random.Random(minute)
    speeds = (-1.0, 20.0, 30.0, 45.0, 60.0)
    return [
        Report(ts=60 * minute + i, car=i, road=1, mile=rng.randint(0, 3), speed=rng.choice(speeds)) for i in range(40)
    ]


def main(state: str) -> None:
    with roads.open(state) as db:
        for minute in range(5):
            db.run(drive(minute), id=minute)  # the same id again would change nothing
            batch = db.last_batch
            assert batch is not None  # one has run
            print(f"minute {minute}: {batch.committed} reports, {batch.aborted} refused")
    with roads.open(state) as db:  # as after a restart
        print("segments:", db.sql("select mile, cars, round(speed, 1) as speed from segment order by mile").to_pylist())
        debtor = db.sql("select id, owed from car order by owed desc, id limit 1").to_pylist()[0]
        print("owes most:", debtor)
        for change in db.history(Car, debtor["id"]).to_pylist():
            print(f"  version {change['version']}: mile {change['mile']}, owed {change['owed']}")
        print("cars seen by version 1:", db.sql("select count(*) as cars from car", version=1).to_pylist())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        main(directory)
