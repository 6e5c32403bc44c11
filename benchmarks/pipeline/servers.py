"""PostgreSQL and Redis on loopback, in the benchmark's own directory, started and stopped here.

They are the distribution's packages; on Debian, `--install` fetches the ones that are missing.
"""

from __future__ import annotations

import os
import pwd
import re
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.pipeline.peers import CannotRun

PATIENCE = 60  # seconds for a server to start or stop
POSTGRES = {
    "listen_addresses": "127.0.0.1",
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    # Room to work in, as anyone who runs a ledger would give it.
    "shared_buffers": "1GB",
    "work_mem": "256MB",
    "max_wal_size": "8GB",
    "jit": "off",  # compiling costs more than it gains in statements this short
}
REDIS = {"bind": "127.0.0.1", "appendonly": "yes", "appendfsync": "everysec", "save": '""'}


def install(package: str) -> None:
    """On Debian, as root: the package from the distribution."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise CannotRun(f"{package} is not installed, and only root on Debian can install it here")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["apt-get", "update"], ["apt-get", "install", "-y", package]):
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)


def postgres_programs() -> Path | None:
    """The directory of initdb and postgres; Debian keeps it off the PATH. The newest, where there are several."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: int(re.sub(r"\D", "", str(p)) or 0))
    on_path = shutil.which("initdb")
    return found[-1].parent if found else Path(on_path).parent if on_path else None


def need_postgres(may_install: bool) -> Path:
    programs = postgres_programs()
    if programs is None and may_install:
        install("postgresql")
        programs = postgres_programs()
    if programs is None:
        raise CannotRun("PostgreSQL is not installed (apt install postgresql, or --install)")
    return programs


def need_redis(may_install: bool) -> str:
    if shutil.which("redis-server") is None and may_install:
        install("redis-server")
    program = shutil.which("redis-server")
    if program is None:
        raise CannotRun("Redis is not installed (apt install redis-server, or --install)")
    return program


@contextmanager
def postgres(work: Path, may_install: bool = False) -> Iterator[dict[str, Any]]:
    """A server of its own; what psycopg.connect takes."""
    programs = need_postgres(may_install)
    home = work / "postgres"
    home.mkdir()
    owner = _unprivileged("postgres", home)
    secret = home / "password"
    secret.touch(mode=0o600)
    if owner:
        os.chown(secret, owner["user"], owner["group"])
    password = secrets.token_hex(16)
    secret.write_text(password)
    data, port = home / "data", free_port()
    make = [programs / "initdb", "-D", data, "-U", "ledger", "-A", "scram-sha-256", "--pwfile", secret, "-E", "UTF8"]
    subprocess.run([str(word) for word in make], check=True, capture_output=True, cwd=home, **owner)
    settings = {**POSTGRES, "port": str(port), "unix_socket_directories": str(home)}
    words = [str(programs / "postgres"), "-D", str(data)]
    for name, value in settings.items():
        words += ["-c", f"{name}={value}"]
    # SIGINT is PostgreSQL's fast shutdown.
    # The port is open a moment before the server takes connections; pg_isready knows.
    ready = [str(programs / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port)]
    with _running(words, home, port, signal.SIGINT, owner, ready):
        yield {"host": "127.0.0.1", "port": port, "user": "ledger", "password": password, "dbname": "postgres"}


@contextmanager
def redis(work: Path, may_install: bool = False) -> Iterator[dict[str, Any]]:
    """A server of its own; what redis.Redis takes."""
    program = need_redis(may_install)
    home = work / "redis"
    home.mkdir()
    owner = _unprivileged("redis", home)
    password, port = secrets.token_hex(16), free_port()
    settings = {**REDIS, "port": str(port), "dir": str(home), "requirepass": password, "daemonize": "no"}
    config = home / "redis.conf"
    config.touch(mode=0o600)
    config.write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    if owner:
        os.chown(config, owner["user"], owner["group"])
    with _running([program, str(config)], home, port, signal.SIGTERM, owner):
        yield {"host": "127.0.0.1", "port": port, "password": password}


def _unprivileged(name: str, home: Path) -> dict[str, Any]:
    """For root: the package's own user, to whom the directory is given. Others run the server as themselves."""
    if os.geteuid() != 0:
        return {}
    user = pwd.getpwnam(name)
    os.chown(home, user.pw_uid, user.pw_gid)
    home.chmod(0o700)
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


@contextmanager
def _running(
    words: list[str], home: Path, port: int, stop: int, owner: dict[str, Any], ready: list[str] | None = None
) -> Iterator[None]:
    log = home / "server.log"
    with open(log, "wb") as out:
        # In a session of its own: Ctrl-C is for the benchmark, which then stops the server in order.
        server = subprocess.Popen(words, stdout=out, stderr=out, cwd=home, start_new_session=True, **owner)
    try:
        _await(server, port, log, ready)
        yield
    finally:
        server.send_signal(stop)
        try:
            server.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _await(server: subprocess.Popen[bytes], port: int, log: Path, ready: list[str] | None) -> None:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if server.poll() is not None:
            break
        with socket.socket() as probe:
            probe.settimeout(1)
            if probe.connect_ex(("127.0.0.1", port)) == 0 and (not ready or subprocess.run(ready).returncode == 0):
                return
        time.sleep(0.05)
    raise CannotRun(f"{Path(server.args[0]).name} did not start: {log.read_text(errors='replace')[-400:].strip()}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
