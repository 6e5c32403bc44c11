"""A check of what real streams leave: sound while they run and when they are done; and it names what is damaged."""

from pathlib import Path
from typing import Any

import pytest
from test_damage import started
from test_stream import events, finish, put_cut, state_of

from penstock.check.check import check
from penstock.commit import Disk
from penstock.spark.check import check_beside, check_outcome_files

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:.*:DeprecationWarning:pyspark")]

SOME = events(21, 60)


def wrong(root: Path) -> list[str]:
    found = [*check(Disk(), root / "state").damage, *check_beside(root / "state")]
    found += check_outcome_files(root / "out", root / "state") if (root / "out").is_dir() else []
    return [str(finding) for finding in found if not finding.ok]


def test_a_stream_while_it_runs_and_when_it_is_done(spark: Any, tmp_path: Path) -> None:
    state = state_of(tmp_path)
    put_cut(tmp_path, SOME, 6)
    query = started(tmp_path)
    while not query.awaitTermination(1):
        assert wrong(tmp_path) == []
    finish(query)
    assert wrong(tmp_path) == []
    assert {f.file for f in check_beside(state)} >= {
        "checkpoint/metadata",
        "checkpoint/offsets/0",
        "checkpoint/commits/0",
    }
    assert all(list((state / "checkpoint" / kind).glob(".*.crc")) for kind in ("offsets", "commits"))
    newest = max((state / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda file: int(file.name))
    newest.write_bytes(newest.read_bytes()[:-1] + b"x")
    (said,) = wrong(tmp_path)
    assert said.startswith(
        f"checkpoint/offsets/{newest.name}: is damaged: the checksums in .{newest.name}.crc do not hold"
    )
