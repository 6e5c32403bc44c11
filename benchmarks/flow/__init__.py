"""Flows of transactions: S-Store's experiments (Meehan et al., VLDB 2015, section 4) on this machine.

    python -m benchmarks.flow leaderboard    Table 1: the talent show, next to PostgreSQL and Redis
    python -m benchmarks.flow chain          Figures 6 and 7: a chain of emits, nested or not, next to a call a step

    shows    the talent show in PostgreSQL and in Redis       steps    chains of transactions, of any length
    table1   the first experiment                             chain    the second

Each arm of an experiment does the same work on the same events, one arm after the other in one run, and its result is
held against a plain Python loop.
"""
