"""How well batches are scheduled: the papers' studies with our policies, on this machine.

    python -m benchmarks.schedulers regret      adaptive against every fixed policy, over a grid and over time
    python -m benchmarks.schedulers scaling     1, 2, 4, … cores
    python -m benchmarks.schedulers latency     small batches by the clock on the wall
    python -m benchmarks.schedulers figures     the papers' figures

    measure   one workload under several policies, in turn       points    the grid of regret
    studies   the papers' figures as numbers                     draw      and as pictures

It needs numpy, numba and pyarrow alone (and matplotlib for pictures).
"""
