"""One pipeline, Parquet in and Parquet out, under Penstock and under its peers. Read `__main__.py` first.

ledger.py     the events, the app, and what must come out
session.py    Spark: the session, a query run to its end, seconds by batch
peers.py      the peers by name, and what each is given
penstock_peer.py, identity.py, postgres.py, redis_locks.py, per_key.py    the peers
servers.py    PostgreSQL and Redis on loopback, started and stopped here
fixed.py      --overhead, --flat and --profile
report.py     the table, the JSON, the plot
"""
