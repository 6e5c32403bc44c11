"""What all tests share: where machine code is kept between runs, and how hypothesis reports."""

import getpass
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Compiling takes far longer than any example, so time limits and slow-data checks mean nothing here.
settings.register_profile(
    "penstock",
    deadline=None,
    print_blob=True,
    derandomize=bool(os.environ.get("CI")),  # there a red run should speak of the change, not of the draw
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("penstock")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where several processes test, one of them does all that needs Spark: a second session would not pay."""
    for item in items:
        if "spark" in item.path.parts:
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session", autouse=True)
def machine_code_cache() -> Iterator[Path]:
    """One place for each user, so that the fixed programs are compiled once and not at each run."""
    chosen = os.environ.get("PENSTOCK_CACHE_DIR")
    directory = Path(chosen) if chosen else Path(tempfile.gettempdir()) / f"penstock-tests-{getpass.getuser()}"
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)  # where others may write, nothing is kept
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PENSTOCK_CACHE_DIR", str(directory))
        yield directory
