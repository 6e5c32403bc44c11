"""Adaptive against every fixed policy: over the grid, and over a workload that changes as it runs.

regret   adaptive's time / the best fixed policy's, less 1. Which policy is best is read off the first rounds, and both
         times off a final between adaptive and the three best: whoever is picked by a time is lucky in it, and of a
         dozen policies that are nearly as good the luckiest would win by some per cent over itself. In the final, round
         by round: the mean of the middle half of the ratios
         (adaptive looks at a batch, or tries a graph, only now and then: those rounds are not among them)
all      the same by all rounds together, and so with whatever held one of them up
luckiest regret against whoever was best in the final, luck included
noise    adaptive's time over that of the fixed policy that it chose most often, less 1, in the first rounds
"""

from __future__ import annotations

import itertools
import random
import statistics
import time
from collections.abc import Iterable
from typing import Any

from benchmarks.schedulers.measure import FIXED, Bench, Measured, heading, parsed
from benchmarks.schedulers.points import compile_batch, describe, few, grid, same_tables
from penstock import Policy
from penstock.workloads import PHASES, Knobs, StreamingLedger, four_phases

GOOD = 0.10
EACH, TIMES = 8, 3  # batches a phase, and how often the phases come
FINALISTS = 3


def regret(
    threads: int, *, quick: bool = False, only: str = "", points: slice | None = None, phases: bool = False
) -> dict[str, Any]:
    """points: these of the grid, without the phases; phases: these, without the grid. So that several machines, or
    pairs of cores of one, can share it out. Points that share their tables share what adaptive learned at those before;
    the first of a slice has none before it, and the phases no grid."""
    report: dict[str, Any] = heading() | {"threads": threads}
    begun = time.perf_counter()
    policies = [*parsed(FIXED, threads), Policy.adaptive(threads)]
    print(f"{report['machine']}\nms: medians; regret: round by round")
    print(f"{'point':58} {'best fixed policy':22} {'ms':>8} {'adaptive':>9} {'regret':>7}  why")
    if not phases:
        chosen = [knobs for knobs in (few() if quick else grid()) if only in describe(knobs)]
        report |= _over_grid(chosen if points is None else chosen[points], policies)
    if points is None:
        report |= _over_phases(quick, policies)
    report["seconds"] = round(time.perf_counter() - begun, 1)
    print(f"\n{report['command']}: {report['seconds']:.0f} s")
    return report


# -- the grid -------------------------------------------------------------------------------------


def _over_grid(chosen: list[Knobs], policies: list[Policy]) -> dict[str, Any]:
    found: list[dict[str, Any]] = []
    for _, group in itertools.groupby(chosen, same_tables):
        found += _points(list(group), policies)
    if not found:
        return {"points": found}
    report = {"points": found, "summary": summary(found)}
    _print_summary(report["summary"])
    return report


def _points(group: list[Knobs], policies: list[Policy]) -> list[dict[str, Any]]:
    """Points that share their tables."""
    out = []
    with Bench(group[0]) as bench:
        bench.warm(policies, compile_batch(group[0]))
        for knobs in group:
            events = knobs.events(seed=1)
            *fixed, adaptive = bench.compare(events, policies)
            best = sorted(fixed, key=lambda one: one.median)[:FINALISTS]
            out.append(point(knobs, [*fixed, adaptive], bench.final(events, [*best, adaptive])))
            _print_point(out[-1])
    return out


def point(knobs: Knobs, found: list[Measured], final: list[Measured]) -> dict[str, Any]:
    """The finalists: the best fixed policies, the best of all first, and adaptive."""
    *fixed, before = found
    *rivals, adaptive = final
    best, last = rivals[0], adaptive.last
    assert last is not None
    same = next((one for one in fixed if one.name == statistics.mode(before.chose)), None)
    return {
        "point": describe(knobs),
        "best": best.name,
        "best_ms": 1000 * best.median,
        "adaptive_ms": 1000 * adaptive.median,
        "regret": adaptive.over(best),
        "all_rounds": sum(adaptive.seconds) / sum(best.seconds) - 1,
        "luckiest": max(adaptive.over(one) for one in rivals),
        "noise": before.median / same.median - 1 if same else None,
        "chose": last.policy,
        "threads": last.threads,
        "why": last.why,
        "fixed_ms": {one.name: 1000 * one.median for one in fixed},
    }


