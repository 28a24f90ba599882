"""Sans-I/O parser of the frame stream (application/vnd.dsec.frames).

Fed by the exec reader with whatever the socket gave; no I/O, any thread. A frame
is a 1-byte type, a 4-byte big-endian length and the payload. Output is handed on
piece by piece, not frame by frame: a piece that has been handed on has been
counted, so after a lost connection the reader resumes at the exact byte, also in
the middle of a frame, and a huge frame costs no memory. JSON events are held
until whole and are bounded.
"""
from __future__ import annotations

import json
from typing import Any, Dict, Iterator, List, Tuple, Union

from .errors import BadResponse

STDOUT, STDERR, EVENT, KEEPALIVE = 1, 2, 3, 4
HEADER_SIZE = 5
EVENT_MAX_BYTES = 4 << 20  # an event echoes argv and env, each of which the server bounds

Item = Tuple[int, Union[bytes, Dict[str, Any]]]


class FrameParser:
    def __init__(self) -> None:
        self._header = bytearray()
        self._type = 0
        self._left = 0  # payload bytes of the current frame still to come
        self._event: List[bytes] = []

    @property
    def between_frames(self) -> bool:
        return self._left == 0 and not self._header

    def feed(self, data: bytes) -> Iterator[Item]:
        """Yields (type, bytes) for output and keepalives, (EVENT, dict) for events."""
        pos, end = 0, len(data)
        while pos < end:
            if self._left == 0:
                take = min(HEADER_SIZE - len(self._header), end - pos)
                self._header += data[pos : pos + take]
                pos += take
                if len(self._header) < HEADER_SIZE:
                    return
                self._begin()
                if self._left == 0:
                    yield from self._empty_frame()
                continue
            take = min(self._left, end - pos)
            piece = data[pos : pos + take]
            pos += take
            self._left -= take
            if self._type == EVENT:
                self._event.append(piece)
                if self._left == 0:
                    yield EVENT, self._decode_event()
            elif self._type in (STDOUT, STDERR):
                yield self._type, piece

    def _begin(self) -> None:
        self._type = self._header[0]
        self._left = int.from_bytes(self._header[1:5], "big")
        self._header.clear()
        if self._type not in (STDOUT, STDERR, EVENT, KEEPALIVE):
            raise BadResponse("unknown frame type %d in an exec stream" % self._type)
        if self._type == EVENT and self._left > EVENT_MAX_BYTES:
            raise BadResponse("an event of %d bytes is over the limit" % self._left)

    def _empty_frame(self) -> Iterator[Item]:
        if self._type == EVENT:
            raise BadResponse("an empty event in an exec stream")
        if self._type == KEEPALIVE:
            yield KEEPALIVE, b""

    def _decode_event(self) -> Dict[str, Any]:
        raw = b"".join(self._event)
        self._event = []
        try:
            event = json.loads(raw.decode("utf-8"))
        except ValueError as e:
            raise BadResponse("an event in an exec stream is not JSON: %s" % e) from None
        if not isinstance(event, dict):
            raise BadResponse("an event in an exec stream is not an object")
        return event
