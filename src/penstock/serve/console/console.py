"""The console's files, as Starlette mounts them: `/`, and what it needs below `/console/`.

Plain HTML, CSS and JavaScript modules, as they are in the package: nothing is built, and nothing comes from elsewhere.
A page is made in the browser from what /v1 gives, so it can do no more than the token of whoever looks.
"""

from __future__ import annotations

import functools
from importlib import resources

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from penstock.serve.http.options import Options
from penstock.serve.http.site import Site

_TYPES = {
    "html": "text/html",
    "css": "text/css",
    "js": "text/javascript",
    "svg": "image/svg+xml",
}
_SAFE = {"x-frame-options": "DENY", "referrer-policy": "no-referrer"}
_CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; "
    "form-action 'none'"
)
# It has a style of its own and one form, and no script: it is shown to whoever has no token.
_DOOR_CSP = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'self'"


@functools.cache
def _files() -> dict[str, bytes]:
    folder = resources.files(__package__).joinpath("static")
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.name.partition(".")[2] in _TYPES}


def _answer(name: str) -> Response:
    content = _files().get(name)
    if content is None:
        return PlainTextResponse("there is no such file\n", 404)
    kind = _TYPES[name.partition(".")[2]]
    return Response(content, media_type=f"{kind}; charset=utf-8", headers=_SAFE | {"content-security-policy": _CSP})


async def _page(request: Request) -> Response:
    return _answer("index.html")


async def _file(request: Request) -> Response:
    return _answer(request.path_params["name"])


def add(site: Site, options: Options) -> None:
    site.mount([Route("/", _page), Route("/console/{name}", _file)])
    site.door = _files()["door.html"], _DOOR_CSP
