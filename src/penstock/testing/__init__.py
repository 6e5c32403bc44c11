"""Public helpers for users' own tests: run an app both ways, compare outcomes and tables."""

from penstock.testing.compare import assert_same_outcomes, assert_same_tables
from penstock.testing.law import check

__all__ = ["assert_same_outcomes", "assert_same_tables", "check"]
