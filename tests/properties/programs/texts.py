"""Strings: those that are looked at, which runs in parallel, and those that are made, which runs alone."""

from hypothesis import strategies as st
from values import event, rows

import penstock as ps
from programs import Case

texts = ps.App("texts")


@texts.table
class Name:
    id: str = ps.key()
    shown: str = ""
    count: int = 0


@texts.event
class Put:
    ts: int = ps.order()
    name: str
    more: str
    parts: list[str]
    n: int
    how: int


@texts.event
class Look:
    ts: int = ps.order()
    id: str = ps.id()
    name: str
    other: str


@texts.transaction
def put(e: Put):
    one = Name.get(e.name.strip().upper())
    one.count += 1
    made = ""
    for part in e.parts:
        made += part
        if len(made) > 20:
            made = made[e.n : -1]
    if e.how == 0:
        one.shown += e.more
    elif e.how == 1:
        one.shown = f"{one.shown[-5:]}{e.n}:{made}"
    elif e.how == 2:
        one.shown = (e.more + made).lower()
    elif e.how == 3:
        Name.get(e.more.rstrip() + str(e.n)).count -= 1
    else:
        one.shown = one.shown.lstrip()[1:] if made else e.more[: e.n]
    ps.require(not one.shown.endswith("b"), "ends", by=one.shown)
    return {"made": made, "shown": one.shown, "size": len(one.shown), "low": min(made, one.shown, e.name)}


@texts.transaction
def look(e: Look):
    one = Name.get(e.name)
    if e.other in e.name or e.name.startswith(e.other) or e.other.endswith("b"):
        one.count += len(e.name)
    elif one.shown.startswith(e.other):
        del Name[e.name]
    return {"size": len(e.other) - len(one.shown), "made": e.other}


some = st.sampled_from(["a", "A", " a ", "b", "", "ß", "ΣΑΣ", "ς", "İ", "ﬃ", "日本", "a\u0301Σ"])
CASE = Case(
    texts,
    {Name: rows(Name, [("",), ("A",), ("SS",), ("FFI",)])},
    st.one_of(
        event(Put, name=some, more=some, parts=st.lists(some, max_size=5), n=st.integers(-5, 5), how=st.integers(0, 4)),
        event(Put, name=some, how=st.integers(0, 4)),
        event(Look, name=some, other=some),
    ),
)
