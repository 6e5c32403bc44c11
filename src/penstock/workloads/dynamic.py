"""Workloads that are not the same all over: one that changes as it runs, and one with two groups in every batch.

    four_phases()    MorphStream 6.2.2, Streaming Ledger       two_groups()    MorphStream 6.2.3, Toll Processing

        phase      theta       transfers   aborts               group     segments    theta   aborts
        deposits   0           0           0                    1         the first   1.0     50 %
        skew       0 → 1       0           0                    2         the rest    0       0.1 %
        transfers  1           0 → 100 %   0
        aborts     1           100 %       0 → 90 %

What moves is the paper's; how far it moves is the range of its table 5, for the paper gives no numbers. What has moved
stays where it is, as in the generator that its authors published (there theta ends at 0.6, transfers at 95 % and aborts
at 60 %): in the end one record is in nearly every transaction's way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import InputError
from penstock.workloads.common import Ints
from penstock.workloads.tuned import StreamingLedger, TollProcessing


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of batches over which one knob moves, evenly, while the others stand."""

    name: str
    fixed: dict[str, Any]
    moving: str = ""
    start: float = 0.0
    stop: float = 0.0

    def at(self, base: StreamingLedger, share: float) -> StreamingLedger:
        """The knobs once this share of the phase is over."""
        value = self.start + (self.stop - self.start) * share
        return replace(base, **self.fixed | ({self.moving: value} if self.moving else {}))


PHASES = (
    Phase("deposits", {"theta": 0.0, "transfer_ratio": 0.0, "abort_ratio": 0.0}),
    Phase("skew", {"transfer_ratio": 0.0, "abort_ratio": 0.0}, "theta", 0.0, 1.0),
    Phase("transfers", {"theta": 1.0, "abort_ratio": 0.0}, "transfer_ratio", 0.0, 1.0),
    Phase("aborts", {"theta": 1.0, "transfer_ratio": 1.0}, "abort_ratio", 0.0, 0.9),
)


@dataclass(frozen=True, slots=True)
class Step:
    """One batch of the changing workload, and the knobs it was made with."""

    number: int
    phase: str
    knobs: StreamingLedger
    events: dict[str, pa.Table]


def four_phases(base: StreamingLedger | None = None, *, each: int = 10, seed: int = 0) -> Iterator[Step]:
    """`each` batches of every phase. App and tables are those of `base`, and serve them all."""
    base = base or StreamingLedger()
    for p, phase in enumerate(PHASES):
        for i in range(each):
            knobs = phase.at(base, i / max(each - 1, 1))
            number = p * each + i
            yield Step(number, phase.name, knobs, knobs.events(number, seed=seed))


@dataclass(frozen=True, slots=True)
class Grouped:
    """One batch of both groups, and which of them each event is of, in order of ts: 1 or 2."""

    events: dict[str, pa.Table]
    group: npt.NDArray[np.uint8]


@dataclass(frozen=True, kw_only=True)
class TwoGroups:
    """Toll Processing over two regions that share no segment, whose reports come mixed.

    Group 1 has the first of the segments, group 2 those behind them; each has its own knobs.
    """

    one: TollProcessing
    two: TollProcessing

    def __post_init__(self) -> None:
        if self.one.plain != self.two.plain:
            raise InputError("both groups need length 2 and accesses 1, or neither: they run in one app")

    @property
    def batch(self) -> int:
        return self.one.batch + self.two.batch

    def tables(self) -> dict[str, pa.Table]:
        return replace(self.one, keys=self.one.keys + self.two.keys).tables()

    def app(self) -> Any:
        return self.one.app()

    def batches(self, seed: int = 0, count: int | None = None) -> Iterator[Grouped]:
        number = 0
        while count is None or number < count:
            yield self.events(number, seed=seed)
            number += 1

    def events(self, number: int = 0, *, seed: int = 0) -> Grouped:
        rng = np.random.default_rng((seed, number))
        first = self.one.make(rng, 0)["Report"]
        second = self.two.make(rng, 0, place=self.one.keys)["Report"]
        group = rng.permutation(np.repeat(np.array([1, 2], np.uint8), [self.one.batch, self.two.batch]))
        reports = pa.concat_tables([first, second]).take(_merge(group))
        ts = np.arange(number * self.batch, (number + 1) * self.batch, dtype=np.int64)
        return Grouped({"Report": reports.set_column(0, "ts", pa.array(ts)).combine_chunks()}, group)


def two_groups(base: TollProcessing | None = None) -> TwoGroups:
    """Half of the segments and of the reports each: skewed and often aborting, uniform and seldom aborting."""
    base = base or TollProcessing()
    half = replace(base, keys=base.keys // 2, batch=base.batch // 2)
    return TwoGroups(one=replace(half, theta=1.0, abort_ratio=0.5), two=replace(half, theta=0.0, abort_ratio=0.001))


def _merge(group: npt.NDArray[np.uint8]) -> Ints:
    """The rows of both groups, one table behind the other, in the order in which the groups take turns."""
    rows = np.empty(group.size, np.int64)
    rows[np.argsort(group, kind="stable")] = np.arange(group.size)
    return rows
