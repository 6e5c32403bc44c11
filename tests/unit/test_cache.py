"""The cache of compiled kernels saves time and decides nothing: whatever happened to its files, answers are the same.

Each case runs in a process of its own, over a copy of a cache that was filled by another.
"""

from __future__ import annotations

import json
import os
import pickle
import resource
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numba as nb
import pytest
from numba.core.registry import cpu_target

from penstock._version import __version__
from penstock.execute import cache
from penstock.schedule.costs import Costs
from penstock.state import hashing, jit

# Two apps that differ in one operator, so that each other's machine code would fit.
PROGRAM = """
import json, resource, sys, warnings
import penstock as ps

def app(name, operation):
    app = ps.App(name)

    @app.event
    class Pair:
        ts: int = ps.order()
        a: int
        b: int

    if operation == "+":
        @app.transaction
        def pair(e: Pair):
            return {"out": e.a + e.b}
    else:
        @app.transaction
        def pair(e: Pair):
            return {"out": e.a - e.b}

    return app, Pair

def answer(name, operation):
    made, Pair = app(name, operation)
    with made.open() as db:
        return db.run([Pair(ts=1, a=20, b=-5)])["out"].to_pylist()[0]

import penstock.database
if len(sys.argv) > 1:
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))
with warnings.catch_warnings(record=True) as warned:
    warnings.simplefilter("always")
    out = [answer("plus", "+"), answer("minus", "-")]
kernels = [m.kernel for name, m in list(sys.modules.items()) if name.startswith("penstock_kernel_")]
loaded = sum(sum(k.stats.cache_hits.values()) for k in kernels)
print(json.dumps({"out": out, "loaded": loaded, "warned": [str(w.message) for w in warned]}))
"""
RIGHT = [15, 25]
ROOT = os.geteuid() == 0
SOMEBODY = 65534


def start(directory: Path, program: Path, *arguments: str) -> subprocess.Popen[str]:
    environment = os.environ | {"PENSTOCK_CACHE_DIR": str(directory)}
    command = [sys.executable, str(program), *arguments]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def report(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, error = process.communicate(timeout=300)
    assert process.returncode == 0, error
    return dict(json.loads(out))


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("program") / "pairs.py"
    path.write_text(PROGRAM)
    return path


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory, program: Path) -> Path:
    """Filled by two processes at once."""
    directory = tmp_path_factory.mktemp("filled") / "cache"
    both = [start(directory, program) for _ in range(2)]
    assert [report(one)["out"] for one in both] == [RIGHT, RIGHT]
    return directory


@pytest.fixture
def warm(filled: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(filled, tmp_path / "cache"))


@pytest.fixture
def run(program: Path) -> Callable[..., dict[str, Any]]:
    return lambda directory, *arguments: report(start(directory, program, *arguments))


def files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file())


