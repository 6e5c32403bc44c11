"""Imports point one way, down the way of a batch; `import penstock` does nothing but define names.

    errors < declare < plan < state < execute < schedule < engine < commit < check < store < publish < replica <
    inspect < serve < gate < call_answers < versions < call < ledger < calls < database < app < the rest

A stage imports itself, the stages before it, errors and observe. The files are read, not run, so that an
import inside a function or under TYPE_CHECKING counts as well.
"""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from penstock.execute import native
from penstock.execute.codegen import functions, source
from penstock.schedule import graph_executor as versioned
from penstock.schedule import lock_executor as locked
from penstock.schedule.codegen import locked as locked_source
from penstock.schedule.codegen import parallel

SOURCE = Path(__file__).parents[2] / "src"
PACKAGE = SOURCE / "penstock"
FILES = sorted(PACKAGE.rglob("*.py"))

ORDER = (
    *("declare", "plan", "state", "execute", "schedule", "engine"),
    *(
        "commit",
        "check",
        "store",
        "publish",
        "replica",
        "inspect",
        "serve",
        "gate",
        "call_answers",
        "versions",
        "call",
        "ledger",
        "calls",
        "database",
        "app",
    ),
)
STAGES = tuple(name for name in ORDER if (PACKAGE / name).is_dir())
BASE = {"errors", "_version"}

ALLOWED: dict[str, set[str]] = {name: {*ORDER[: i + 1], *BASE, "observe"} for i, name in enumerate(ORDER)}
ALLOWED |= {
    "errors": set(),
    "_version": set(),
    "observe": {"observe", "errors", "declare"},
    # The log stores bytes: what they mean is none of its business, nor that of those who check it.
    "commit": {"commit", "errors"},
    "check": {"check", "commit", "errors"},
    # What a user starts from; only when a stream is started does it reach for Spark.
    "app": {*ORDER, *BASE, "observe", "spark"},
}

# (file, module it may import against the order): why.
EXCEPTIONS: dict[tuple[str, str], str] = {}


def part_of(module: str) -> str:
    """The stage or top module that `penstock.x.y` belongs to; '' is penstock's own __init__."""
    return module.split(".")[1] if "." in module else ""


def module_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(path: Path) -> Iterator[tuple[int, str]]:
    """(line, module) of all that a file imports, and that the source which it generates does. `from penstock import x`
    names penstock.x where that is a module."""
    tree = ast.parse(path.read_text(), str(path))
    yield from imports_in(tree, path)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            lines = [line for line in node.value.splitlines() if re.match(r"(from|import) penstock[. ]", line)]
            yield from ((node.lineno, module) for _, module in imports_in(ast.parse("\n".join(lines)), path))


def imports_in(tree: ast.AST, path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
            assert node.module is not None
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield node.lineno, inner if is_module(inner) else node.module


def is_module(name: str) -> bool:
    place = SOURCE.joinpath(*name.split("."))
    return place.with_suffix(".py").is_file() or (place / "__init__.py").is_file()


def against_the_order() -> list[tuple[str, str, str]]:
    """(where, importing part, module) of each import that the order does not allow."""
    found = []
    for path in FILES:
        part = part_of(module_of(path))
        if part not in ALLOWED:
            continue
        for line, module in imports_of(path):
            if module.split(".")[0] == "penstock" and part_of(module) not in ALLOWED[part]:
                found.append((f"{path.relative_to(SOURCE)}:{line}", part, module))
    return found


def test_imports_point_down_the_way_of_a_batch() -> None:
    wrong = [(where, module) for where, part, module in against_the_order() if (part, module) not in EXCEPTIONS]
    assert not wrong


def test_every_exception_to_the_order_is_still_needed() -> None:
    used = {(part, module) for _, part, module in against_the_order()}
    assert set(EXCEPTIONS) <= used


def test_every_stage_is_a_folder_with_a_readme() -> None:
    for stage in STAGES:
        assert (PACKAGE / stage / "__init__.py").is_file()
        assert (PACKAGE / stage / "README.md").is_file()


def test_only_spark_imports_pyspark() -> None:
    wrong = [
        (str(path.relative_to(SOURCE)), line)
        for path in FILES
        for line, module in imports_of(path)
        if module.split(".")[0] == "pyspark" and part_of(module_of(path)) != "spark"
    ]
    assert not wrong


def test_commit_needs_only_pyarrow() -> None:
    wrong = {
        (str(path.relative_to(SOURCE)), module)
        for path in FILES
        if part_of(module_of(path)) == "commit"
        for _, module in imports_of(path)
        if module.split(".")[0] not in {"penstock", "pyarrow", *sys.stdlib_module_names}
    }
    assert not wrong


def test_nothing_durable_is_pickled() -> None:
    wrong = [
        (str(path.relative_to(SOURCE)), line)
        for path in FILES
        for line, module in imports_of(path)
        if module.split(".")[0] in {"pickle", "cloudpickle", "dill", "marshal", "shelve"}
    ]
    assert not wrong


@pytest.mark.parametrize(
    ("head", "called"),
    [
        (source.IMPORTS + functions.IMPORTS, ()),
        (source.IMPORTS + functions.IMPORTS + "\n" + parallel._MORE, versioned._CALLED),
        (source.IMPORTS + functions.IMPORTS + "\n" + locked_source._MORE, locked._CALLED),
    ],
    ids=["serial", "graphs", "locks"],
)
def test_kernels_are_known_by_all_that_they_call(tmp_path: Path, head: str, called: tuple[ModuleType, ...]) -> None:
    """numba inlines what a kernel calls, and what that calls: a change anywhere there makes another kernel."""
    text = tmp_path / "generated.py"
    text.write_text(head)
    found: set[str] = set()
    waiting = [text]
    while waiting:
        for _, module in imports_of(waiting.pop()):
            if module.startswith("penstock.") and module not in found:
                found.add(module)
                waiting.append(SOURCE.joinpath(*module.split(".")).with_suffix(".py"))
    assert found - {"penstock._version"} <= {module.__name__ for module in (*native._HELPERS, *called)}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_module_reads_the_environment_at_import(path: Path) -> None:
    assert not list(environment_reads(ast.parse(path.read_text(), str(path))))


def environment_reads(node: ast.AST) -> Iterator[int]:
    """Lines that mention os.environ or os.getenv outside of any function."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(child, ast.Attribute) and child.attr in {"environ", "getenv"}:
            yield child.lineno
        yield from environment_reads(child)


# Run in a fresh interpreter. An audit hook sees every file, process and socket; what the import machinery does to find
# and load modules is not ours, so a frame of importlib that lies between the act and penstock's frame excuses it.
WATCH = """
import json, sys
seen = []
def hook(event, args):
    if event not in ("open", "os.mkdir", "os.listdir", "os.scandir", "subprocess.Popen", "socket.__new__"):
        return
    frame = sys._getframe(1)
    while frame is not None and "importlib" not in frame.f_code.co_filename:
        if "/penstock/" in frame.f_code.co_filename:
            seen.append([event, str(args[0]) if args else "", frame.f_code.co_filename, frame.f_lineno])
            return
        frame = frame.f_back
sys.addaudithook(hook)
import penstock
print(json.dumps({"seen": seen, "pyspark": "pyspark" in sys.modules, "duckdb": "duckdb" in sys.modules}))
"""


def test_importing_penstock_does_no_io() -> None:
    done = subprocess.run([sys.executable, "-c", WATCH], cwd=SOURCE, capture_output=True, text=True, check=True)
    report = json.loads(done.stdout)
    assert report["seen"] == []
    assert not report["pyspark"]
