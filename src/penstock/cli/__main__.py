"""`python -m penstock.cli` is `penstock`."""

from penstock.cli.commands import main

main()
