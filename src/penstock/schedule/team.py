"""Threads that run native code together. The caller is one of them.

A step of a batch is a kernel that all threads run at the same time, each with its number, `me`. They are handed it
without Python: to start a thread from Python takes 60 us, one after the other, and a batch has many steps. So the
kernel hands itself on:

    @kernel
    def link(box, me, threads, g, tails):                         team.run(link, threads, g, tails)
        if me == ALL:
            return dispatch(box, threads, entry_point((box, me, threads, g, tails)))
        ...
        return 0

    box           what the threads share: which step, with which arguments, and who is through with it
    entry_point   where the kernel's own code lies, and where its arguments
    dispatch      have all threads run it, and wait for them
    serve         what a helping thread does: run what it is handed. When it has not been wanted for a while it goes
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from penstock.schedule import atomics, cores
from penstock.state.jit import inlined, kernel

# The box, each number on a cache line of its own. A call is counted, and says how many threads it is for.
_LINE = 8
CALL, _CODE, _ARGUMENTS, _DONE, _FAILED, _SLEEPING, _SLEEP, _HELPERS = (k * _LINE for k in range(8))
_THREADS = (1 << 16) - 1
_DISMISSED = -1
# A helping thread, by its number, is not there; is there, and may go; or must stay. And the core that it is on.
_AWAY, _FREE, _HELD = range(3)
_CORES = _HELPERS + 1
# It looks so often for the next call, which is some 100 us; then it sleeps, for so many nanoseconds at most; then it
# goes. Threads that kept looking would hold up the one that they wait for: memory that it frees has to be taken from
# all their cores.
_LOOKS = 300
_NANOSECONDS = 50_000_000
# Who calls a step as this number means all threads.
ALL = -1
STEP = (types.Array(types.int64, 1, "C"), types.int64, types.int64)  # what every step takes first


class Team:
    def __init__(self) -> None:
        self._pools: dict[str, ThreadPoolExecutor] = {}
        self._box = _new_box(1)
        self._process = os.getpid()

    def run(self, step: Any, threads: int, *arguments: Any) -> None:
        """step(box, me, threads, *arguments), by all threads."""
        self._make_room(threads)
        box = self._box
        try:
            self._gather(threads)
            failed = step(box, ALL, threads, *arguments)
        finally:
            _let_go(box, threads)
        if failed:
            raise RuntimeError(f"{step.__name__} failed in {failed} of {threads} threads")

    def each(self, threads: int, work: Callable[[int], None], release: Callable[[], None]) -> None:
        """Python: work(0) … work(threads - 1), all at the same time: they may wait for each other.

        release: called where one fails, so that those who wait for it end too. When they have, the failure is raised.
        """
        self._make_room(threads)

        def one(k: int) -> None:
            try:
                work(k)
            except BaseException:
                release()
                raise

        others: list[Future[None]] = []
        try:
            for k in range(1, threads):
                others.append(self._pool("threads").submit(one, k))
            work(0)
        except BaseException:  # of this thread, or there was no other to be had
            release()
            wait(others)
            raise
        for failure in [other.exception() for other in others]:
            if failure is not None:
                raise failure

    def close(self) -> None:
        _dismiss(self._box)
        self._box = _new_box(1)
        for pool in self._pools.values():
            pool.shutdown()
        self._pools = {}

    def _gather(self, threads: int) -> None:
        """Have the helpers come that have gone."""
        try:
            for k in range(1, threads):
                if _hold(self._box, k):
                    self._pool("helpers").submit(serve, self._box, k, int(self._box[CALL]))
        except BaseException:  # no thread is to be had, or Ctrl-C: who was asked, or not, must not be counted on
            self.close()
            raise

    def _make_room(self, threads: int) -> None:
        if self._process != os.getpid():  # a fork: the helpers are not in the child
            self._process, self._pools, self._box = os.getpid(), {}, _new_box(threads)
        elif self._box.size < _HELPERS + threads * _LINE:
            self.close()
            self._box = _new_box(threads)

    def _pool(self, name: str) -> ThreadPoolExecutor:
        if name not in self._pools:
            self._pools[name] = ThreadPoolExecutor((self._box.size - _HELPERS) // _LINE, f"penstock-{name}")
        return self._pools[name]


def _new_box(threads: int) -> Any:
    box = np.zeros(_HELPERS + threads * _LINE, np.int64)
    box[_SLEEP + 1] = _NANOSECONDS
    box[_CORES::_LINE] = -1  # not known
    return box


@inlined
def share(count: Any, me: Any, threads: Any) -> Any:
    """One thread's range of so many things."""
    return count * me // threads, count * (me + 1) // threads


