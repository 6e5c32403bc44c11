"""The Spark session that a command starts for itself: local, quiet, and with this very Python.

pyspark is imported only once it is known to be there: where it is not, one line says what to install.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from penstock.errors import PenstockError

JAVA = 17  # what Spark 4 needs
# Compile once and simply: in its first minute Java is busy compiling anew what it has compiled already.
QUICK = " -XX:TieredStopAtLevel=1"


def need_spark() -> None:
    """PenstockError that says what to install, where pyspark or Java is missing."""
    if importlib.util.find_spec("pyspark") is None:
        raise PenstockError("this command runs on Spark, and pyspark is not installed; pip install 'penstock[spark]'")
    found = java_version()
    if found is None or found < JAVA:
        got = "none was found" if found is None else f"the one found is Java {found}"
        raise PenstockError(
            f"this command runs on Spark, which needs Java {JAVA} or newer, and {got}; install one (Debian and Ubuntu: "
            f"apt install openjdk-{JAVA}-jre-headless) and put it on the PATH, or set JAVA_HOME"
        )


def java_version() -> int | None:
    """The major version of the Java that Spark would start: JAVA_HOME's, or the PATH's."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None:
        return None
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60).stderr
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = re.search(r'version "(\d+)', said)
    return int(version[1]) if version else None


@contextmanager
def local_session(name: str, *, brief: bool = False) -> Iterator[Any]:
    """A session of this process, stopped behind the work. brief: it lives for a minute, not for days."""
    need_spark()
    # Workers start with the PATH's python3 unless told: from a virtual environment that is the wrong one.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[*]").appName(name)
    log = Path(__file__).with_name("log4j2.properties").as_uri()
    for key, value in {
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log}" + (QUICK if brief else ""),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
    }.items():
        builder = builder.config(key, value)
    with tempfile.TemporaryFile("w+") as said:
        try:
            with _stderr_to(said):  # the JVM keeps it: it greets with warnings that no option turns off
                spark = builder.getOrCreate()
        except Exception as error:
            said.seek(0)
            lines = said.read().strip().splitlines() or [str(error)]
            raise PenstockError(f"Spark did not start: {lines[-1]}") from error
        try:
            yield spark
        finally:
            spark.stop()


@contextmanager
def _stderr_to(file: IO[str]) -> Iterator[None]:
    """What a process that is started in here inherits as its stderr."""
    sys.stderr.flush()
    kept = os.dup(2)
    os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)
