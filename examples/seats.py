"""A seat is held for 15 minutes: who has not paid by then loses it, by a timer that the booking sets.

python examples/seats.py
"""

import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import penstock as ps

hall = ps.App("hall")
HOLD = timedelta(minutes=15)


@hall.table
class Seat:
    id: str = ps.key()
    booking: str = ""
    paid: bool = False


@hall.event
class Book:
    ts: datetime = ps.order()
    id: str = ps.id()
    seat: str


@hall.event
class Pay:
    ts: datetime = ps.order()
    id: str = ps.id()
    seat: str
    booking: str


@hall.event
class Expire:  # without ps.order(): it is emitted, here for later
    seat: str
    booking: str


@hall.transaction
def book(e: Book) -> None:
    seat = Seat[e.seat]
    ps.require(seat.booking == "", "taken")
    seat.booking = e.id
    ps.emit(Expire(seat=e.seat, booking=e.id), at=e.ts + HOLD)


@hall.transaction
def pay(e: Pay) -> None:
    ps.require(Seat[e.seat].booking == e.booking, "not held")
    Seat[e.seat].paid = True


@hall.transaction  # runs before the first event that is not before its time; nobody cancels it, so it looks
def expire(e: Expire) -> dict[str, bool]:
    seat = Seat[e.seat]
    free = seat.booking == e.booking and not seat.paid
    if free:
        seat.booking = ""
    return {"freed": free}


def main(folder: Path) -> None:
    doors = datetime(2026, 5, 1, 18, tzinfo=UTC)

    def at(minute: int) -> datetime:
        return doors + timedelta(minutes=minute)

    with hall.open(folder / "state") as db:
        db.load(Seat, [{"id": "A1"}, {"id": "A2"}])
        db.run(
            [
                Book(ts=at(0), id="ann", seat="A1"),
                Book(ts=at(1), id="bob", seat="A2"),
                Pay(ts=at(9), id="p1", seat="A1", booking="ann"),
                Book(ts=at(14), id="eve", seat="A2"),  # still held
            ]
        )
        for waiting in db.pending(Expire).to_pylist():
            print(f"{waiting['at']:%H:%M} {waiting['seat']} if {waiting['id']} has not paid")
    with hall.open(folder / "state") as db:  # timers outlive the process
        for o in db.run([Book(ts=at(16), id="dan", seat="A2")]).to_pylist():  # just free
            print(f"{o['ts']:%H:%M} {o['transaction']} {o['id']} {o['status']} {o['freed']}")
        db.advance(at(60))  # no event has come: the clock is set by hand
        print({seat["id"]: seat["booking"] for seat in db.table(Seat).to_pylist()})


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        main(Path(directory))