# -- handing ------------------------------------------------------------------------------------

_WORD = ir.IntType(64)
_ENTRY = ir.FunctionType(_WORD, [_WORD, _WORD])  # where the arguments lie, me -> whether it failed


@intrinsic
def entry_point(typingctx: Any, arguments: Any) -> Any:
    """For `dispatch`: the kernel that calls this, whose arguments these are, all of them. They lie in its frame."""

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        count = len(arguments.types)
        frame = cgutils.alloca_once(builder, values[0].type)
        for k in range(count):  # one by one: LLVM takes long over so large a value
            builder.store(builder.extract_value(values[0], k), cgutils.gep_inbounds(builder, frame, 0, k))
        code = ir.Function(builder.module, _ENTRY, builder.module.get_unique_name("handed"))
        code.linkage = "internal"
        one = ir.IRBuilder(code.append_basic_block("entry"))
        given = one.inttoptr(code.args[0], frame.type)
        own = [one.load(cgutils.gep_inbounds(one, given, 0, k)) for k in range(count)]
        own[1] = code.args[1]
        status, _ = context.call_conv.call_function(one, builder.function, types.int64, arguments.types, own)
        one.ret(one.zext(status.is_error, _WORD))
        both = [builder.ptrtoint(code, _WORD), builder.ptrtoint(frame, _WORD)]
        return context.make_tuple(builder, signature.return_type, both)

    return types.UniTuple(types.intp, 2)(arguments), codegen


@intrinsic
def _call(typingctx: Any, code: Any, frame: Any, me: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.call(builder.inttoptr(values[0], _ENTRY.as_pointer()), values[1:])

    return types.int64(types.intp, types.intp, types.intp), codegen


@inlined
def dispatch(box: Any, threads: Any, step: Any) -> Any:
    """Have all threads run a step; in how many it failed."""
    code, frame = step
    box[_CODE], box[_ARGUMENTS] = code, frame
    box[_DONE], box[_FAILED] = 0, 0
    atomics.store(box, CALL, (box[CALL] | _THREADS) + 1 + threads)
    atomics.fence()  # who is not seen to sleep sees the call before it does
    if threads > 1 and atomics.load(box, _SLEEPING):
        atomics.wake(box, CALL, box[_SLEEP:])
        atomics.give_way()  # one that wakes on this core can only now leave it
    failed = _call(code, frame, 0)
    looks = 0
    while atomics.load(box, _DONE) < threads - 1:
        looks = atomics.pause(looks)
    return failed + box[_FAILED]


@kernel
def serve(box: Any, me: Any, seen: Any) -> None:
    """seen: the last call that was not for this thread."""
    looks, slept = 0, True
    atomics.add(box, _SLEEPING, -1)
    while True:
        call = atomics.load(box, CALL)
        if call == _DISMISSED:
            return
        if call == seen:
            looks = atomics.pause(looks)
            if looks > _LOOKS:
                atomics.add(box, _SLEEPING, 1)
                atomics.fence()
                atomics.sleep(box, CALL, seen, box[_SLEEP:])
                atomics.add(box, _SLEEPING, -1)
                slept = True
                unwanted = atomics.load(box, CALL) == seen
                if unwanted and atomics.swap_if(box, _HELPERS + me * _LINE, _FREE, _AWAY):
                    return
            continue
        seen, looks = call, 0
        if me < call & _THREADS:  # then the caller waits, and leaves the call as it is meanwhile
            if slept:
                cores.leave(box[_CORES:], me, _LINE)
                slept = False
            if _call(box[_CODE], box[_ARGUMENTS], me):
                atomics.add(box, _FAILED, 1)
            atomics.add(box, _DONE, 1)


@kernel
def _hold(box: Any, helper: Any) -> Any:
    """Keep a helping thread from going; whether it has gone."""
    box[_CORES] = cores.core()
    gone = atomics.swap(box, _HELPERS + helper * _LINE, _HELD) == _AWAY
    if gone:
        atomics.add(box, _SLEEPING, 1)  # until it serves
    return gone


@kernel
def _let_go(box: Any, threads: Any) -> None:
    for k in range(1, threads):
        atomics.swap_if(box, _HELPERS + k * _LINE, _HELD, _FREE)


@kernel
def _dismiss(box: Any) -> None:
    """All helping threads, at once and for good: the box is done with."""
    atomics.store(box, CALL, _DISMISSED)
    atomics.wake(box, CALL, box[_SLEEP:])
