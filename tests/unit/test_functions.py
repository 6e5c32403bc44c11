"""Functions marked @ps.function become a part of what calls them: what they mean, and what is refused in them."""

import importlib.util
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from test_refusals import declare, in_transaction, refused

import penstock as ps

FUNCTIONS = """
@ps.function
def doubled(x, times: int = LIMIT, *, more=0):
    return x * 2 + more


@ps.function
def loops(x):
    return again(x)


@ps.function
def again(x):
    return loops(x)


@ps.function
def never(x):
    ps.abort("never")


@ps.function
def perhaps(x):
    if x > 0:
        return Account["a"]


@ps.function
def pair(x):
    return x, x + 1


@ps.function
def wrong(x):
    while x:
        x -= 1
    return x


@ps.function
def of_wrong(x):
    return wrong(x)


@ps.function
def many(*xs):
    return 0


@ps.function
def mixed(x):
    if x > 0:
        return x
    return "none"


@ps.function
def from_loop(e):
    for x in e.xs:
        if x > 0:
            return e.xs
    return e.xs


@ps.function
def named(e):
    return e.nothing
"""

REFUSED = {
    "recursion": ("s = loops(e.n)", "function 'again' (", "'loops' calls itself (loops → again → loops)", "use a loop"),
    "only aborts": ("s = never(e.n)", "'never' returns nothing", "call it as a statement"),
    "a path without a record": ("s = perhaps(e.n)", "function 'perhaps'"),
    "a pair as a value": ("s = 1 + pair(e.n)  # <-", "pair gives", "tuple of 2", "a, b = …"),
    "a pair in one name": ("s = pair(e.n)  # <-", "tuple of 2"),
    "a pair in three": ("a, b, c = pair(e.n)  # <-", "tuple"),
    "an argument too many": ("s = doubled(1, 2, 3)  # <-", "doubled(x, times=5, *, more=0)", "too many positional"),
    "an argument too few": ("s = doubled()  # <-", "missing a required argument: 'x'"),
    "an argument of another name": ("s = doubled(1, most=2)  # <-", "unexpected keyword argument 'most'"),
    "arguments that are spread": ("s = doubled(*e.xs)  # <-", "write the arguments out"),
    "any number of arguments": ("s = many(1)", "'xs' takes any number of arguments"),
    "one kind or another": ("s = mixed(e.n)", "what 'mixed' returns", "int on one path and str on another"),
    "a list from a loop": ("s = from_loop(e)", "from a loop a function returns one value or record"),
    "no such field": ("s = named(e)", "function 'named'", "has no field 'nothing'", "called in transaction 't'"),
    "no such method": ("s = Account[e.k].available()  # <-", "a call to", "cannot be compiled"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_called(tmp_path: Path, name: str) -> None:
    body, *words = REFUSED[name]
    refused(tmp_path, FUNCTIONS + in_transaction(body), tuple(words))


def test_a_message_names_the_function_and_every_call(tmp_path: Path) -> None:
    with pytest.raises(ps.DeclarationError) as caught:
        declare(tmp_path, FUNCTIONS + in_transaction("s = of_wrong(e.n)"))
    text = Path(next(tmp_path.glob("*.py"))).read_text().splitlines()
    lines = [text.index(line) + 1 for line in ("    while x:", "    return wrong(x)", "    s = of_wrong(e.n)")]
    name = next(tmp_path.glob("*.py")).name
    assert str(caught.value) == (
        f"function 'wrong' ({name}:{lines[0]}): 'while' cannot be compiled; use 'for' over a list field or range(n)"
        f"; called in function 'of_wrong' ({name}:{lines[1]})"
        f"; called in transaction 't' ({name}:{lines[2]})"
    )


def test_what_may_be_marked() -> None:
    with pytest.raises(ps.DeclarationError, match="written with def"):
        ps.function(3)  # type: ignore[type-var]
    with pytest.raises(ps.DeclarationError, match="written with def"):
        ps.function(lambda x: x)
    with pytest.raises(ps.DeclarationError, match="written with def"):
        ps.function(len)


def test_an_unmarked_method_of_a_table_is_refused(tmp_path: Path) -> None:
    table = "@app.table\nclass T:\n    id: int = ps.key()\n    def two(self):\n        return 2"
    refused(tmp_path, table, ("'two' is not a field", "@ps.check", "@ps.function"))
    refused(tmp_path, table.replace("    def", "    @ps.function\n    def") + "\n    other = two", ("another name",))
    refused(
        tmp_path, table.replace("    def two(self)", "    @ps.function\n    def two()"), ("takes the record first",)
    )


def test_functions_that_double_with_every_link_are_refused(tmp_path: Path) -> None:
    chain = "".join(
        f"@ps.function\ndef f{k + 1}(x):\n    return f{k}(x * 2) + f{k}(x + 1) - f{k}(x - 1)\n\n" for k in range(12)
    )
    source = "@ps.function\ndef f0(x):\n    return x + 1\n\n" + chain + in_transaction("s = f12(e.n)")
    refused(tmp_path, source, ("20000 operations", "fewer places"))


def module(path: Path, name: str, source: str) -> Any:
    file = path / f"{name}.py"
    file.write_text(source)
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[name] = made
    spec.loader.exec_module(made)
    return made


FEES = """
from decimal import Decimal
import penstock as ps
RATE = Decimal("0.10")

def priced(rate):
    @ps.function
    def cost(amount, digits=2):
        return round(amount * rate + RATE, 2)
    return cost

cost = priced(Decimal("0.50"))
"""
SHOP = """
import functions_fees as fees
import penstock as ps
from penstock import function

app = ps.App("shop")

@app.table
class Till:
    id: int = ps.key()
    total: ps.decimal(18, 4) = 0
    count: int = 0

    @function
    def take(self, amount):
        self.total += amount
        self.count += 1
        return self.count

@app.event
class Sale:
    ts: int = ps.order()
    till: int
    amount: ps.decimal(9, 2)

@app.transaction
def sale(e: Sale):
    n = Till.get(e.till).take(fees.cost(e.amount))
    return {"n": n, "cost": fees.cost(amount=e.amount)}
"""


def test_functions_of_another_module_closures_and_methods(tmp_path: Path) -> None:
    module(tmp_path, "functions_fees", FEES)
    shop = module(tmp_path, "functions_shop", SHOP)
    events = [shop.Sale(ts=n, till=n % 2, amount=Decimal(n)) for n in range(5)]
    with shop.app.open() as db:
        out = db.run(events)
        reference = shop.app.reference()
        assert out.to_pylist() == reference.run(events).to_pylist()
        assert db.table(shop.Till).to_pylist() == reference.table(shop.Till).to_pylist()
        assert out["cost"].to_pylist() == [Decimal("0.5000") * n + Decimal("0.1000") for n in range(5)]
        assert out["n"].to_pylist() == [1, 1, 2, 2, 3]
    assert shop.fees.cost(Decimal(3)) == Decimal("1.60")  # outside it is the function that it was


def test_keys_that_a_function_is_handed_are_foreseen(tmp_path: Path) -> None:
    module(tmp_path, "functions_fees", FEES)
    shop = module(tmp_path, "functions_shop", SHOP)
    assert "serial" not in shop.app.explain()
    assert "read Till[e.till]" in shop.app.explain()


def test_a_changed_function_is_a_changed_body(tmp_path: Path) -> None:
    """What a log="input" relies on: the plan is another one."""
    found = set()
    for rate in ("0.10", "0.20"):
        module(tmp_path, "functions_fees", FEES.replace("0.10", rate))
        with module(tmp_path, "functions_shop", SHOP).app.open() as db:
            found.add(db._engine.kernel.fingerprint)
    assert len(found) == 2
