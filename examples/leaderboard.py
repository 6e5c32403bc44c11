"""A talent show: one vote a phone, every 20 votes the last contestant leaves, and anyone may ask who leads.

python examples/leaderboard.py
"""

import os
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import penstock as ps

game = ps.App("leaderboard")


@game.table
class Contestant:
    id: int = ps.key()
    votes: int = 0
    trending: int = 0  # among the last ten votes


@game.table
class Ballot:
    phone: int = ps.key()
    contestant: int = ps.index()  # for Ballot.where(contestant=…)


@game.table
class Show:
    id: int = ps.key()
    votes: int = 0


@game.event
class Vote:
    ts: int = ps.order()
    id: int = ps.id()
    phone: int
    contestant: int


@game.event
class Counted:  # without ps.order(): it is emitted, or called
    contestant: int


@game.event
class Remove:
    contestant: int


@game.event
class Leads: ...  # a question, without fields


@game.window(rows=10)
class Recent:
    contestant: int


@game.transaction
def vote(e: Vote) -> None:
    Contestant[e.contestant].votes += 1
    Ballot.insert(e.phone, contestant=e.contestant)  # one vote a phone: `exists Ballot`
    ps.emit(Counted(contestant=e.contestant))


@game.transaction
def count(e: Counted) -> None:
    Recent.add(contestant=e.contestant)
    Show.get(0).votes += 1
    if Show[0].votes % 20 == 0:
        for last in Contestant.bottom(1, by="votes"):
            ps.emit(Remove(contestant=last.id))


@game.trigger  # part of `count`: votes enter the window and leave it
def trend(w: Recent) -> None:
    for v in w.entered:
        Contestant[v.contestant].trending += 1
    for v in w.expired:
        if v.contestant in Contestant:
            Contestant[v.contestant].trending -= 1


@game.transaction
def remove(e: Remove) -> None:
    for ballot in Ballot.where(contestant=e.contestant):  # who voted for them may vote again
        del Ballot[ballot.phone]
    del Contestant[e.contestant]


@game.transaction
def leads(e: Leads) -> dict[str, Any]:
    for first in Contestant.top(1, by="votes"):
        return {"leader": first.id, "votes": first.votes}
    ps.abort("nobody is left")


def main(folder: Path) -> None:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false").getOrCreate()
    state = folder / "state"
    game.load(Contestant, [{"id": i} for i in range(4)], state=state)
    votes = [{"ts": n, "id": n, "phone": n % 37, "contestant": (0, 1, 2, 0, 3, 1, 0, 2)[n % 8]} for n in range(60)]
    (folder / "votes").mkdir()
    pq.write_table(pa.Table.from_pylist(votes), folder / "votes" / "0.parquet")
    query = game.start({Vote: ps.parquet(folder / "votes")}, state=state, outcomes=folder / "out", calls=True)
    query.processAllAvailable()
    with game.connect(state) as client:  # as another process of this machine would
        answer = client.call(Leads())
    print(f"{answer['leader']} leads with {answer['votes']} votes")
    query.stop()
    print(Counter((o["transaction"], o["reason"] or "committed") for o in pq.read_table(folder / "out").to_pylist()))
    with game.open(state) as db:
        print(db.sql("select id, votes, trending from contestant order by votes desc, id").to_pylist())
    spark.stop()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        main(Path(directory))
