"""Card payments on Spark: limits by country over the last ten minutes, blocked merchants, and alerts that go out.

python examples/fraud.py
"""

import os
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import penstock as ps

LIMITS = {"FR": Decimal(500), "GB": Decimal(400), "US": Decimal(800)}  # of ten minutes
ELSEWHERE = Decimal(100)
BLOCKED = frozenset({"fast cash", "lucky wheel"})

cards = ps.App("cards")


@cards.table
class Card:
    id: str = ps.key()
    blocked: bool = False
    note: str | None


@cards.window(time=timedelta(minutes=10))
class Recent:
    card: str = ps.key()  # one window a card
    amount: Decimal = ps.decimal(12, 2)


@cards.event
class Authorization:
    ts: datetime = ps.order()
    id: str = ps.id(unique="1 hour")  # a terminal sends again what was not answered
    card: str
    merchant: str
    country: str
    amount: Decimal = ps.decimal(10, 2)
    note: str | None


@cards.event
class Alert:  # no transaction takes it: it goes out
    card: str
    merchant: str
    why: str
    note: str | None


@ps.function
def normal(name: str) -> str:
    name = name.strip().lower()
    return name[4:] if name.startswith("www.") else name


@cards.transaction
def authorize(e: Authorization) -> dict[str, Any]:
    card, recent, merchant = Card[e.card], Recent[e.card], normal(e.merchant)
    ps.require(not card.blocked, "card is blocked")
    if merchant in BLOCKED or merchant.startswith("test "):
        card.blocked = True  # an abort would take this back, and the alert too: so it is a result
        card.note = e.note
        ps.emit(Alert(card=e.card, merchant=merchant, why="merchant", note=e.note))
        return {"approved": False}
    limit = LIMITS.get(e.country.upper(), ELSEWHERE)
    recent.add(amount=e.amount)
    spent = recent.amount.sum()
    if spent > limit:
        ps.abort("over limit", by=spent - limit)  # takes the add back
    if len(recent) > 4:
        ps.emit(Alert(card=e.card, merchant=merchant, why=f"{len(recent)} in ten minutes", note=e.note))
    return {"approved": True, "spent": spent}


DAY = [  # the minute, card, merchant, country, amount
    [
        (0, "c1", "Books", "fr", 300),
        (2, "c1", "books ", "FR", 250),  # 550 in ten minutes
        (11, "c1", "www.Books", "FR", 250),  # the first one is ten minutes old
        (12, "c2", "WWW.Fast Cash", "US", 10),
    ],
    [
        (20, "c3", "Kiosk", "??", 10**9),  # no decimal(10, 2)
        (21, "c2", "Books", "US", 10),
        *[(20 + n, "c3", "Kiosk", "??", 10) for n in range(1, 7)],
        (10**8, "c3", "Kiosk", "??", 1),  # a terminal with a broken clock
        (1, "c3", "Kiosk", "??", 1),  # long ago
    ],
]


def main(folder: Path) -> None:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false").getOrCreate()
    state, out, noon = folder / "state", folder / "out", datetime(2026, 3, 1, 12, tzinfo=UTC)
    cards.load(Card, [{"id": "c1"}, {"id": "c2"}, {"id": "c3"}], state=state)
    for number, rows in enumerate(DAY):  # the second start goes on where the first one ended
        events = [
            {"ts": noon + timedelta(minutes=minute), "id": f"a{number}{n}", "card": card, "merchant": merchant}
            | {"country": country, "amount": Decimal(amount), "note": "by phone" if card == "c2" else None}
            for n, (minute, card, merchant, country, amount) in enumerate(rows)
        ]
        (folder / "in").mkdir(exist_ok=True)
        pq.write_table(pa.Table.from_pylist(events), folder / "in" / f"{number}.parquet")
        sources, outputs = {Authorization: ps.parquet(folder / "in")}, {Alert: folder / "alerts"}
        query = cards.start(
            sources, state=state, outcomes=out, outputs=outputs, watermark="5 minutes", trigger={"availableNow": True}
        )
        query.awaitTermination()
    for o in pq.read_table(out).to_pylist():
        print(o["id"], o["status"], o["reason"] or f"approved: {o['approved']}", o["by"] or "")
    print([(o["card"], o["merchant"], o["why"]) for o in pq.read_table(folder / "alerts").to_pylist()])
    with cards.open(state) as db:
        print(db.sql("select id, blocked, note from card order by id").to_pylist())
    spark.stop()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        main(Path(directory))
