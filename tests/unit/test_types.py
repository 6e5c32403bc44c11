"""What a type checker says of an app: nothing against README.md, docs/*.md and examples/, and all of data/typed*.py.

mypy runs as strict as it can, with Penstock's plugin; pyright (as basedpyright, which brings its own node) as it comes.
Only what is said of these files counts. pyarrow has no types, which makes its Table as good as Any, so a stub stands in
for it here.
"""

import json
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Context, Decimal, Inexact, Rounded, localcontext
from pathlib import Path

import pytest
from test_readme import PAGES, ROOT, python_of

import penstock as ps
from penstock.declare.model import Program

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
TYPED = sorted((ROOT / "tests" / "data").glob("typed*.py"))
STUB = """
from typing import Any
class Anything(type):
    def __getattr__(cls, name: str) -> Any: ...
class Table(metaclass=Anything):
    def __getattr__(self, name: str) -> Any: ...
class RecordBatch(metaclass=Anything): ...
def __getattr__(name: str) -> Any: ...
"""

pytestmark = pytest.mark.xdist_group("types")  # one process asks each checker once


@dataclass(frozen=True, slots=True)
class Error:
    file: str
    line: int
    text: str


def mypy(folder: Path, files: list[Path], cache: Path) -> list[Error]:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]
    options = folder / "mypy.ini"
    options.write_text(
        f"[mypy]\nplugins = {', '.join(config['plugins'])}\nmypy_path = {ROOT / 'src'}:{folder / 'stubs'}\n"
        f"cache_dir = {cache}\n[mypy-pyarrow.*]\nignore_missing_imports = true\n"
    )
    flags = ["--strict", "--follow-imports=silent", "--output=json", "--config-file", str(options)]
    out = asked([sys.executable, "-m", "mypy", *flags, *map(str, files)], folder)
    found = [json.loads(line) for line in out.splitlines()]
    return [Error(Path(e["file"]).name, e["line"], e["message"]) for e in found if e["severity"] == "error"]


def pyright(folder: Path, files: list[Path], _: Path) -> list[Error]:
    config = {
        "typeCheckingMode": "basic",
        "extraPaths": [str(ROOT / "src"), str(TYPED[0].parent)],
        "stubPath": str(folder / "stubs"),
        "include": [str(file) for file in files],
    }
    options = folder / "pyrightconfig.json"
    options.write_text(json.dumps(config))
    flags = ["--outputjson", "--pythonpath", sys.executable, "--project", str(options)]
    found = json.loads(asked([sys.executable, "-m", "basedpyright", *flags], folder))["generalDiagnostics"]
    return [
        Error(Path(e["file"]).name, e["range"]["start"]["line"] + 1, e["message"])
        for e in found
        if e["severity"] == "error"
    ]


def asked(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stdout + done.stderr  # 1: it found something
    return done.stdout


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where mypy keeps what it knows of Penstock itself."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module", params=[mypy, pyright], ids=lambda checker: checker.__name__)
def errors(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, cache: Path) -> list[Error]:
    checker: Callable[[Path, list[Path], Path], list[Error]] = request.param
    folder = tmp_path_factory.mktemp(checker.__name__)
    (folder / "stubs" / "pyarrow").mkdir(parents=True)
    (folder / "stubs" / "pyarrow" / "__init__.pyi").write_text(STUB)
    pages = []
    for page in PAGES:
        pages.append(folder / f"{page.stem.lower()}_page.py")
        pages[-1].write_text(python_of(page))  # with the page's own line numbers
    return checker(folder, [*pages, *EXAMPLES, *TYPED], cache)


def of(errors: Iterable[Error], *files: str) -> list[Error]:
    return [error for error in errors if error.file in files]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_are_clean(page: Path, errors: list[Error]) -> None:
    assert of(errors, f"{page.stem.lower()}_page.py") == []


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_examples_are_clean(example: Path, errors: list[Error]) -> None:
    assert of(errors, example.name) == []


@pytest.mark.parametrize("typed", TYPED, ids=lambda typed: typed.name)
def test_what_is_wrong_is_refused_and_nothing_else(typed: Path, errors: list[Error]) -> None:
    marked = {n for n, line in enumerate(typed.read_text().splitlines(), 1) if line.endswith("# refused")}
    found = of(errors, typed.name)
    assert [error for error in found if error.line not in marked] == []
    assert marked - {error.line for error in found} == set()


def test_mypy_reads_a_table_back_from_its_cache(tmp_path: Path, cache: Path) -> None:
    """The plugin gives a class another name, and mypy has to find it again."""
    declares, uses = tmp_path / "declares.py", tmp_path / "uses.py"
    declares.write_text(
        "import penstock as ps\napp = ps.App('app')\n@app.table\nclass T:\n    id: int = ps.key()\n    n: int = 0\n"
    )
    wrong = "from declares import T\ndef f() -> None:\n    t = T[1]\n    t.n = 'one'\n"
    for text in (wrong, wrong + "# again\n", "\n" + wrong):
        uses.write_text(text)
        (found,) = mypy(tmp_path, [declares, uses], cache)
        assert (found.file, text.splitlines()[found.line - 1]) == ("uses.py", "    t.n = 'one'")


