"""Which path is whose: a table of routes, and how a request finds its own.

    Route("GET", "/v1/tables/{table}/records/{key}", record, READ, params=(VERSION, …), says="One record")

A path is matched as it came, before percent-signs are undone: a key may hold a slash. So the parts in braces are one
segment each. `call.part(name)` has one undone; a key, which may have commas of its own, is taken from `call.raw`.

Whoever adds routes gives them to the Site as such a tuple; the OpenAPI document is made from the same table.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import unquote_to_bytes

from penstock.serve.http.answers import Answer, Refusal, Stream

if TYPE_CHECKING:
    from penstock.serve.http.call import Call

Handler = Callable[["Call"], Awaitable[Answer | Stream]]
# Which token a route asks for; a write token reads too.
NONE: Final = "none"
READ: Final = "read"
WRITE: Final = "write"
Token = Literal["none", "read", "write"]
BODY_MAX = 1 << 20

_BROKEN = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_ESCAPE = ord("%")


@dataclass(frozen=True, slots=True)
class Param:
    """One of a query string."""

    name: str
    kind: Literal["integer", "string"]
    says: str


@dataclass(frozen=True, slots=True)
class Route:
    method: Literal["GET", "POST"]
    path: str
    handler: Handler
    token: Token = READ
    says: str = ""
    params: tuple[Param, ...] = ()
    body: dict[str, Any] | None = None  # JSON schema of what is sent
    answer: dict[str, Any] = field(default_factory=dict)  # and of what comes back
    type: str = "application/json"
    body_max: int = BODY_MAX
    _known: dict[str, Param] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_known", {param.name: param for param in self.params})

    def param(self, name: str) -> Param | None:
        return self._known.get(name)


@dataclass(slots=True)
class _Pattern:
    literals: tuple[tuple[int, bytes], ...]
    names: tuple[tuple[int, str], ...]
    methods: dict[str, Route]


class Router:
    def __init__(self, routes: Iterable[Route] = ()) -> None:
        self.routes: list[Route] = []
        self._by_length: dict[int, list[_Pattern]] = {}
        for route in routes:
            self.add(route)

    def add(self, route: Route) -> None:
        self.routes.append(route)
        segments = route.path.encode().split(b"/")
        literals = tuple((i, s) for i, s in enumerate(segments) if not s.startswith(b"{"))
        names = tuple((i, s[1:-1].decode()) for i, s in enumerate(segments) if s.startswith(b"{"))
        patterns = self._by_length.setdefault(len(segments), [])
        for pattern in patterns:
            if pattern.literals == literals:
                pattern.methods[route.method] = route
                return
        patterns.append(_Pattern(literals, names, {route.method: route}))
        patterns.sort(key=lambda pattern: -len(pattern.literals))  # the plainest path first

    def match(self, method: str, path: bytes) -> tuple[Route, dict[str, bytes]] | None:
        """The route, and its parts as they came; None where the path is nobody's."""
        segments = path.split(b"/")
        for pattern in self._by_length.get(len(segments), ()):
            for place, text in pattern.literals:
                if segments[place] != text:
                    break
            else:
                route = pattern.methods.get("GET" if method == "HEAD" else method)
                if route is None:
                    allowed = ", ".join(pattern.methods)
                    raise Refusal(
                        405,
                        "method",
                        f"{method} is not for this path; it takes {allowed}",
                        headers=((b"allow", allowed.encode()),),
                    )
                return route, {name: segments[place] for place, name in pattern.names}
        return None


def text_of(raw: bytes) -> str:
    """A segment of a path, with its percent-signs undone."""
    if _ESCAPE in raw:
        if _BROKEN.search(raw):
            raise Refusal(400, "bad_request", "the path has a '%' without two hexadecimal digits; a '%' itself is %25")
        raw = unquote_to_bytes(raw)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise Refusal(400, "bad_request", "the path is not UTF-8; percent-encode a text's UTF-8 bytes") from None


def texts_of(raw: bytes) -> list[str]:
    """The parts of a key: commas part them unless they are encoded."""
    return [text_of(part) for part in raw.split(b",")]
