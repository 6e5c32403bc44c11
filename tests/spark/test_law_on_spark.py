"""The law through Spark: programs of the law's own tests, cut into micro-batches, in disorder, with a restart."""

import random
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import Phase, given, seed, settings
from hypothesis import strategies as st
from test_stream import NOW, finish, put

import penstock as ps
from penstock.publish.files import as_read
from penstock.testing import assert_same_outcomes, assert_same_tables

sys.path.append(str(Path(__file__).parents[1] / "properties"))
import programs

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:.*:DeprecationWarning:pyspark")]


def draw(strategy: st.SearchStrategy[Any], number: int) -> Any:
    """One value, the same for each number."""
    got = []

    @seed(number)
    @settings(max_examples=20, phases=[Phase.generate], database=None)
    @given(strategy)
    def take(value: Any) -> None:
        got.append(value)

    take()
    return max(got, key=lambda value: len(str(value)))


def micros(value: Any) -> int:
    return value if isinstance(value, int) else pa.scalar(value, pa.timestamp("us", "UTC")).value


def law_on_spark(root: Path, name: str, number: int) -> None:
    case, chance = programs.case(name), random.Random(number)
    kinds = case.app.program.events
    loads = {table: draw(rows, number) for table, rows in case.rows.items()}
    some = draw(st.lists(case.event, min_size=24, max_size=40), number)
    per_batch, phases = chance.randint(1, 3), [chance.randint(1, 4), chance.randint(1, 4)]
    for kind in kinds:
        (root / kind.name).mkdir()

    # Each phase is some files for every type, of which a batch takes `per_batch`. So this is the order of arrival:
    cuts = sorted(chance.sample(range(len(some) + 1), sum(phases) - 1))
    files = [some[a:b] for a, b in zip([0, *cuts], [*cuts, len(some)])]
    arrival = []
    for phase in (files[: phases[0]], files[phases[0] :]):
        for at in range(0, len(phase), per_batch):
            batch = [e for file in phase[at : at + per_batch] for e in file]
            arrival += sorted(batch, key=lambda e: [k.name for k in kinds].index(e.definition.name))
    top, delay = None, 0
    for event in arrival:
        ts = micros(event.values[event.definition.order])
        top = ts if top is None else max(top, ts)
        delay = max(delay, top - ts)

    for table, rows in loads.items():
        case.app.load(table, rows, check=False, state=root / "state")
    for last, phase in ((False, files[: phases[0]]), (True, files[phases[0] :])):
        for file in phase:
            for kind in kinds:
                rows = [e.values for e in file if e.definition.name == kind.name]
                put(root / kind.name, pa.Table.from_pylist(rows, schema=kind.arrow()))
        query = case.app.start(
            {k.name: ps.parquet(root / k.name, files_per_batch=per_batch) for k in kinds},
            state=root / "state",
            outcomes=root / "out",
            watermark=delay + 1,
            trigger=NOW if last else None,
            log=chance.choice(["changes", "input"]),
            snapshot_every=chance.choice([1, 50]),
        )
        if not last:
            query.processAllAvailable()
            query.stop()
        finish(query)

    reference = case.app.reference()
    for table, rows in loads.items():
        reference.load(table, rows, check=False)
    wanted = reference.run(arrival)
    got = pa.concat_tables([pq.read_table(f) for f in sorted((root / "out").glob("version-*.parquet"))])
    assert_same_outcomes(got.drop("version"), as_read(wanted).drop("version"))
    with case.app.open(root / "state") as db:
        for table in case.app.program.tables:
            keys = [c.name for c in table.keys]
            assert_same_tables(db.table(table.name), reference.table(table.name), keys)


@pytest.mark.parametrize(("name", "number"), [("bank", 1), ("kinds", 1), ("lists", 2), ("merge", 2)])
def test_law_on_spark(spark: Any, tmp_path: Path, name: str, number: int) -> None:
    law_on_spark(tmp_path, name, number)


@pytest.mark.long
@pytest.mark.parametrize("number", range(1, 6))
@pytest.mark.parametrize("name", programs.NAMES)
def test_law_on_spark_at_length(spark: Any, tmp_path: Path, name: str, number: int) -> None:
    law_on_spark(tmp_path, name, number)
