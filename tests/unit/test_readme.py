"""The examples of README.md and docs/*.md run as they stand, and their commented results are true.

All ```python blocks of a page make one module. A bare expression that is followed by a comment claims that
this is its value:

    out.to_pylist()
    # [{'ts': 1, ...}]

The module is written to a file with the page's own line numbers, since Penstock reads the source of what it compiles,
and so that an error names a line of the page.
"""

import ast
import inspect
import json
import re
import sys
import types
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.database import Database
from penstock.declare.kinds import COLUMNS

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def python_of(page: Path) -> str:
    """The page with every line outside of a ```python block made empty."""
    lines, inside = [], False
    for line in page.read_text().splitlines():
        if line.startswith("```"):
            inside = line.strip() == "```python"
            lines.append("")
        else:
            lines.append(line if inside else "")
    return "\n".join(lines) + "\n"


def claim_after(lines: list[str], end: int) -> str | None:
    """The comment that follows line number `end`, if it reads as a Python expression."""
    comment = []
    for line in lines[end:]:
        if not line.lstrip().startswith("#"):
            break
        comment.append(re.sub(r"^\s*# ?", "", line))
    text = "\n".join(comment).strip()
    try:
        ast.parse(text, mode="eval")
    except SyntaxError:
        return None
    return text


class Claims(ast.NodeTransformer):
    """Turns `value` with a claim after it into `_claim(line, value, "claimed")`."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        assert node.end_lineno is not None
        claimed = claim_after(self.lines, node.end_lineno)
        if claimed is None:
            return node
        name = ast.Name("_claim", ast.Load())
        call = ast.Call(name, [ast.Constant(node.lineno), node.value, ast.Constant(claimed)], [])
        return ast.fix_missing_locations(ast.copy_location(ast.Expr(ast.copy_location(call, node.value)), node))


def run_page(page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Runs a page's examples; gives the values that it claimed, in order."""
    source = python_of(page)
    file = folder / f"{page.stem.lower()}_examples.py"
    file.write_text(source)
    module = types.ModuleType(file.stem)
    module.__file__ = str(file)
    monkeypatch.setitem(sys.modules, file.stem, module)
    monkeypatch.chdir(folder)  # examples may write to state/ and out/
    values = []

    def claim(line: int, value: Any, claimed: str) -> None:
        expected = eval(claimed, {"Decimal": Decimal} | vars(module))
        assert value == expected, f"{page.name}:{line}"
        values.append(value)

    vars(module)["_claim"] = claim
    tree = Claims(source.splitlines()).visit(ast.parse(source, str(file)))
    exec(compile(tree, str(file), "exec"), vars(module))
    return values


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_run_as_they_stand(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_page(page, tmp_path, monkeypatch)


def test_bank_example_shows_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes, accounts, total = run_page(ROOT / "README.md", tmp_path, monkeypatch)
    assert [(o["id"], o["status"], o["reason"]) for o in outcomes] == [
        ("t1", "committed", None),
        ("t2", "aborted", "not enough"),
    ]
    assert {a["id"]: a["balance"] for a in accounts} == {"a": Decimal("6.00"), "b": Decimal("4.00")}
    assert total == [{"total": Decimal("10.00")}]


LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)[^)]*\)")


BESIDE = [ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")]


@pytest.mark.parametrize("page", [*PAGES, *BESIDE], ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    wrong = [target for target in LINK.findall(page.read_text()) if not (page.parent / target).exists()]
    assert not wrong


def test_the_api_page_names_every_option() -> None:
    """The block that can be read without the built site has each parameter, with its default."""
    (block,) = re.findall(
        r"^## The options.*?```text\n(.*?)```", (ROOT / "docs" / "API.md").read_text(), re.DOTALL | re.M
    )
    for owner, name, text in re.findall(r"^(app|db)\.(\w+)(\(.*?)(?=^app|^db|\Z)", block, re.DOTALL | re.M):
        given = inspect.signature(getattr({"app": ps.App, "db": Database}[owner], name)).parameters.values()
        for one in given:
            if one.name == "self" or one.name.startswith("_"):
                continue
            default = json.dumps(one.default) if isinstance(one.default, str) else one.default
            form = one.name if one.default is one.empty else f"{one.name}={default}"
            assert re.search(rf"(?<!\w){re.escape(form)}(?!\w)", text), f"{owner}.{name} has {form}"


def test_the_api_page_names_every_type() -> None:
    (sentence,) = re.findall(r"^Types are .*?\.$", (ROOT / "docs" / "API.md").read_text(), re.DOTALL | re.MULTILINE)
    missing = [row.python for row in COLUMNS if f"{row.python.__name__}`" not in sentence]
    assert missing == []
