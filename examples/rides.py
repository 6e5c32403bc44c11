"""A ride is offered to a free driver of its cell; who does not begin in a minute loses it to the next, by a timer.

python examples/rides.py
"""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import StrEnum

import penstock as ps

rides = ps.App("rides")
Status = StrEnum("Status", ["OFF", "FREE", "BUSY"])


@rides.table
class Driver:
    id: str = ps.key()
    cell: str = ps.index(default="")  # for Driver.where(cell=…)
    status: Status = Status.OFF


@rides.table
class Ride:
    id: str = ps.key()
    cell: str
    driver: str | None  # nobody yet
    began: datetime | None
    fare: Decimal | None = ps.decimal(8, 2)


@rides.event
class Position:
    ts: datetime = ps.order()
    driver: str
    cell: str
    ride: str | None  # the first one with a ride begins it


@rides.event
class Request:
    ts: datetime = ps.order()
    id: str = ps.id()
    cell: str


@rides.event
class End:
    ts: datetime = ps.order()
    ride: str
    km: Decimal | None = ps.decimal(8, 1)  # without it the ride is cancelled


@rides.event
class Lapse:  # without ps.order(): a timer
    ride: str
    driver: str


@ps.function
def price(km: Decimal, at: datetime) -> Decimal:
    surge = Decimal("1.5") if 7 <= at.hour < 9 or 16 <= at.hour < 19 else Decimal("1.0")
    return round((Decimal("2.50") + Decimal("1.20") * km) * surge, 2)


@ps.function
def offer(ride: str) -> str | None:
    Ride[ride].driver = None
    for d in Driver.where(cell=Ride[ride].cell):
        if d.status is Status.FREE:
            d.status = Status.BUSY
            Ride[ride].driver = d.id
            ps.emit(Lapse(ride=ride, driver=d.id), at=ps.now() + timedelta(minutes=1))
            break
    return Ride[ride].driver


@rides.transaction
def position(e: Position) -> None:
    d = Driver.get(e.driver)
    d.cell = e.cell
    if d.status is Status.OFF:
        d.status = Status.FREE
    if e.ride is not None and Ride[e.ride].driver == e.driver and Ride[e.ride].began is None:
        Ride[e.ride].began = e.ts


@rides.transaction
def request(e: Request) -> dict[str, str | None]:
    Ride.insert(e.id, cell=e.cell)
    return {"driver": offer(e.id)}


@rides.transaction
def end(e: End) -> None:
    ride = Ride[e.ride]
    ps.require((e.km is None) == (ride.began is None) and ride.fare is None, "not now")
    if ride.driver is not None:
        Driver[ride.driver].status = Status.FREE
    if e.km is None or ride.began is None:
        del Ride[e.ride]
    else:
        ride.fare = price(e.km, ride.began)


@rides.transaction
def lapse(e: Lapse) -> dict[str, str | None]:  # nobody takes a timer back, so it looks
    ps.require(e.ride in Ride and Ride[e.ride].began is None, "not needed")
    Driver[e.driver].status = Status.OFF  # until the next position
    return {"driver": offer(e.ride)}


def main() -> None:
    at = datetime(2026, 3, 2, 8, tzinfo=UTC).replace
    events = [
        Request(ts=at(second=5), id="r1", cell="a1"),  # ann does not come in a minute
        Request(ts=at(second=6), id="r2", cell="b7"),  # nobody is there
        Position(ts=at(minute=1, second=30), driver="bob", cell="a1", ride="r1"),
        End(ts=at(minute=15), ride="r1", km=Decimal("10.0")),
        End(ts=at(minute=16), ride="r2", km=None),
    ]
    with rides.open() as db:
        db.load(Driver, [{"id": name, "cell": "a1", "status": Status.FREE} for name in ("ann", "bob")])
        for o in db.run(events).to_pylist():
            print(f"{o['ts']:%H:%M:%S} {o['transaction']} {o['reason'] or o['status']} {o['driver']}")
        print(db.sql("select id, driver, fare from ride").to_pylist(), db.table(Driver).to_pylist())


if __name__ == "__main__":
    main()
