"""The site's pages: those of docs/, and those that lie elsewhere in the repository, where people look for them first.

    README.md        index.md          the pages as they are: nothing is copied
    CONTRIBUTING.md  CONTRIBUTING.md
    examples/*.py    examples.md       programs, as one page

Every page is written for its place in the repository, where its links lead. On the site they lead to the page that is
made of the same file; a link to a file that is no page fails the build. MkDocs calls the functions named `on_…`.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]
# Where a page lies in the repository, and on the site.
ELSEWHERE = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "SECURITY.md": "SECURITY.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "LICENSE": "LICENSE.md",
    "benchmarks/README.md": "benchmarks.md",
    "examples": "examples.md",
}
REPOSITORY = {page: source for source, page in ELSEWHERE.items()}

_LINK = re.compile(r"\]\((?!\w+:|#)([^)\s#]+)")
_FENCE = re.compile(r"\s*(```|~~~)")
_ITEM = re.compile(r"(\s*)([-*]|\d+\.) ")


def on_files(files: Any, config: Any) -> Any:
    """Adds the pages that lie outside of docs/."""
    for source, page in ELSEWHERE.items():
        files.append(File.generated(config, page, content=_text(source)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """A page as the repository has it, as the site needs it."""
    source = REPOSITORY.get(page.file.src_uri, f"docs/{page.file.src_uri}")

    def led(match: re.Match[str]) -> str:
        return f"]({_target(source, match[1], page.file.src_uri)}"

    return _spaced(_outside_of_code(markdown, lambda line: _LINK.sub(led, line)))


def _text(source: str) -> str:
    if source == "LICENSE":
        return f"# Licence\n\n```text\n{(ROOT / source).read_text()}```\n"
    if source != "examples":
        return (ROOT / source).read_text()
    programs = sorted((ROOT / source).glob("*.py"))
    parts = [f"## {file.name}\n\n```python\n{file.read_text()}```\n" for file in programs]
    return "\n".join(["# Examples\n\nWhole programs, as they lie in `examples/`.\n", *parts])


def _target(source: str, link: str, page: str) -> str:
    """Where a link of this file in the repository leads on the site, seen from this page."""
    target = posixpath.normpath(posixpath.join(posixpath.dirname(source), link))
    if target in ELSEWHERE:
        target = ELSEWHERE[target]
    elif target.startswith("docs/"):
        target = target.removeprefix("docs/")
    else:
        raise PluginError(f"{source}: the link to {link} leads to no page of the site; name the file without a link")
    return posixpath.relpath(target, posixpath.dirname(page) or ".")


def _outside_of_code(text: str, change: Callable[[str], str]) -> str:
    lines, inside = [], False
    for line in text.splitlines():
        fence = _FENCE.match(line) is not None
        lines.append(line if inside or fence else change(line))
        inside ^= fence
    return "\n".join(lines) + "\n"


def _spaced(text: str) -> str:
    """With an empty line before each list: GitHub needs none between a paragraph and a list, Python-Markdown does."""
    lines: list[str] = []
    inside = False
    for line in text.splitlines():
        before = lines[-1] if lines else ""
        if _ITEM.match(line) and not inside and before.strip() and not _ITEM.match(before) and before[0] != " ":
            lines.append("")
        inside ^= _FENCE.match(line) is not None
        lines.append(line)
    return "\n".join(lines) + "\n"
