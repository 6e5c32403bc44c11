"""Where the entries of an event lie: its straight sites first, then loop by loop, turn by turn, those of its loops.

    begin[i] = at                base2_5                                                     begin[i + 1]
    | site 0 | site 1 |          | turn 0: site 2, site 3 | turn 1: site 2, site 3 | …       |

m2_5 is how often loop 5 of event 2 turns, and base2_5 where its entries begin. Where a key is made of the items of
several loops, m2_5_7 is how often these turn together. The turns of the first differ from event to event, those of the
others are constant, so that the number of a turn tells those of each loop.
"""

from __future__ import annotations

from math import prod

from penstock.plan.foresee import AccessSet, Site, foresee
from penstock.plan.ir import Plan, TransactionPlan


def foreseen(plan: Plan) -> list[tuple[TransactionPlan, int, AccessSet]]:
    """The transactions that have entries, their events' numbers and their sites."""
    return [(t, plan.program.kind(t.event), found) for t in plan.transactions if (found := foresee(t)) is not None]


def place(foresight: AccessSet, event: int, site: Site, turn: str) -> str:
    """Where a site's entry lies; turn: of the loop, if it is in one."""
    if not site.loop:
        return f"at + {foresight.straight().index(site)}"
    own = foresight.of_loop(site.loop)
    return f"{base(event, site.loop)} + {turn} * {len(own)} + {own.index(site)}"


def base(event: int, loop: tuple[int, ...]) -> str:
    """Where the entries of a loop begin."""
    return f"base{_name(event, loop)}"


def count(event: int, loop: tuple[int, ...]) -> str:
    """How often a loop runs, by name."""
    return f"m{_name(event, loop)}"


def _name(event: int, loop: tuple[int, ...]) -> str:
    return "_".join(str(n) for n in (event, *loop))


def turns(transaction: TransactionPlan, foresight: AccessSet, event: int, loop: tuple[int, ...]) -> str:
    """How often a loop, or several at once, runs, from the event alone."""
    ops = {op.id: op for op in transaction.block.walk()}
    constant = [foresight.turns[id_] for id_ in loop if id_ in foresight.turns]
    if len(constant) == len(loop):
        return str(prod(constant))
    names = [f"at{event}_{ops[a].name}" for a in ops[loop[0]].args]
    lengths = [f"np.int64({n}[j + ONE] - {n}[j])" for n in names]
    lists = lengths[0] if len(lengths) == 1 else f"min({', '.join(lengths)})"
    return f"{lists} * {prod(constant)}" if constant else lists


def joined(foresight: AccessSet, loop: tuple[int, ...], own: list[str]) -> str:
    """The turn of several loops at once, from the turn of each."""
    out = own[0]
    for id_, turn in zip(loop[1:], own[1:], strict=True):
        out = f"({out} * {foresight.turns[id_]} + {turn})"
    return out


def parted(foresight: AccessSet, loop: tuple[int, ...], turn: str) -> dict[int, str]:
    """The turn of each loop, from that of several at once."""
    out: dict[int, str] = {}
    for id_ in reversed(loop[1:]):
        every = max(1, foresight.turns[id_])  # where it never runs, nobody asks
        out[id_], turn = f"({turn} % {every})", f"({turn} // {every})"
    return out | {loop[0]: turn}
