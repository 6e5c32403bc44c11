"""Calls from another process, through a socket: the same answers, and what a dead, half or foreign message does."""

import errno
import os
import signal
import socket
import stat
import struct
import subprocess
import sys
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from test_calls import Account, Give, Look, Move, Together, bank, opened, post, until

import penstock as ps
from penstock.check.leftovers import leftovers
from penstock.commit import Disk
from penstock.serve import address, messages
from penstock.serve.address import socket_path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state"


def serving(folder: Path) -> Any:
    db = opened(bank, folder)
    db.serve_calls()
    return db


def test_another_process_calls_and_gets_every_column(folder: Path) -> None:
    with serving(folder) as db:
        assert stat.S_IMODE((folder / "calls.sock").stat().st_mode) == 0o600
        code = (
            "import sys; from decimal import Decimal; from test_calls import *\n"
            "with bank.connect(sys.argv[1]) as there:\n"
            "    assert there.call(Move(id='m', src='a', dst='b', amount=Decimal(40)))['left'] == 60\n"
            "    print(there.call(Look(who='b')))\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, str(folder)],
            capture_output=True,
            text=True,
            cwd=Path(__file__).parent,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip() == str(db.call(Look(who="b")))
        assert not list(leftovers(Disk(), folder))
        with bank.connect(folder) as there:
            assert there.call(Move(id="m", src="a", dst="b", amount=Decimal(40))) == db.call(
                Move(id="m", src="b", dst="a", amount=Decimal(1))
            )  # one id, one outcome, whoever calls
            assert there.call(Give(id="g", who="b", amounts=[1, 2]))["left"] == 43
            assert there.call(Give(id="h", who=None, amounts=None))["reason"] == "null who"
    assert not (folder / "calls.sock").exists()


def test_refusals_are_those_of_a_call_at_home(folder: Path) -> None:
    with serving(folder) as db, bank.connect(folder) as there:
        with pytest.raises(ps.InputError, match="field 'id': is null; every Give needs its id"):
            there.call(Give(who="a"))
        with pytest.raises(ps.InputError, match="'Copy' is not an event of app 'bank'"):
            there.call(post_event())
        with (
            post.connect(folder) as other,
            pytest.raises(ps.InputError, match="calls of app 'post' cannot be answered"),
        ):
            other.call(post_event())
        renamed, Changed = changed()
        with renamed.connect(folder) as other:
            with pytest.raises(
                ps.InputError, match=r"was called with 1 row.* of other fields than it has in app 'bank'"
            ):
                other.call(Changed(whom="a"))
        assert (db.version, there.call(Look(who="a"))["left"]) == (0, 100)
        there.close()
        with pytest.raises(ps.StateError, match="is closed; connect again"):
            there.call(Look(who="a"))
    with pytest.raises(ps.StateError, match=r"nobody serves calls of state directory .*calls=True, on this machine"):
        bank.connect(folder)
    with opened(bank) as db, pytest.raises(ps.InputError, match="a database in memory has no directory to find it by"):
        db.serve_calls()


def post_event() -> Any:
    from test_calls import Copy

    return Copy(id=1, box=1, weight=1)


def changed() -> tuple[ps.App, Any]:
    app = ps.App("bank")

    @app.event
    class Look:
        whom: str

    @app.transaction
    def look(e: Look):
        return {"whom": e.whom}

    return app, Look


def framed(body: bytes, magic: bytes = b"PSC1", size: int | None = None, crc: int | None = None) -> bytes:
    sizes = len(body) if size is None else size
    return struct.pack(">4sII", magic, sizes, zlib.crc32(body) if crc is None else crc) + body


def a_call() -> bytes:
    class Kept:
        data = b""

        def sendall(self, data: bytes) -> None:
            self.data = data

    kept: Any = Kept()
    row = pa.Table.from_pylist([{"id": "x", "who": "b", "amounts": [1]}], schema=Give.definition.arrow())
    messages.send(kept, {"app": "bank", "event": "Give"}, row)
    return bytes(kept.data)


def test_half_a_message_or_none_of_ours_is_no_call(folder: Path) -> None:
    whole = a_call()
    garbage = [
        b"GET / HTTP/1.1\r\n\r\n",
        framed(b"", magic=b"PSC9"),
        framed(b"x", size=1 << 31),
        framed(whole[12:], crc=1),
        framed(b"\0\0"),
        framed(struct.pack(">I", 2) + b"[]"),
        framed(struct.pack(">I", 9) + b"not json!"),
        framed(struct.pack(">I", 100_000) + b"[" * 100_000),
        framed(struct.pack(">I", 2) + b"{}" + b"not arrow"),
        framed(struct.pack(">I", 2) + b"{}"),
    ]
    flipped = [whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in range(0, len(whole), 7)]
    cut = [whole[:at] for at in range(1, len(whole), 31)]
    with serving(folder) as db:
        for data in (*garbage, *flipped, *cut):
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(folder / "calls.sock"))
                client.sendall(data)
                client.shutdown(socket.SHUT_WR)
                said = messages.receive(client)
                assert said is not None
                assert said.header["error"] == "InputError"
                assert said.header["says"].startswith(("what has come is not a call", "calls of app None"))
        assert db.version == 0
        with socket.socket(socket.AF_UNIX) as client:  # it goes away without waiting for its answer
            client.connect(str(folder / "calls.sock"))
            client.sendall(whole)
        until(lambda: db.version == 1)
        with bank.connect(folder) as there:
            assert there.call(Give(id="x", who="b", amounts=[1]))["version"] == 1
            assert db.version == 1
    assert threading.active_count() == 1 or not [t for t in threading.enumerate() if t.name.startswith("penstock-call")]


