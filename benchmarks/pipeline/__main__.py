"""`python -m benchmarks.pipeline`: see benchmarks/README.md."""

from __future__ import annotations

import argparse
import importlib.util
import json
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.pipeline import fixed, identity, penstock_peer, per_key, postgres, redis_locks, report, servers, session
from benchmarks.pipeline.ledger import ACCOUNTS, THETA, Result, Stream, by_penstock, difference, plainly
from benchmarks.pipeline.peers import CannotRun, Job, Peer

PEERS: dict[str, Peer] = {
    peer.name: peer for module in (penstock_peer, identity, postgres, redis_locks, per_key) for peer in module.PEERS
}
REQUIREMENTS = Path(__file__).parents[1] / "requirements.txt"


def chosen(only: str | None) -> list[Peer]:
    """ "a,c2" is a1, a2 and c2."""
    if not only:
        return list(PEERS.values())
    words = [word.strip() for word in only.split(",") if word.strip()]
    for word in words:
        if not any(name.startswith(word) for name in PEERS):
            raise SystemExit(f"there is no peer '{word}'; choose from {', '.join(PEERS)}")
    return [peer for name, peer in PEERS.items() if any(name.startswith(word) for word in words)]


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pipeline", description="Penstock and its peers.")
    parser.add_argument("--events", type=int, default=1_000_000, help="events measured, beside the warm-up batch")
    parser.add_argument("--batch", type=int, nargs="+", default=[200_000], help="events a batch, one size or more")
    parser.add_argument("--slow-events", type=int, default=15_000, help="the same for c1, d1 and e")
    parser.add_argument("--slow-batch", type=int, default=5_000, help="the same for c1, d1 and e")
    parser.add_argument("--accounts", type=int, default=ACCOUNTS)
    parser.add_argument("--theta", type=float, default=THETA, help="Zipf skew of the accounts")
    parser.add_argument("--only", help="peers, by the beginning of their names: a,c2")
    parser.add_argument("--overhead", action="store_true", help="instead: a batch of 1000 events against an empty one")
    parser.add_argument("--flat", action="store_true", help="instead: price of an event at 10k, 100k, 1M a batch")
    parser.add_argument("--flat-sizes", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--profile", action="store_true", help="instead: where a batch's time goes in a1 and a2")
    parser.add_argument("--all", action="store_true", help="the peers, and all three")
    parser.add_argument("--quick-checkpoints", action="store_true", help="for all peers: Spark's plainer file manager")
    parser.add_argument("--install", action="store_true", help="fetch the servers and clients that are missing")
    parser.add_argument("--dir", help="where to make the temporary directory; its disk is what fsync is measured on")
    parser.add_argument("--json", metavar="FILE", help="'-' is the standard output")
    parser.add_argument("--plot", metavar="FILE")
    args = parser.parse_args(words)
    for name in ("events", "slow_events", "slow_batch", "accounts"):
        if getattr(args, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be 1 or more")
    if min(args.batch + args.flat_sizes) < 1 or args.accounts < 2:
        parser.error("sizes of batches must be 1 or more, accounts 2 or more")
    return args


def install() -> None:
    """What is missing of the peers' servers and clients."""
    modules = ("psycopg", "redis", "google.protobuf", "pandas", "matplotlib")
    if any(not _importable(module) for module in modules):
        subprocess.run([sys.executable, "-m", "pip", "install", "-q", "-r", str(REQUIREMENTS)], check=True)
    for need in (servers.need_postgres, servers.need_redis):
        try:
            need(may_install=True)
        except (CannotRun, subprocess.CalledProcessError) as error:
            print(f"note: {error}", file=sys.stderr)


def _importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


@contextmanager
def workplace(parent: str | None) -> Iterator[Path]:
    """A directory for everything, gone when the block ends, however it ends."""

    def stop(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    work = Path(tempfile.mkdtemp(prefix="penstock-benchmark-", dir=parent))
    work.chmod(0o711)  # the servers' users pass through it to their own directories
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)
        signal.signal(signal.SIGTERM, before)


@lru_cache(maxsize=1)
def wanted(stream: Stream, batch: int, batches: int) -> Result:
    """What Penstock makes of the events in memory; that itself is held against a plain loop."""
    events = stream.events(0, batch * batches)
    out = by_penstock(stream, events, batch)
    wrong = difference(plainly(stream, events), out)
    if wrong:
        raise AssertionError(f"Penstock and a plain loop disagree: {wrong}")
    return out


def warm_up(spark: Any, stream: Stream, fresh: Callable[[], Path], batch: int = 20_000, batches: int = 60) -> None:
    """A young JVM is slow: what Spark does around a batch takes a third less after some hundred batches, which would
    favour whoever runs last. So the pipelines on Spark alone run uncounted first."""
    home = fresh()
    events = stream.write(home / "events", batch, batches)
    for name in ("a1", "a2", "b"):
        work = home / name
        work.mkdir()
        with suppress(CannotRun):
            PEERS[name].run(Job(spark, stream, events, work, batch, batches))
    shutil.rmtree(home, ignore_errors=True)


def measure(spark: Any, stream: Stream, peer: Peer, batch: int, total: int, fresh: Callable[[], Path]) -> report.Row:
    batches = 1 + max(total // batch, 1)
    home = fresh()
    events = stream.write(home / "events", batch, batches)
    work = home / "work"
    work.mkdir()
    work.chmod(0o711)
    try:
        done = peer.run(Job(spark, stream, events, work, batch, batches))
        agrees = None
        note = done.note
        if peer.whole:
            assert done.result is not None
            wrong = difference(wanted(stream, batch, batches), done.result)
            agrees = wrong is None
            note = "; ".join(w for w in (f"WRONG: {wrong}" if wrong else "", note) if w)
        return report.row_of(peer, batch, session.seconds(done.durations), done.counts, agrees, note)
    except CannotRun as error:
        return report.failed(peer, batch, f"cannot run here: {error}")
    except Exception as error:  # The other peers still run; the exit status tells.
        traceback.print_exc()
        return report.failed(peer, batch, f"FAILED: {type(error).__name__}: {str(error)[:200]}")
    finally:
        shutil.rmtree(home, ignore_errors=True)


def main(words: list[str] | None = None) -> int:
    args = arguments(words)
    given = sys.argv[1:] if words is None else words
    console = Console(stderr=args.json == "-", width=None if sys.stdout.isatty() else 120)
    peers = chosen(args.only)
    if args.plot and not _importable("matplotlib") and not args.install:
        raise SystemExit("--plot needs matplotlib: pip install matplotlib, or add --install")
    if args.install:
        install()
    out = report.environment(shlex.join(["python", "-m", "benchmarks.pipeline", *given]))
    stream = Stream(args.accounts, args.theta)
    out |= {"cores": session.CORES, "accounts": stream.accounts, "theta": stream.theta, "peers": []}
    only_parts = (args.overhead or args.flat or args.profile) and not args.all
    with workplace(args.dir) as work, session.session(work, args.quick_checkpoints) as spark:
        numbers = count()

        def fresh() -> Path:
            path = work / f"run-{next(numbers)}"
            path.mkdir(mode=0o711)
            return path

        with console.status("warming up Spark"):
            warm_up(spark, stream, fresh)
        rows = []
        for peer in [] if only_parts else peers:
            for batch in [args.slow_batch] if peer.slow else args.batch:
                with console.status(f"{peer.name}: {peer.title}, {report.short(batch)} events a batch"):
                    rows.append(
                        measure(spark, stream, peer, batch, args.slow_events if peer.slow else args.events, fresh)
                    )
                console.print(f"{peer.name:3} {report.short(rows[-1].events_per_s):>6} events/s  {peer.title}")
                if rows[-1].agrees is False or rows[-1].events_per_s is None:
                    console.print(f"    {rows[-1].note}", markup=False)
        out["peers"] = report.plain(rows)
        if args.overhead or args.all:
            with console.status("overhead of a micro-batch"):
                out["overhead"] = fixed.overhead(spark, stream, fresh)
        if args.flat or args.all:
            with console.status("price of an event"):
                out["flat"] = fixed.flat(spark, stream, fresh, tuple(args.flat_sizes))
        if args.profile or args.all:
            with console.status("where the time goes"):
                out["profile"] = fixed.profile(spark, stream, fresh, args.batch[0])
    report.say(console, out)
    if args.json == "-":
        print(json.dumps(out))
    elif args.json:
        Path(args.json).write_text(json.dumps(out, indent=1) + "\n")
    if args.plot and out["peers"]:
        report.plot(args.plot, out)
    return 1 if any(row["agrees"] is False or row["note"].startswith("FAILED") for row in out["peers"]) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
