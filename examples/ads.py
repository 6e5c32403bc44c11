"""Ad budgets on Spark: a click charges its campaign, in step with the day, and a prepaid balance until it is used up.

python examples/ads.py
"""

import datetime as dt
import os
import sys
import tempfile
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import penstock as ps

RATES = {"search": Decimal("1.00"), "banner": Decimal("0.40"), "video": Decimal("2.50")}  # of the bid, by kind of ad
CAP = 2  # clicks of one user that a campaign pays for on one day
ads = ps.App("ads")


@ads.table
class Advertiser:
    id: str = ps.key()
    balance: Decimal = ps.decimal(12, 2, default=0)  # prepaid


@ads.table
class Campaign:
    id: str = ps.key()
    advertiser: str = ps.index()
    bid: Decimal = ps.decimal(8, 2)
    budget: Decimal = ps.decimal(12, 2)  # of a day
    paused: bool = False


@ads.table
class Day:
    campaign: str = ps.key()
    date: dt.date = ps.key()
    spent: Decimal = ps.decimal(12, 2, default=0)


@ads.table(ttl=dt.timedelta(days=2))  # nobody asks for it behind its day
class Views:
    campaign: str = ps.key()
    user: str = ps.key()
    date: dt.date = ps.key()
    clicks: int = 0


@ads.event
class Click:
    ts: dt.datetime = ps.order()
    id: str = ps.id(unique="1 hour")  # browsers send some twice
    campaign: str
    user: str
    kind: str = "search"


@ads.event
class TopUp:  # without ps.order(): it is called
    advertiser: str
    amount: Decimal = ps.decimal(12, 2)


@ads.event
class Paused:  # no transaction takes it: it goes out
    campaign: str
    balance: Decimal = ps.decimal(12, 2)


@ads.transaction
def click(e: Click) -> dict[str, Any]:
    campaign, date = Campaign[e.campaign], e.ts.date()
    payer, day, views = Advertiser[campaign.advertiser], Day.get(e.campaign, date), Views.get(e.campaign, e.user, date)
    ps.require(not campaign.paused, "paused")
    ps.require(views.clicks < CAP, "seen enough")
    cost = round(campaign.bid * RATES[e.kind], 2)  # a kind that has no rate aborts: `missing key`
    pace = campaign.budget * (e.ts.hour + 1) / 24  # what may be spent by the end of this hour
    ps.require(day.spent + cost <= pace, "ahead of pace", short=day.spent + cost - pace)
    day.spent += cost
    views.clicks += 1
    payer.balance -= cost
    if payer.balance < campaign.bid:
        campaign.paused = True
        ps.emit(Paused(campaign=e.campaign, balance=payer.balance))
    return {"cost": cost}


@ads.transaction
def top_up(e: TopUp) -> None:
    Advertiser[e.advertiser].balance += e.amount
    for campaign in Campaign.where(advertiser=e.advertiser):
        campaign.paused = False


def main(folder: Path) -> None:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false").getOrCreate()
    state, names, noon = folder / "state", ("shoes", "hats", "trips"), dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
    ads.load(Advertiser, [{"id": "acme", "balance": 25}], state=state)
    ads.load(Campaign, [{"id": name, "advertiser": "acme", "bid": 1, "budget": 16} for name in names], state=state)
    (folder / "in").mkdir()
    for first in (0, 40):  # the second start goes on where the first one ended
        rows: list[dict[str, Any]] = [
            {"ts": noon + dt.timedelta(minutes=n), "id": f"k{n}", "campaign": names[n % 3], "user": f"u{n % 5}"}
            | {"kind": [*RATES, "radio"][n % 4]}
            for n in range(first, first + 40)
        ]
        rows[5]["ts"], rows[6]["ts"] = None, noon.replace(year=2199)
        pq.write_table(pa.Table.from_pylist([*rows, rows[9]]), folder / "in" / f"{first}.parquet")  # one comes twice
        sources, outputs, now = {Click: ps.parquet(folder / "in")}, {Paused: folder / "paused"}, {"availableNow": True}
        ads.start(sources, state=state, outcomes=folder / "out", outputs=outputs, trigger=now).awaitTermination()
    print(Counter(o["reason"] or o["status"] for o in pq.read_table(folder / "out").to_pylist()))
    print([(o["campaign"], str(o["balance"])) for o in pq.read_table(folder / "paused").to_pylist()])
    with ads.open(state) as db:
        db.call(TopUp(advertiser="acme", amount=Decimal(5)))  # its campaigns go on
        print(db.sql("select id, paused, spent from campaign join day on campaign = id order by id").to_pylist())
    spark.stop()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        main(Path(directory))
