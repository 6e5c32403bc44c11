"""A state directory, and all that may touch it at the same time, simulated: one seed, one history.

    PYTHONPATH=src:tests python -m simulation --histories 10000 --seed 1     or:  make simulate

    choices.py     every choice that a history makes, from its seed; recorded, so that a history can be made smaller
    scheduler.py   tasks that take turns: one runs at a time, and who is next is a choice
    files.py       a file system in memory, with what a crash leaves of it
    machine.py     processes, the clock, crashes and faults
    disk.py        penstock.commit.Disk on that machine: every operation is a place to switch, to crash and to fail
    app.py         a small app, and beside it what it means, in plain Python: the model
    oracle.py      which commits there are, by the link that makes each, and so what any answer may be
    session.py     a database that a process opens and writes to, judged
    writer.py      a process that opens the directory, runs batches, loads, closes, and is refused
    driver.py      the same as a stream's driver does it: ids, offsets, batches run ahead, outcomes behind
    readers.py     tasks that ask, in the writer's process and in others, and judge each answer
    history.py     one history: its options, its processes, its end
    sweep.py       many histories, counted
    shrink.py      a failing history made small
    mutations.py   Penstock broken on purpose, to see that it is found

A history is wrong if anything that was acknowledged is lost, if an answer is not what the model says of a version that
was current while it was asked, if a refusal has no cause, if any error leaves that is not Penstock's own, if tasks wait
for each other for ever, or if the directory cannot be opened again.
"""
