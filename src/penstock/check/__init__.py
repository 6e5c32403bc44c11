"""Whether a state directory is sound. Read `check.py` first."""
