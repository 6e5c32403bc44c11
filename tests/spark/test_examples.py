"""The examples run as they stand, and show what they say."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

SHOWS = {
    "bank": [
        "  20 t3 committed 30.00\n  30 t2 committed 10.00\n",
        "31 t4 aborted insufficient funds",
        "50 t5 aborted missing Account",
        "accounts: {'ann': '30.00', 'bob': '10.00', 'eve': '60.00'}",
    ],
    "inventory": [
        "12:00:10 order o1 committed 3",
        "12:00:20 order o2 aborted out of stock",
        "12:00:40 order o3 committed 14",
        "[{'item': 'ink', 'quantity': 0, 'sold': 10}, {'item': 'pen', 'quantity': 2, 'sold': 7}]",
    ],
    "orders": [
        "o1 3 charge committed -\no1 4 ship committed -\no2 0 place aborted out of stock\n",
        "o3 0 place aborted insufficient funds\no3 1 reserve aborted insufficient funds\n",
        "[('o1', 1), ('o4', 2)]",
        "[{'item': 'ink', 'free': 0}, {'item': 'pen', 'free': 2}]",
    ],
    "leaderboard": [
        "0 leads with 14 votes\n",
        "('vote', 'committed'): 37, ('count', 'committed'): 37, ('vote', 'exists Ballot'): 18",
        "('vote', 'missing Contestant'): 5, ('remove', 'committed'): 1",
        "[{'id': 0, 'votes': 14, 'trending': 3}, {'id': 1, 'votes': 12, 'trending': 5}, {'id': 2, 'votes': 9, ",
    ],
    "seats": [
        "18:15 A1 if ann has not paid\n18:16 A2 if bob has not paid\n",
        "18:15 expire ann committed False\n18:16 expire bob committed True\n18:16 book dan committed None\n",
        "{'A1': 'ann', 'A2': ''}",
    ],
    "fraud_window": [
        "12:00 p1 committed spent 60.00\n12:01 p2 aborted over the limit\n12:02 p3 committed spent 100.00\n",
        "12:10 p4 committed spent 90.00\n",  # the first payment is ten minutes old
        "12:12 p6 committed spent 60.00\n12:13 p7 committed spent 61.00\n  alert: a 61.00\n",
        "12:40 p8 aborted blocked",
    ],
    "bidding": [
        "b1 committed left 60\nb2 committed left 20\nb3 committed left 30\nb4 aborted over budget\n",
        "b6 aborted bid too low",
        "{'id': 'lamp', 'price': 70, 'winner': 'ann'}, {'id': 'rug', 'price': 50, 'winner': 'bob'}",
    ],
    "ads": [
        "Counter({'paused': 32, 'committed': 24, ",
        "'ahead of pace': 6, 'seen enough': 6, ",
        "'duplicate': 2",
    ],
    "fraud": [
        "a00 committed approved: True \na01 aborted over limit 50.00\na02 committed approved: True \n",
        "a03 committed approved: False \n",
        "rejected amount: 1000000000 is no decimal(10, 2) \n",
        "[('c2', 'fast cash', 'merchant'), ('c3', 'kiosk', '5 in ten minutes'), ('c3', 'kiosk', '6 in ten minutes')]",
    ],
    "rides": [
        "08:00:05 request committed ann\n08:00:06 request committed None\n08:01:05 lapse committed bob\n",
        "08:02:05 lapse not needed None\n",
        "[{'id': 'r1', 'driver': 'bob', 'fare': Decimal('21.75')}]",
        "{'id': 'ann', 'cell': 'a1', 'status': 'off'}, {'id': 'bob', 'cell': 'a1', 'status': 'free'}",
    ],
    "reservations": [
        "09:00 request ann committed 240.000\n09:01 request ann duplicate None\n09:02 request bob exists Night None\n",
        "09:15 expire ann committed None\n09:15 pay p1 not due None\n",
        "09:30 refund r1 committed 160.000\n",
        "{'id': 'ann', 'stage': 'expired', 'price': Decimal('240.00')}, {'id': 'eve', 'stage': 'refunded', ",
    ],
    "tolls": [
        "minute 0: 30 reports, {'bad speed': 10} refused",
        "owes most: {'id': 10, 'owed': 50}",
        "  version 5: mile 0, owed 50",
        "cars seen by version 1: [{'cars': 30}]",
    ],
}
ELSEWHERE = {"kafka"}  # it needs a broker: tests/spark/test_kafka_example.py
ON_SPARK = ("ads", "bank", "fraud", "inventory", "leaderboard", "orders")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.spark] if name in ON_SPARK else []) for name in SHOWS]
)
def test_an_example_shows_what_it_says(name: str, tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "PYTHONWARNINGS": "error::UserWarning"}
    command = [sys.executable, str(ROOT / "examples" / f"{name}.py")]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    for shown in SHOWS[name]:
        assert shown in done.stdout


def test_every_example_is_tested_and_short() -> None:
    files = sorted((ROOT / "examples").glob("*.py"))
    assert {file.stem for file in files} == set(SHOWS) | ELSEWHERE
    assert all(len(file.read_text().splitlines()) <= 130 for file in files)
