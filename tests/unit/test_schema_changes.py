"""An app whose declarations have changed, on the state directory that they were before: what is applied when it is
opened, what needs a word, what is refused; and older versions, which read as they were written."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.errors import InputError, StateError
from penstock.replica.directory import Directory


def bank(
    columns: dict[str, Any] | None = None,
    *,
    key: Any = str,
    fields: dict[str, Any] | None = None,
    more: Callable[[ps.App], None] = lambda app: None,
    check: str = "",
    step: int = 1,
    order: Any = int,
    old: bool = False,
    name: str = "bank",
) -> ps.App:
    """Accounts with these columns, the first of which deposits add to. old: with a table Old."""
    app = ps.App(name)
    columns = {"balance": (int, 0)} if columns is None else columns
    first = next(iter(columns))
    body: dict[str, Any] = {"id": ps.key(), "__annotations__": {"id": key, **{n: t for n, (t, *_) in columns.items()}}}
    body |= {n: default for n, (_, *defaults) in columns.items() for default in defaults}
    if check:

        def sound(self: Any) -> bool:
            return self.balance >= 0  # type: ignore[no-any-return]

        body["sound"] = ps.check(check)(sound)
    Account = app.table(type("Account", (), body))

    if old:

        @app.table
        class Old:
            id: int = ps.key()

    more(app)
    fields = {"amount": int} if fields is None else fields
    annotations = {"ts": order, "account": key, **fields}
    Deposit = app.event(type("Deposit", (), {"ts": ps.order(), "__annotations__": annotations}))
    if "amount" not in fields:

        def deposit(e: Any) -> None:
            del Account[e.account]

    elif first == "total":

        def deposit(e: Any) -> None:
            Account.get(e.account).total += e.amount

    elif step == 2:

        def deposit(e: Any) -> None:
            Account.get(e.account).balance += 2 * e.amount

    else:

        def deposit(e: Any) -> None:
            Account.get(e.account).balance += e.amount

    deposit.__annotations__["e"] = Deposit
    app.transaction(deposit)
    return app


def deposits(app: ps.App, *several: tuple[Any, ...]) -> dict[str, pa.Table]:
    """ts, account, and the fields behind them."""
    schema = app.program.events[0].arrow()
    columns = zip(*several, strict=True)
    return {"Deposit": pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)}


OPTIONS: dict[str, Any] = {"background": False}


def filled(path: Path, app: ps.App | None = None, **options: Any) -> Path:
    """Two versions: of a and b, and of a again."""
    app = app or bank()
    with app.open(path, **OPTIONS | options) as db:
        db.run(deposits(app, (1, "a", 10), (2, "b", 20)), id=0)
        db.run(deposits(app, (3, "a", 5)), id=1)
    return path


def records(table: pa.Table) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.sort_by("id").to_pylist()
    return found


BEFORE = [{"id": "a", "balance": 15}, {"id": "b", "balance": 20}]


def steps(path: Path) -> list[str]:
    """Of the last change."""
    directory = Directory(path)
    entries = [entry.schema for entry in directory._look(lambda found: found.segments).values() if entry.schema]
    assert entries
    return list(entries[-1]["steps"])


# -- applied when it is opened ------------------------------------------------------------------

APPLIED: dict[str, tuple[dict[str, Any], list[dict[str, Any]], str]] = {
    "a new column": (
        {"columns": {"balance": (int, 0), "note": (str, "-")}},
        [{**row, "note": "-"} for row in BEFORE],
        "table 'Account': new column 'note' str, '-' in its records",
    ),
    "a new column in front": (
        {"columns": {"balance": (int, 0), "at": (ps.decimal(4, 2), Decimal("1.5"))}},
        [{**row, "at": Decimal("1.50")} for row in BEFORE],
        "table 'Account': new column 'at' decimal(4, 2), Decimal('1.50') in its records",
    ),
    "int as a decimal": (
        {"columns": {"balance": (ps.decimal(18, 2), 0)}},
        [{"id": "a", "balance": Decimal("15.00")}, {"id": "b", "balance": Decimal("20.00")}],
        "table 'Account': column 'balance', int, becomes decimal(18, 2)",
    ),
    "a new table": ({"old": True}, BEFORE, "new table 'Old'"),
    "a new check": ({"check": "sound"}, BEFORE, "new: table 'Account': check 'sound'"),
    "another default": (
        {"columns": {"balance": (int, 7)}}, BEFORE, "table 'Account': default of column 'balance' has changed"
    ),
    "another transaction": ({"step": 2}, BEFORE, "transaction 'deposit' has changed"),
    "a field more": ({"fields": {"amount": int, "by": str}}, BEFORE, "event 'Deposit': new field 'by' str"),
    "a field less": ({"fields": {}}, BEFORE, "event 'Deposit': field 'amount' goes"),
}  # fmt: skip


@pytest.mark.parametrize("log", ["changes", "input", "source"])
@pytest.mark.parametrize("what", APPLIED)
def test_what_loses_nothing_is_applied_when_it_is_opened(what: str, log: Any, tmp_path: Path) -> None:
    filled(tmp_path, log=log)
    change, after, step = APPLIED[what]
    app = bank(**change)
    for _ in range(2):  # once it is changed, and then read back
        with app.open(tmp_path, log=log, **OPTIONS) as db:
            assert (db.version, db.last_id) == (3, 1)
            assert records(db.table("Account")) == after
            assert db.outcomes(3).num_rows == 0
            assert db.is_between(3)
    assert step in steps(tmp_path)
    assert records(Directory(tmp_path).table("Account")) == after
    if log == "changes":
        with app.open(tmp_path) as db:
            for read in (Directory(tmp_path).table, db.table):
                assert records(read("Account", 1)) == [{"id": "a", "balance": 10}, {"id": "b", "balance": 20}]
                assert records(read("Account", 2)) == BEFORE


def test_a_decimal_becomes_wider(tmp_path: Path) -> None:
    filled(tmp_path, bank({"balance": (ps.decimal(6, 2), 0)}))
    with bank({"balance": (ps.decimal(9, 3), 0)}).open(tmp_path, **OPTIONS) as db:
        assert [row["balance"] for row in records(db.table("Account"))] == [Decimal("15.000"), Decimal("20.000")]
        assert str(db.table("Account", 2).schema.field("balance").type) == "decimal128(6, 2)"


def test_nothing_that_changed_is_no_version(tmp_path: Path) -> None:
    filled(tmp_path)
    for _ in range(3):
        with bank().open(tmp_path) as db:
            assert db.version == 2


def test_a_value_that_does_not_fit_is_named(tmp_path: Path) -> None:
    app = bank()
    with app.open(tmp_path) as db:
        db.run(deposits(app, (1, "a", 99), (1, "b", 100)))
    with pytest.raises(
        StateError, match=r"record of table 'Account' with the key 'b' has balance = 100, which is no dec"
    ):
        bank({"balance": (ps.decimal(4, 2), 0)}).open(tmp_path)
    with app.open(tmp_path) as db:
        assert db.version == 1


def test_transactions_run_over_what_was_brought_over(tmp_path: Path) -> None:
    filled(tmp_path)
    app = bank({"balance": (ps.decimal(18, 2), 0), "note": (str, "-")})
    with app.open(tmp_path, **OPTIONS) as db:
        db.run(deposits(app, (4, "a", 1), (5, "c", 2)), id=2)
    with app.open(tmp_path, **OPTIONS) as db:
        assert (db.version, db.last_id) == (4, 2)
        assert [(row["id"], int(row["balance"])) for row in records(db.table("Account"))] == [
            ("a", 16), ("b", 20), ("c", 2)
        ]  # fmt: skip


# -- a word -------------------------------------------------------------------------------------

LATER = {"total": (int, 0)}


def test_a_column_with_another_name_needs_a_word(tmp_path: Path) -> None:
    filled(tmp_path)
    app = bank(LATER)
    with pytest.raises(StateError, match=r"column 'balance' is in it.*rename=\{\"Account.balance\": \"NEW\"\}"):
        app.open(tmp_path)
    said = app.migrate(tmp_path, rename={"Account.balance": "total"})
    assert said[0] == "table 'Account': column 'balance' becomes 'total'"
    with app.open(tmp_path) as db:
        assert (db.version, records(db.table("Account"))) == (3, [{"id": "a", "total": 15}, {"id": "b", "total": 20}])
        assert records(db.table("Account", 2)) == BEFORE


def test_what_is_dropped_needs_a_word(tmp_path: Path) -> None:
    filled(tmp_path, bank({"balance": (int, 0), "note": (str, "-")}, old=True))
    app = bank()
    with pytest.raises(StateError, match=r"drop=\[\"Account.note\"\].*table 'Old'.*drop_tables=\[\"Old\"\]"):
        app.open(tmp_path)
    said = app.migrate(tmp_path, drop=["Account.note"], drop_tables=["Old"])
    assert said == (
        "table 'Account': column 'note' goes, with its values in 2 records",
        "table 'Old' goes, with 0 records",
    )
    with app.open(tmp_path) as db:
        assert records(db.table("Account")) == BEFORE
        assert records(db.table("Account", 2)) == [{**row, "note": "-"} for row in BEFORE]
        assert db.table("Old", 2).num_rows == 0
        with pytest.raises(InputError, match="has no table 'Old'"):
            db.table("Old")
    assert set(Directory(tmp_path).view(2).tables) == {"Account", "Old"}
    with pytest.raises(InputError, match="has no table 'Old'; it has Account; it was dropped in version 3"):
        Directory(tmp_path).table("Old")


def test_migrate_says_it_first_and_changes_nothing_on_a_dry_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    filled(tmp_path)
    app, before = bank(LATER), sorted((tmp_path / "log").iterdir())
    rename = {"Account.balance": "total"}
    said = app.migrate(tmp_path, rename, dry_run=True)
    assert sorted((tmp_path / "log").iterdir()) == before
    told = capsys.readouterr().out
    assert "by app 'bank' (nothing is changed now):" in told and f"  {said[0]}\n" in told
    assert app.migrate(tmp_path, rename) == said
    capsys.readouterr()
    assert app.migrate(tmp_path, rename) == ()
    assert "is as app 'bank' declares it: there is nothing to do" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        ({"rename": {"Account.amount": "total"}}, "'Account.amount' names nothing that"),
        ({"rename": {"Account.balance": "sum"}}, "Account.balance cannot become 'sum': table 'Account' decl"),
        ({"rename": {"Account.balance": "note"}}, "cannot become 'note': the directory has that column already"),
        ({"drop": ["Account.note"]}, "'Account.note' names nothing that"),
        ({"drop": ["Account.id"]}, "'Account.id' names nothing that"),
        ({"drop": "Account.balance"}, r"give a list of columns, as \[\"Account.note\"\]"),
        ({"drop": ["balance"]}, "give a list of columns"),
        ({"drop": ["Account.balance"], "rename": {"Account.balance": "total"}}, "say one of them"),
        ({"drop_tables": ["Account.balance"]}, "give a list of tables"),
        ({"rename": ["Account.balance"]}, "give what each column is called now"),
    ],
)  # fmt: skip
def test_a_word_that_fits_nothing_is_refused(words: dict[str, Any], wrong: str, tmp_path: Path) -> None:
    filled(tmp_path, bank({"balance": (int, 0), "note": (str, "-")}))
    with pytest.raises((InputError, StateError), match=wrong):
        bank({"total": (int, 0), "note": (str, "-")}).migrate(tmp_path, **words)
    assert Directory(tmp_path).version == 2


@pytest.mark.parametrize(
    "words", [{"rename": {"Account.balance": "note", "Account.note": "balance"}}, {"drop_tables": ["Account"]}]
)
def test_a_word_for_what_is_declared_still_is_no_silence(words: dict[str, Any], tmp_path: Path) -> None:
    app = bank({"balance": (int, 0), "note": (int, 1)})
    with app.open(filled(tmp_path, app), **OPTIONS) as db:
        assert db.version == 2
    with pytest.raises(InputError, match=r"declares 'Account.*' still"):
        app.migrate(tmp_path, **words)


def test_a_directory_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="is not a state directory"):
        bank().migrate(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()


# -- refused ------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "another type": ({}, {"columns": {"balance": (str, "")}, "fields": {}}, "'balance' is int in it"),
    "a narrower decimal": (
        {"columns": {"balance": (ps.decimal(9, 2), 0)}},
        {"columns": {"balance": (ps.decimal(9, 3), 0)}},
        r"'balance' is decimal\(9, 2\) in it, and declared as decimal\(9, 3\); a column only becomes wider",
    ),
    "another key": ({}, {"key": int}, "column 'id' is str key in it, and declared as int key; a key cannot change"),
    "no default": (
        {},
        {"columns": {"balance": (int, 0), "note": (str,)}, "fields": {}},
        r"column 'note' is declared, and not in it; its records need a value: .*\"Account.OLD\": \"note\"",
    ),
    "another order": ({}, {"order": __import__("datetime").datetime}, "ts of its events: int in it, and decl"),
    "another app": ({}, {"name": "shop"}, "it is of app 'bank', and this is app 'shop'"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_all_else_is_refused_by_name(what: str, tmp_path: Path) -> None:
    before, change, wrong = REFUSED[what]
    filled(tmp_path, bank(**before))
    with pytest.raises(StateError, match=wrong):
        bank(**change).open(tmp_path)
    with bank(**before).open(tmp_path) as db:
        assert db.version == 2


def test_an_older_app_is_refused_behind_a_change(tmp_path: Path) -> None:
    filled(tmp_path)
    newer = bank({"balance": (int, 0), "note": (str, "-")})
    with newer.open(tmp_path), pytest.raises(StateError, match="is open for writing by pid"):
        bank().open(tmp_path)
    with pytest.raises(StateError, match="column 'note' is in it, and not declared any more"):
        bank().open(tmp_path)


# -- readers ------------------------------------------------------------------------------------


def changed_twice(path: Path) -> ps.App:
    """Versions 1 and 2 with balance, 3 the change to total, 4 a deposit, 5 the change to a decimal, 6 a deposit."""
    filled(path)
    app = bank(LATER)
    app.migrate(path, rename={"Account.balance": "total"})
    with app.open(path, **OPTIONS) as db:
        db.run(deposits(app, (4, "a", 1)), id=2)
    app = bank({"total": (ps.decimal(18, 2), 0), "note": (str, "-")})
    with app.open(path, **OPTIONS) as db:
        db.run(deposits(app, (5, "a", 1)), id=3)
    return app


AS_WRITTEN: dict[int, list[dict[str, Any]]] = {
    0: [],
    1: [{"id": "a", "balance": 10}, {"id": "b", "balance": 20}],
    2: BEFORE,
    3: [{"id": "a", "total": 15}, {"id": "b", "total": 20}],
    4: [{"id": "a", "total": 16}, {"id": "b", "total": 20}],
    5: [{"id": k, "total": Decimal(n), "note": "-"} for k, n in (("a", 16), ("b", 20))],
    6: [{"id": k, "total": Decimal(n), "note": "-"} for k, n in (("a", 17), ("b", 20))],
}


@pytest.mark.parametrize("snapshots", ["none", "each version"])
def test_every_version_reads_as_it_was_written(snapshots: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(OPTIONS, "snapshot_every", 1 if snapshots == "each version" else 50)
    app = changed_twice(tmp_path)
    directory = Directory(tmp_path)
    with app.open(tmp_path) as db:
        for version, rows in AS_WRITTEN.items():
            assert records(directory.table("Account", version)) == rows
            assert records(directory.view(version).tables["Account"]) == rows
            assert records(db.table("Account", version)) == rows
            assert db.sql("select count(*) as n from account", version).to_pylist() == [{"n": len(rows)}]
            assert records(directory.table("Account", version, {"id": ["a"]})) == [r for r in rows if r["id"] == "a"]


A = [  # what a was, by the names of the end
    (1, "written", Decimal(10), None),
    (2, "written", Decimal(15), None),
    (3, "migrated", Decimal(15), None),
    (4, "written", Decimal(16), None),
    (5, "migrated", Decimal(16), "-"),
    (6, "written", Decimal(17), "-"),
]


def test_a_history_goes_through_changes(tmp_path: Path) -> None:
    app = changed_twice(tmp_path)
    with app.open(tmp_path) as db:
        for history in (db.history("Account", "a"), Directory(tmp_path).history("Account", {"id": ["a"]})):
            found = [(r["version"], r["change"], r["total"], r["note"]) for r in history.to_pylist()]
            assert found == A


def test_a_feed_has_the_columns_of_its_end(tmp_path: Path) -> None:
    changed_twice(tmp_path)
    directory = Directory(tmp_path)
    rows = [r for r in directory.changes("Account").to_pylist() if r["id"] == "a"]
    assert [(r["version"], r["change"], r["total"], r["note"]) for r in rows] == A
    rows = [r for r in directory.changes("Account", 1, 2).to_pylist() if r["id"] == "a"]
    assert [(r["version"], r["change"], r["balance"]) for r in rows] == [(1, "written", 10), (2, "written", 15)]
    rows = [r for r in directory.changes("Account", 2, 4).to_pylist() if r["id"] == "a"]
    assert [(r["version"], r["total"]) for r in rows] == [(2, 15), (3, 15), (4, 16)]


def test_a_table_that_goes_and_comes_again_is_another_one(tmp_path: Path) -> None:
    filled(tmp_path)
    other = bank(more=_with_notes(int))
    with other.open(tmp_path, **OPTIONS) as db:
        db.load("Note", [{"id": "x", "n": 1}])
    bank().migrate(tmp_path, drop_tables=["Note"])
    with bank(more=_with_notes(str)).open(tmp_path, **OPTIONS) as db:
        db.load("Note", [{"id": "y", "n": "2"}])
        assert db.table("Note").to_pylist() == [{"id": "y", "n": "2"}]
        assert db.table("Note", 3).to_pylist() == [{"id": "x", "n": 1}]
        assert db.history("Note", "x").num_rows == 0
        assert db.history("Note", "y")["change"].to_pylist() == ["loaded"]
        with pytest.raises(InputError, match="version 2 has no table 'Note', which came later"):
            db.table("Note", 2)
    directory = Directory(tmp_path)
    assert directory.changes("Note").to_pylist() == [{"version": 5, "change": "loaded", "id": "y", "n": "2"}]
    assert directory.history("Note", {"id": ["x"]}).num_rows == 0
    assert directory.table("Note", 3).to_pylist() == [{"id": "x", "n": 1}]
    with pytest.raises(InputError, match="no table 'Note' in version 2"):
        directory.table("Note", 2)


def _with_notes(type_: Any) -> Callable[[ps.App], None]:
    def more(app: ps.App) -> None:
        app.table(type("Note", (), {"id": ps.key(), "__annotations__": {"id": str, "n": type_}}))

    return more


# -- what waits ---------------------------------------------------------------------------------


@pytest.mark.parametrize("log", ["changes", "input"])
def test_events_that_are_held_lose_a_field_that_goes(log: Any, tmp_path: Path) -> None:
    before = bank(fields={"amount": int, "by": str})
    with before.open(tmp_path, log=log, **OPTIONS) as db:
        db.run(deposits(before, (1, "a", 1, "x"), (9, "a", 2, None)), watermark=5)
    app = bank(fields={"amount": ps.decimal(18, 2)}, columns={"balance": (ps.decimal(18, 2), 0)})
    for opening in range(2):
        with app.open(tmp_path, log=log, **OPTIONS) as db:
            assert (db.version, db.held) == (2, 1), opening
    with app.open(tmp_path, log=log, **OPTIONS) as db:
        db.run(deposits(app, (10, "a", Decimal("0.5"))), watermark=5)
        assert db.held == 2
    with app.open(tmp_path, log=log, **OPTIONS) as db:
        db.run({}, flush=True)
        assert records(db.table("Account")) == [{"id": "a", "balance": Decimal("3.50")}]


def test_events_that_are_held_must_fit_a_type_that_has_changed(tmp_path: Path) -> None:
    before = bank(fields={"amount": int, "rank": int})
    with before.open(tmp_path) as db:
        db.run(deposits(before, (1, "a", 1, 1), (9, "a", 2, 1000)), watermark=5)
    for type_, wrong in (
        (ps.decimal(4, 2), "the field 'rank' of one is 1000"),
        (str, "'rank' as int64, and it is str"),
    ):
        with pytest.raises(StateError, match=rf"holds back 1 event\(s\) 'Deposit'.*{wrong}"):
            bank(fields={"amount": int, "rank": type_}).open(tmp_path)


# -- a new check --------------------------------------------------------------------------------


def test_a_new_check_is_not_held_against_old_records_until_they_are_written(tmp_path: Path) -> None:
    app = bank()
    with app.open(tmp_path) as db:
        db.run(deposits(app, (1, "a", -5), (2, "b", 5)))
    app = bank(check="sound")
    with app.open(tmp_path) as db:
        assert records(db.table("Account")) == [{"id": "a", "balance": -5}, {"id": "b", "balance": 5}]
        out = db.run(deposits(app, (3, "a", 1), (4, "b", 1), (5, "a", 9)))
        assert out["reason"].to_pylist() == ["sound", None, None]


# -- what is on disk ----------------------------------------------------------------------------


def test_the_identity_stays_and_the_log_says_what_has_changed(tmp_path: Path) -> None:
    filled(tmp_path)
    before = (tmp_path / "penstock.json").read_bytes()
    with bank({"balance": (int, 0), "note": (str, "-")}).open(tmp_path, **OPTIONS):
        pass
    assert (tmp_path / "penstock.json").read_bytes() == before
    assert json.loads(before)["tables"] == {"Account": {"id": "str key", "balance": "int"}}
    assert steps(tmp_path) == ["table 'Account': new column 'note' str, '-' in its records"]


def test_the_schema_is_known_when_the_commit_that_made_it_is_pruned(tmp_path: Path) -> None:
    filled(tmp_path)
    app = bank({"balance": (int, 0), "note": (str, "-")})
    with app.open(tmp_path, retain=2, snapshot_every=2, **OPTIONS) as db:
        for n in range(2, 12):
            db.run(deposits(app, (2 + n, "a", 1)), id=n)
    directory = Directory(tmp_path)
    assert directory.oldest > 3
    assert records(directory.table("Account"))[0] == {"id": "a", "balance": 25, "note": "-"}
    with app.open(tmp_path) as db:
        assert db.version == 13
    with pytest.raises(StateError, match="column 'note' is in it, and not declared any more"):
        bank().open(tmp_path)
