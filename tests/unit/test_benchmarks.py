"""The benchmark's own arithmetic: the events, the comparison, the figures. Nothing here starts Spark or a server."""

import struct
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")
sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.pipeline import report
from benchmarks.pipeline.__main__ import arguments, chosen
from benchmarks.pipeline.ledger import BLOCK, OPENING, Result, Stream, by_penstock, difference, plainly
from benchmarks.pipeline.postgres import copy_rows

SMALL = Stream(accounts=50, theta=0.6)


def test_the_stream_is_the_same_in_any_batches():
    whole = SMALL.events(0, 2 * BLOCK)
    assert whole["ts"].to_pylist() == list(range(2 * BLOCK))
    assert SMALL.events(BLOCK - 5, 10).equals(whole.slice(BLOCK - 5, 10).combine_chunks())
    assert SMALL.events(3, 0).num_rows == 0


def test_transfers_are_between_two_accounts_and_some_must_abort():
    events = SMALL.events(0, BLOCK)
    kind, src, dst = (events[name].to_numpy() for name in ("kind", "src", "dst"))
    assert 0.45 < kind.mean() < 0.55
    assert (src[kind == 1] != dst[kind == 1]).all()
    assert 0 < (events["amount"].to_numpy() > OPENING).sum() < 0.02 * BLOCK


def test_penstock_and_the_plain_loop_agree():
    events = SMALL.events(0, 3000)
    wanted = plainly(SMALL, events)
    assert difference(wanted, by_penstock(SMALL, events, 1000)) is None
    assert not wanted.committed.all()


def test_files_are_one_a_batch(tmp_path):
    SMALL.write(tmp_path / "in", 700, 3)
    files = sorted((tmp_path / "in").iterdir())
    assert [pq.read_table(f)["ts"][0].as_py() for f in files] == [0, 700, 1400]


def result(balances=(1, 2), ts=(0, 1), committed=(True, False), left=(5, 0)):
    return Result(*(np.array(x) for x in (balances, ts, committed, left)))


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (result(), None),
        (result(balances=(1, 3)), "1 balances differ: account 1 has 3, not 2"),
        (result(committed=(True, True)), "1 outcomes differ in 'committed': event 1 has True, not False"),
        (result(left=(6, 0)), "1 outcomes differ in 'left': event 0 has 6, not 5"),
        (result(ts=(0,), committed=(True,), left=(5,)), "outcomes of 1 events, not of the 2 there were"),
    ],
)
def test_a_difference_is_said(other, words):
    assert difference(result(), other) == words


def test_copy_rows_are_postgres_binary_format():
    table = pa.table({"ts": [1], "kind": [0], "src": [2], "dst": [3], "amount": [-4]})
    fields = b"".join(struct.pack(">iq", 8, n) for n in (1, 0, 2, 3, -4))
    assert copy_rows(table) == b"PGCOPY\n\xff\r\n\0" + bytes(8) + struct.pack(">h", 5) + fields + struct.pack(">h", -1)


def test_the_warm_up_is_not_counted():
    peer = SimpleNamespace(name="x", title="X", durability="none")
    row = report.row_of(peer, 100, [9.0, 1.0, 2.0, 4.0], None, True, "")
    assert (row.batches, row.events_per_s, row.slowest, row.fastest) == (3, 50, 25, 100)
    assert report.row_of(peer, 100, [9.0, 1.0], [7, 30], None, "").events_per_s == 30
    with pytest.raises(ValueError, match="warm-up"):
        report.row_of(peer, 100, [9.0], None, None, "")


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (None, "-"),
        (7.891, "7.89"),
        (82.7, "82.7"),
        (999.7, "1.00k"),
        (10_000, "10.0k"),
        (999_700, "1.00M"),
        (1.5e6, "1.50M"),
    ],
)
def test_short_numbers(number, words):
    assert report.short(number) == words


def test_peers_are_chosen_by_the_beginning_of_their_names():
    assert [p.name for p in chosen("a,c2")] == ["a1", "a2", "c2"]
    assert [p.name for p in chosen(None)] == ["a1", "a2", "b", "c1", "c2", "d1", "d2", "e"]
    with pytest.raises(SystemExit, match="no peer 'z'"):
        chosen("z")


def test_arguments_are_checked(capsys):
    assert arguments(["--batch", "10", "20"]).batch == [10, 20]
    with pytest.raises(SystemExit):
        arguments(["--batch", "0"])
    assert "1 or more" in capsys.readouterr().err
