"""Plan -> numba source of what threads run. Read `parallel.py` first."""
