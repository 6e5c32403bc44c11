"""A line of the logger `penstock` for each batch, and the report that subscribers get, which say the same."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock import observe

shop = ps.App("shop")


@shop.table
class Stock:
    item: str = ps.key()
    left: int = 3


@shop.event
class Sale:
    ts: int = ps.order()
    id: str = ps.id(unique=100)
    item: str


@shop.event
class Look:
    item: str


@shop.transaction
def sell(e: Sale) -> None:
    stock = Stock.get(e.item)
    ps.require(stock.left > 0, "sold out")
    stock.left -= 1


@shop.transaction
def look(e: Look) -> None:
    Stock.get(e.item).left += 1


def sales(*ids: tuple[int, str]) -> list[Any]:
    return [Sale(ts=ts, id=id, item="a") for ts, id in ids]


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[int, dict[str, Any]]]:
    return [
        (one.levelno, json.loads(one.getMessage().removeprefix("batch ")))
        for one in caplog.records
        if one.name == "penstock" and one.getMessage().startswith("batch ")
    ]


def test_each_batch_is_a_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "penstock")
    with shop.open(tmp_path / "state") as db:
        first = sales((1, "a"), (2, "b"), (3, "c"), (4, "d"), (4, "a"), (9, "e"))
        db.run(first, id=0, source="query-7", offsets="0", watermark=5)
        db.run(sales((0, "z"), (9, "b")), id=1, source="query-7", offsets="1", watermark=0)
        db.advance(20)
    (level, one), (_, two), (_, three) = lines(caplog)
    assert level == logging.INFO
    assert (one["app"], one["state"], one["query"]) == ("shop", str(tmp_path / "state"), "query-7")
    names = ("cause", "version", "id", "events", "committed", "aborted", "late", "rejected", "duplicate", "held")
    assert [one[name] for name in names] == ["batch", 1, 0, 5, 3, {"sold out": 1}, 0, 0, 1, 1]
    assert [two[name] for name in names] == ["batch", 2, 1, 3, 0, {"sold out": 1}, 1, 0, 1, 0]
    assert [three[name] for name in names] == ["advance", 3, None, 0, 0, {}, 0, 0, 0, 0]
    assert set(one["ms_by_stage"]) == {"intake", "order", "encode", "execute", "publish", "commit"}
    assert one["policy"].startswith("serial")
    assert caplog.records[0].batch == one  # type: ignore[attr-defined]


def test_a_line_comes_before_subscribers_and_says_what_they_get(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "penstock")
    seen: list[observe.BatchReport] = []
    observe.subscribe(seen.append)
    try:
        with shop.open() as db:
            db.run(sales((1, "a")), id=5)
    finally:
        observe.unsubscribe(seen.append)
    (report,), ((_, line),) = seen, lines(caplog)
    assert (report.app, report.state, report.id, report.query, report.cause) == ("shop", None, 5, None, "batch")
    assert report.line() == line


def test_calls_are_quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "penstock")
    with shop.open() as db:
        db.run(sales((1, "a")))
        db.call(Look(item="a"))
        assert len(lines(caplog)) == 1
        caplog.set_level(logging.DEBUG, "penstock")
        db.call(Look(item="a"))
    assert [(level, line["cause"]) for level, line in lines(caplog)[1:]] == [(logging.DEBUG, "call")]


def test_where_nobody_listens_no_line_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(self: observe.BatchReport) -> dict[str, Any]:
        raise AssertionError

    monkeypatch.setattr(observe.BatchReport, "line", never)
    logger = logging.getLogger("penstock")
    monkeypatch.setattr(logger, "level", logging.WARNING)
    logger.manager._clear_cache()  # type: ignore[attr-defined]
    with shop.open() as db:
        db.run(sales((1, "a")))
