"""Bytes in, complete lines out, in bounded memory; only the start of a long line is looked at.

The cost is linear: a chunk is split once, an unterminated line is only appended to and
never searched again, and nothing before the last line feed is copied twice. At most one
unterminated line (below the limit) and the lines of the last chunk are held.
"""

import re
from collections import deque
from typing import Final

from protocol.errors import LocalProtocolError, RemoteProtocolError

#: The start of a line that cannot become an ``inference.request``: no object, or another
#: type spelled out. Everything else may still become one.
_OTHER: Final = re.compile(
    rb"[ \t\r]*(?:[^{ \t\r]|"
    rb'\{[ \t\r]*(?:"v"[ \t\r]*:[ \t\r]*1[ \t\r]*,[ \t\r]*)?'
    rb'"type"[ \t\r]*:[ \t\r]*"(?!inference\.request")[^"\\]*")'
)
_BLANK: Final = b" \t\r"


class LineBuffer:
    """The lines of one stream.

    ``limit`` bounds every line, its LF counted; ``common_limit`` bounds a line whose
    start shows that it is not an ``inference.request``, while it is still unterminated.
    ``lines`` and ``bytes`` count what was taken, blank lines included in the bytes.
    """

    def __init__(self, limit: int, *, common_limit: int) -> None:
        self.lines = 0
        self.bytes = 0
        self._limit = limit
        self._common_limit = min(limit, common_limit)
        self._ready: deque[bytes] = deque()
        self._tail = bytearray()
        self._tail_may_grow = False
        self._over = False
        self._ended = False

    @property
    def is_drained(self) -> bool:
        """Whether the stream has ended and every line of it was taken."""
        return self._ended and not self._ready and not self._tail and not self._over

    def set_limit(self, limit: int) -> None:
        """From now on, every line may have ``limit`` bytes."""
        self._limit = self._common_limit = limit

    def receive(self, data: bytes) -> None:
        """Add what was read; ``b""`` says that the stream has ended.

        Raises:
            LocalProtocolError: there was an end already. Nothing changed.
        """
        if self._ended:
            raise LocalProtocolError("after_complete")
        if not data:
            self._ended = True
            if not self._tail.strip(_BLANK):
                self.bytes += len(self._tail)
                self._tail.clear()
            return
        if self._over:
            return
        first, *rest = data.split(b"\n")
        if self._tail:
            self._tail += first
            first = bytes(self._tail) if rest else b""
        if rest:
            *middle, last = rest
            self._ready.append(first)
            self._ready.extend(middle)
            self._tail = bytearray(last)
            self._tail_may_grow = False
        elif first:
            self._tail += first
        self._over = self._tail_is_over()

    def next_line(self) -> bytes | None:
        """The next line that is not blank, without its LF, or None when more must be read.

        Raises:
            RemoteProtocolError: the next line is over the limit, or the stream ended
                inside of it. It is raised again on each further call.
        """
        ready = self._ready
        while ready:
            line = ready[0]
            if len(line) >= self._limit:
                raise RemoteProtocolError("frame_too_large")
            ready.popleft()
            self.bytes += len(line) + 1
            if line.strip(_BLANK):
                self.lines += 1
                return line
        if self._over:
            raise RemoteProtocolError("frame_too_large")
        if self._ended and self._tail:
            raise RemoteProtocolError("malformed_frame", "truncated")
        return None

    def _tail_is_over(self) -> bool:
        """Whether the unterminated line can no longer become an acceptable one."""
        size = len(self._tail)
        if size >= self._limit:
            return True
        if size < self._common_limit or self._tail_may_grow:
            return False
        self._tail_may_grow = _OTHER.match(self._tail) is None
        return not self._tail_may_grow
