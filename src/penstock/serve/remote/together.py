"""What threads ask at the same time goes in one request: a question alone waits for nobody, and while requests are
under way those that come meanwhile are the next one.

One of the threads that ask sends for all, and hands over to one that waits: no thread of its own, and no timer.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

Q = TypeVar("Q")
A = TypeVar("A")


class _Question(Generic[Q, A]):
    __slots__ = ("answer", "asked", "failure", "lock", "sends")

    def __init__(self, asked: Q) -> None:
        self.asked = asked
        self.sends: list[_Question[Q, A]] = []  # those that its thread is to send, this one first
        self.answer: A | None = None
        self.failure: BaseException | None = None
        self.lock = threading.Lock()
        self.lock.acquire()


class Together(Generic[Q, A]):
    def __init__(self, send: Callable[[list[Q]], list[A]], most: int, at_once: int = 2) -> None:
        """send: answers questions, in their order; what it raises is for all of them. most: of one request. at_once:
        requests that are under way."""
        self._send, self._most, self._at_once = send, most, at_once
        self._mutex = threading.Lock()
        self._queue: deque[_Question[Q, A]] = deque()
        self._under_way = 0

    def ask(self, asked: Q) -> A:
        question: _Question[Q, A] = _Question(asked)
        with self._mutex:
            if self._under_way < self._at_once:
                self._under_way += 1
                question.sends = [question]
            else:
                self._queue.append(question)
        if not question.sends:
            question.lock.acquire()  # until it is answered, or is to send
        if question.sends:
            self._send_all(question.sends)
        if question.failure is not None:
            raise question.failure
        return question.answer  # type: ignore[return-value]

    def _send_all(self, several: list[_Question[Q, A]]) -> None:
        try:
            answers = self._send([one.asked for one in several])
            for one, answer in zip(several, answers, strict=True):
                one.answer = answer
        except BaseException as error:
            for one in several:
                one.failure = error if one is several[0] else _copied(error)
        finally:
            for one in several[1:]:
                one.lock.release()
            self._hand_over()

    def _hand_over(self) -> None:
        with self._mutex:
            several = [self._queue.popleft() for _ in range(min(self._most, len(self._queue)))]
            if several:
                several[0].sends = several
                several[0].lock.release()
            else:
                self._under_way -= 1


def _copied(error: BaseException) -> BaseException:
    """Each thread raises one of its own."""
    if not isinstance(error, Exception):
        return RuntimeError(f"the thread that asked for several was interrupted: {error!r}")
    told = type(error)(*error.args)
    vars(told).update(vars(error))
    return told
