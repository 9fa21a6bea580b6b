"""What both sides of an attempt's pipe share: the lines, the state, the open requests.

Not for use by itself: ``protocol.connection`` has the two sides. Nothing here knows
what a message contains.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final, Generic, TypeVar

from protocol.errors import LocalProtocolError, RemoteProtocolError
from protocol.framing import LineBuffer
from protocol.messages import InferenceResponse, RequestType, ToolResponse
from protocol.state import AttemptState, EndOfStream, Happening, Violation, after, violation_of


class Signal(Enum):
    """What ``next_event`` gives when it has no message."""

    NEED_DATA = "need_data"
    CLOSED = "closed"


NEED_DATA: Final = Signal.NEED_DATA
CLOSED: Final = Signal.CLOSED

Out = TypeVar("Out")
Answer = ToolResponse | InferenceResponse


@dataclass(slots=True)
class OpenRequest:
    """A request without its final answer: what it is, and how many answers it had."""

    type: RequestType
    streams: bool = False
    counted: bool = True
    next_index: int = 0


class Connection(ABC, Generic[Out]):
    """What both sides share: the lines, the state, the error that stays."""

    def __init__(self, lines: LineBuffer) -> None:
        self.last_frame = b""  #: The line of the message that was given out last.
        self._lines: Final = lines
        self._state = AttemptState.IDLE
        self._error: RemoteProtocolError | None = None
        self._open: Final[dict[str, OpenRequest]] = {}
        self._used: Final[set[str]] = set()
        self._in_flight = 0

    @property
    def state(self) -> AttemptState:
        """Where the attempt is."""
        return self._state

    @property
    def frames(self) -> int:
        """How many lines were taken, the one at fault included."""
        return self._lines.lines

    @property
    def open_requests(self) -> Mapping[str, OpenRequest]:
        """The requests without a final answer, by id, oldest first. A live view."""
        return MappingProxyType(self._open)

    def receive_data(self, data: bytes) -> None:
        """Take what was read; ``b""`` is the end of the stream. After an error it is lost.

        Raises:
            LocalProtocolError: there was an end already.
        """
        if self._error is None:
            self._lines.receive(data)

    def next_event(self) -> Out | Signal:
        """The next message, ``NEED_DATA``, or ``CLOSED`` after the end of the stream.

        Raises:
            RemoteProtocolError: the peer broke the protocol; the state is ``ERROR``.
        """
        if self._error is not None:
            raise RemoteProtocolError(self._error.code, self._error.reason)
        try:
            return self._take()
        except RemoteProtocolError as error:
            self._error = error
            self._state = after(self._state, Violation) or self._state
            raise

    @abstractmethod
    def _take(self) -> Out | Signal: ...

    def _end(self) -> Signal:
        """There is no line: need more, or the end."""
        if not self._lines.is_drained:
            return NEED_DATA
        self._state = after(self._state, EndOfStream) or self._state
        return CLOSED

    def _hear(self, happening: Happening) -> None:
        """Move on by what the peer said."""
        state = after(self._state, happening)
        if state is None:
            raise RemoteProtocolError(violation_of(self._state))
        self._state = state

    def _may_say(self, happening: Happening) -> AttemptState:
        """Where saying it would lead."""
        state = after(self._state, happening)
        if state is None:
            raise LocalProtocolError(violation_of(self._state))
        return state

    def _opened(self, request_id: str, request: OpenRequest) -> None:
        self._used.add(request_id)
        self._open[request_id] = request
        self._in_flight += request.counted

    def _answered(self, answer: Answer) -> None:
        request = self._open[answer.request_id]
        request.next_index += 1
        if answer.final:
            del self._open[answer.request_id]
            self._in_flight -= request.counted

    def _forget_open(self) -> None:
        self._open.clear()
        self._in_flight = 0

    # Last, because it hides the type of that name from what follows in the class.
    @property
    def bytes(self) -> int:
        """How many bytes were taken, up to the end of the last line."""
        return self._lines.bytes
