"""The bank of the README: two lookups, one guard, two writes, one check that must hold at the end."""

import penstock as ps

app = ps.App("bank")


@app.table
class Account:
    id: str = ps.key()
    balance: ps.decimal(18, 2) = 0

    @ps.check("insufficient funds")
    def solvent(self):
        return self.balance >= 0


@app.event
class Transfer:
    ts: int = ps.order()
    id: str = ps.id()
    src: str
    dst: str
    amount: ps.decimal(18, 2)


@app.transaction
def transfer(e: Transfer):
    src, dst = Account[e.src], Account[e.dst]
    if src.balance < e.amount:
        ps.abort("not enough")
    src.balance -= e.amount
    dst.balance += e.amount
    return {"left": src.balance}