def test_calls_of_many_connections_share_a_version(folder: Path) -> None:
    with serving(folder) as db, bank.connect(folder) as there:

        class Far:
            """The database, but that calls take the way through the socket."""

            _calls, run, call = db._calls, db.run, there.call

        told = Together(Far, [Give(id=str(k), who="b", amounts=[k]) for k in range(12)]).answers()
        assert {one["version"] for one in told} == {2}
        assert [one["left"] for one in told] == [sum(range(k + 1)) for k in range(12)]


def test_a_writer_that_is_killed_leaves_the_next_one_to_say(folder: Path) -> None:
    """A call that is under way: its client is told that nobody knows; and again with its id, it runs once."""
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reads)
            db = serving(folder)
            with db._gate.writing():  # calls come, and wait
                os.write(writes, b".")
                time.sleep(600)
        finally:
            os._exit(1)
    os.close(writes)
    assert os.read(reads, 1) == b"."
    os.close(reads)
    with bank.connect(folder) as there, ThreadPoolExecutor(1) as pool:
        answer = pool.submit(there.call, Give(id="g", who="b", amounts=[3]))
        until(lambda: bool(there._idle) is False)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        error = answer.exception(60)
        assert isinstance(error, ps.StateError) and error.committed in (None, False)
        with pytest.raises(ps.StateError, match="nobody serves calls"):
            there.call(Look(who="b"))
        assert (folder / "calls.sock").exists() and not list(leftovers(Disk(), folder))
        with bank.open(folder, calls=True) as db:
            assert there.call(Give(id="g", who="b", amounts=[3]))["left"] == 3
            assert there.call(Give(id="g", who="b", amounts=[3]))["left"] == 3
            assert db.version == 1


def test_a_state_directory_whose_path_is_long_is_found_too(tmp_path: Path) -> None:
    folder = tmp_path / ("d" * 120)
    with serving(folder):
        path = socket_path(folder)
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        with bank.connect(folder) as there:
            assert there.call(Look(who="a"))["left"] == 100
    assert not path.exists()


@pytest.mark.parametrize("made", ["for all", "a file", "a link"])
def test_a_folder_for_sockets_that_others_could_have_made_is_used_by_nobody(
    tmp_path: Path, made: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, place = tmp_path / ("d" * 120), tmp_path / "sockets"
    monkeypatch.setattr(address, "_folder", lambda: place)
    opened(bank, folder).close()
    with pytest.raises(ps.StateError, match="nobody serves calls"):
        bank.connect(folder)
    if made == "for all":
        place.mkdir()
        place.chmod(0o777)
    elif made == "a file":
        place.write_bytes(b"")
    else:
        place.symlink_to(tmp_path)
    with pytest.raises(ps.StateError, match="is not a folder of this user's alone; remove it"):
        bank.connect(folder)
    with pytest.raises(ps.StateError, match="is not a folder of this user's alone; remove it"):
        bank.open(folder, calls=True)
    bank.open(folder).close()


def test_a_writer_that_was_fenced_leaves_the_next_ones_socket(folder: Path) -> None:
    fenced = serving(folder)
    (folder / "writer.lock").unlink()
    with bank.open(folder, calls=True):
        fenced.close()
        with bank.connect(folder) as there:
            assert there.call(Look(who="a"))["left"] == 100
    assert not (folder / "calls.sock").exists()


def test_a_folder_in_the_place_of_the_socket(folder: Path) -> None:
    opened(bank, folder).close()
    (folder / "calls.sock").mkdir()
    with pytest.raises(ps.StateError, match=r"cannot be served at .*calls\.sock: Is a directory; nothing else may be"):
        bank.open(folder, calls=True)
    bank.open(folder).close()


def test_a_client_that_finds_no_descriptor_or_no_right(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(folder):

        def refuses(self: Any, address: Any) -> None:
            raise OSError(errno.EACCES, "Permission denied")

        monkeypatch.setattr(socket.socket, "connect", refuses)
        with pytest.raises(ps.StateError, match="Permission denied; calls are for the user whose state it is"):
            bank.connect(folder)


def test_open_takes_calls(folder: Path) -> None:
    with opened(bank, folder):
        pass
    with bank.open(folder, calls=True) as db, bank.connect(folder) as there:
        assert there.call(Look(who="a")) == db.call(Look(who="a"))
        assert db.table(Account).num_rows == 2
        assert there.call(Move(ts=3, id="m", src="a", dst="b", amount=Decimal(1)))["ts"] == 3
    with pytest.raises(ps.InputError, match="a database in memory"):
        bank.open(calls=True)
