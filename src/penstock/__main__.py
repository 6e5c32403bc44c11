"""`python -m penstock` is `penstock`."""

from penstock.cli.commands import main

main()
