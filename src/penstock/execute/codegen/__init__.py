"""Plan -> numba source. Read `program.py` first."""

from penstock.execute.codegen.layout import FULL_LOG, Argument, Layout
from penstock.execute.codegen.program import generate

__all__ = ["FULL_LOG", "Argument", "Layout", "generate"]
