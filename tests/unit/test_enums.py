"""Enums as columns, fields, keys and constants: they are their value in Arrow, in SQL, in outcomes and on disk."""

import enum
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.testing import check


class Status(enum.Enum):
    OPEN = "open"
    SHUT = "shut"


class Colour(enum.StrEnum):
    RED = "red"
    BLUE = "blue"


class Old(str, enum.Enum):  # noqa: UP042
    A = "a"
    B = "b"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 5


doors = ps.App("doors")


@doors.table
class Door:
    colour: Colour = ps.key()
    old: Old = ps.key()
    status: Status = Status.SHUT
    level: Level | None = None
    text: str = ""


@doors.event
class Turn:
    ts: int = ps.order()
    colour: Colour
    old: Old = Old.A
    status: Status | None
    level: Level = Level.LOW
    several: list[Status]


@doors.transaction
def turn(e: Turn) -> dict[str, Any]:
    door = Door.get(e.colour, e.old)
    if (Colour.RED, Old.B) not in Door:
        Door.insert(Colour.RED, Old.B, level=Level.HIGH)
    before = door.status
    if e.status is Status.OPEN and door.status is not Status.OPEN:
        door.status = Status.OPEN
    elif e.status == Status.SHUT:
        door.status = e.status
    if e.level >= Level.HIGH:
        door.level = e.level if door.level is None else Level.LOW
        door.text = e.colour.value
    count = 0
    for one in e.several:
        count += 1 if one == Status.OPEN else 0
    return {"before": before, "level": door.level, "opened": count, "name": Status.SHUT.value, "next": e.level + 1}


EVENTS = [
    Turn(ts=1, colour=Colour.RED, status=Status.OPEN, several=[Status.OPEN, Status.SHUT]),
    Turn(ts=2, colour="red", old="a", status=None, level=5, several=[]),
    Turn(ts=3, colour=Colour.BLUE, old=Old.B, status="shut", level=Level.HIGH, several=["open", Status.OPEN]),
    Turn(ts=4, colour=Colour.RED, status=Status.SHUT, level=Level.HIGH, several=[]),
]


@pytest.mark.parametrize("policy", [ps.Policy.serial(), ps.Policy(threads=2)], ids=str)
def test_native_equals_the_reference(policy: ps.Policy) -> None:
    check(doors, batches=[EVENTS[:2], EVENTS[2:]], policy=policy)


def test_enums_are_their_value(tmp_path: Path) -> None:
    with doors.open(tmp_path / "state") as db:
        db.load(Door, [{"colour": Colour.BLUE, "old": Old.A, "status": Status.OPEN, "level": Level.HIGH}])
        out = db.run(EVENTS).to_pylist()
        assert [row["before"] for row in out] == ["shut", "open", "shut", "open"]
        assert [row["level"] for row in out] == [None, 5, 5, 1]
        assert (out[0]["opened"], out[2]["opened"], out[0]["name"], out[1]["next"]) == (1, 2, "shut", 6)
        rows = {(row["colour"], row["old"]): row for row in db.table(Door).to_pylist()}
        assert sorted(rows) == [("blue", "a"), ("blue", "b"), ("red", "a"), ("red", "b")]
        assert rows["blue", "a"]["status"] == "open"
        assert rows["red", "a"]["text"] == "red"
        assert db.sql("select count(*) as n from door where status = 'open'").to_pylist() == [{"n": 1}]
    with doors.open(tmp_path / "state") as db:
        assert db.table(Door).num_rows == 4


def test_an_unknown_member_is_named() -> None:
    with doors.open() as db:
        with pytest.raises(ps.InputError, match=r"field 'colour': needs Colour, got 'green'; give 'red', 'blue'"):
            db.run([Turn(ts=1, colour="green", status=None, several=[])])
        with pytest.raises(ps.InputError, match=r"field 'several': needs list\[str\], got"):
            db.run([Turn(ts=1, colour="red", status=None, several=["ajar"])])
        table = pa.table({"ts": [1, 2], "colour": ["red", "green"], "status": ["open", None], "several": [[], []]})
        table = table.set_column(3, "several", pa.array([[], []], pa.list_(pa.string())))
        with pytest.raises(ps.InputError, match=r"column 'colour', row 1: 'green' is no Colour; give 'red', 'blue'"):
            db.run({Turn: table})
        with pytest.raises(ps.InputError, match=r"column 'colour', row 1: 'green' is no Colour"):
            db.run({Turn: table.set_column(1, "colour", table.column("colour").dictionary_encode())})
        with pytest.raises(ps.InputError, match=r"column 'level', row 1: 3 is no Level; give 1, 5"):
            db.run({Turn: _levels(table)})
        with pytest.raises(ps.InputError, match=r"key 'old', row 0: needs Old, got 'c'; give 'a', 'b'"):
            db.load(Door, [{"colour": "red", "old": "c"}])
        assert db.run({Turn: table.slice(0, 1)}).column("status").to_pylist() == ["committed"]


def _levels(table: pa.Table) -> pa.Table:
    good = table.set_column(1, "colour", pa.array(["red", "red"]))
    return good.append_column("level", pa.array([1, 3]))


def test_what_is_no_enum_of_values_is_refused() -> None:
    class Mixed(enum.Enum):
        A = 1
        B = "b"

    class Wrong:
        id: int = ps.key()
        what: Mixed

    class Strange:
        id: int = ps.key()
        what: Status = "ajar"  # type: ignore[assignment]

    Wrong.__annotations__["what"] = Mixed
    with pytest.raises(ps.DeclarationError, match=r"'what': the values of Mixed are of several types"):
        ps.App("a").table(Wrong)
    with pytest.raises(ps.DeclarationError, match=r"'what': 'ajar' is no Status; give 'open', 'shut'"):
        ps.App("a").table(Strange)


def test_a_constant_that_is_no_member_is_refused() -> None:
    app = ps.App("a")

    @app.table
    class Gate:
        id: int = ps.key()
        status: Status = Status.OPEN

    @app.event
    class Pass:
        ts: int = ps.order()

    with pytest.raises(ps.DeclarationError, match=r"column 'status' is Status; 'ajar' is none of them"):

        @app.transaction
        def through(e: Pass) -> None:
            Gate.get(1).status = "ajar"  # type: ignore[assignment]
