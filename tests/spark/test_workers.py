"""Which Python Spark's workers are: this one, where nobody says so; else an error that says what to set."""

import os
import sys
from pathlib import Path

import pytest
from test_stream import events, put_cut, run_python, state_of

import penstock as ps
from penstock.spark import workers

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:.*:DeprecationWarning:pyspark")]

SCRIPT = """
    import sys
    from pathlib import Path

    from pyspark.sql import SparkSession
    from test_stream import NOW, bank, direct

    import penstock as ps

    if __name__ == "__main__":
        root = Path(sys.argv[1])
        builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
        spark = builder.config("spark.log.level", "ERROR").getOrCreate()
        python = spark.sparkContext.pythonExec
        try:
            bank.start(direct(root, None), state=root / "state", outcomes=root / "out", trigger=NOW).awaitTermination()
        except ps.PenstockError as error:
            print("refused:", error)
        else:
            ps.register(spark)
            print("rows", spark.read.format("penstock").option("feed", "outcomes").load(str(root / "state")).count())
        assert spark.sparkContext.pythonExec == python, "what the user registers is left as it was"
        spark.stop()
"""


@pytest.mark.parametrize("given", [False, True])
def test_workers_run_this_python_or_it_is_said_what_to_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: bool
) -> None:
    """The PATH's python3 is one that has nothing. given: it is the one that is asked for, too."""
    put_cut(tmp_path, events(1, 40), 2)
    state_of(tmp_path)
    wrong = tmp_path / "bin" / "python3"
    wrong.parent.mkdir()
    wrong.write_text("#!/bin/sh\necho \"ModuleNotFoundError: No module named 'pyarrow'\" >&2\nexit 1\n")
    wrong.chmod(0o755)
    monkeypatch.setenv("PATH", f"{wrong.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("PYSPARK_DRIVER_PYTHON", raising=False)
    monkeypatch.delenv(workers.SETTING, raising=False)
    if given:
        monkeypatch.setenv(workers.SETTING, str(wrong))
    said = run_python(SCRIPT, tmp_path, tmp_path)
    if not given:
        assert "rows 40\n" in said
        return
    assert f"refused: Spark's Python workers run {wrong}, which does not do (" in said
    assert "set PYSPARK_PYTHON in this process's environment to an interpreter that has Penstock" in said
    assert f"this process is {sys.executable}" in said


@pytest.mark.parametrize("said", ["No module named 'pyarrow'", "[PYTHON_VERSION_MISMATCH] Python in worker has 3.9"])
def test_a_worker_that_is_another_python_is_told_of(said: str) -> None:
    class Session:
        """No session of Connect's."""

    with pytest.raises(ps.PenstockError, match=r"Python workers run .* set PYSPARK_PYTHON"), workers.plainly(Session()):
        raise RuntimeError(f"worker failed: {said}")
    with pytest.raises(RuntimeError, match=r"^something else$"), workers.plainly(Session()):
        raise RuntimeError("something else")
