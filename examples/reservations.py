"""Rooms by the night: held for 15 minutes, paid within them or free again; no double booking, no request twice.

python examples/reservations.py
"""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import StrEnum

import penstock as ps

hotel = ps.App("hotel")
Stage = StrEnum("Stage", ["HELD", "PAID", "EXPIRED", "REFUNDED"])


@hotel.table
class Room:
    id: str = ps.key()
    price: Decimal = ps.decimal(8, 2)


@hotel.table
class Night:  # one that is there is taken
    room: str = ps.key()
    day: date = ps.key()
    booking: str


@hotel.table
class Booking:
    id: str = ps.key()
    room: str
    first: date
    last: date
    price: Decimal = ps.decimal(10, 2)
    stage: Stage = Stage.HELD


@hotel.event
class Request:
    ts: datetime = ps.order()
    id: str = ps.id(unique="1 day")  # a client that sends it again gets `duplicate`
    room: str
    first: date
    nights: int


@hotel.event
class Pay:
    ts: datetime = ps.order()
    id: str = ps.id(unique="1 day")
    booking: str
    amount: Decimal = ps.decimal(10, 2)


@hotel.event
class Refund:
    ts: datetime = ps.order()
    id: str = ps.id(unique="1 day")
    booking: str


@hotel.event
class Expire:  # without ps.order(): a timer
    booking: str


@ps.function
def release(booking: str, stage: Stage) -> None:
    b = Booking[booking]
    b.stage = stage
    for night in Night.between(b.room, b.first, b.last):
        del Night[night.room, night.day]


@hotel.transaction
def request(e: Request) -> dict[str, Decimal]:
    ps.require(1 <= e.nights <= 30 and e.first >= e.ts.date(), "no such nights")
    for n in range(e.nights):
        Night.insert(e.room, e.first + timedelta(days=n), booking=e.id)  # `exists Night`: none of them is taken
    price = e.nights * Room[e.room].price
    Booking.insert(e.id, room=e.room, first=e.first, last=e.first + timedelta(days=e.nights - 1), price=price)
    ps.emit(Expire(booking=e.id), at=e.ts + timedelta(minutes=15))
    return {"money": price}


@hotel.transaction
def pay(e: Pay) -> dict[str, Decimal]:
    b = Booking[e.booking]
    ps.require(b.stage is Stage.HELD and e.amount == b.price, "not due")
    b.stage = Stage.PAID
    return {"money": e.amount}


@hotel.transaction
def refund(e: Refund) -> dict[str, Decimal]:
    b = Booking[e.booking]
    ps.require(b.stage is Stage.PAID and e.ts.date() < b.first, "not refunded")
    release(e.booking, Stage.REFUNDED)
    share = Decimal("1.0") if b.first - e.ts.date() >= timedelta(days=7) else Decimal("0.5")
    return {"money": b.price * share}


@hotel.transaction
def expire(e: Expire) -> None:  # nobody takes a timer back, so it looks
    if Booking[e.booking].stage is Stage.HELD:
        release(e.booking, Stage.EXPIRED)


def main() -> None:
    at = datetime(2026, 5, 1, 9, tzinfo=UTC).replace
    june = date(2026, 6, 1)
    events = [
        Request(ts=at(minute=0), id="ann", room="12", first=june, nights=3),
        Request(ts=at(minute=1), id="ann", room="12", first=june, nights=3),  # sent again
        Request(ts=at(minute=2), id="bob", room="12", first=june, nights=1),
        Pay(ts=at(minute=15), id="p1", booking="ann", amount=Decimal(240)),  # a moment too late
        Request(ts=at(minute=16), id="eve", room="12", first=june, nights=2),
        Pay(ts=at(minute=20), id="p2", booking="eve", amount=Decimal(160)),
        Refund(ts=at(minute=30), id="r1", booking="eve"),
    ]
    with hotel.open() as db:
        db.load(Room, [{"id": "12", "price": 80}])
        for o in db.run(events).to_pylist():
            print(f"{o['ts']:%H:%M} {o['transaction']} {o['id']} {o['reason'] or o['status']} {o['money']}")
        print(db.sql("select id, stage, price from booking order by id").to_pylist())


if __name__ == "__main__":
    main()
