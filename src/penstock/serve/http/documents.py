"""The OpenAPI document, made from the table of routes, and a page that shows it and fetches nothing from elsewhere."""

from __future__ import annotations

import functools
import re
from importlib import resources
from typing import Any

from penstock._version import __version__
from penstock.serve.http.answers import Answer
from penstock.serve.http.call import Call
from penstock.serve.http.options import Options
from penstock.serve.http.routes import NONE, Route
from penstock.serve.http.site import Site
from penstock.serve.http.values import dumps

_CSP = b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:"
_PAGE_HEADERS = (
    (b"content-security-policy", _CSP),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
)
_PARTS = {
    "table": "A table's name.",
    "number": "A version.",
    "row": "Which of the version's outcomes, from 0.",
    "id": "An event's id.",
    "key": "The record's key; parts of a composite one percent-encoded, joined by commas.",
}
_ERROR = {
    "description": "What is wrong: a kind to act on, and a sentence to read.",
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "properties": {"error": {"type": "string"}, "says": {"type": "string"}},
                "required": ["error", "says"],
            }
        }
    },
}


def document(site: Site) -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for route in site.router.routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": f"{site.reader.app}, by Penstock",
            "version": __version__,
            "description": "Every answer names the version that it is of, also in the header X-Penstock-Version.",
        },
        "paths": paths,
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }


def _operation(route: Route) -> dict[str, Any]:
    parts = re.findall(r"{(\w+)}", route.path)
    given = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "string"},
            "description": _PARTS.get(name, ""),
        }
        for name in parts
    ]
    given += [
        {"name": param.name, "in": "query", "schema": {"type": param.kind}, "description": param.says}
        for param in route.params
    ]
    schema: dict[str, Any] = {"type": "string"}
    if route.type == "application/json":
        schema = {"type": "object", "properties": {"version": {"type": "integer"}, **route.answer}}
    told: dict[str, Any] = {
        "summary": route.says,
        "operationId": re.sub(r"\W+", "_", f"{route.method.lower()}{route.path}").strip("_"),
        "parameters": given,
        "responses": {
            "200": {"description": "The answer.", "content": {route.type: {"schema": schema}}},
            "4XX": _ERROR,
            "503": _ERROR,
        },
        "security": [] if route.token == NONE else [{"token": []}],
        "x-token": route.token,
    }
    if route.body is not None:
        told["requestBody"] = {"required": True, "content": {"application/json": {"schema": route.body}}}
    return told


async def _document(call: Call) -> Answer:
    return Answer(dumps(document(call.site)), call.site.reader.version)


def _file(name: str, type_: bytes) -> Any:
    async def handler(call: Call) -> Answer:
        return Answer(_content(name), type=type_ + b"; charset=utf-8", headers=_PAGE_HEADERS)

    return handler


@functools.cache
def _content(name: str) -> bytes:
    return resources.files("penstock.serve.http").joinpath("static", name).read_bytes()


ROUTES = (
    Route("GET", "/openapi.json", _document, says="This document."),
    Route("GET", "/docs", _file("docs.html", b"text/html"), says="A page that shows it.", type="text/html"),
    Route("GET", "/docs.js", _file("docs.js", b"text/javascript"), says="Its script.", type="text/javascript"),
    Route("GET", "/docs.css", _file("docs.css", b"text/css"), says="Its style.", type="text/css"),
)


def add(site: Site, options: Options) -> None:
    site.add(ROUTES)
