"""`penstock migrate`, and `penstock check` with an app."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.commands import app
from penstock.replica.directory import Directory

BEFORE = """
import penstock as ps
shop = ps.App("shop")
@shop.table
class Item:
    id: str = ps.key()
    amount: int = 0
    note: str = ""
@shop.table
class Old:
    id: str = ps.key()
@shop.event
class Sell:
    ts: int = ps.order()
    item: str
@shop.transaction
def sell(e: Sell):
    Item.get(e.item).amount -= 1
"""
NOW = BEFORE.replace("amount", "left").replace('    note: str = ""\n', "").replace(
    '@shop.table\nclass Old:\n    id: str = ps.key()\n', ""
)  # fmt: skip
STRICT = BEFORE.replace('    note: str = ""\n', '    note: str = ""\n    @ps.check("none left")\n    def there(self): return self.amount >= 0\n')  # fmt: skip # noqa: E501
WORDS = ("--rename", "Item.amount=left", "--drop", "Item.note", "--drop-table", "Old")


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in (("shop_before", BEFORE), ("shop_now", NOW), ("shop_strict", STRICT)):
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    import shop_before  # type: ignore[import-not-found]

    with shop_before.shop.open(tmp_path / "state") as db:
        db.load("Item", [{"id": "a", "amount": 1}, {"id": "b"}])
        db.run([shop_before.Sell(ts=1, item="b")])
    return tmp_path / "state"


def penstock(*words: object, answer: str = "") -> tuple[int, str, str]:
    result = CliRunner().invoke(app, list(map(str, words)), input=answer)
    return result.exit_code, result.stdout, result.stderr


def test_migrate_says_what_it_will_do_and_asks(state: Path) -> None:
    code, out, _ = penstock("migrate", state, "shop_now:shop", *WORDS, answer="n\n")
    assert code == 1 and Directory(state).version == 1
    assert "column 'amount' becomes 'left'" in out and "column 'note' goes, with its values in 2 records" in out
    assert penstock("migrate", state, "shop_now:shop", *WORDS, "--dry-run")[0] == 0 and Directory(state).version == 1
    code, out, _ = penstock("migrate", state, "shop_now:shop", *WORDS, answer="y\n")
    assert code == 0 and out.endswith("done: version 2\n")
    assert Directory(state).table("Item").sort_by("id").to_pylist() == [{"id": "a", "left": 1}, {"id": "b", "left": -1}]
    assert "there is nothing to do" in penstock("migrate", state, "shop_now:shop", *WORDS, "--yes")[1]


def test_migrate_does_not_ask_where_it_was_told(state: Path) -> None:
    assert penstock("migrate", state, "shop_now:shop", *WORDS, "--yes")[0] == 0
    assert set(Directory(state).tables) == {"Item"}


def test_what_lacks_a_word_is_one_line(state: Path) -> None:
    code, _, err = penstock("migrate", state, "shop_now:shop", *WORDS[:2], "--yes")
    assert code == 1 and "column 'note' is in it, and not declared any more" in err and len(err.splitlines()) == 1
    assert "say what the column is called now" in penstock("migrate", state, "shop_now:shop", "--rename", "Item.x")[2]


@pytest.mark.parametrize("opened", [False, True])
def test_check_lists_the_records_that_break_a_new_check(state: Path, opened: bool) -> None:
    import shop_strict  # type: ignore[import-not-found]

    if opened:
        shop_strict.shop.open(state).close()
    code, out, _ = penstock("check", state, "--app", "shop_strict:shop")
    assert code == 0 and "none left" in out and "1 record breaks a check" in out
    told = json.loads(penstock("check", state, "--app", "shop_strict:shop", "--json")[1])
    assert told["broken"] == [{"table": "Item", "key": "'b'", "check": "'none left'"}]
    assert "every record holds" in penstock("check", state, "--app", "shop_before:shop")[1]
