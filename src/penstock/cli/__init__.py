"""The command line: it only looks at the engine from outside."""

from penstock.cli.commands import main

__all__ = ["main"]