def summary(points: list[dict[str, Any]]) -> dict[str, Any]:
    regrets = [p["regret"] for p in points]
    worst = max(points, key=lambda p: p["regret"])
    fixed = {
        name: statistics.fmean(p["fixed_ms"][name] / min(p["fixed_ms"].values()) - 1 for p in points) for name in FIXED
    }
    return {
        "points": len(points),
        "within_10_percent": sum(r <= GOOD for r in regrets),
        "mean_regret": statistics.fmean(regrets),
        "worst_regret": worst["regret"],
        "worst_point": worst["point"],
        "mean_all_rounds": statistics.fmean(p["all_rounds"] for p in points),
        "all_rounds_within_10_percent": sum(p["all_rounds"] <= GOOD for p in points),
        "mean_luckiest": statistics.fmean(p["luckiest"] for p in points),
        "worst_luckiest": max(p["luckiest"] for p in points),
        "luckiest_within_10_percent": sum(p["luckiest"] <= GOOD for p in points),
        "mean_regret_of_fixed": fixed,
    }


def _print_point(p: dict[str, Any]) -> None:
    chose = f"{p['chose']} x{p['threads']}: {p['why']}"
    times = f"{p['best_ms']:8.2f} {p['adaptive_ms']:9.2f} {p['regret']:7.1%}"
    print(f"{p['point']:58} {p['best']:22} {times}  {chose}", flush=True)


def _print_summary(s: dict[str, Any]) -> None:
    print(f"\n{s['within_10_percent']} of {s['points']} points within {GOOD:.0%} of the best fixed policy")
    print(f"regret: mean {s['mean_regret']:.1%}, worst {s['worst_regret']:.1%} at {s['worst_point']}")
    print(
        f"against the luckiest: {s['luckiest_within_10_percent']} of {s['points']} within {GOOD:.0%}, "
        f"mean {s['mean_luckiest']:.1%}, worst {s['worst_luckiest']:.1%}"
    )
    print(
        f"by all rounds together: {s['all_rounds_within_10_percent']} of {s['points']} within {GOOD:.0%}, "
        f"mean {s['mean_all_rounds']:.1%}"
    )
    print("one policy for all points would have had a mean regret of:")
    for name, mean in sorted(s["mean_regret_of_fixed"].items(), key=lambda item: item[1]):
        print(f"  {name:22} {mean:8.1%}")


# -- the workload that changes --------------------------------------------------------------------


def _over_phases(quick: bool, policies: list[Policy]) -> dict[str, Any]:
    forms = []
    for base in [StreamingLedger(batch=200, keys=500, cost_us=0.3)] if quick else changing():
        forms.append(dynamic(base, policies, each=2 if quick else EACH, times=1 if quick else TIMES))
        _print_dynamic(forms[-1])
    report = {"dynamic": forms, "together": together(forms)}
    _print_together(report["together"])
    return report


def changing() -> list[StreamingLedger]:
    """Where a graph hardly pays, which differs by machine; where it does; and the paper's own cost of an operation."""
    forms = ((0.1, 40_960), (0.3, 30_720), (1.0, 20_480), (10.0, 10_240))
    return [StreamingLedger(cost_us=cost, batch=batch) for cost, batch in forms]


