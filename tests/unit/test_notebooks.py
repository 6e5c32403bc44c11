"""Declarations in a notebook: a cell that runs again declares anew, and what does not fit any more is named."""

import builtins
import linecache
import subprocess
import sys
from typing import Any

import pytest

import penstock as ps
from penstock.testing import check

HEAD = "import penstock as ps\nbank = ps.App('bank')\n"
ACCOUNT = "@bank.table\nclass Account:\n    id: str = ps.key()\n    balance: int = 0\n"
DEPOSIT = "@bank.event\nclass Deposit:\n    ts: int = ps.order()\n    to: str\n    amount: int\n"
BODY = "@bank.transaction\ndef deposit(e: Deposit):\n    Account.get(e.to).balance += e.amount\n"


class Notebook:
    """Runs cells as IPython does: each is a file of its own that is nowhere but in linecache."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {"__name__": "__main__", "__builtins__": builtins}
        self.cells = 0

    def run(self, *cells: str) -> None:
        for cell in cells:
            self.cells += 1
            name = f"<ipython-input-{self.cells}>"
            linecache.cache[name] = (len(cell), None, cell.splitlines(keepends=True), name)
            exec(compile(cell, name, "exec"), self.names)


@pytest.fixture
def book() -> Notebook:
    out = Notebook()
    out.run(HEAD, ACCOUNT, DEPOSIT, BODY)
    return out


def test_a_cell_that_runs_again_declares_anew(book: Notebook, capsys: pytest.CaptureFixture[str]) -> None:
    bank, names = book.names["bank"], book.names
    old, one = names["Account"], names["Deposit"](ts=1, to="a", amount=2)
    with bank.open() as db, bank.reference() as reference:
        book.run(
            ACCOUNT
            + "    times: int = 0\n    @ps.check('rich')\n    def poor(self):\n        return self.balance < 9\n"
        )
        assert (
            "table 'Account' is declared anew; databases that are open keep the one before" in capsys.readouterr().err
        )
        assert old is names["Account"]
        for side in (db, reference):  # they keep theirs
            assert side.run([one]).column("status").to_pylist() == ["committed"]
            assert side.table("Account").to_pylist() == [{"id": "a", "balance": 2}]
    book.run(BODY + "    Account[e.to].times += 1\n    return {'left': Account[e.to].balance}\n")
    assert "transaction 'deposit' is declared anew" in capsys.readouterr().err
    batch = [one, names["Deposit"](ts=2, to="a", amount=7)]
    (out,) = check(bank, batches=[batch])
    assert out.column("left").to_pylist() == [2, None]
    assert out.column("reason").to_pylist() == [None, "rich"]
    book.run(DEPOSIT.replace("int\n", "float\n").replace("ts: float", "ts: int"))
    said = capsys.readouterr().err
    assert "event 'Deposit' is declared anew" in said
    assert "run the cell of transaction 'deposit' again, which does not fit it: transaction 'deposit' (<ipython" in said
    with pytest.raises(ps.DeclarationError, match=r"transaction 'deposit'.*float"):
        bank.open()
    book.run(DEPOSIT, BODY)
    check(bank, batches=[[names["Deposit"](ts=1, to="a", amount=2)]])
    with pytest.raises(ps.DeclarationError, match="event 'Deposit' already runs transaction 'deposit'"):
        book.run(BODY.replace("def deposit", "def other"))
    with pytest.raises(ps.DeclarationError, match=r"'account'.*declared twice"):
        book.run(ACCOUNT.replace("Account", "account"))


def test_windows_and_triggers_are_declared_anew(capsys: pytest.CaptureFixture[str]) -> None:
    book = Notebook()
    window = "@bank.window(rows=2)\nclass Last:\n    amount: int\n"
    trigger = "@bank.trigger\ndef full(w: Last):\n    if w.amount.sum() > 9:\n        ps.abort('full')\n"
    body = "@bank.transaction\ndef deposit(e: Deposit):\n    Last.add(amount=e.amount)\n    return {'n': len(Last)}\n"
    book.run(HEAD, DEPOSIT, window, trigger, body, window.replace("rows=2", "rows=3"), trigger.replace("9", "3"))
    said = capsys.readouterr().err
    assert "window 'Last' is declared anew" in said
    assert "trigger 'full' is declared anew" in said
    batch = [book.names["Deposit"](ts=n, to="", amount=1) for n in range(5)]
    (out,) = check(book.names["bank"], batches=[batch])
    assert out.column("n").to_pylist() == [1, 2, 3, 3, 3]


def test_a_function_is_what_it_was_when_it_was_declared(book: Notebook) -> None:
    linecache.cache["<ipython-input-4>"] = (0, None, ["something else\n"], "<ipython-input-4>")
    book.run(ACCOUNT)
    check(book.names["bank"], batches=[[book.names["Deposit"](ts=1, to="a", amount=2)]])


def test_in_a_file_a_name_twice_is_a_mistake() -> None:
    app = ps.App("twice")

    @app.table
    class Account:
        id: str = ps.key()

    with pytest.raises(ps.DeclarationError, match="declared twice"):

        @app.table
        class Account:
            id: str = ps.key()


@pytest.mark.parametrize("way", ["-c", "-"])
def test_without_source_the_message_says_what_to_do(way: str) -> None:
    source = HEAD + ACCOUNT + DEPOSIT + BODY + "bank.plan\nprint('planned')\n"
    given = {"input": None, "args": [sys.executable, "-c", source]} if way == "-c" else {}
    given = given or {"input": source, "args": [sys.executable, "-"]}
    done = subprocess.run(**given, capture_output=True, text=True, check=False)
    kept = "planned" in done.stdout
    assert kept or "write the app into a file and import it, or declare it in a notebook" in done.stderr
    assert kept or sys.version_info < (3, 13) or way == "-"
