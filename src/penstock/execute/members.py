"""Groups that ran as one transaction each: a row of outcomes for every member that ran, and what went out.

    Order 1, committed, lanes 2, 1     ->     step 0 place, 1 reserve, 2 reserve, 3 charge
    Order 2, aborted,   lanes 1, 0     ->     step 0 place, 1 reserve

Members of one type follow one another (plan/inline.py), so how often each has run tells the order. The lanes of a group
that aborted say how far it came: the last member that ran is the one that aborted it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.declare.model import Program
from penstock.execute.flow_run import Output, Steps
from penstock.plan.inline import Inlined, Member
from penstock.state.lanes import dtype

Fields = tuple[tuple[Any, Any], ...]  # (values, whether given), one a field, or a lane
_Sending = tuple[Any, list[Any]]  # the rows that have sent something out, and its fields


@dataclass(frozen=True, slots=True)
class Rows:
    """Of a whole batch, in the order run."""

    code: Any
    fields: Fields
    steps: Steps
    outputs: dict[str, Output]


class Members:
    def __init__(self, program: Program, inlined: Inlined) -> None:
        """program: as it was declared."""
        self._program = program
        self._groups = [(program.kind(event), members) for event, members in inlined.groups]
        self._returns = [(name, dtype(type_)) for name, type_ in program.lanes]
        self._sent = {e.name: [dtype(f.type) for f in e.lanes] for e in program.outputs()}

    def rows(self, kind: Any, code: Any, lanes: Fields) -> Rows:
        """kind, code, lanes: of each event of the batch."""
        size = np.ones(kind.size, np.int64)
        groups = [(np.flatnonzero(kind == number), members) for number, members in self._groups]
        for places, members in groups:
            for member in members:
                if member.times is not None:
                    size[places] += lanes[member.times][0][places]
        root = np.repeat(np.arange(kind.size), size)
        first = np.cumsum(size) - size
        steps = Steps(kind[root], root, (np.arange(root.size) - first[root]).astype(np.int32))
        fields = {name: (np.zeros(root.size, lane), np.zeros(root.size, np.bool_)) for name, lane in self._returns}
        sent: dict[str, list[_Sending]] = {name: [] for name in self._sent}
        for places, members in groups:
            at = first[places]
            for member in members:
                times = np.ones(places.size, np.int64) if member.times is None else lanes[member.times][0][places]
                self._fill(member, places, at, times, steps, fields, lanes)
                self._send(member, places, at, code, sent, lanes)
                at = at + times
        outputs = {name: self._output(name, several) for name, several in sent.items()}
        return Rows(code[root], tuple(fields.values()), steps, outputs)

    def _fill(
        self, member: Member, places: Any, at: Any, times: Any, steps: Steps, fields: dict[str, Any], lanes: Fields
    ) -> None:
        """The rows of one member. at: where they begin, of each event; times: how many there are."""
        if member.times is None:
            rows, ran = at, places
        elif member.in_loop:
            turns = np.arange(int(times.sum())) - np.repeat(np.cumsum(times) - times, times)
            rows, ran = np.repeat(at, times) + turns, places[:0]  # it returns nothing
        else:
            there = times != 0
            rows, ran = at[there], places[there]
        if member.times is not None:
            steps.kind[rows] = self._program.kind(member.event)
        for name, lane in member.fields:
            values, given = fields[name]
            values[rows], given[rows] = lanes[lane][0][ran], lanes[lane][1][ran]

    def _send(
        self, member: Member, places: Any, at: Any, code: Any, sent: dict[str, list[_Sending]], lanes: Fields
    ) -> None:
        """What one member has sent out, where its group has committed."""
        for one in member.sent:
            there = (lanes[one.times][0][places] != 0) & (code[places] == 0)
            ran = places[there]
            sent[one.event].append((at[there], [lanes[lane][0][ran] for lane in one.fields]))

    def _output(self, name: str, several: list[_Sending]) -> Output:
        event = self._program.event(name)
        assert event is not None
        rows = np.concatenate([np.zeros(0, np.int64), *(rows for rows, _ in several)])
        order = np.argsort(rows, kind="stable")  # of one row, in the order of the places that emit
        lanes = {}
        for k, (field, lane) in enumerate(zip(event.lanes, self._sent[name], strict=True)):
            values = np.concatenate([np.zeros(0, lane), *(values[k] for _, values in several)])
            lanes[field.name] = values[order]
        return Output(rows[order], lanes)
