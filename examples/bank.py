"""A bank on Spark: files of transfers in, outcomes out, and the accounts as they are now and as they were.

python examples/bank.py
"""

import os
import sys
import tempfile
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import penstock as ps

bank = ps.App("bank")


@bank.table
class Account:
    id: str = ps.key()
    balance: Decimal = ps.decimal(18, 2, default=0)

    @ps.check("insufficient funds")
    def solvent(self) -> bool:
        return self.balance >= 0


@bank.event
class Transfer:
    ts: int = ps.order()
    id: str = ps.id()
    src: str
    dst: str
    amount: Decimal = ps.decimal(18, 2)


@bank.transaction
def transfer(e: Transfer) -> dict[str, Decimal]:
    src, dst = Account[e.src], Account[e.dst]
    src.balance -= e.amount
    dst.balance += e.amount
    return {"left": src.balance}


# Two files, which are two batches here. t3 comes before t2 in time, but arrives after it.
FILES = [
    [(10, "t1", "ann", "bob", "30.00"), (30, "t2", "bob", "eve", "60.00"), (31, "t4", "eve", "ann", "999.00")],
    [(20, "t3", "ann", "bob", "40.00"), (50, "t5", "eve", "nobody", "1.00")],
]


def write(folder: Path) -> None:
    folder.mkdir()
    for number, rows in enumerate(FILES):
        names = ("ts", "id", "src", "dst", "amount")
        events = [dict(zip(names, (*row[:4], Decimal(row[4])))) for row in rows]
        pq.write_table(pa.Table.from_pylist(events), folder / f"{number}.parquet")


def main(folder: Path) -> None:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false").getOrCreate()
    write(folder / "in")
    bank.load(Account, [{"id": "ann", "balance": 100}, {"id": "bob"}, {"id": "eve"}], state=folder / "state")
    query = bank.start(
        {Transfer: ps.parquet(folder / "in", files_per_batch=1)},
        state=folder / "state",
        outcomes=folder / "out",
        watermark=20,  # wait so long, in units of ts, for what happened earlier
        trigger={"availableNow": True},
    )
    query.awaitTermination()
    print("outcomes, in event order:")
    for o in sorted(pq.read_table(folder / "out").to_pylist(), key=lambda o: o["ts"]):
        print(f"  {o['ts']} {o['id']} {o['status']} {o['reason'] or o['left']}")
    with bank.open(folder / "state") as db:
        for words, version in (("accounts", None), ("as of version 1", 1)):
            rows = db.sql("select id, balance from account order by id", version).to_pylist()
            print(f"{words}:", {row["id"]: str(row["balance"]) for row in rows})
    spark.stop()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        main(Path(directory))
