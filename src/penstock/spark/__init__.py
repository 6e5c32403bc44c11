"""Penstock on Spark. Read `start.py` first; nothing else in the package imports pyspark."""
