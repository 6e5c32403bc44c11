"""Guard: who may ask, before anything is done for them. In this order:

    Host       on a loopback address, only its own names: a page whose name was pointed at 127.0.0.1 has another one
    Origin     a browser says whose page asks; only this server's own may
    token      `Authorization: Bearer …`, or the cookie that `/?token=…` sets

Cookies do not tell ports apart, so the cookie's name has the port.
"""

from __future__ import annotations

from typing import Any

from penstock.serve.http.answers import Refusal
from penstock.serve.http.options import is_loopback
from penstock.serve.http.routes import NONE, READ, Token
from penstock.serve.http.tokens import Tokens

_BEARER = b"Bearer "
_COOKIE_S = 30 * 24 * 3600


class Guard:
    def __init__(self, host: str, port: int, tokens: Tokens | None, *, tls: bool) -> None:
        """tokens: None where everybody may ask, which is for loopback addresses only."""
        self.tokens, self._tls = tokens, tls
        self.cookie = f"penstock-{port}"
        self._cookie = self.cookie.encode()
        shown = f"[{host}]" if ":" in host else host
        names = {"localhost", "127.0.0.1", "[::1]", shown} if is_loopback(host) else None
        self._hosts = None if names is None else {name.encode() for name in names}
        self._known: set[bytes] = set()  # Host headers that have been looked at

    def check(self, scope: Any, token: Token) -> None:
        """Raises a Refusal unless this request may be answered, as far as its headers say."""
        host = origin = given = cookies = b""
        hosts = 0
        for name, value in scope["headers"]:
            if name == b"host":
                host = value
                hosts += 1
            elif name == b"authorization":
                given = value
            elif name == b"origin":
                origin = value
            elif name == b"cookie":
                cookies = value
        if host not in self._known or hosts != 1:
            self._check_host(host, hosts)
        if origin and origin.partition(b"://")[2] != host:
            raise Refusal(403, "forbidden", "a page of another site asks; only this server's own pages may")
        if token == NONE or self.tokens is None:
            return
        given = given[len(_BEARER) :].strip() if given[: len(_BEARER)].lower() == b"bearer " else b""
        if not given and cookies:
            given = self._of_cookies(cookies)
        if (self.tokens.may_read if token == READ else self.tokens.may_write)(given):
            return
        if token != READ and self.tokens.may_read(given):
            raise Refusal(403, "forbidden", "this takes the write token, and the read token came")
        what = "is not this server's" if given else "is missing"
        raise Refusal(
            401,
            "unauthorized",
            f"the token {what}; send Authorization: Bearer TOKEN (penstock serve says where it is)",
            headers=((b"www-authenticate", b'Bearer realm="penstock"'),),
        )

    def _check_host(self, host: bytes, count: int) -> None:
        if count != 1:
            raise Refusal(400, "bad_request", "there is to be one Host header")
        if self._hosts is not None:
            name = host.rpartition(b":")[0] if host.rpartition(b":")[2].isdigit() else host
            if name.lower() not in self._hosts:
                raise Refusal(
                    403, "forbidden", "this server is for its own machine, by the names localhost and 127.0.0.1"
                )
        if len(self._known) < 64 and len(host) < 256:
            self._known.add(host)

    def _of_cookies(self, cookies: bytes) -> bytes:
        for part in cookies.split(b";"):
            name, _, value = part.strip().partition(b"=")
            if name == self._cookie:
                return value.strip()
        return b""

    def cookie_of(self, token: str) -> str | None:
        """A Set-Cookie for whoever shows a token; None where it is none."""
        if self.tokens is None or not self.tokens.may_read(token.encode()):
            return None
        secure = "; Secure" if self._tls else ""
        return f"{self.cookie}={token}; Path=/; HttpOnly; SameSite=Strict; Max-Age={_COOKIE_S}{secure}"
