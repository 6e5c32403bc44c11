"""Flows of transactions: S-Store's experiments (Meehan et al., VLDB 2015, section 4) on this machine.

    python -m benchmarks.flow leaderboard    Table 1: the talent show, next to PostgreSQL and Redis
    python -m benchmarks.flow nested         Figure 6: nested transactions, next to statements of a client
    python -m benchmarks.flow chain          Figure 7: a chain of emits, next to a call a step
    python -m benchmarks.flow recovery       Figure 8: what logging costs, and how long recovery takes
    python -m benchmarks.flow all            all of these; --out DIR writes flow.json and a picture of each

    shows    the talent show in PostgreSQL and in Redis       steps    chains of transactions, of any length
    table1, figures   the experiments                         draw     their pictures

Each arm of an experiment does the same work on the same events, one arm after the other in one run, and its result is
held against a plain Python loop.
"""
