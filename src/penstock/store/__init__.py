"""Where a database's batches are kept. Read `protocol.py` first."""
