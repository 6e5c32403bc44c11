"""A share of every kind of fault that sweep.py knows; all of them with the mark `long`.

Kills and damages have tests of their own.
"""

from __future__ import annotations

import os
import random

import pytest
from sweep import Sweep, share_of, sweeps, tried

pytestmark = pytest.mark.faults

SWEEPS = [sweep for sweep in sweeps() if sweep.name.startswith(("disk", "memory"))]
# All together take about a minute on one core.
SHARE = 0.025


def run(sweep: Sweep, share: float) -> None:
    # There a red run should speak of the change, not of the draw.
    seed = 11 if os.environ.get("CI") else random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    with sweep.cases() as (cases, attempt):
        # A trace sees every call of these, a disk every operation: fewer would mean that it missed most.
        assert len(cases) > 500
        for wrong in tried(share_of(cases, share, random.Random(seed)), attempt):
            if wrong is not None:
                wrong.error.add_note(f"{sweep.name}: {wrong.case}, seed {seed}")
                raise wrong.error


@pytest.mark.parametrize("sweep", SWEEPS, ids=lambda sweep: sweep.name)
def test_some(sweep: Sweep) -> None:
    run(sweep, SHARE)


@pytest.mark.long
@pytest.mark.parametrize("sweep", SWEEPS, ids=lambda sweep: sweep.name)
def test_all(sweep: Sweep) -> None:
    run(sweep, 1.0)
