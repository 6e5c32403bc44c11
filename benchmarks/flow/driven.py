"""The talent show without emits: a client calls the three procedures, one after the other, as H-Store's has to."""

from typing import Any

import penstock as ps
from penstock.workloads.leaderboard import PLACES, WINDOW


def show(every: int) -> tuple[ps.App, Any]:
    """The app, and what calls it for one vote."""
    game = ps.App("driven")

    @game.table
    class Contestant:
        id: int = ps.key()
        votes: int = 0
        trending: int = 0

    @game.table
    class Ballot:
        phone: int = ps.key()
        contestant: int = ps.index()

    @game.table
    class Board:
        name: str = ps.key()
        place: int = ps.key()
        contestant: int = 0

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
    class Counted:
        contestant: int

    @game.event
    class Remove:
        contestant: int

    @game.window(rows=WINDOW)
    class Recent:
        contestant: int

    @game.transaction
    def vote(e: Vote):
        Contestant[e.contestant].votes += 1
        Ballot.insert(e.phone, contestant=e.contestant)

    @game.transaction
    def board(e: Counted):
        Recent.add(contestant=e.contestant)
        place = 1
        for c in Contestant.top(PLACES, by="votes"):
            Board.get("top", place).contestant = c.id
            place += 1
        place = 1
        for c in Contestant.bottom(PLACES, by="votes"):
            Board.get("bottom", place).contestant = c.id
            place += 1
        place = 1
        for c in Contestant.top(PLACES, by="trending"):
            Board.get("trending", place).contestant = c.id
            place += 1
        show = Show.get(0)
        show.votes += 1
        leaves = -1
        if show.votes % every == 0:
            for c in Contestant.bottom(1, by="votes"):
                leaves = c.id
        return {"leaves": leaves}

    @game.trigger
    def trending(w: Recent):
        for v in w.entered:
            Contestant[v.contestant].trending += 1
        for v in w.expired:
            if v.contestant in Contestant:
                Contestant[v.contestant].trending -= 1

    @game.transaction
    def remove(e: Remove):
        for b in Ballot.where(contestant=e.contestant):
            del Ballot[b.phone]
        del Contestant[e.contestant]

    def call(caller: Any, ts: int, phone: int, contestant: int) -> None:
        if caller.call(Vote(ts=ts, id=ts, phone=phone, contestant=contestant))["status"] == "committed":
            leaves = caller.call(Counted(contestant=contestant))["leaves"]
            if leaves >= 0:
                caller.call(Remove(contestant=leaves))

    return game, call
