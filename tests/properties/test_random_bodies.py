"""Native equals reference: random programs, each on random batches.

A failure prints its seed and the smallest program and batches that still fail. Repeat a run with
PENSTOCK_LAW_SEED=<the seed before the colon>.
"""

import itertools
import os
import re
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import bodies
import pytest
from bodies import Trial
from law import FORMS, agree, agree_reopened, in_form
from settings import EXAMPLES, SEED
from shrink import shrink

from penstock import DeclarationError
from penstock.plan.foresee import foresee
from penstock.plan.inline import Member, inline
from penstock.plan.ir import Plan, TransactionPlan
from penstock.schedule.policy import EXPLORE, LOCKING, ON_ABORT, UNITS, Policy

# Compiling dominates: a few large batches for each program cost little more than one small one.
BATCH_SIZES = (60, 0, 60, 1)
# Compile time grows faster than the program; above this many operations one program costs more than it finds.
OPERATIONS_MAX = 120
FLOW_OPERATIONS_MAX = 160  # of more transactions; hardly any has fewer
# At most this share of the generated programs may be refused, or the generator tests too little.
REFUSED_MAX = 0.3
# A program whose events nearly all abort compares little.
COMMITTED_MIN = 0.2
# Policies that share kernels: to compile those takes a minute, to run under one policy more takes a moment.
POLICIES = (
    *(tuple(Policy(explore=e, unit=u, on_abort=a, threads=3) for e in EXPLORE for a in ON_ABORT) for u in UNITS),
    tuple(Policy.locking(scheme, threads=3) for scheme in LOCKING if scheme != "none"),
)
SHRINK_SECONDS = float(os.environ.get("PENSTOCK_LAW_SHRINK_SECONDS", "120"))


