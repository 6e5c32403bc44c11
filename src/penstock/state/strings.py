"""Interned strings: each distinct string has a number, and equal numbers are equal strings.

    slots    uint64 in an int64 array, open addressing: the upper half of the hash, and the number + 1; 0: empty
    starts   int64[count + 1]   where each string's bytes begin in `data`
    data     uint8[…]           their UTF-8, whose order is the order of code points

Numbers are never reused; a pool that holds mostly forgotten strings is made anew (see Tables.compact).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numba import types
from numba.extending import intrinsic

from penstock.state.hashing import ONE, grown, mix, most
from penstock.state.jit import kernel
from penstock.state.prefetch import BLOCK, prefetch

HALF, LOWER = np.uint64(32), np.uint64(0xFFFFFFFF)
_MOST = 0xFFFFFFFF


@intrinsic
def _load64(typingctx: Any, array: Any, at: Any) -> Any:
    """Eight bytes of a uint8 array as a uint64, wherever they lie."""
    from llvmlite import ir

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        struct = context.make_array(signature.args[0])(context, builder, args[0])
        pointer = builder.gep(struct.data, [args[1]])
        wide = builder.bitcast(pointer, ir.IntType(64).as_pointer())
        return builder.load(wide, align=1)

    return types.uint64(array, types.intp), codegen


@kernel
def _tail(data: Any, start: Any, n: Any) -> Any:
    """The last n < 8 bytes from start as a number."""
    word = np.uint64(0)
    for k in range(n):
        word |= np.uint64(data[start + k]) << np.uint64(8 * k)
    return word


@kernel
def hash_of(data: Any, start: Any, stop: Any) -> Any:
    h = np.uint64(stop - start) * np.uint64(0x9E3779B97F4A7C15)
    while stop - start >= 8:
        h = mix(h ^ _load64(data, start)) * np.uint64(0x9E3779B97F4A7C15)
        start += 8
    return mix(h ^ _tail(data, start, stop - start))


@kernel
def same(a: Any, i: Any, b: Any, j: Any, n: Any) -> Any:
    while n >= 8:
        if _load64(a, i) != _load64(b, j):
            return False
        i += 8
        j += 8
        n -= 8
    for k in range(n):
        if a[i + k] != b[j + k]:
            return False
    return True


@kernel
def compare(starts: Any, data: Any, a: Any, b: Any) -> Any:
    """-1, 0 or 1 as string a comes before, is, or comes after string b."""
    if a == b:
        return 0
    i, n = starts[a], starts[a + 1] - starts[a]
    j, m = starts[b], starts[b + 1] - starts[b]
    for k in range(min(n, m)):
        if data[i + k] != data[j + k]:
            return -1 if data[i + k] < data[j + k] else 1
    return -1 if n < m else 1


@kernel
def place_of(slots: Any, starts: Any, data: Any, h64: Any, source: Any, start: Any, n: Any) -> Any:
    """Where a string lies in the slots, or the empty one where it would go; and its number, or -1."""
    mask = np.uint64(slots.size - 1)
    h = h64 & mask
    while True:
        slot = np.uint64(slots[h])
        if slot == 0:
            return h, np.int64(-1)
        if (slot ^ h64) >> HALF == 0:
            number = np.int64(slot & LOWER) - 1
            if starts[number + 1] - starts[number] == n and same(data, starts[number], source, start, n):
                return h, number
        h = (h + ONE) & mask


@kernel
def slot_of(h64: Any, number: Any) -> Any:
    return np.int64((h64 >> HALF) << HALF | np.uint64(number + 1))


@kernel
def _intern(slots: Any, starts: Any, data: Any, pool: Any, offsets: Any, source: Any, out: Any) -> None:
    """Number every string of an Arrow array; room must have been made before. pool: how many there are.

    The count is kept here and not by the caller, whom Ctrl-C may stop before it has heard of strings that are there.
    """
    count = pool[0]
    mask = np.uint64(slots.size - 1)
    hashes = np.empty(BLOCK, np.uint64)
    for block in range(0, out.size, BLOCK):
        end = min(block + BLOCK, out.size)
        for i in range(block, end):
            hashes[i - block] = hash_of(source, np.int64(offsets[i]), np.int64(offsets[i + 1]))
            prefetch(slots, hashes[i - block] & mask)
        for i in range(block, end):
            slot = np.uint64(slots[hashes[i - block] & mask])
            if slot != 0:
                prefetch(data, np.uint64(starts[np.int64(slot & LOWER) - 1]))
        for i in range(block, end):
            start, n = np.int64(offsets[i]), np.int64(offsets[i + 1]) - np.int64(offsets[i])
            h, number = place_of(slots, starts, data, hashes[i - block], source, start, n)
            if number == -1:
                number = count
                at = starts[count]
                for k in range(n):
                    data[at + k] = source[start + k]
                starts[count + 1] = at + n
                count += 1
                slots[h] = slot_of(hashes[i - block], number)
            out[i] = number
    pool[0] = count


@kernel
def _fill(slots: Any, starts: Any, data: Any, count: Any) -> None:
    """Put all strings into empty slots: they lie in order, so that to hash them again costs little."""
    mask = np.uint64(slots.size - 1)
    hashes = np.empty(BLOCK, np.uint64)
    for block in range(0, count, BLOCK):
        end = min(block + BLOCK, count)
        for i in range(block, end):
            hashes[i - block] = hash_of(data, starts[i], starts[i + 1])
            prefetch(slots, hashes[i - block] & mask)
        for i in range(block, end):
            h = hashes[i - block] & mask
            while slots[h] != 0:
                h = (h + ONE) & mask
            slots[h] = slot_of(hashes[i - block], i)


@kernel
def _gather(starts: Any, data: Any, numbers: Any, offsets: Any, out: Any) -> None:
    for i in range(numbers.size):
        at, start = offsets[i], starts[numbers[i]]
        for k in range(offsets[i + 1] - at):
            out[at + k] = data[start + k]


class Strings:
    def __init__(self) -> None:
        self.pool = np.zeros(1, np.int64)
        self.slots = np.zeros(1024, np.int64)
        self.starts = np.zeros(513, np.int64)
        self.data = np.zeros(8192, np.uint8)

    @property
    def count(self) -> int:
        return int(self.pool[0])

    @property
    def size(self) -> int:
        """Of all of them, in bytes."""
        return int(self.starts[self.count])

    def number(self, text: str) -> int:
        return int(self.intern(pa.array([text], pa.string()))[0])

    def intern(self, array: pa.Array) -> Any:
        """The number of each string of an Arrow array; what a null gets means nothing."""
        if pa.types.is_dictionary(array.type):
            numbers = self.intern(array.dictionary.cast(pa.string()))
            if len(numbers) == 0:
                return np.zeros(len(array), np.int64)
            return numbers[array.indices.fill_null(0).to_numpy(zero_copy_only=False)]
        out = np.empty(len(array), np.int64)
        if len(array) == 0:
            return out
        offsets, source = buffers(array)
        self.reserve(len(array), int(offsets[-1]) - int(offsets[0]))
        _intern(self.slots, self.starts, self.data, self.pool, offsets, source, out)
        return out

    def grow(self, size: int) -> None:
        """Room for more strings, and for so many bytes at least."""
        self.reserve(self.count + 1, size)

    def reserve(self, extra: int, size: int) -> None:
        """Room for so many strings more, of so many bytes."""
        need = self.count + extra
        if need + 1 > self.starts.size:
            self.starts = longer(self.starts, grown(need + 1, self.starts.size), self.count + 1)
        room = int(self.starts[self.count]) + size
        if room > self.data.size:
            self.data = longer(self.data, grown(room, self.data.size), int(self.starts[self.count]))
        if need > most(self.slots.size):
            if need >= _MOST:
                raise OverflowError(f"an app cannot hold more than {_MOST:,} strings")
            size = self.slots.size
            while need > most(size):
                size *= 2
            slots = np.zeros(size, np.int64)
            _fill(slots, self.starts, self.data, self.count)
            self.slots = slots

    def arrow(self, numbers: Any, valid: Any = None) -> pa.Array:
        """The strings with these numbers; null where valid is given and false."""
        lengths = self.starts[numbers + 1] - self.starts[numbers]
        if valid is not None:
            lengths = np.where(valid, lengths, 0)
        offsets = np.zeros(numbers.size + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        out = np.empty(int(offsets[-1]), np.uint8)
        _gather(self.starts, self.data, numbers, offsets, out)
        bits = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
        if offsets[-1] < 2**31:
            buffers = [bits, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(out)]
            return pa.Array.from_buffers(pa.string(), numbers.size, buffers)
        raise OverflowError("a column of more than 2 GiB of text cannot leave as one Arrow array")


def buffers(array: pa.Array) -> tuple[Any, Any]:
    """Offsets (of this slice) and bytes of an Arrow string array, without a copy."""
    _, offsets, data = array.buffers()
    numbers = np.frombuffer(offsets, np.int32, len(array) + 1, array.offset * 4)
    return numbers, np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)


def longer(array: Any, size: int, used: int | None = None) -> Any:
    """used: how much of it means anything; the rest is not touched, and takes no memory before it is."""
    out, used = np.zeros(size, array.dtype), array.size if used is None else used
    out[:used] = array[:used]
    return out
