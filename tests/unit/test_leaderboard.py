"""The leaderboard, in which emits, a window with a trigger, scans and an index meet, against a plain Python loop."""

from pathlib import Path
from typing import Any, Literal

import pytest

from penstock.workloads import leaderboard

EVERY, VOTES, PHONES = 500, 1_200, 4_000


def of_engine(db: Any) -> dict[str, Any]:
    contestants = db.table("Contestant").to_pylist()
    return {
        "boards": {(row["name"], row["place"]): row["contestant"] for row in db.table("Board").to_pylist()},
        "contestants": {row["id"]: [row["votes"], row["trending"]] for row in contestants},
        "ballots": {row["phone"]: row["contestant"] for row in db.table("Ballot").to_pylist()},
        "votes": sum(row["votes"] for row in db.table("Show").to_pylist()),
    }


def of_loop(show: leaderboard.ByHand) -> dict[str, Any]:
    return {
        "boards": show.boards,
        "contestants": show.contestants,
        "ballots": show.ballots,
        "votes": show.votes,
    }


@pytest.mark.parametrize("log", ["changes", "input"])
def test_boards_votes_trending_and_ballots_are_those_of_a_plain_loop(
    log: Literal["changes", "input"], tmp_path: Path
) -> None:
    app, show = leaderboard.app(every=EVERY), leaderboard.ByHand(every=EVERY)
    db = app.open(tmp_path / "show", log=log)
    for name, rows in leaderboard.tables().items():
        db.load(name, rows)
    for number in range(4):
        if number == 2:
            db.close()
            db = app.open(tmp_path / "show", log=log)
            assert of_engine(db) == of_loop(show)
        batch = leaderboard.batch(VOTES, first=number * VOTES, phones=PHONES)
        votes = batch["Vote"].to_pylist()
        said = ["committed" if why is None else why for why in roots(db.run(batch))]
        assert said == [show.vote(one["phone"], one["contestant"]) for one in votes]
        assert of_engine(db) == of_loop(show)
    assert len(show.contestants) < leaderboard.CONTESTANTS - 3
    db.close()


def roots(out: Any) -> list[str | None]:
    """Why each vote was aborted, if it was."""
    return [row["reason"] for row in out.to_pylist() if row["step"] == 0]