@pytest.mark.parametrize("number", range(EXAMPLES // 2))
def test_random_program(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _run(f"{SEED}:{number}", tmp_path, monkeypatch, most=OPERATIONS_MAX)


@pytest.mark.long
@pytest.mark.parametrize("number", range(EXAMPLES * 25))
def test_many_random_programs(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _run(f"{SEED}:long:{number}", tmp_path, monkeypatch)


@pytest.mark.long
@pytest.mark.parametrize("number", range(EXAMPLES * 10))
def test_many_random_programs_under_policies(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {"most": OPERATIONS_MAX, "policies": _policies(number), "drawn": _has_computed_keys}
    _run(f"{SEED}:policies:{number}", tmp_path, monkeypatch, **given)


@pytest.mark.parametrize("number", range(EXAMPLES // 10))
def test_random_flow(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    windows = number % 2 == 1
    _run(f"{SEED}:flow:{number}", tmp_path, monkeypatch, most=FLOW_OPERATIONS_MAX, drawn=_is_flow, windows=windows)


@pytest.mark.long
@pytest.mark.parametrize("number", range(EXAMPLES * 15))
def test_many_random_flows(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _run(f"{SEED}:long flow:{number}", tmp_path, monkeypatch, drawn=_is_flow)


@pytest.mark.parametrize("number", range(EXAMPLES // 20))
def test_random_group(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _run(f"{SEED}:group:{number}", tmp_path, monkeypatch, most=OPERATIONS_MAX, drawn=_is_group)


@pytest.mark.long
@pytest.mark.parametrize("number", range(EXAMPLES * 10))
def test_many_random_groups_under_policies(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = GROUPS[number % len(GROUPS)]
    policies = _policies(number // len(GROUPS))
    given: dict[str, Any] = {"most": 2 * OPERATIONS_MAX, "policies": policies, "drawn": drawn}
    _run(f"{SEED}:groups:{number}", tmp_path, monkeypatch, **given)


@pytest.mark.long
@pytest.mark.parametrize("number", range(EXAMPLES * 10))
def test_many_random_windows(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _run(f"{SEED}:windows:{number}", tmp_path, monkeypatch, drawn=(_is_any, _is_flow)[number % 2], windows=True)


def _policies(number: int) -> tuple[Policy, ...]:
    """In turn, from others each run on."""
    return POLICIES[(number + Random(SEED).randrange(len(POLICIES))) % len(POLICIES)]


def test_few_programs_are_refused(tmp_path: Path) -> None:
    reasons: Counter[str] = Counter()
    statuses: Counter[str] = Counter()
    count = EXAMPLES * 4
    for number in range(count):
        seed = f"{SEED}:{number}"
        try:
            module = bodies.load(bodies.program(seed), tmp_path, f"refusal_{number}")
        except DeclarationError as refused:
            reasons[re.sub(r"'[^']*'|\d+", "…", str(refused).partition("): ")[2] or str(refused))] += 1
            continue
        if number < EXAMPLES:
            statuses += _statuses(seed, module)
    total = reasons.total()
    print(f"seed {SEED}: {total} of {count} programs refused; {dict(statuses)}")
    for reason, times in reasons.most_common(8):
        print(f"  {times}  {reason}")
    assert total <= REFUSED_MAX * count
    assert statuses["committed"] >= COMMITTED_MIN * statuses.total()


def _statuses(seed: str, module: Any) -> Counter[str]:
    trial = _trial(seed, module)
    reference = module.app.reference()
    for table, rows in trial.rows.items():
        reference.load(table, rows, check=False)
    found: Counter[str] = Counter()
    for batch in trial.batches:
        events = [getattr(module, name)(**values) for name, values in batch]
        found.update(reference.run(events).column("status").to_pylist())
    return found


def _trial(seed: str, module: Any, source: str | None = None) -> Trial:
    rng = Random(f"{seed} input")
    program = module.app.program
    rows = bodies.rows(rng, program)
    batches = [bodies.batch(rng, program, size) for size in BATCH_SIZES]
    return Trial(source or bodies.program(seed), rows, batches, [rng.choice(FORMS) for _ in batches])


def _drawn(
    seed: str, directory: Path, most: int | None, fits: Callable[[Plan], bool], **kind: bool
) -> tuple[str, Any, str]:
    """The first program of a kind from this seed on that is neither refused nor too large, and that fits."""
    for again in itertools.count():
        one = f"{seed}.{again}"
        try:
            source = bodies.program(one, small=most is not None, **kind)
            module = bodies.load(source, directory, f"drawn_{again}")
        except DeclarationError:
            continue
        blocks = [part.block for part in (*module.app.plan.transactions, *module.app.plan.checks)]
        if most is not None and sum(1 for block in blocks for _ in block.walk()) > most:
            continue
        if fits(module.app.plan):
            return one, module, source
    raise AssertionError


def _is_any(plan: Plan) -> bool:
    return True


def _is_flow(plan: Plan) -> bool:
    return plan.program.flow is not None


def _adds(plan: Plan) -> bool:
    """Whether some transaction adds to a window."""
    return any(op.code == "window_add" for t in plan.transactions for op in t.block.walk())


def _groups(plan: Plan) -> list[tuple[TransactionPlan, list[Member]]]:
    """The groups of more than one transaction, and what runs in them behind the event that arrives, where each round
    is one transaction."""
    inlined = inline(plan) if plan.program.flow is not None else ""
    if isinstance(inlined, str):
        return []
    both = zip(inlined.plan.transactions, inlined.groups, strict=True)
    return [(transaction, list(group[1:])) for transaction, (_, group) in both if len(group) > 1]


def _is_group(plan: Plan) -> bool:
    return bool(_groups(plan))


def _is_foreseen_group(plan: Plan) -> bool:
    return any(foresee(transaction) for transaction, _ in _groups(plan))


def _is_loop_of_members(plan: Plan) -> bool:
    return any(foresee(one) and any(member.in_loop for member in members) for one, members in _groups(plan))


GROUPS = (_is_group, _is_foreseen_group, _is_loop_of_members)


def _has_computed_keys(plan: Plan) -> bool:
    return all(_is_computed(t) for t in plan.transactions)


def _is_computed(transaction: TransactionPlan) -> bool:
    """Whether a transaction is foreseen, and some key of it is more than a field or an item of a list."""
    found, ops = foresee(transaction), {op.id: op for op in transaction.block.walk()}
    return found is not None and any(
        any(ops[key].code not in ("field", "const", "item") for key in site.keys)
        or any(ops[loop].code == "range" for loop in site.loop)
        for site in found.sites
    )


def _run(
    seed: str,
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    most: int | None = None,
    policies: tuple[Policy, ...] = (),
    drawn: Callable[[Plan], bool] = _is_any,
    windows: bool = False,
) -> None:
    """Without policies, under the default one: small batches then run serially."""
    # A random program is never seen again, so its machine code goes with the test's own files.
    monkeypatch.setenv("PENSTOCK_CACHE_DIR", str(directory / "cache"))
    groups = drawn in GROUPS
    flow = groups or drawn is _is_flow

    def fits(plan: Plan) -> bool:
        return drawn(plan) and (not windows or _adds(plan))

    seed, module, source = _drawn(seed, directory, most, fits, flow=flow, groups=groups, windows=windows)
    trial = _trial(seed, module, source)
    attempts = 0

    def failure(one: Trial) -> tuple[str, str] | None:
        nonlocal attempts
        attempts += 1
        try:
            again = bodies.load(one.source, directory, f"attempt_{attempts}")
            for policy in policies or (None,):
                agree(again.app, *_bound(one, again), policy)
            if flow or windows:
                log = ("changes", "input")[len(one.source) % 2]
                agree_reopened(again.app, *_bound(one, again), directory / f"state_{attempts}", log)
        except DeclarationError:
            return None
        except Exception as error:
            return type(error).__name__, traceback.format_exc(limit=-6)
        return None

    first = failure(trial)
    if first is None:
        return

    def still_fails(one: Trial) -> bool:
        found = failure(one)
        return found is not None and found[0] == first[0]

    small = shrink(trial, still_fails, SHRINK_SECONDS)
    why = failure(small) or first
    under = f" under one of {', '.join(policy.name for policy in policies)}" if policies else ""
    pytest.fail(f"seed {seed}{under}: {why[1]}\n\nthe smallest that fails so:\n\n{small}", pytrace=False)


def _bound(trial: Trial, module: Any) -> tuple[dict[str, Any], list[Any]]:
    batches = [
        in_form([getattr(module, name)(**values) for name, values in batch], form)
        for batch, form in zip(trial.batches, trial.forms, strict=True)
    ]
    return trial.rows, batches
