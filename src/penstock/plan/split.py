"""A transaction split into fragments, one for each record that it reaches, which threads may run apart.

Every operation has one home: what touches a record is at home with it, what is computed from one record's values
stays there, what needs several goes to the last of them. What the event alone gives is computed wherever it is
needed. A value that is needed away from home is exported; fragments that need each other are one.

    transfer(src, dst, amount)      fragment 0   src: missing? enough? src.balance -= amount
                                    fragment 1   dst: missing? dst.balance += amount

A transaction with a loop, or with one record, or whose fragments all need each other, is not split; nor is a group of
members that have checks of their own, nor a transaction with very many records or operations: each fragment is compiled
beside the whole, and computes for itself what the event alone gives.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.plan.foresee import AccessSet, foresee
from penstock.plan.ir import Op, Plan, TransactionPlan

_MOST_FRAGMENTS, _MOST_OPERATIONS = 6, 200


@dataclass(frozen=True, slots=True)
class Fragment:
    sites: tuple[int, ...]  # numbers among the transaction's sites
    ops: tuple[Op, ...]  # what it runs, in program order; what the event alone gives may stand in several
    imports: frozenset[int]  # values that other fragments compute
    may_abort: bool


@dataclass(frozen=True, slots=True)
class Split:
    fragments: tuple[Fragment, ...]
    edges: tuple[tuple[int, int], ...]  # (from, to): the first computes what the second needs; from < to
    exports: tuple[int, ...]  # values that fragments hand over
    positions: dict[int, int]  # operation -> its place in the program


def split(plan: Plan, transaction: TransactionPlan) -> Split | None:
    foresight = foresee(transaction)
    if foresight is None or len(foresight.sites) < 2 or any(op.is_loop for op in transaction.block.ops):
        return None
    if any(op.traits.whole for op in transaction.block.ops):
        return None
    if len(transaction.block.ops) > _MOST_OPERATIONS or _chooses(transaction):
        return None
    homes = _Homes(transaction, foresight)
    groups = _merged(len(foresight.sites), homes.needs())
    if not 2 <= len(set(groups)) <= _MOST_FRAGMENTS:
        return None
    return _Splitter(plan, transaction, foresight, homes, groups).split()


def _chooses(transaction: TransactionPlan) -> bool:
    """Whether it reads or writes a record that it chose from several: no one site is that operation's home."""
    ops = {op.id: op for op in transaction.block.walk()}
    rows = [op.args[0] for op in ops.values() if op.traits.takes == "row"]
    return any(row not in ops or ops[row].traits.takes != "key" for row in rows)


class _Homes:
    """The site at which every operation is at home; what has none is computed wherever it is needed."""

    def __init__(self, transaction: TransactionPlan, foresight: AccessSet) -> None:
        self.ops = transaction.block.ops
        self.by_id = {op.id: op for op in self.ops}
        self.home: dict[int, int] = {}
        self.floating: set[int] = set()  # dear, and from the event alone: at home with whoever needs it first
        sites = {row: n for n, site in enumerate(foresight.sites) for row in site.rows}
        gives: dict[str, list[Op]] = {}
        for op in self.ops:
            if op.id in sites:
                self._give_home(op, sites[op.id])
            elif op.traits.takes == "row":
                self._give_home(op, self.home[op.args[0]])
            elif op.code == "return":
                gives.setdefault(op.name, []).append(op)
            else:
                homes = [self.home[a] for a in _used(op) if a in self.home]
                if homes:
                    self._give_home(op, max(homes))
                elif op.code == "udf" or any(a in self.floating for a in _used(op)):
                    self.floating.add(op.id)
        # All that may set one returned field must do so in order.
        for several in gives.values():
            homes = [self.home[a] for op in several for a in _used(op) if a in self.home]
            for op in several:
                self._give_home(op, max(homes, default=0))
        for op in self.ops:
            if op.id in self.floating:
                self._give_home(op, 0)
        self.everywhere = {op.id for op in self.ops if op.id not in self.home}

    def _give_home(self, op: Op, home: int) -> None:
        self.home[op.id] = home
        self.floating.discard(op.id)
        for used in _used(op):
            if used in self.floating:
                self._give_home(self.by_id[used], home)

    def needs(self) -> set[tuple[int, int]]:
        """(site, other): the other needs what the site computes."""
        return {
            (self.home[a], self.home[op.id])
            for op in self.ops
            if op.id in self.home
            for a in _used(op)
            if a in self.home and self.home[a] != self.home[op.id]
        }


class _Splitter:
    def __init__(
        self, plan: Plan, transaction: TransactionPlan, foresight: AccessSet, homes: _Homes, groups: list[int]
    ) -> None:
        self.plan, self.transaction, self.foresight, self.homes = plan, transaction, foresight, homes
        self.groups = groups

    def split(self) -> Split:
        ops = self.transaction.block.ops
        place = {op.id: self.groups[self.homes.home[op.id]] for op in ops if op.id in self.homes.home}
        exports: dict[int, None] = {}
        fragments = []
        edges = set()
        for number in range(max(self.groups) + 1):
            own = [op for op in ops if place.get(op.id) == number]
            imports = {a for op in own for a in _used(op) if place.get(a, number) != number}
            exports |= dict.fromkeys(sorted(imports))
            edges |= {(place[a], number) for a in imports}
            fragments.append(self._piece(number, own, imports))
        positions = {op.id: n for n, op in enumerate(ops)}
        return Split(tuple(fragments), tuple(sorted(edges)), tuple(exports), positions)

    def _piece(self, number: int, own: list[Op], imports: set[int]) -> Fragment:
        wanted = {op.id for op in own} | self._everywhere(own)
        ops = tuple(op for op in self.transaction.block.ops if op.id in wanted)
        sites = tuple(n for n, group in enumerate(self.groups) if group == number)
        written = {self.foresight.sites[n].table for n in sites if self.foresight.sites[n].writes}
        checked = any(self.plan.checks_of(table) for table in written)
        # What every fragment finds out alike is decided by the first.
        decisive = ops if number == 0 else own
        return Fragment(sites, ops, frozenset(imports), checked or any(_aborts(op) for op in decisive))

    def _everywhere(self, own: list[Op]) -> set[int]:
        """What a fragment computes for itself: what it needs, and whether the event alone aborts the transaction."""
        todo = [a for op in own for a in _used(op)]
        todo += [op.id for op in self.transaction.block.ops if op.id in self.homes.everywhere and op.may_abort]
        found: set[int] = set()
        while todo:
            value = todo.pop()
            if value in self.homes.everywhere and value not in found:
                found.add(value)
                todo += _used(self.homes.by_id[value])
        return found


def _used(op: Op) -> list[int]:
    return [*op.args, *([op.guard] if op.guard is not None else [])]


def _aborts(op: Op) -> bool:
    return op.may_abort and not op.traits.retries  # on versions there is always room


def _merged(count: int, needs: set[tuple[int, int]]) -> list[int]:
    """Sites that need each other in a circle are one group; groups are numbered so that who needs comes later."""
    reach = [{a} for a in range(count)]
    changed = True
    while changed:
        changed = False
        for a, b in needs:
            more = reach[b] - reach[a]
            if more:
                reach[a] |= more
                changed = True
    group = [min(b for b in reach[a] if a in reach[b]) for a in range(count)]
    # Whoever is reached by more comes later.
    before = {g: sum(g in reach[a] for a in range(count)) for g in set(group)}
    order = sorted(set(group), key=lambda g: (before[g], g))
    return [order.index(g) for g in group]
