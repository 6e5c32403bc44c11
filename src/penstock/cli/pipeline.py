"""Pipeline: an app over directories of Parquet files, on a Spark session that is there.

inputs ──ps.parquet──> app.start ──> state directory, outcomes directory, a directory an output
                          └──observe.subscribe──> on_batch(report, seconds since the one before)
"""

from __future__ import annotations

import importlib
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from penstock import observe
from penstock.app import App
from penstock.errors import InputError, PenstockError
from penstock.execute.request import AHEAD, Ahead, OnBad

# How often --follow looks for new files.
LOOK = "500 milliseconds"

OnBatch = Callable[[observe.BatchReport, float], object]


@dataclass(frozen=True, slots=True)
class Pipeline:
    app: App
    inputs: dict[str, str]
    state: Path
    outcomes: Path
    watermark: str | int | None = None
    files_per_batch: int | None = None
    follow: bool = False
    outputs: dict[str, str] = field(default_factory=dict)
    on_bad: OnBad = "reject"
    ahead: Ahead = AHEAD

    def run(self, on_batch: OnBatch, progress: bool | Callable[[str], None] = False) -> None:
        """Run until all there is has been read, or with `follow` until interrupted; then close the state.
        progress: of `open`."""
        from penstock.spark.files import parquet

        sources = {event: parquet(path, self.files_per_batch) for event, path in self.inputs.items()}
        trigger = {"processingTime": LOOK} if self.follow else {"availableNow": True}
        with _told(on_batch) as started, _interrupts() as interrupted:
            query = self.app.start(
                sources,
                state=self.state,
                outcomes=self.outcomes,
                outputs=self.outputs,
                watermark=self.watermark,
                trigger=trigger,
                on_bad=self.on_bad,
                ahead=self.ahead,
                progress=progress,
            )
            started()
            try:
                while not interrupted.is_set() and query.awaitTermination(1) is False:
                    pass
                if interrupted.is_set():
                    query.stop()
                    query.awaitTermination()
            except Exception as error:
                raise _plainly(error) from error
        if interrupted.is_set() and not self.follow:
            raise KeyboardInterrupt


def app_of(text: str) -> App:
    """The app that MODULE:NAME names; NAME may also be a function that makes one."""
    module_name, colon, name = text.partition(":")
    if not (module_name and colon and name):
        raise InputError(f"'{text}' does not name an app; write MODULE:APP, for example bank:bank")
    if "" not in sys.path:
        sys.path.insert(0, "")  # a module of the current directory, as with python -m
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not module_name.startswith(error.name):
            raise
        raise InputError(f"there is no module '{module_name}' here; run where it can be imported") from None
    found = getattr(module, name, None)
    if callable(found) and not isinstance(found, App):
        found = found()
    if not isinstance(found, App):
        apps = ", ".join(n for n, value in vars(module).items() if isinstance(value, App)) or "none"
        raise InputError(f"module '{module_name}' has no app '{name}'; it has {apps}")
    return found


def inputs_of(app: App, texts: list[str]) -> dict[str, str]:
    """EVENT=PATH, checked against the app."""
    known = [t.event.name for t in app.program.transactions]
    found: dict[str, str] = {}
    for text in texts:
        event, equals, path = text.partition("=")
        if not (event and equals and path):
            raise InputError(f"--input {text} is not EVENT=PATH, for example {known[0] if known else 'Event'}=in/")
        if event not in known:
            raise InputError(
                f"app '{app.program.name}' has no transaction for event {event}; it has {', '.join(known)}"
            )
        if event in found:
            raise InputError(f"event '{event}' has two inputs; put its files into one directory")
        if not Path(path).is_dir():
            raise InputError(f"event '{event}': there is no directory {path}; make it, or name another")
        found[event] = path
    return found


def outputs_of(app: App, texts: list[str]) -> dict[str, str]:
    """EVENT=DIR, checked against the app; a directory need not be there."""
    known = [event.name for event in app.program.outputs()]
    found: dict[str, str] = {}
    for text in texts:
        event, equals, path = text.partition("=")
        if not (event and equals and path):
            raise InputError(f"--output {text} is not EVENT=DIR, for example {known[0] if known else 'Event'}=out/")
        if event not in known:
            raise InputError(
                f"app '{app.program.name}' has no output {event}: an output is an event that is emitted, and that no "
                f"transaction takes; it has {', '.join(known) or 'none'}"
            )
        if event in found:
            raise InputError(f"event '{event}' has two outputs; name one directory")
        found[event] = path
    return found


def watermark_of(text: str | None) -> str | int | None:
    """An int where the app's order column is one, or words such as "5 seconds"."""
    return int(text) if text is not None and text.strip().isdigit() else text


def ahead_of(text: str | None) -> Ahead:
    """As a watermark; "none" for no limit; the default where nothing was said."""
    if text is None:
        return AHEAD
    return None if text.strip().lower() == "none" else watermark_of(text)


@contextmanager
def _told(on_batch: OnBatch) -> Iterator[Callable[[], None]]:
    """Calls on_batch with each batch and its seconds; the first one's count from when `started` is called."""
    last = time.perf_counter()

    def started() -> None:
        nonlocal last
        last = time.perf_counter()

    def tell(report: observe.BatchReport) -> None:
        nonlocal last
        now = time.perf_counter()
        seconds, last = now - last, now
        on_batch(report, seconds)

    observe.subscribe(tell)
    try:
        yield started
    finally:
        observe.unsubscribe(tell)


@contextmanager
def _interrupts() -> Iterator[threading.Event]:
    """Set by Ctrl-C or SIGTERM. An exception in the middle of a call to the JVM would leave that call half done."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return

    def ask(number: int, frame: FrameType | None) -> None:
        asked.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _plainly(error: Exception) -> PenstockError:
    """What made the query fail: the engine's own words, which Spark wraps in a traceback of its own."""
    text = str(error)
    ours = re.findall(r"penstock\.errors\.\w+: (.+)", text)
    if ours:
        return PenstockError(ours[-1].strip())
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [type(error).__name__]
    return PenstockError(f"the query failed: {lines[0]}")
