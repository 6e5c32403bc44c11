"""Flows of transactions: S-Store's experiments (Meehan et al., VLDB 2015, section 4) on this machine, and two more.

    python -m benchmarks.flow leaderboard    Table 1: the talent show, next to PostgreSQL and Redis
    python -m benchmarks.flow triggers       Figure 6: nested transactions, next to statements of a client
    python -m benchmarks.flow chain          Figure 7: a chain of emits, next to a call a step
    python -m benchmarks.flow recovery       Figure 8: log="input" and log="changes"; opening again
    python -m benchmarks.flow windows        add and sum, next to tables kept by hand, and SQL
    python -m benchmarks.flow hybrid         calls beside a stream
    python -m benchmarks.flow all --json flow.json --plot docs/figures
    python -m benchmarks.flow page flow.json

    shows      the talent show in PostgreSQL and in Redis      driven      and as a client's calls
    payments   a window of payments, in three ways             steps       chains of transactions, of any length
    callers    who calls beside a stream                       places      a directory to work in, PostgreSQL there
    draw       pictures                                        page        the tables of docs/FLOW.md

Each arm of an experiment does the same work on the same events, one arm after the other in one run, and its result is
held against a plain Python loop.
"""
