"""The papers' figures as numbers: each study measures some policies over one or more knobs.

    Panel   one pair of axes: what is on x, and of each policy the values over it
    Study   a figure of a paper, drawn again: its panels

Costs and batches are ours, small enough for a laptop; each panel says which. Throughput is that of `execute`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.schedulers.latency import percentiles
from benchmarks.schedulers.measure import Bench, Measured, parsed
from benchmarks.schedulers.points import compile_batch, describe, same_tables
from benchmarks.schedulers.regret import through_phases
from penstock.workloads import TSTREAM, TUNED, GrepSum, Knobs, StreamingLedger, TollProcessing, two_groups

LOCKS = ("none", "lal", "lwm", "pat")
SCHEMES = (*LOCKS, "tstream", "ready/transaction/eager", "serial", "adaptive")
MAIN = ("lal", "pat", "tstream", "ready/transaction/eager", "ready/operation/lazy", "serial", "adaptive")
RATE = "thousand events / s"
REPEAT = 5  # runs that count; the first does not
SPENT = ("useful", "construct", "explore", "sync", "lock", "abort")


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    workload: str
    xlabel: str
    ylabel: str
    x: list[Any]
    series: dict[str, list[float]]
    kind: str = "lines"  # bars: x are names; stack: x are policies, series what they spent
    logx: bool = False
    even: bool = False  # places of x side by side, however far apart they are
    logy: bool = False
    marks: dict[str, float] = field(default_factory=dict)  # words at places of x


@dataclass(frozen=True, slots=True)
class Study:
    name: str
    title: str
    paper: str
    panels: list[Panel]
    columns: int = 2


class Lab:
    """Apps that are opened once and used by all studies."""

    def __init__(self, threads: int, quick: bool) -> None:
        self.threads, self.quick = threads, quick
        self._open: dict[Any, Bench] = {}
        self._warm: set[Any] = set()

    def __enter__(self) -> Lab:
        return self

    def __exit__(self, *_: object) -> None:
        for bench in self._open.values():
            bench.db.close()

    @property
    def counts(self) -> list[int]:
        return sorted({1, self.threads, *(n for n in (2, 4, 8, 16, 32) if n < self.threads)})

    def sized(self, knobs: Any) -> Any:
        if not self.quick:
            return knobs
        small = {"keys": min(knobs.keys, 400), "batch": min(knobs.batch, 200), "cost_us": min(knobs.cost_us, 0.3)}
        return replace(knobs, **small)

    def few(self, values: Sequence[Any]) -> list[Any]:
        return [values[0], values[-1]] if self.quick else list(values)

    def compare(self, knobs: Any, names: Sequence[str], threads: int = 0) -> list[Measured]:
        knobs = self.sized(knobs)
        place = same_tables(knobs)
        if place not in self._open:
            self._open[place] = Bench(knobs)
        bench, policies = self._open[place], parsed(names, threads or self.threads)
        cold = [p for p in policies if (place, p.name) not in self._warm]
        bench.warm(cold, compile_batch(knobs))
        self._warm |= {(place, p.name) for p in cold}
        return bench.compare(knobs.events(seed=1), policies, repeat=1 if self.quick else REPEAT)

    def sweep(
        self,
        title: str,
        xlabel: str,
        base: Knobs,
        knob: str,
        values: Sequence[Any],
        names: Sequence[str] = MAIN,
        per: str = "",
        **look: Any,
    ) -> Panel:
        """One knob over these values; `per` names a knob that the rate is multiplied by."""
        values = self.few(values)
        series: dict[str, list[float]] = {name: [] for name in names}
        for value in values:
            knobs = replace(base, **{knob: value})
            for name, one in zip(names, self.compare(knobs, names), strict=True):
                series[name].append(one.rate / 1000 * (getattr(knobs, per) if per else 1))
        ylabel = "thousand records / s" if per else RATE
        return Panel(title, describe(self.sized(base), without=knob), xlabel, ylabel, values, series, **look)


def bare_throughput(lab: Lab) -> Study:
    workloads = [replace(TSTREAM[name], batch=10_240) for name in ("gs", "sl", "ob", "tp")]
    return throughput(lab, workloads, "throughput-bare", "Throughput by cores, no cost (log scale)", "TStream 9")


def dear_throughput(lab: Lab) -> Study:
    workloads = [TUNED[name](batch=2_048) for name in ("gs", "sl", "ob", "tp")]
    return throughput(lab, workloads, "throughput-cost", "Throughput by cores, 10 µs an operation", "MorphStream 18b")


def throughput(lab: Lab, workloads: Sequence[Any], name: str, title: str, paper: str) -> Study:
    panels = []
    for knobs in workloads:
        series: dict[str, list[float]] = {scheme: [] for scheme in SCHEMES}
        for threads in lab.counts:
            for scheme, one in zip(SCHEMES, lab.compare(knobs, SCHEMES, threads), strict=True):
                series[scheme].append(one.rate / 1000)
        where, logy = describe(lab.sized(knobs)), knobs.cost_us == 0
        panels.append(Panel(knobs.title, where, "threads", RATE, lab.counts, series, logx=True, logy=logy))
    return Study(name, title, paper, panels)


def breakdown(lab: Lab) -> Study:
    wanted = (
        ("as TStream 10", replace(TSTREAM["tp"], batch=10_240)),
        ("as MorphStream 13a", StreamingLedger(batch=2_048)),
    )
    panels = []
    for title, knobs in wanted:
        names = tuple(name for name in SCHEMES if name != "adaptive")
        found = lab.compare(knobs, names)
        spent = [_spent(one) for one in found]
        series = {part: [s.get(part, 0.0) for s in spent] for part in SPENT}
        used = {part: values for part, values in series.items() if any(values)}
        ylabel = "µs of all threads, an event"
        panels.append(
            Panel(f"{knobs.title}, {title}", describe(lab.sized(knobs)), "", ylabel, list(names), used, "stack")
        )
    return Study("breakdown", f"Where time goes, {lab.threads} threads", "TStream 10, MorphStream 13a", panels)


def _spent(one: Measured) -> dict[str, float]:
    """Microseconds an event. The serial loop does nothing but work."""
    assert one.last is not None
    spent = one.last.spent or {"useful": one.last.seconds["execute"]}
    return {part: 1e6 * float(seconds) / one.events for part, seconds in spent.items()}


def knobs_of_tstream(lab: Lab) -> Study:
    base = GrepSum(theta=0.0, length=4, accesses=1, abort_ratio=0.0, cost_us=1.0, batch=5_120)
    panels = [
        lab.sweep("(a) reads", "share of reads", base, "read_ratio", (0.0, 0.25, 0.5, 0.75, 1.0)),
        lab.sweep(
            "(b) cost", "µs an operation", base, "cost_us", (0.0, 0.1, 0.3, 1.0, 3.0, 10.0), even=True, logy=True
        ),
        lab.sweep("(c) skew", "theta", base, "theta", (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)),
        lab.sweep("(d) length", "records of a transaction", base, "length", (1, 2, 4, 8, 16), per="length", logx=True),
    ]
    return Study("knobs", "Grep and Sum, one knob at a time", "TStream 12", panels)


def intervals(lab: Lab) -> Study:
    names = ("lal", "tstream", "ready/transaction/eager", "serial", "adaptive")
    sizes = lab.few((500, 2_048, 10_240, 40_960))
    base = replace(TSTREAM["sl"], cost_us=1.0)
    rates = lab.sweep("(a) throughput", "events in a batch", base, "batch", sizes, names, logx=True)
    p90: dict[str, list[float]] = {name: [] for name in names}
    for size in sizes:
        knobs = lab.sized(replace(base, batch=size))
        count = 5 if lab.quick else max(20, min(100, 100_000 // size))
        for one in percentiles(knobs, names, lab.threads, count):
            p90[one["policy"]].append(one["p90"])
    where = describe(lab.sized(base), without="batch")
    waits = Panel("(b) time of a batch, p90", where, "events in a batch", "ms", sizes, p90, logx=True, logy=True)
    return Study("interval", "Streaming Ledger by size of batch", "TStream 13", [rates, waits])


def over_time(lab: Lab) -> Study:
    names = ("pat", "tstream", "ready/transaction/eager", "ready/operation/lazy", "serial", "adaptive")
    base = lab.sized(StreamingLedger(cost_us=3.0, batch=5_120))
    each = 2 if lab.quick else 10
    policies = parsed(names, lab.threads)
    with Bench(base) as bench:
        bench.warm(policies, compile_batch(base))
        found = through_phases(bench, base, policies, each, [1])
    named = dict(zip(names, found["seconds"].values(), strict=True))
    series = {name: [base.batch / s / 1000 for s in seconds] for name, seconds in named.items()}
    starts = {step["phase"]: float(step["batch"]) for step in reversed(found["steps"])}
    marks = dict(sorted(starts.items(), key=lambda item: item[1]))
    x = [step["batch"] for step in found["steps"]]
    panel = Panel("a batch at a time", describe(base), "batch", RATE, x, series, marks=marks)
    return Study("dynamic", "A workload that changes: Streaming Ledger in four phases", "MorphStream 11", [panel], 1)


def groups(lab: Lab) -> Study:
    """Not nested: one policy runs both groups, and adaptive is one choice for the whole batch."""
    names = ("pat", "tstream", "ready/chain/lazy", "bfs/chain/eager", "ready/transaction/eager", "serial", "adaptive")
    base = lab.sized(TollProcessing(batch=20_480, cost_us=3.0))
    both = two_groups(base)
    with Bench(both) as bench:
        policies = parsed(names, lab.threads)
        bench.warm(policies, compile_batch(base))
        found = bench.compare(both.events(0, seed=1).events, policies, repeat=1 if lab.quick else REPEAT)
    series = {"": [one.rate / 1000 for one in found]}
    panel = Panel("both groups in every batch", describe(base), "", RATE, list(names), series, "bars")
    return Study("groups", "Toll Processing in two groups", "MorphStream 12", [panel], 1)


def exploration(lab: Lab) -> Study:
    """Streaming Ledger, since transactions over lists of records, as those of Grep and Sum, are not cut."""
    names = tuple(f"{explore}/operation/lazy" for explore in ("bfs", "dfs", "ready"))
    base = StreamingLedger(cost_us=1.0, batch=20_480, abort_ratio=0.0)
    sizes, thetas = (1_024, 5_120, 20_480, 81_920), (0.0, 0.25, 0.5, 0.75, 1.0)
    panels = [
        lab.sweep("(a) size of batch", "events in a batch", base, "batch", sizes, names, logx=True),
        lab.sweep("(b) skew", "theta", base, "theta", thetas, names),
    ]
    return Study("explore", "How the graph is explored: Streaming Ledger", "MorphStream 15", panels)


def units(lab: Lab) -> Study:
    """Deposits alone have no circles of chains; with transfers there are."""
    names = ("ready/operation/lazy", "ready/chain/lazy", "ready/transaction/eager")
    base = StreamingLedger(cost_us=1.0, batch=10_240, abort_ratio=0.0)
    shares, sizes, thetas = (0.0, 0.25, 0.5, 0.75, 1.0), (1_024, 5_120, 20_480, 81_920), (0.0, 0.25, 0.5, 0.75, 1.0)
    deposits = replace(base, transfer_ratio=0.0)
    panels = [
        lab.sweep("(a) transfers", "share", base, "transfer_ratio", shares, names),
        lab.sweep("(b) size of batch", "events in a batch", deposits, "batch", sizes, names, logx=True),
        lab.sweep("(c) skew", "theta", base, "theta", thetas, names),
    ]
    return Study("unit", "What a thread takes: Streaming Ledger", "MorphStream 16", panels, 3)


def aborts(lab: Lab) -> Study:
    names = ("ready/operation/eager", "ready/operation/lazy", "ready/transaction/eager")
    base = StreamingLedger(theta=0.6, transfer_ratio=1.0, batch=5_120, cost_us=3.0)
    costs, ratios = (0.0, 0.3, 1.0, 3.0, 10.0), (0.0, 0.2, 0.4, 0.6, 0.9)
    many = replace(base, abort_ratio=0.5)
    panels = [
        lab.sweep("(a) cost, half abort", "µs an operation", many, "cost_us", costs, names, even=True, logy=True),
        lab.sweep("(b) share of aborts", "share", base, "abort_ratio", ratios, names),
    ]
    return Study("abort", "When aborts are handled: Streaming Ledger, transfers", "MorphStream 17", panels)


STUDIES: dict[str, Callable[[Lab], Study]] = {
    "throughput-bare": bare_throughput,
    "throughput-cost": dear_throughput,
    "breakdown": breakdown,
    "knobs": knobs_of_tstream,
    "interval": intervals,
    "dynamic": over_time,
    "groups": groups,
    "explore": exploration,
    "unit": units,
    "abort": aborts,
}
