"""round() calls a kernel: with a decimal's scale and the digits as constants; only what may overflow may abort."""

import penstock as ps

app = ps.App("shop")


@app.event
class Sale:
    ts: int = ps.order()
    price: ps.decimal(18, 4)
    weight: float


@app.transaction
def sell(e: Sale):
    return {
        "price": round(e.price, 2),
        "whole": round(e.price),
        "weight": round(e.weight, 1),
        "kilos": round(e.weight),
    }
