"""The generated serial kernel of three examples, as golden text. PENSTOCK_UPDATE_GOLDEN=1 writes it anew.

What is printed is what runs: without comments and line breaks it is the source that is compiled.
"""

import ast
import importlib.util
import os
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.execute.codegen import generate, subroutines
from penstock.workloads import WORKLOADS

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples"
APPS = {"bank": "bank", "bidding": "auction", "inventory": "shop"}


def example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, APPS[name])


def assert_is_what_runs(app: Any) -> None:
    assert ast.dump(ast.parse(app.explain("source"))) == ast.dump(ast.parse(generate(app.plan)[0]))


@pytest.mark.parametrize("name", APPS)
def test_source(name: str) -> None:
    app = example(name)
    printed = app.explain("source")
    golden = HERE / "sources" / f"{name}.txt"
    if os.environ.get("PENSTOCK_UPDATE_GOLDEN"):
        golden.write_text(printed)
    assert golden.exists(), f"{golden.name} is missing; write it with PENSTOCK_UPDATE_GOLDEN=1 and read it"
    assert printed == golden.read_text(), f"the source of {name} changed; PENSTOCK_UPDATE_GOLDEN=1 writes it anew"
    assert max(map(len, printed.splitlines())) <= 120
    assert_is_what_runs(app)


@pytest.mark.parametrize("name", WORKLOADS)
def test_comments_change_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    app = WORKLOADS[name].app()
    assert_is_what_runs(app)
    monkeypatch.setattr(subroutines, "LONG", 0)  # cut into subroutines, which are found by reading lines
    monkeypatch.setattr(subroutines, "PART", 20)
    assert_is_what_runs(app)


def test_where_a_kernel_is_cut_does_not_depend_on_comments(monkeypatch: pytest.MonkeyPatch) -> None:
    app = example("inventory")
    monkeypatch.setattr(subroutines, "LONG", generate(app.plan)[0].count("\n"))
    assert_is_what_runs(app)


odd = ps.App("odd")


@odd.table
class Odd:
    id: str = ps.key()
    count: int = 0

    @ps.check("two\nlines, and \u2028 a third")
    def small(self):
        return self.count < 9


@odd.event
class Tick:
    ts: int = ps.order()


@odd.transaction
def tick(e: Tick):
    ps.require("\f" in Odd, "a\nb\r  # c")
    # \u2028 is no end of a line in Python:
    Odd.get(" ").count += 1
    return {"it's\n{name}": e.ts}


def test_odd_characters_end_no_comment() -> None:
    assert_is_what_runs(odd)
    printed = odd.explain("source")
    assert "# abort: a b   # c" in printed
    assert 'Odd.get(" ").count += 1' in printed


def test_what_can_be_explained_is_said() -> None:
    with pytest.raises(ps.InputError, match=r"""explain\('graph'\).*"plan" or "source" """.strip()):
        example("bank").explain("graph")
