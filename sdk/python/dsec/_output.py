"""What a client keeps of a command's output: bounded, head and tail.

The live stream itself is unbounded (`yes` writes until it is stopped), so the
collector keeps the first and the last half of its limit and says that it cut.
No I/O, one task at a time.
"""
from __future__ import annotations

import codecs
from collections import deque
from typing import Deque, List


class Collector:
    def __init__(self, limit: int) -> None:
        self.truncated = False
        self._head: List[bytes] = []
        self._head_left = limit - limit // 2
        self._tail: Deque[bytes] = deque()
        self._tail_max = limit // 2
        self._tail_size = 0

    def add(self, data: bytes) -> None:
        if self._head_left:
            piece = data[: self._head_left]
            self._head.append(piece)
            self._head_left -= len(piece)
            data = data[len(piece) :]
        if not data:
            return
        self._tail.append(data)
        self._tail_size += len(data)
        while self._tail_size > self._tail_max:
            self.truncated = True
            excess = self._tail_size - self._tail_max
            first = self._tail.popleft()
            if len(first) > excess:
                self._tail.appendleft(first[excess:])
                self._tail_size -= excess
            else:
                self._tail_size -= len(first)

    def gap(self) -> None:
        """The server itself had dropped bytes here."""
        self.truncated = True

    def value(self) -> bytes:
        return b"".join(self._head) + b"".join(self._tail)


def text_decoder() -> codecs.IncrementalDecoder:
    return codecs.getincrementaldecoder("utf-8")("replace")