def test_the_package_says_that_it_is_typed() -> None:
    assert (Path(ps.__file__).parent / "py.typed").is_file()


# -- the form that type checkers read means what the other one means ------------------------


def by_value() -> Program:
    app = ps.App("app")

    @app.table
    class Account:
        id: str = ps.key()
        limit: Decimal = ps.decimal(6, 0)
        balance: Decimal = ps.decimal(18, 2, default=Decimal("1.5"))

    @app.event
    class Transfer:
        ts: int = ps.order()
        amount: Decimal = ps.decimal(18, 2)

    return app.program


def by_type() -> Program:
    app = ps.App("app")

    @app.table
    class Account:
        id: str = ps.key()
        limit: ps.decimal(6, 0)
        balance: ps.decimal(18, 2) = Decimal("1.5")

    @app.event
    class Transfer:
        ts: int = ps.order()
        amount: ps.decimal(18, 2)

    return app.program


def test_a_decimal_is_declared_by_its_value_or_by_its_type() -> None:
    assert by_value() == by_type()
    assert [column.required for column in by_value().tables[0].columns] == [True, True, False]


@pytest.mark.parametrize(
    ("field", "says"),
    [
        ("v: int = ps.decimal(4, 2)", "write `v: Decimal = ps.decimal(18, 2)`"),
        ("v: ps.decimal(4, 2) = ps.decimal(4, 2)", "write `v: Decimal = ps.decimal(18, 2)`"),
        ("v: ps.decimal(4, 2, default=1)", "write `v: Decimal = ps.decimal(18, 2, default=…)`"),
        ("v: Decimal", "write `v: Decimal = ps.decimal(18, 2)`"),
        ("v: Decimal = ps.key()", "write ps.decimal(18, 2) instead of Decimal"),
        ("v: Decimal = ps.decimal(4, 2, default=100)", "100 is not a decimal(4, 2)"),
        ("v: Decimal = ps.decimal(4, 2, default=0.5)", "0.5 is not a decimal(4, 2)"),
        ("v = ps.decimal(4, 2)", "'v' needs a type: v: Decimal = ps.decimal(4, 2)"),
        ("v = ps.decimal(4, 2, default=1)", "'v' needs a type: v: Decimal = ps.decimal(4, 2, default=1)"),
    ],
)
def test_half_a_decimal_is_refused(field: str, says: str) -> None:
    source = f"@ps.App('app').table\nclass T:\n    id: int = ps.key()\n    {field}\n"
    with pytest.raises(ps.DeclarationError) as refused:
        exec(source, {"ps": ps, "Decimal": Decimal, "__name__": "half"})
    assert says in str(refused.value)


@pytest.mark.parametrize("traps", [[], [Inexact, Rounded]], ids=["rounds", "traps"])
def test_a_default_is_exact_in_any_decimal_context(traps: list[type]) -> None:
    app = ps.App("context")

    @app.table
    class Pot:
        k: int = ps.key()
        d: Decimal = ps.decimal(18, 2, default=Decimal("123456789.12"))

    @app.event
    class Put:
        ts: int = ps.order()
        k: int

    @app.transaction
    def put(e: Put) -> dict[str, Decimal]:
        return {"d": Pot.get(e.k).d, "made": Pot.insert(e.k).d}

    with localcontext(Context(prec=5, traps=traps)), app.open() as db:
        out = db.run([Put(ts=1, k=1)]).to_pylist()[0]
        assert "123456789.12" in db.explain()
    assert out["d"] == out["made"] == Decimal("123456789.12")


@pytest.mark.parametrize(
    ("field", "says"),
    [
        ("v: Decimal = ps.order()", "'v': an order is int or datetime.datetime, not a Decimal"),
        ("ts: int = ps.order()\n    v: Decimal = ps.id()", "'v': an id is int or str, not a Decimal"),
    ],
)
def test_a_decimal_names_no_event_and_is_no_place_in_time(field: str, says: str) -> None:
    with pytest.raises(ps.DeclarationError) as refused:
        exec(f"@ps.App('app').event\nclass E:\n    {field}\n", {"ps": ps, "Decimal": Decimal, "__name__": "half"})
    assert says in str(refused.value)


def test_an_event_takes_its_fields_by_name() -> None:
    app = ps.App("app")

    @app.event
    class Tick:
        ts: int = ps.order()
        n: int

    with pytest.raises(ps.InputError, match=r"event 'Tick' takes its fields by name: Tick\(ts=…\); it has ts, n"):
        Tick(1, 2)  # type: ignore[misc]


def test_a_decimal_field_of_an_event_has_its_default_behind_its_digits() -> None:
    @ps.App("app").event
    class Transfer:
        ts: int = ps.order()
        amount: Decimal = ps.decimal(18, 2, default=3)

    assert Transfer(ts=1).amount == Decimal("3.00")
