"""Where the entries of an event lie: its straight sites first, then loop by loop, turn by turn, those of its loops.

    begin[i] = at                base2_5                                                     begin[i + 1]
    | site 0 | site 1 |          | turn 0: site 2, site 3 | turn 1: site 2, site 3 | …       |

m2_5 is how often loop 5 of event 2 turns, and base2_5 where its entries begin.
"""

from __future__ import annotations

from penstock.plan.foresee import AccessSet, Site, foresee
from penstock.plan.ir import Plan, TransactionPlan


def foreseen(plan: Plan) -> list[tuple[TransactionPlan, int, AccessSet]]:
    """The transactions that have entries, their events' numbers and their sites."""
    return [(t, plan.program.kind(t.event), found) for t in plan.transactions if (found := foresee(t)) is not None]


def place(foresight: AccessSet, event: int, site: Site, turn: str) -> str:
    """Where a site's entry lies; turn: of the loop, if it is in one."""
    if site.loop is None:
        return f"at + {foresight.straight().index(site)}"
    own = foresight.of_loop(site.loop)
    return f"{base(event, site.loop)} + {turn} * {len(own)} + {own.index(site)}"


def base(event: int, loop: int) -> str:
    """Where the entries of a loop begin."""
    return f"base{event}_{loop}"


def turns(transaction: TransactionPlan, event: int, loop: int) -> str:
    """How often a loop over lists runs, from the event alone."""
    ops = {op.id: op for op in transaction.block.walk()}
    names = [f"at{event}_{ops[a].name}" for a in ops[loop].args]
    lengths = [f"np.int64({n}[j + ONE] - {n}[j])" for n in names]
    return lengths[0] if len(lengths) == 1 else f"min({', '.join(lengths)})"
