"""Every kind of window, read and added to in every way, for the law: `step` is one event, `trades` a batch of them."""

import random
from datetime import date
from decimal import Decimal
from typing import Any

import penstock as ps

desk = ps.App("desk")


@desk.table
class Seen:
    name: str = ps.key()
    entered: int = 0
    expired: int = 0
    total: Decimal = ps.decimal(18, 2, default=0)


@desk.table
class Limit:
    key: int = ps.key()
    most: int = 0


@desk.event
class Trade:
    ts: int = ps.order()
    id: int = ps.id()
    key: int
    side: bool
    symbol: str
    price: Decimal = ps.decimal(12, 2)
    rate: float
    day: date
    sizes: list[int]


@desk.event
class Look:
    ts: int = ps.order()
    id: int = ps.id()
    key: int
    side: bool


@desk.window(rows=3)
class Recent:
    symbol: str
    price: Decimal = ps.decimal(12, 2)
    rate: float
    day: date


@desk.window(rows=1)
class Last:
    key: int = ps.key()
    size: int
    bought: bool


@desk.window(rows=5, slide=2)
class Pairs:
    key: int = ps.key()
    side: bool = ps.key()
    price: Decimal = ps.decimal(18, 2)


@desk.window(rows=2, slide=2)
class Blocks:
    size: int


@desk.window(time=10)
class Span:
    key: int = ps.key()
    size: int
    rate: float


@desk.window(time=20, slide=10)
class Hops:
    side: bool = ps.key()
    price: Decimal = ps.decimal(12, 2)
    symbol: str


@desk.window(time=8, slide=8)
class Tumble:
    size: int


@desk.trigger
def counted(w: Recent) -> None:
    seen = Seen.get("recent")
    for row in w.entered:
        seen.entered += 1
        seen.total += row.price
    for row in w.expired:
        seen.expired += 1
        seen.total -= row.price
    Blocks.add(size=len(w.expired))


@desk.transaction
def trade(e: Trade):
    limit = Limit.get(e.key)
    Recent.add(symbol=e.symbol, price=e.price, rate=e.rate, day=e.day)
    span, hops, pairs = Span[e.key], Hops[e.side], Pairs[e.key, e.side]
    before = len(span)
    for size in e.sizes:
        if size == 7:
            continue
        span.add(size=size, rate=e.rate)
        Last[size].add(size=size + e.key, bought=e.side)
        Tumble.add(size=size)
    pairs.add(price=e.price)
    hops.add(price=e.price, symbol=e.symbol)
    ps.require(before < 9, "crowded")
    if len(span) > 0:
        ps.require(span.size.max() <= 50 + limit.most, "too much")
    bought = 0
    for row in Last[e.key]:
        if row.bought:
            bought += row.size + row.key
    best = ""
    for row in hops:
        if row.price > Decimal("5.00") and row.side:
            best = row.symbol
            break
    return {
        "before": before,
        "size": span.size.sum(),
        "rate": span.rate.sum(),
        "bought": bought,
        "best": best,
        "first": Recent.symbol.min(),
        "day": Recent.day.max(),
        "mean": Recent.price.mean(),
        "worst": Recent.rate.min(),
        "pairs": pairs.price.sum(),
    }


@desk.trigger
def blocked(w: Blocks) -> None:
    seen = Seen.get("blocks")
    seen.entered += len(w.entered)
    seen.expired += w.expired.size.count()
    if len(w.expired) > 0 and w.expired.size.sum() + w.entered.size.max() > 3:
        ps.abort("three blocks")
    Limit.get(0).most += 1


@desk.trigger
def hopped(w: Hops) -> None:
    seen = Seen.get("hops")
    if w.side:
        return
    for row in w.expired:
        seen.expired += 1
        seen.total += row.price
    seen.entered += len(w.entered)
    ps.require(seen.total < 500, "dear")


def trades(rng: random.Random, start: int, first: int, count: int) -> list[Any]:
    """Events from about this time on; some are late or of one time."""
    out: list[Any] = []
    ts = start
    for id_ in range(first, first + count):
        ts += rng.choice((0, 0, 1, 2, 3, 9, 40) if rng.random() < 0.4 else (0, 1, 2))
        at = ts - rng.choice((0, 0, 0, 0, 6))
        sizes = [rng.choice((1, 2, 7, 20, 30, 51)) for _ in range(rng.randrange(4))]
        out.append(
            Trade(
                ts=at,
                id=id_,
                key=rng.randrange(3),
                side=rng.random() < 0.5,
                symbol=rng.choice(("", "a", "b", "ä", "zz")),
                price=Decimal(rng.randrange(-500, 3000)).scaleb(-2),
                rate=rng.choice((0.1, -0.0, 1e16, -1e16, float("nan"), 3.3)),
                day=date(2024, 1, rng.randrange(1, 20)),
                sizes=sizes if rng.random() < 0.95 else None,
            )
        )
    return out
