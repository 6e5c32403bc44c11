"""Leaderboard: S-Store's talent show (Meehan et al., VLDB 2015, section 4.1).

A viewer votes once, for a contestant who is still in. A vote that counts goes to the boards: the three with the most
votes, the three with the fewest, and the three who lead the last 100 votes. Every 20,000 votes the last contestant
leaves, and those who had voted for them may vote again.

    vote(Vote) --Counted--> board(Counted) --Remove--> remove(Remove)
                              |
                              Recent, the last 100 votes --> trending

What the boards must hold follows from the votes alone: `by_hand` is that, as a plain Python loop.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import pyarrow as pa

import penstock as ps
from penstock.workloads.common import Workload, draw

CONTESTANTS, WINDOW, EVERY, PLACES = 100, 100, 20_000, 3


def app(keys: str = "int", *, every: int = EVERY) -> ps.App:
    game = ps.App("leaderboard")

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
        ps.emit(Counted(contestant=e.contestant))

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
        if show.votes % every == 0:
            for c in Contestant.bottom(1, by="votes"):
                ps.emit(Remove(contestant=c.id))

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

    return game


def tables(size: int = CONTESTANTS, keys: str = "int") -> dict[str, pa.Table]:
    return {"Contestant": pa.table({"id": np.arange(size)})}


def batch(
    events: int,
    *,
    seed: int = 1,
    first: int = 0,
    size: int = CONTESTANTS,
    theta: float = 0.6,
    keys: str = "int",
    phones: int = 1_000_000,
) -> dict[str, pa.Table]:
    rng = np.random.default_rng((seed, first))
    ts = np.arange(first, first + events)
    votes = {"ts": ts, "id": ts, "phone": rng.integers(0, phones, events), "contestant": draw(rng, events, size, theta)}
    return {"Vote": pa.table(votes)}


class ByHand:
    """The show as a plain Python loop."""

    def __init__(self, size: int = CONTESTANTS, every: int = EVERY) -> None:
        self.every, self.votes = every, 0
        self.contestants = {i: [0, 0] for i in range(size)}  # votes, trending
        self.ballots: dict[int, int] = {}
        self.recent: deque[int] = deque()
        self.boards: dict[tuple[str, int], int] = {}

    def vote(self, phone: int, contestant: int) -> str:
        if contestant not in self.contestants:
            return "missing Contestant"
        if phone in self.ballots:
            return "exists Ballot"
        self.contestants[contestant][0] += 1
        self.ballots[phone] = contestant
        self._trend(contestant)
        self._show("top", lambda c: (-self.contestants[c][0], c))
        self._show("bottom", lambda c: (self.contestants[c][0], c))
        self._show("trending", lambda c: (-self.contestants[c][1], c))
        self.votes += 1
        if self.votes % self.every == 0 and self.contestants:
            self._remove(min(self.contestants, key=lambda c: (self.contestants[c][0], c)))
        return "committed"

    def _trend(self, contestant: int) -> None:
        self.recent.append(contestant)
        self.contestants[contestant][1] += 1
        if len(self.recent) > WINDOW:
            left = self.recent.popleft()
            if left in self.contestants:
                self.contestants[left][1] -= 1

    def _show(self, name: str, by: Any) -> None:
        for place, contestant in enumerate(sorted(self.contestants, key=by)[:PLACES], 1):
            self.boards[name, place] = contestant

    def _remove(self, contestant: int) -> None:
        self.ballots = {phone: c for phone, c in self.ballots.items() if c != contestant}
        del self.contestants[contestant]


WORKLOAD = Workload("leaderboard", "Leaderboard", app, tables, batch, CONTESTANTS, 0.6)
