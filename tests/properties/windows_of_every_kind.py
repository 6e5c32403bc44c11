"""Windows of rows and of time, sliding and not, with triggers that run triggers: one app, and `trades` for it."""

import random
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


@desk.event
class Trade:
    ts: int = ps.order()
    id: int = ps.id()
    key: int
    side: bool
    symbol: str
    price: Decimal = ps.decimal(12, 2)
    rate: float
    sizes: list[int]


@desk.window(rows=3)
class Recent:
    symbol: str
    price: Decimal = ps.decimal(12, 2)


@desk.window(rows=2, slide=2)
class Blocks:
    size: int


@desk.window(time=12, slide=4)
class Span:
    key: int = ps.key()
    side: bool = ps.key()
    size: int
    rate: float


@desk.trigger
def counted(w: Recent) -> None:
    seen = Seen.get("recent")
    for row in w.entered:
        seen.total += row.price
    seen.entered += len(w.entered)
    seen.expired += len(w.expired)
    ps.require(seen.total < 45, "dear")
    Blocks.add(size=len(w.expired))


@desk.transaction
def trade(e: Trade):
    Recent.add(symbol=e.symbol, price=e.price)
    span = Span[e.key, e.side]
    before = len(span)
    for size in e.sizes:
        if size == 7:
            continue
        span.add(size=size, rate=e.rate)
    ps.require(before < 9, "crowded")
    best = ""
    for row in Recent:
        if row.price > Decimal("15.00"):
            best = row.symbol
            break
    return {
        "size": span.size.sum(),
        "rate": span.rate.sum(),
        "best": best,
        "first": Recent.symbol.min(),
        "mean": Recent.price.mean(),
    }


@desk.trigger
def blocked(w: Blocks) -> None:
    seen = Seen.get("blocks")
    seen.entered += len(w.entered)
    seen.expired += w.expired.size.sum()


def trades(rng: random.Random, start: int, first: int, count: int) -> list[Any]:
    """Events from about this time on; some are late or of one time."""
    out: list[Any] = []
    ts = start
    for id_ in range(first, first + count):
        ts += rng.choice((0, 0, 1, 2, 3, 9, 40) if rng.random() < 0.4 else (0, 1, 2))
        sizes = [rng.choice((1, 2, 7, 20, 30, 51)) for _ in range(rng.randrange(4))]
        out.append(
            Trade(
                ts=ts - rng.choice((0, 0, 0, 0, 6)),
                id=id_,
                key=rng.randrange(3),
                side=rng.random() < 0.5,
                symbol=rng.choice(("", "a", "b", "ä", "zz")),
                price=Decimal(rng.randrange(-500, 3000)).scaleb(-2),
                rate=rng.choice((0.1, -0.0, 1e16, -1e16, float("nan"), 3.3)),
                sizes=sizes if rng.random() < 0.95 else None,
            )
        )
    return out
