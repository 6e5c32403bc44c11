"""How one schema becomes the next, or why it cannot.

    when it is opened     a new table, window or event; a new column with a default; a wider decimal, int as a decimal;
                          events' fields; checks, defaults, ttl, transactions
    only with a word      a column with another name; a column, table or window that goes (`app.migrate`)
    never                 all else: it is named, with what to do

A word says what the declarations alone cannot: whether a column that is not there any more has another name now, or is
to go with its values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from penstock.declare.model import Column, Program
from penstock.declare.types import Type
from penstock.errors import InputError, StateError
from penstock.plan import schema
from penstock.plan.schema import Schema

# How many of the reasons why a directory cannot be opened are named.
_MOST = 3
_COMMAND = " (`penstock migrate` takes the same words)"


@dataclass(frozen=True, slots=True)
class Words:
    """What is said beside the declarations."""

    rename: Mapping[str, str] = field(default_factory=dict)  # "Account.amount" -> "balance"
    drop: Sequence[str] = ()  # "Account.note"
    drop_tables: Sequence[str] = ()

    @classmethod
    def checked(cls, rename: Any, drop: Any, drop_tables: Any) -> Words:
        """InputError where these are no words."""
        if (
            not isinstance(rename, Mapping)
            or not all(map(_is_column, rename))
            or not all(map(_is_name, rename.values()))
        ):
            raise InputError(
                f'rename={rename!r}: give what each column is called now, as {{"Account.amount": "balance"}}'
            )
        if isinstance(drop, str) or not all(map(_is_column, drop)):
            raise InputError(f'drop={drop!r}: give a list of columns, as ["Account.note"]; drop_tables takes tables')
        if isinstance(drop_tables, str) or not all(map(_is_name, drop_tables)):
            raise InputError(f'drop_tables={drop_tables!r}: give a list of tables, as ["Old"]; drop takes columns')
        twice = sorted(set(rename) & set(drop))
        if twice:
            raise InputError(f"{twice[0]!r} is to have another name, and to be dropped; say one of them")
        return cls(dict(rename), tuple(drop), tuple(drop_tables))

    @property
    def all(self) -> list[str]:
        return [*self.rename, *self.drop, *self.drop_tables]


@dataclass(frozen=True, slots=True)
class Migration:
    """was -> now, as the log holds it."""

    was: Schema
    now: Schema
    renamed: dict[str, dict[str, str]]  # table -> a column's name before -> now
    steps: tuple[str, ...]  # in words; none where nothing changes

    @property
    def restated(self) -> tuple[str, ...]:
        """The tables whose records have other columns from now on."""
        was, now = self.was.tables, self.now.tables
        return tuple(name for name in now if name in was and was[name] != now[name])

    @property
    def narrowed(self) -> tuple[str, ...]:
        """Where a column, or a field, may be of fewer values than before: its Enum has lost members, or is new there.
        As "table 'Order'"."""
        return tuple(place for place, columns in self.now.members.items() if self._narrowed(place, columns))

    def _narrowed(self, place: str, columns: Mapping[str, list[Any]]) -> bool:
        was = self.was.members.get(place, {})
        renamed = next((names for table, names in self.renamed.items() if place == f"table '{table}'"), {})
        before = {new: old for old, new in renamed.items()}
        return any(
            (known := was.get(name, was.get(before.get(name, name)))) is None or not set(known) <= set(values)
            for name, values in columns.items()
        )

    def note(self) -> dict[str, Any]:
        return {"was": self.was.content, "now": self.now.content, "renamed": self.renamed, "steps": list(self.steps)}

    @classmethod
    def read(cls, note: dict[str, Any]) -> Migration:
        was, now = Schema.read(note["was"]), Schema.read(note["now"])
        return cls(was, now, note["renamed"], tuple(note["steps"]))


def migration(
    program: Program,
    was: Schema,
    now: Schema,
    words: Words,
    where: str,
    records: Mapping[str, int] = MappingProxyType({}),
) -> Migration:
    """where: the directory; records: how many each table has there. StateError where that cannot be; InputError where a
    word fits nothing."""
    compared = _Comparison(program, was, now, words, where, records)
    steps = tuple(compared.steps())
    if steps or compared.wrong:  # Else all that was said has been done.
        compared.refuse_unused()
    compared.refuse_declared()
    if compared.wrong:
        more = "; ..." if len(compared.wrong) > _MOST else ""
        raise StateError(
            f"state directory {where} is of another schema than app '{program.name}': "
            f"{'; '.join(compared.wrong[:_MOST])}{more}{_COMMAND if compared.says else ''}"
        )
    return Migration(was, now, compared.renamed, steps)


def widens(before: Type, now: Type) -> bool:
    """Whether each value of the one type is one of the other; an int may yet be too large for a decimal, and is looked
    at."""
    if before == now:
        return True
    if now.kind != "decimal" or before.kind not in ("int", "decimal"):
        return False
    whole = now.precision - now.scale
    return before.kind == "int" or (now.scale >= before.scale and whole >= before.precision - before.scale)


class _Comparison:
    def __init__(
        self, program: Program, was: Schema, now: Schema, words: Words, where: str, records: Mapping[str, int]
    ) -> None:
        self._program, self._was, self._now, self._words, self._where = program, was, now, words, where
        self._records = records
        self.wrong: list[str] = []
        self.renamed: dict[str, dict[str, str]] = {}
        self.says = False  # whether something wrong is a matter of words
        self._unused = words.all

    def steps(self) -> Iterator[str]:
        yield from self._tables()
        yield from self._windows()
        self._roles()
        yield from self._events()
        yield from self._rest()

    def refuse_unused(self) -> None:
        if self._unused:
            raise InputError(
                f"app '{self._program.name}': {self._unused[0]!r} names nothing that state directory {self._where} has "
                'and the app has not; write "Account.note" for a column, "Old" for a table, as they are there'
            )

    def refuse_declared(self) -> None:
        """What is in both cannot go, nor be called otherwise: an exchange of two names cannot be told from nothing."""
        columns = {f"{table}.{name}" for table, names in self._now.tables.items() for name in names}
        still = [word for word in self._unused if word in columns or word in {**self._now.tables, **self._now.windows}]
        if still:
            raise InputError(
                f"app '{self._program.name}' declares {still[0]!r} still, so that it can neither be dropped nor have "
                "another name; to exchange two names, go by way of a third one, in two migrations"
            )

    def _used(self, word: str, among: Iterable[str]) -> bool:
        if word not in among:
            return False
        self._unused = [other for other in self._unused if other != word]
        return True

    # -- tables -----------------------------------------------------------------------------

    def _tables(self) -> Iterator[str]:
        was, now = self._was.tables, self._now.tables
        for name in was:
            if name in now:
                yield from self._columns(name, was[name], now[name])
            elif self._used(name, self._words.drop_tables):
                yield f"table '{name}' goes{self._with('', name)}"
            else:
                self.wrong.append(
                    f"table '{name}' is in it, and not declared any more; declare it, or drop it with its records: "
                    f"{self._say(drop_tables=name)}"
                )
        yield from (f"new table '{name}'" for name in now if name not in was)

    def _columns(self, table: str, was: dict[str, str], now: dict[str, str]) -> Iterator[str]:
        kept: dict[str, str] = {}  # name now -> before
        for name in was:
            at = f"{table}.{name}"
            if name in now:
                kept[name] = name
            elif self._used(at, self._words.rename):
                new = self._words.rename[at]
                if new not in now or new in was or new in kept:
                    self.wrong.append(f"{at} cannot become '{new}': {self._why_not(table, new, now)}")
                    kept[new] = name
                    continue
                kept[new] = name
                self.renamed.setdefault(table, {})[name] = new
                yield f"table '{table}': column '{name}' becomes '{new}'"
            elif was[name].endswith(" key"):
                self.wrong.append(
                    f"table '{table}': key column '{name}' is in it, and not declared any more; a key cannot change: "
                    f"declare it as it was, or say what it is called now: {self._say(rename=at)}"
                )
            elif self._used(at, self._words.drop):
                yield f"table '{table}': column '{name}' goes{self._with(' its values in', table)}"
            else:
                self.wrong.append(
                    f"table '{table}': column '{name}' is in it, and not declared any more; declare it, give its new "
                    f"name, or drop it with its values: {self._say(rename=at)}, or {self._say(drop=at)}"
                )
        for name, text in now.items():
            if name in kept:
                yield from self._type(table, name, was[kept[name]], text)
            else:
                yield from self._new(table, name, text)

    def _with(self, what: str, table: str) -> str:
        count = self._records.get(table)
        return "" if count is None else f", with{what} {count:,} record{'' if count == 1 else 's'}"

    def _why_not(self, table: str, new: str, now: dict[str, str]) -> str:
        if new not in now:
            return f"table '{table}' declares no such column; give the name that it has now"
        return "the directory has that column already; give each column a name of its own"

    def _type(self, table: str, name: str, was: str, now: str) -> Iterator[str]:
        if was == now:
            return
        at = f"table '{table}': column '{name}'"
        before, after = Column.of_text(name, was), Column.of_text(name, now)
        if was.endswith(" key") or now.endswith(" key"):
            self.wrong.append(
                f"{at} is {was} in it, and declared as {now}; a key cannot change: declare it as it was, or fill a new "
                "table from this one"
            )
        elif before is not None and after is not None and before.nullable and not after.nullable:
            self.wrong.append(
                f"{at} is {was} in it, and declared as {now}; its records may hold None: declare it as it was, or "
                "add a column with another name"
            )
        elif before is None or after is None or not widens(before.type, after.type):
            self.wrong.append(
                f"{at} is {was} in it, and declared as {now}; a column only becomes wider, as int or a decimal becomes "
                "a decimal that holds all of it: declare it as it was, or add a column with another name"
            )
        else:
            yield f"{at}, {was}, becomes {now}"

    def _new(self, table: str, name: str, text: str) -> Iterator[str]:
        column = self._program.table(table).column(name)
        assert column is not None
        if column.key:
            self.wrong.append(
                f"table '{table}': key column '{name}' is declared, and not in it; a key cannot change: declare it as "
                "it was, or fill a new table from this one"
            )
        elif column.required:
            self.wrong.append(
                f"table '{table}': column '{name}' is declared, and not in it; its records need a value: give it a "
                "default, or say which column it was before: " + self._say(rename=f"{table}.OLD", to=name)
            )
        else:
            yield f"table '{table}': new column '{name}' {text}, {column.default!r} in its records"

    def _say(self, *, rename: str = "", to: str = "NEW", drop: str = "", drop_tables: str = "") -> str:
        """What to call."""
        self.says = True
        if rename:
            return f'app.migrate(path, rename={{"{rename}": "{to}"}})'
        if drop:
            return f'app.migrate(path, drop=["{drop}"])'
        return f'app.migrate(path, drop_tables=["{drop_tables}"])'

    # -- windows, events --------------------------------------------------------------------

    def _windows(self) -> Iterator[str]:
        was, now = self._was.windows, self._now.windows
        for name in was:
            if name not in now and self._used(name, self._words.drop_tables):
                yield f"window '{name}' and its rows go"
            elif name not in now:
                self.wrong.append(
                    f"window '{name}' is in it, and not declared any more; declare it, or drop it with its rows: "
                    + self._say(drop_tables=name)
                )
            else:
                self._window(name, was[name], now[name])
        yield from (f"new window '{name}'" for name in now if name not in was)

    def _window(self, name: str, was: dict[str, Any], now: dict[str, Any]) -> None:
        for part in {**was, **now}:
            if was.get(part) != now.get(part):
                this = f"{part} is {_short(was.get(part))} in it, and declared as {_short(now.get(part))}"
                self.wrong.append(
                    f"window '{name}': {this}; what a window shows cannot change: declare it as it was, or another "
                    "window with a name of its own"
                )

    def _roles(self) -> None:
        for role, what in (("order", "ts"), ("id", "ids")):
            was, now = self._was.role(role), self._now.role(role)
            if was is not None and now is not None and was != now:
                self.wrong.append(
                    f"{what} of its events: {was} in it, and declared as {now}; what has run cannot be told from what "
                    "comes by another type: declare it as it was, or begin another directory"
                )

    def _events(self) -> Iterator[str]:
        was, now = self._was.noted(schema.EVENTS), self._now.noted(schema.EVENTS)
        if was is None or now is None:
            return
        yield from (f"event '{name}' goes" for name in was if name not in now)
        yield from (f"new event '{name}'" for name in now if name not in was)
        for name in (name for name in now if name in was and was[name] != now[name]):
            before, after = was[name], now[name]
            yield from (f"event '{name}': field '{field}' goes" for field in before if field not in after)
            for field_, text in after.items():
                if field_ not in before:
                    yield f"event '{name}': new field '{field_}' {text}"
                elif before[field_] != text:
                    yield f"event '{name}': field '{field_}', {before[field_]}, becomes {text}"

    # -- the rest ---------------------------------------------------------------------------

    def _rest(self) -> Iterator[str]:
        for part, one in ((schema.CHECKS, "check"), (schema.DEFAULTS, "default")):
            was, now = self._was.noted(part), self._now.noted(part)
            for table in self._now.tables if was is not None and now is not None else ():
                if table in self._was.tables:
                    at = f"table '{table}': "
                    of = "" if one == "check" else "of column "
                    yield from _changed(f"{at}{one} {of}", *self._both(part, table))
        ttl, later = self._was.ttl, self._now.ttl
        for table in (table for table in self._now.tables if ttl.get(table) != later.get(table)):
            if table in self._was.tables:
                yield f"table '{table}': ttl {ttl.get(table, 'none')} becomes {later.get(table, 'none')}"
        there = {part: self._was.noted(part) or {} for part in (schema.TABLES, schema.WINDOWS, schema.EVENTS)}
        for event in there[schema.EVENTS]:
            if self._was.unique.get(event) != self._now.unique.get(event):
                yield f"event '{event}': the span within which an id runs once has changed"
        for place in (f"{part[:-1]} '{name}'" for part, several in there.items() for name in several):
            if self._was.members.get(place) != self._now.members.get(place):
                yield f"{place}: other members of an Enum"
        was, now = self._was.noted(schema.TRANSACTIONS), self._now.noted(schema.TRANSACTIONS)
        if was is not None and now is not None:
            yield from _changed("transaction ", was, now)
        timed = self._was.noted(schema.TIMED)
        if timed is not None and set(timed) != set(self._now.noted(schema.TIMED) or ()):
            yield "other events are emitted with at="

    def _both(self, part: str, table: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """What was noted of a table and what is, but for defaults of columns that come, go or change."""
        was, now = (dict((one.noted(part) or {}).get(table, {})) for one in (self._was, self._now))
        if part == schema.DEFAULTS:
            was = {self.renamed.get(table, {}).get(name, name): value for name, value in was.items()}
            columns = {self.renamed.get(table, {}).get(n, n): text for n, text in self._was.tables[table].items()}
            same = {n for n, text in self._now.tables[table].items() if columns.get(n) == text}
            was, now = ({n: value for n, value in one.items() if n in same} for one in (was, now))
        return was, now


def _is_name(word: Any) -> bool:
    return isinstance(word, str) and word.isidentifier()


def _is_column(word: Any) -> bool:
    return isinstance(word, str) and [*map(str.isidentifier, word.split("."))] == [True, True]


def _changed(what: str, was: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    for name in {**was, **now}:
        if name not in now:
            yield f"{what}'{name}' goes"
        elif name not in was:
            yield f"new: {what}'{name}'"
        elif was[name] != now[name]:
            yield f"{what}'{name}' has changed"


def _short(value: Any) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) <= 80 else text[:77] + "..."
