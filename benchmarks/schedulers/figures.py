"""All studies: one picture each, and all numbers in one file, figures.json."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.schedulers.draw import draw
from benchmarks.schedulers.measure import heading, write_json
from benchmarks.schedulers.studies import STUDIES, Lab


def figures(out: Path, threads: int, *, only: Sequence[str] = (), quick: bool = False) -> dict[str, Any]:
    report: dict[str, Any] = heading() | {"threads": threads, "studies": []}
    print(f"{report['machine']}\n{report['command']}")
    begun = time.perf_counter()
    with Lab(threads, quick) as lab:
        for name in only or STUDIES:
            study = STUDIES[name](lab)
            drawn = draw(study, out / f"{study.name}.png", report["machine"])
            report["studies"].append(asdict(study))
            report["seconds"] = round(time.perf_counter() - begun, 1)
            write_json(out / "figures.json", report)  # after each, so that a run that is stopped leaves what it has
            what = out / f"{study.name}.png" if drawn else "not drawn: matplotlib is not installed"
            print(f"{time.perf_counter() - begun:6.0f} s  {study.name:16} {what}", flush=True)
    return report
