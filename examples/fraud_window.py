"""What a card has spent in the last ten minutes: an add that goes over its limit is taken back; many in a row alert.

python examples/fraud_window.py
"""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import penstock as ps

fraud = ps.App("fraud")


@fraud.table
class Card:
    id: str = ps.key()
    limit: Decimal = ps.decimal(12, 2, default=0)
    blocked: bool = False


@fraud.event
class Payment:
    ts: datetime = ps.order()
    id: str = ps.id()
    card: str
    amount: Decimal = ps.decimal(12, 2)


@fraud.event
class Alert:  # no transaction takes it: it goes out
    card: str
    spent: Decimal = ps.decimal(12, 2)


@fraud.window(time=timedelta(minutes=10))
class Spend:
    card: str = ps.key()  # one window a card
    amount: Decimal = ps.decimal(12, 2)


@fraud.transaction
def pay(e: Payment) -> dict[str, Any]:
    card, spend = Card[e.card], Spend[e.card]
    ps.require(not card.blocked, "blocked")
    spend.add(amount=e.amount)
    total = spend.amount.sum()
    ps.require(total <= card.limit, "over the limit")  # takes the add back
    if len(spend) > 3:
        card.blocked = True
        ps.emit(Alert(card=e.card, spent=total))
    return {"spent": total}


NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)


def main() -> None:
    given = [(0, 60), (1, 50), (2, 40), (10, 50), (11, 5), (12, 5), (13, 1), (40, 1)]
    with fraud.open() as db:
        db.load(Card, [{"id": "a", "limit": 100}])
        for k, (minute, amount) in enumerate(given, 1):  # a batch each
            at = NOON + timedelta(minutes=minute)
            for row in db.run([Payment(ts=at, id=f"p{k}", card="a", amount=Decimal(amount))]).to_pylist():
                print(f"{row['ts']:%H:%M}", row["id"], row["status"], row["reason"] or f"spent {row['spent']}")
            for alert in db.emitted(Alert).to_pylist():
                print("  alert:", alert["card"], alert["spent"])


if __name__ == "__main__":
    main()