class Marker:
    """To unpickle it is to leave a file behind."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


# -- what is there is used ----------------------------------------------------------------------


def test_a_second_process_loads_the_machine_code(run: Callable[..., Any], warm: Path) -> None:
    before = [(path.name, path.read_bytes()) for path in files(warm)]
    assert run(warm) == {"out": RIGHT, "loaded": 2, "warned": []}
    assert [(path.name, path.read_bytes()) for path in files(warm)] == before


def test_the_directory_and_its_files_are_the_users_alone(filled: Path) -> None:
    assert stat.S_IMODE(filled.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in files(filled)} == {0o600}
    assert [path.suffix for path in files(filled)] == [".code"] * 2  # no source, and nothing that was not finished


def test_a_symlink_of_the_users_own_to_a_directory_of_the_users_own_is_used(
    run: Callable[..., Any], warm: Path, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(warm)
    assert run(tmp_path / "link")["loaded"] == 2


# -- damage -------------------------------------------------------------------------------------


def rewrite(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def damage(directory: Path) -> None:
        for path in files(directory):
            path.write_bytes(change(path.read_bytes()))

    return damage


def flip(place: float) -> Callable[[Path], None]:
    def change(data: bytes) -> bytes:
        at = int(place * (len(data) - 1))
        return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]

    return rewrite(change)


def swap(directory: Path) -> None:
    one, two = files(directory)
    first = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(first)


def bomb(before: int) -> Callable[[Path], None]:
    """A pickle that leaves a marker, after so many bytes of what is there."""

    def damage(directory: Path) -> None:
        evil = pickle.dumps(Marker(directory.parent / "marker"))
        for path in files(directory):
            path.write_bytes(path.read_bytes()[:before] + evil)

    return damage


def replaced(make: Callable[[Path], object]) -> Callable[[Path], None]:
    def damage(directory: Path) -> None:
        for path in files(directory):
            path.rename(directory.parent / path.name)
            make(path)

    return damage


def each(change: Callable[[Path], object]) -> Callable[[Path], None]:
    def damage(directory: Path) -> None:
        for path in files(directory):
            change(path)

    return damage


DAMAGE: dict[str, Callable[[Path], None]] = {
    "every + a -": rewrite(lambda data: data.replace(b"+", b"-")),
    "a bit of the head": flip(0.0),
    "a bit of the seal": rewrite(lambda data: data[:30] + bytes([data[30] ^ 1]) + data[31:]),
    "a bit in the middle": flip(0.5),
    "the last bit": flip(1.0),
    "half a file": rewrite(lambda data: data[: len(data) // 2]),
    "a head without a body": rewrite(lambda data: data[:20]),
    "an empty file": rewrite(lambda data: b""),
    "more at the end": rewrite(lambda data: data + b"\0"),
    "swapped": swap,
    "a pickle": bomb(0),
    "a pickle behind the head": bomb(len(cache._MAGIC)),
    "a pickle behind the seal": bomb(len(cache._MAGIC) + cache._SEAL),
    "a directory": replaced(lambda path: path.mkdir()),
    "a pipe": replaced(os.mkfifo),
    "a symlink": replaced(lambda path: path.symlink_to(path.parents[1] / path.name)),
    "others may write the file": each(lambda path: path.chmod(0o666)),
}
if ROOT:
    DAMAGE["somebody else's file"] = each(lambda path: os.chown(path, SOMEBODY, -1))


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_damage_costs_time_and_nothing_else(
    run: Callable[..., Any], warm: Path, damage: Callable[[Path], None]
) -> None:
    damage(warm)
    assert run(warm) == {"out": RIGHT, "loaded": 0, "warned": []}
    assert not (warm.parent / "marker").exists()


def test_what_was_damaged_is_made_anew(run: Callable[..., Any], warm: Path) -> None:
    flip(0.5)(warm)
    assert [run(warm)["loaded"] for _ in range(2)] == [0, 2]


def test_code_with_a_sound_seal_that_numba_cannot_use_is_passed_over(tmp_path: Path) -> None:
    directory, signature, context = tmp_path / "cache", (nb.int64,), cpu_target.target_context
    code = cache.MachineCode(directory, "kernel", "source")
    name, identity = code._named(signature, context.codegen())
    for payload in (
        b"",
        b"no pickle",
        pickle.dumps(7),
        pickle.dumps(((nb.float64,), ())),
        pickle.dumps((signature, ())),
    ):
        assert cache.write(directory, name, cache._sealed(payload, identity))
        assert code.load_overload(signature, context) is None


def test_a_seal_holds_for_one_identity_alone() -> None:
    sealed = cache._sealed(b"payload", b"one")
    assert cache._unsealed(sealed, b"one") == b"payload"
    assert cache._unsealed(sealed, b"two") is None


def test_the_packages_own_kernels_do_not_outlive_its_version() -> None:
    """numba's stamp is of one file's source, and what others inline into it may change with an upgrade."""
    assert hashing.mix._cache._cache_file._version[1] == __version__


def test_an_index_that_names_a_class_which_is_gone_is_begun_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("penstock_gone")
    module.Gone = type("Gone", (), {"__module__": "penstock_gone"})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "penstock_gone", module)
    index = jit.kernel(lambda x: x)._cache._cache_file
    index._index_path = str(tmp_path / "index")
    index._save_index({"signature": module.Gone()})  # type: ignore[attr-defined]
    assert list(index._load_index()) == ["signature"]
    del module.Gone  # type: ignore[attr-defined]
    assert index._load_index() == {}


# -- directories --------------------------------------------------------------------------------


def others_may_write(warm: Path) -> Path:
    warm.chmod(0o770)
    return warm


def somebody_elses(warm: Path) -> Path:
    os.chown(warm, SOMEBODY, -1)
    return warm


def link_to_somebody_elses(warm: Path) -> Path:
    os.chown(warm, SOMEBODY, -1)
    (warm.parent / "link").symlink_to(warm)
    return warm.parent / "link"


def somebody_elses_link(warm: Path) -> Path:
    link = warm.parent / "link"
    link.symlink_to(warm)
    os.chown(link, SOMEBODY, -1, follow_symlinks=False)
    return link


FOREIGN = [others_may_write, *((somebody_elses, link_to_somebody_elses, somebody_elses_link) if ROOT else ())]


@pytest.mark.parametrize("make", FOREIGN, ids=lambda make: make.__name__)
def test_a_directory_that_others_may_write_or_own_is_refused(
    run: Callable[..., Any], warm: Path, make: Callable[[Path], Path]
) -> None:
    before = [(path.name, path.read_bytes()) for path in files(warm)]
    directory = make(warm)
    found = run(directory)
    assert (found["out"], found["loaded"]) == (RIGHT, 0)
    assert [(path.name, path.read_bytes()) for path in files(warm)] == before
    (warning,) = found["warned"]
    assert str(directory) in warning and "chmod go-w" in warning and "PENSTOCK_CACHE_DIR" in warning


def test_a_full_directory(run: Callable[..., Any], tmp_path: Path) -> None:
    """No file may be longer than that, as on a disk that is full."""
    assert run(tmp_path / "cache", "1000") == {"out": RIGHT, "loaded": 0, "warned": []}
    assert files(tmp_path / "cache") == []


@pytest.fixture
def small_files() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_file_that_does_not_fit_leaves_the_old_one(tmp_path: Path, small_files: None) -> None:
    assert cache.write(tmp_path, "a", b"old")
    assert not cache.write(tmp_path, "a", b"longer than ten bytes")
    assert cache.read(tmp_path, "a") == b"old"
    assert [path.name for path in files(tmp_path)] == ["a"]


@pytest.mark.parametrize("name", ["", ".", "..", "../a", "a/b", "/etc/passwd"])
def test_only_plain_names_become_files(tmp_path: Path, name: str) -> None:
    for use in (lambda: cache.read(tmp_path, name), lambda: cache.write(tmp_path, name, b"")):
        with pytest.raises(ValueError, match="plainly"):
            use()


@pytest.mark.skipif(not ROOT, reason="only root can become a user that is not known")
def test_a_user_without_a_home_has_no_cache() -> None:
    child = os.fork()
    if child == 0:
        for name in ("HOME", "PENSTOCK_CACHE_DIR", "XDG_CACHE_HOME"):
            os.environ.pop(name, None)
        os.setuid(SOMEBODY - 7)
        os._exit(0 if cache.cache_directory() is None else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# -- learned costs ------------------------------------------------------------------------------

LEARNED = "schedule-learned-2-app.json"
HOSTILE = {
    "empty": b"",
    "half": b'{"2:large": [1.0, 2.',
    "not text": b"\xff\xfe\x00\x80",
    "deep": b"[" * 200_000,
    "a list": b"[1, 2, 3]",
    "too few": b'{"2:large": [1.0]}',
    "words": b'{"2:large": ["a", "b", "c"]}',
    "no number": b'{"2:large": [NaN, 1, 1]}',
    "too large an int": b'{"2:large": [1' + b"0" * 400 + b", 1, 1]}",
    "endless digits": b'{"2:large": [1' + b"0" * 5000 + b", 1, 1]}",
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE.keys())
def test_damaged_costs_are_learned_again(tmp_path: Path, content: bytes) -> None:
    (tmp_path / LEARNED).write_bytes(content)
    costs = Costs(tmp_path, "app")
    assert costs.factors == {}
    costs.correct("bfs/transaction/eager", 2, 10_000, False, 1.5)
    costs.save()
    assert Costs(tmp_path, "app").factors == costs.factors != {}


def test_costs_out_of_bounds_are_brought_back(tmp_path: Path) -> None:
    (tmp_path / LEARNED).write_bytes(b'{"2:large": [Infinity, 0, -1e300], "bfs": [1, 1, 1]}')
    cost = Costs(tmp_path, "app").of("bfs/transaction/eager", 2, 10_000)
    assert 0 < cost.start < 1 and 0 < cost.entry < 1 and 0 < cost.versions < 1


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_costs_that_are_no_file(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / LEARNED)
    costs = Costs(tmp_path, "app")
    assert costs.factors == {}
    costs.correct("bfs/transaction/eager", 2, 10_000, False, 1.5)
    costs.save()


def test_costs_of_an_app_whose_name_climbs_are_not_looked_for(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="plainly"):
        Costs(tmp_path, "/../../x")
