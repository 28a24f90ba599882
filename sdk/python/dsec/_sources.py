"""Where bytes to send may come from: bytes, str, a file object, any iterable or
async iterable of bytes. Turned into one async iterator of bounded pieces; reads
of plain file objects happen in a thread so that the event loop never waits for a
disk."""
from __future__ import annotations

import asyncio
from typing import IO, Any, AsyncIterable, AsyncIterator, Iterable, Iterator, Optional, Union


FILE_PIECE_BYTES = 1 << 20

BytesSource = Union[bytes, bytearray, memoryview, str, IO[bytes], Iterable[bytes], AsyncIterable[bytes]]


async def pieces(source: BytesSource, size: int = FILE_PIECE_BYTES) -> AsyncIterator[bytes]:
    if isinstance(source, str):
        source = source.encode("utf-8")
    if isinstance(source, (bytes, bytearray, memoryview)):
        view = memoryview(source).cast("B")
        for pos in range(0, len(view), size):
            yield bytes(view[pos : pos + size])
    elif hasattr(source, "read"):
        file: Any = source
        while True:
            data = await asyncio.to_thread(file.read, size)
            if not data:
                return
            yield data
    elif hasattr(source, "__aiter__"):
        async for piece in source:
            yield bytes(piece)
    else:
        iterator = iter(source)
        while True:
            got = await asyncio.to_thread(_next, iterator)
            if got is None:
                return
            yield bytes(got)


def _next(iterator: Iterator[bytes]) -> Optional[bytes]:
    """StopIteration cannot cross a coroutine."""
    return next(iterator, None)
