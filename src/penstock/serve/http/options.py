"""How a server is started: where it listens, who may ask, what it offers."""

from __future__ import annotations

import importlib.util
import ipaddress
import os
import socket
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import InputError, StateError

LISTEN = "127.0.0.1:7400"


@dataclass(frozen=True, slots=True)
class Options:
    state: Path
    listen: str = LISTEN
    read_token_file: Path | None = None
    write_token_file: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    sql: bool = False
    no_token: bool = False
    explain: str | None = None  # MODULE:APP, whose transactions the server then knows; it writes nothing
    flight: str | None = None  # where to listen for Arrow Flight

    @property
    def address(self) -> tuple[str, int]:
        return _address("--listen", self.listen)

    @property
    def flight_address(self) -> tuple[str, int] | None:
        return None if self.flight is None else _address("--flight", self.flight)

    def check(self) -> None:
        """Raises where what is asked for would let others in, or cannot be."""
        places = [("--listen", self.listen, self.address[0])]
        if self.flight is not None and self.flight_address is not None:
            places.append(("--flight", self.flight, self.flight_address[0]))
        if (self.tls_cert is None) != (self.tls_key is None):
            raise InputError("--tls-cert and --tls-key go together; give both, or none")
        for path in (self.tls_cert, self.tls_key):
            if path is not None and not path.is_file():
                raise InputError(f"there is no file {path}; name a certificate, and its key, in PEM")
        for option, given, host in places:
            if is_loopback(host):
                continue
            if self.no_token:
                raise InputError(
                    f"{option} {given} can be reached from other machines: --no-token is for 127.0.0.1 only"
                )
            if self.tls_cert is None:
                raise InputError(
                    f"{option} {given} can be reached from other machines, which takes TLS: give --tls-cert and "
                    "--tls-key, or listen on 127.0.0.1 behind a proxy that has them"
                )

    def command(self) -> list[str]:
        """The same as arguments of `penstock serve`, with paths that hold wherever it runs."""
        given = [os.fspath(self.state.absolute()), "--listen", self.listen]
        for name in ("read_token_file", "write_token_file", "tls_cert", "tls_key"):
            path: Path | None = getattr(self, name)
            if path is not None:
                given += [f"--{name.replace('_', '-')}", os.fspath(path.absolute())]
        if self.explain is not None:
            given += ["--explain", self.explain]
        given += [] if self.flight is None else ["--flight", self.flight]
        return given + ["--sql"] * self.sql + ["--no-token"] * self.no_token


def _address(option: str, given: str) -> tuple[str, int]:
    host, colon, port = given.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (colon and host and port.isascii() and port.isdigit() and int(port) < 65536):
        raise InputError(f"{option} {given} is not HOST:PORT, such as {LISTEN}; port 0 takes one that is free")
    return host, int(port)


def listening(options: Options) -> socket.socket:
    host, port = options.address
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(1024)
        except BaseException:
            listener.close()
            raise
    except OSError as error:
        raise StateError(
            f"cannot listen on {options.listen}: {error.strerror}; is another server there? --listen names another port"
        ) from error
    listener.setblocking(False)
    return listener


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def need_extra() -> None:
    """Raises where what a server takes is not installed. Nothing above this module is imported before."""
    several = ("uvicorn", "httptools", "uvloop", "starlette", "orjson")
    missing = [name for name in several if importlib.util.find_spec(name) is None]
    if missing:
        raise InputError(f"to serve, Penstock needs {', '.join(missing)}: pip install 'penstock[serve]'")
