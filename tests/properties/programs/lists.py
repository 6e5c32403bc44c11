"""List fields of every type: loops, zip of unequal lengths, the same key twice, len, returns inside loops."""

import datetime

from hypothesis import strategies as st
from values import event, of_type, rows

import penstock as ps
from programs import Case

lists = ps.App("lists")


@lists.table
class Stock:
    warehouse: str = ps.key()
    item: int = ps.key()
    quantity: int = 0
    price: ps.decimal(9, 2) = 1

    @ps.check("out of stock")
    def enough(self):
        return self.quantity >= 0


@lists.table
class Seen:
    day: datetime.date = ps.key()
    times: int = 0
    last: datetime.datetime = datetime.datetime(1970, 1, 1)
    best: float = 0.0
    words: str = ""
    flag: bool = False


@lists.event
class Buy:
    ts: int = ps.order()
    id: int = ps.id()
    warehouse: str
    items: list[int]
    quantities: list[int]
    prices: list[ps.decimal(9, 2)]


@lists.event
class See:
    ts: int = ps.order()
    days: list[datetime.date]
    times: list[datetime.datetime]
    scores: list[float]
    words: list[str]
    flags: list[bool]
    stop: int


@lists.transaction
def buy(e: Buy):
    total = 0
    for item, quantity, price in zip(e.items, e.quantities, e.prices):
        if quantity == 0:
            continue
        if quantity < 0:
            Stock.get(e.warehouse, item).quantity -= quantity
        else:
            stock = Stock[e.warehouse, item]
            stock.quantity -= quantity
            total += price * quantity
        if len(e.items) > 3 and quantity > 5:
            return {"total": total, "count": len(e.items)}
    seen = 0
    for item in e.items:
        for other in e.items:
            if item == other:
                seen += 1
                break
            if other == 3:
                return {"count": seen, "total": total}
    return {"total": total, "count": seen}


@lists.transaction
def see(e: See):
    for day, time, score in zip(e.days, e.times, e.scores):
        one = Seen.get(day)
        one.times += 1
        one.last = max(one.last, time)
        one.best += score
    count = 0
    for word in e.words:
        for flag in e.flags:
            count += 1
            if count > e.stop:
                break
            if not flag:
                continue
            for day in e.days:
                Seen[day].words = word
                Seen[day].flag = flag
    if len(e.days) == 0:
        ps.abort("no days")
    return {"count": count}


item = st.sampled_from([1, 1, 1, 2, 3, 4])
CASE = Case(
    lists,
    {Stock: rows(Stock, [(w, i) for w in ("x", "é") for i in (1, 2)], quantity=st.integers(0, 9))},
    st.one_of(
        event(
            Buy,
            warehouse=st.sampled_from(["x", "x", "é", "none"]),
            items=st.lists(item, max_size=5),
            quantities=st.lists(st.integers(-1, 6), max_size=5),
            prices=st.lists(of_type(ps.decimal(9, 2)), max_size=5),
        ),
        event(See, stop=st.integers(0, 6)),
    ),
    size=15,
)
