"""Plan -> numba source. Read `program.py` first."""

from penstock.execute.codegen.generate import generate
from penstock.execute.codegen.layout import FULL_LOG, Argument, Layout

__all__ = ["FULL_LOG", "Argument", "Layout", "generate"]
