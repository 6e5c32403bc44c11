"""Each script declares one small app; its name is the claim, and the .plan beside it what the app's plan prints.

A plan that changed on purpose is written anew with PENSTOCK_UPDATE_GOLDEN=1, and then read: the
diff is the review.
"""

import importlib.util
import os
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SCRIPTS = sorted(p for p in HERE.glob("*.py") if not p.name.startswith("test_"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda p: p.stem)
def test_plan(script: Path) -> None:
    spec = importlib.util.spec_from_file_location(f"script_{script.stem}", script)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    printed = module.app.explain()
    golden = script.with_suffix(".plan")
    if os.environ.get("PENSTOCK_UPDATE_GOLDEN"):
        golden.write_text(printed)
    assert golden.exists(), f"{golden.name} is missing; write it with PENSTOCK_UPDATE_GOLDEN=1 and read it"
    assert printed == golden.read_text(), f"the plan of {script.name} changed; PENSTOCK_UPDATE_GOLDEN=1 writes it anew"


def test_every_plan_has_its_script() -> None:
    assert sorted(p.stem for p in HERE.glob("*.plan")) == [p.stem for p in SCRIPTS]