def dynamic(base: StreamingLedger, policies: list[Policy], each: int, times: int = 1) -> dict[str, Any]:
    """The four phases: once under all policies; and a final between adaptive and the best of the others, as often as
    asked. Adaptive knows what graphs cost this app from earlier runs, if there were any, and of this one but the small
    batch that warms up."""
    *fixed, adaptive = policies
    with Bench(base) as bench:
        bench.warm(policies, compile_batch(base))
        first = through_phases(bench, base, policies, each, range(1))
        best = sorted(fixed, key=lambda policy: first["totals"][policy.name]["sum"])[:FINALISTS]
        final = through_phases(bench, base, [*best, adaptive], each, range(1, 1 + times))
    rivals = {policy.name: final["totals"][policy.name]["sum"] for policy in best}
    fastest = min(rivals, key=lambda name: rivals[name])
    ratio = final["totals"]["adaptive"]["sum"] / rivals[fastest]
    return final | {
        "workload": describe(base),
        "batches_a_phase": each,
        "times": times,
        "first": first["totals"],
        "best_fixed": fastest,
        "adaptive_to_best": ratio,
        "beats_every_fixed": ratio < 1,
    }


def through_phases(
    bench: Bench, base: StreamingLedger, policies: list[Policy], each: int, seeds: Iterable[int]
) -> dict[str, Any]:
    """Every batch once under each policy, in turn."""
    seconds: dict[str, list[float]] = {policy.name: [] for policy in policies}
    chose, steps = [], []
    for step in itertools.chain(*(four_phases(base, each=each, seed=seed) for seed in seeds)):
        steps.append({"phase": step.phase, "batch": step.number})
        for policy in random.Random(len(steps)).sample(policies, len(policies)):
            last = bench.run(step.events, policy)
            seconds[policy.name].append(last.seconds["execute"])
            if policy.scheme == "adaptive":
                chose.append(f"{last.policy} x{last.threads}: {last.why}")
    totals = {
        name: {
            phase.name: sum(s for s, step in zip(taken, steps, strict=True) if step["phase"] == phase.name)
            for phase in PHASES
        }
        | {"sum": sum(taken)}
        for name, taken in seconds.items()
    }
    return {"steps": steps, "seconds": seconds, "totals": totals, "chose": chose}


def together(forms: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Fixed policy -> adaptive's time over its time at all costs of an operation: of all seconds, and the geometric
    mean, in which a form counts as much as another."""
    out = {}
    for name in forms[0]["first"]:
        if name != "adaptive":
            ratios, seconds = zip(*(_adaptive_to(d, name) for d in forms), strict=True)
            theirs = sum(s / ratio for s, ratio in zip(seconds, ratios, strict=True))
            out[name] = {"seconds": sum(seconds) / theirs, "mean": statistics.geometric_mean(ratios)}
    return out


def _adaptive_to(d: dict[str, Any], name: str) -> tuple[float, float]:
    """Adaptive's time over that of another; and its seconds, in the final."""
    totals = d["totals"] if name in d["totals"] else d["first"]
    return totals["adaptive"]["sum"] / totals[name]["sum"], d["totals"]["adaptive"]["sum"]


def _print_together(ratios: dict[str, dict[str, float]]) -> None:
    print("\nadaptive's time over that of each fixed policy, all of these together: of all seconds, geometric mean")
    ranked = sorted(ratios.items(), key=lambda item: -item[1]["seconds"])
    for name, ratio in ranked:
        print(f"  {name:24} {ratio['seconds']:6.3f} {ratio['mean']:6.3f}")
    best, ratio = ranked[0]
    _print_verdict(best, ratio["seconds"], " over all of them")


def _print_dynamic(d: dict[str, Any]) -> None:
    phases = [*(phase.name for phase in PHASES), "sum"]
    print(f"\nfour phases of {d['batches_a_phase']} batches, {d['workload']}: seconds of execute")
    print(" " * 22 + "".join(f"{phase:>11}" for phase in phases))
    for title, totals in (("", d["first"]), (f"the best of them, {d['times']} times", d["totals"])):
        print(title)
        for name, total in sorted(totals.items(), key=lambda item: item[1]["sum"]):
            print(f"{name:22}" + "".join(f"{total[phase]:11.4f}" for phase in phases))
    _print_verdict(d["best_fixed"], d["adaptive_to_best"])


def _print_verdict(best: str, ratio: float, over: str = "") -> None:
    """ratio: adaptive's time over that of the best fixed policy."""
    answer = "beats every fixed policy" if ratio < 1 else f"does not beat {best}"
    print(f"adaptive {answer}{over}: {ratio:.3f} of the best one's time")
