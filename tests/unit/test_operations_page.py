"""The commands of docs/OPERATIONS.md run as they stand, one after another, on the state that its examples leave."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_readme import ROOT, run_page

PAGE = ROOT / "docs" / "OPERATIONS.md"


@pytest.mark.skipif(shutil.which("bash") is None, reason="the commands are a shell's")
def test_the_commands_of_the_page_run_as_they_stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_page(PAGE, tmp_path, monkeypatch)
    command = tmp_path / "bin" / "penstock"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "from penstock.cli import main; main()" "$@"\n')
    command.chmod(0o755)
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 5
    environment = os.environ | {"PATH": f"{command.parent}{os.pathsep}{os.environ['PATH']}"}
    given = {"cwd": tmp_path, "env": environment, "input": "\n".join(blocks)}
    done = subprocess.run(["bash", "-euo", "pipefail"], capture_output=True, text=True, **given)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "40.00" in done.stdout, "the total that the restored directory has"
