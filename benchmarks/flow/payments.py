"""Payments that are added to a window and summed, in three ways: a window, tables kept by hand, and SQL.

rows    the last hundred payments, of all cards; they enter `slide` at a time
time    the payments of a card in the last ten minutes; a payment a millisecond
"""

from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

import penstock as ps

ROWS, SPAN = 100, 600_000  # ts is in milliseconds


def payments(count: int, first: int, cards: int) -> pa.Table:
    rng = np.random.default_rng((cards, first))
    return pa.table(
        {
            "ts": np.arange(first, first + count),
            "card": rng.integers(0, cards, count),
            "amount": rng.integers(1, 10_000, count),
        }
    )


def by_rows(slide: int, *, hand: bool) -> ps.App:
    app = ps.App("payments")

    @app.event
    class Payment:
        ts: int = ps.order()
        card: int
        amount: int

    if not hand:

        @app.window(rows=ROWS, slide=slide)
        class Recent:
            amount: int

        @app.transaction
        def pay(e: Payment):
            Recent.add(amount=e.amount)
            return {"spent": Recent.amount.sum()}

        return app

    room = ROWS + slide

    @app.table
    class Slot:  # a ring
        number: int = ps.key()
        amount: int = 0

    @app.table
    class Head:
        id: int = ps.key()
        count: int = 0
        spent: int = 0

    @app.transaction
    def keep(e: Payment):
        head = Head.get(0)
        Slot.get(head.count % room).amount = e.amount
        head.count += 1
        count, spent = head.count, head.spent
        if count % slide == 0:
            for number in range(count - slide, count):
                spent += Slot[number % room].amount
                if number >= ROWS:
                    spent -= Slot[(number - ROWS) % room].amount
            head.spent = spent
        return {"spent": spent}

    return app


def by_time(cards: int, *, hand: bool) -> ps.App:
    app = ps.App("payments")

    @app.event
    class Payment:
        ts: int = ps.order()
        card: int
        amount: int

    if not hand:

        @app.window(time=SPAN)
        class Spend:
            card: int = ps.key()
            amount: int

        @app.transaction
        def pay(e: Payment):
            spend = Spend[e.card]
            spend.add(amount=e.amount)
            return {"spent": spend.amount.sum()}

        return app

    # A ring a card, with room for more than ever are in ten minutes: some deviations of what comes at random.
    mean = SPAN // cards
    room = mean + 10 * int(mean**0.5) + 10

    @app.table
    class Slot:
        card: int = ps.key()
        number: int = ps.key()
        ts: int = 0
        amount: int = 0

    @app.table
    class Head:
        card: int = ps.key()
        first: int = 0
        count: int = 0
        spent: int = 0

    @app.transaction
    def keep(e: Payment):
        head = Head.get(e.card)
        first, count, spent = head.first, head.count + 1, head.spent + e.amount
        slot = Slot.get(e.card, head.count % room)
        slot.ts = e.ts
        slot.amount = e.amount
        for number in range(first, count):
            old = Slot[e.card, number % room]
            if old.ts > e.ts - SPAN:
                break
            spent -= old.amount
            first += 1
        ps.require(count - first < room, "no room")
        head.first = first
        head.count = count
        head.spent = spent
        return {"spent": spent}

    return app


# A payment is a call of pay; `number` is what `rows` counts by, and (card, at) is what `time` looks by.
SQL_ROWS = f"""
create table payment (number bigint primary key, amount bigint not null);
create function pay(c int, t bigint, a bigint) returns bigint language plpgsql as $$
declare
    n bigint := t + 1;
    edge bigint := n - n % {{slide}};
begin
    insert into payment values (n, a);
    delete from payment where number <= edge - {ROWS};
    return (select coalesce(sum(amount), 0) from payment where number <= edge);
end $$;
"""
SQL_TIME = f"""
create table payment (card int not null, at bigint not null, amount bigint not null);
create index on payment (card, at);
create function pay(c int, t bigint, a bigint) returns bigint language plpgsql as $$
begin
    insert into payment values (c, t, a);
    delete from payment where card = c and at <= t - {SPAN};
    return (select sum(amount) from payment where card = c);
end $$;
"""


def sums_by_rows(given: Iterator[tuple[int, int, int]], slide: int) -> list[int]:
    """The law, as a plain loop."""
    out: list[int] = []
    entered: deque[int] = deque(maxlen=ROWS)
    staged: list[int] = []
    for _, _, amount in given:
        staged.append(amount)
        if len(staged) == slide:
            entered.extend(staged)
            staged.clear()
        out.append(sum(entered))
    return out


def sums_by_time(given: Iterator[tuple[int, int, int]]) -> list[int]:
    out: list[int] = []
    kept: dict[int, deque[tuple[int, int]]] = {}
    spent: dict[int, int] = {}
    for ts, card, amount in given:
        rows = kept.setdefault(card, deque())
        rows.append((ts, amount))
        left = 0
        while rows[0][0] <= ts - SPAN:
            left += rows.popleft()[1]
        spent[card] = spent.get(card, 0) + amount - left
        out.append(spent[card])
    return out


def rows_of(table: pa.Table) -> Iterator[Any]:
    return zip(*(table[name].to_pylist() for name in ("ts", "card", "amount")), strict=True)
