"""Measurements against other systems; see README.md."""
