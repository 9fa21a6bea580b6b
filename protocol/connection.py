"""One side of one attempt: bytes in, messages out, messages in, bytes out.

No I/O, no clock, no tasks. Whoever owns the pipe calls ``receive_data`` with what it
read (``b""`` at the end), takes messages with ``next_event`` until ``NEED_DATA`` or
``CLOSED``, and writes what ``send`` returns, whole. How fast events come is the owner's
to check, for it has a clock.

``next_event`` raises nothing but ``RemoteProtocolError``, after every good message
before the fault was given out; from then on it raises the same again. ``send`` raises
``LocalProtocolError`` where the caller would break the protocol, and then nothing has
changed.
"""

from typing import Final, final

import msgspec

from protocol.codec import (
    Dropped,
    Rejected,
    decode_from_agent,
    decode_from_broker,
    encode_frame,
)
from protocol.codes import WireCode
from protocol.errors import LocalProtocolError, RemoteProtocolError
from protocol.events import FEATURE_OF_KIND, AgentReady
from protocol.framing import LineBuffer
from protocol.limits import (
    MAX_INVALID,
    MAX_NOISE_BYTES,
    MAX_NOISE_LINES,
    MAX_STREAM_FRAME_BYTES,
    Limits,
)
from protocol.messages import (
    AttemptCancel,
    AttemptComplete,
    Event,
    FromAgent,
    FromBroker,
    InferenceRequest,
    InferenceResponse,
    RequestType,
    TaskStart,
    ToolRequest,
    ToolResponse,
    WireDecision,
    WireError,
    wire_error,
)
from protocol.side import CLOSED, NEED_DATA, Answer, Connection, OpenRequest, Signal
from protocol.state import (
    awaits_first_frame,
    expects_only_the_end,
    hears_agent,
    violation_of,
)

__all__ = [
    "CLOSED",
    "NEED_DATA",
    "AgentConnection",
    "BrokerConnection",
    "Dropped",
    "OpenRequest",
    "Received",
    "Rejected",
    "Signal",
]


Received = FromAgent | Rejected | Dropped
"""What comes out of a ``BrokerConnection``."""


@final
class BrokerConnection(Connection[Received]):
    """The broker's side. ``limits`` are the ones that ``task.start`` will advertise.

    With ``quarantine_noise`` lines before the first frame that do not begin with ``{`` are
    dropped and counted, up to a bound, for images whose runtime prints before the agent
    can stop it. They are never parsed.
    """

    def __init__(self, limits: Limits, *, quarantine_noise: bool = False) -> None:
        super().__init__(
            LineBuffer(
                max(limits.max_inference_frame_bytes, limits.max_frame_bytes),
                common_limit=limits.max_frame_bytes,
            )
        )
        self.limits: Final = limits
        self.features: frozenset[str] = frozenset()  #: Named by both sides.
        self.requests = 0  #: How many requests came, the rejected ones included.
        self.events = 0  #: How many events came, the dropped ones included.
        self.invalid = 0  #: How many messages were not of their form.
        self._quarantines: Final = quarantine_noise
        self._noise_lines = 0
        self._noise_bytes = 0
        self._offered: frozenset[str] = frozenset()
        self._ready_seen = False
        self._cancelled = False

    def _take(self) -> Received | Signal:
        hears = hears_agent(self._state)
        try:
            line = self._lines.next_line()
        except RemoteProtocolError:
            if hears:
                raise
            raise RemoteProtocolError(violation_of(self._state)) from None
        if line is None:
            return self._end()
        if not hears:
            raise RemoteProtocolError(violation_of(self._state))
        self.last_frame = line
        if self._quarantines and awaits_first_frame(self._state) and not line.startswith(b"{"):
            return self._quarantine(line)
        match decode_from_agent(line, limits=self.limits):
            case ToolRequest() as message:
                return self._admit(message, OpenRequest(ToolRequest))
            case InferenceRequest() as message:
                return self._admit(message, OpenRequest(InferenceRequest, streams=message.stream))
            case Event() as message:
                return self._count_event(message)
            case AttemptComplete() as message:
                self._hear(AttemptComplete)
                self._forget_open()
                return message
            case Dropped() as dropped:
                return self._count_event(dropped)
            case Rejected() as rejected:
                return self._reject(rejected)

    def _quarantine(self, line: bytes) -> Dropped:
        """Count a line of noise; over the bound it is what it would be without quarantine."""
        self._noise_lines += 1
        self._noise_bytes += len(line) + 1
        if self._noise_lines > MAX_NOISE_LINES or self._noise_bytes > MAX_NOISE_BYTES:
            raise RemoteProtocolError("malformed_frame", "not_json")
        return Dropped("stdout_noise")

    def _admit(
        self, message: ToolRequest | InferenceRequest, request: OpenRequest
    ) -> ToolRequest | InferenceRequest | Rejected:
        """Count the request, and open it; with an error where a count is over its limit."""
        code: WireCode | None = None
        pointer = None
        if self._count_request(message.request_id):
            code = "limit_exceeded"
        elif self._in_flight >= self.limits.max_in_flight:
            code = "too_many_in_flight"
        elif request.streams and "inference_streaming" not in self.features:
            code, pointer = "unsupported_feature", "/stream"
        self._hear(request.type)
        request.counted = code is None
        self._opened(message.request_id, request)
        if code is None:
            return message
        return Rejected(
            request_id=message.request_id, request_type=request.type, code=code, pointer=pointer
        )

    def _reject(self, rejected: Rejected) -> Rejected:
        """Count and open a request that the codec refused."""
        if self._count_request(rejected.request_id):
            rejected = msgspec.structs.replace(rejected, code="limit_exceeded", pointer=None)
        elif rejected.code == "invalid_message":
            self._count_invalid()
        self._hear(rejected.request_type)
        self._opened(rejected.request_id, OpenRequest(rejected.request_type, counted=False))
        return rejected

    def _count_request(self, request_id: str) -> bool:
        """Count a request; whether it is over the limit."""
        if request_id in self._used:
            raise RemoteProtocolError("duplicate_request_id")
        self.requests += 1
        if self.requests > 2 * self.limits.max_requests:
            raise RemoteProtocolError("limit_exceeded")
        return self.requests > self.limits.max_requests

    def _count_event(self, event: Event | Dropped) -> Event | Dropped:
        self.events += 1
        if self.events > 2 * self.limits.max_events:
            raise RemoteProtocolError("limit_exceeded")
        if self.events > self.limits.max_events:
            return Dropped("limit_exceeded")
        if isinstance(event, Event):
            feature = FEATURE_OF_KIND.get(event.kind)
            if isinstance(event.data, AgentReady):
                event = self._ready(event, event.data)
            elif feature is not None and feature not in self.features:
                event = Dropped("event_rejected")
        if isinstance(event, Dropped):
            self._count_invalid()
        else:
            self._hear(Event)
        return event

    def _ready(self, event: Event, ready: AgentReady) -> Event | Dropped:
        """Features are named once, so that what is on does not change under a request."""
        if self._ready_seen:
            return Dropped("event_rejected")
        self._ready_seen = True
        self.features = self._offered.intersection(ready.features)
        return event

    def _count_invalid(self) -> None:
        self.invalid += 1
        if self.invalid > MAX_INVALID:
            raise RemoteProtocolError("too_many_invalid")

    def send(self, message: FromBroker) -> bytes:
        """``message`` as the bytes to write.

        Raises:
            LocalProtocolError: it is not due, not within its bounds, answers nothing
                that is open, or skips an index. Nothing changed.
        """
        state = self._may_say(type(message))
        max_bytes = self.limits.max_response_frame_bytes
        if isinstance(message, (ToolResponse, InferenceResponse)):
            self._check_answer(message)
            if not message.final:
                max_bytes = min(max_bytes, MAX_STREAM_FRAME_BYTES)
        elif isinstance(message, AttemptCancel) and self._cancelled:
            raise LocalProtocolError("out_of_order")
        frame = encode_frame(message, max_bytes=max_bytes)
        match message:
            case TaskStart():
                self._check_start(message, frame)
                self._offered = frozenset(message.features)
            case AttemptCancel():
                self._cancelled = True
            case _:
                self._answered(message)
        self._state = state
        return frame

    def fail(
        self, request_id: str, error: WireError, *, decision: WireDecision | None = None
    ) -> bytes:
        """The bytes of the final answer ``error`` to an open request.

        ``decision`` is for tool requests that the policy was asked about.
        """
        request = self._open.get(request_id)
        if request is None:
            raise LocalProtocolError("out_of_order")
        if request.type is ToolRequest:
            return self.send(
                ToolResponse(
                    request_id=request_id,
                    index=request.next_index,
                    final=True,
                    ok=False,
                    error=error,
                    decision=decision,
                )
            )
        return self.send(
            InferenceResponse(
                request_id=request_id, index=request.next_index, final=True, ok=False, error=error
            )
        )

    def reject(self, rejected: Rejected) -> bytes:
        """The bytes of the final answer to a ``Rejected``."""
        details = None if rejected.pointer is None else {"pointer": rejected.pointer}
        return self.fail(rejected.request_id, wire_error(rejected.code, details=details))

    def _check_answer(self, answer: Answer) -> None:
        request = self._open.get(answer.request_id)
        if request is None or answer.index != request.next_index:
            raise LocalProtocolError("out_of_order")
        if isinstance(answer, ToolResponse):
            fits = request.type is ToolRequest
            may_be_partial = "tool_progress" in self.features
        else:
            fits = request.type is InferenceRequest
            may_be_partial = request.streams
        if not fits or not (answer.final or may_be_partial):
            raise LocalProtocolError("invalid_message")

    def _check_start(self, message: TaskStart, frame: bytes) -> None:
        """What is advertised is what is enforced, and what we say has its form."""
        try:
            decode_from_broker(frame)
        except RemoteProtocolError:
            raise LocalProtocolError("invalid_message") from None
        if message.limits != self.limits:
            raise LocalProtocolError("invalid_message")


@final
class AgentConnection(Connection[FromBroker]):
    """The agent's side, held to the same law. Any error is a reason to exit with 65."""

    def __init__(self) -> None:
        self.limits = Limits()  #: As advertised, once ``task.start`` is there.
        super().__init__(
            LineBuffer(
                self.limits.max_response_frame_bytes,
                common_limit=self.limits.max_response_frame_bytes,
            )
        )

    def _take(self) -> FromBroker | Signal:
        line = self._lines.next_line()
        while line is not None and expects_only_the_end(self._state):
            # What crossed ``attempt.complete`` on its way is not for us any more.
            line = self._lines.next_line()
        if line is None:
            return self._end()
        message = decode_from_broker(line)
        self._hear(type(message))
        match message:
            case TaskStart():
                self.limits = message.limits
                self._lines.set_limit(message.limits.max_response_frame_bytes)
            case AttemptCancel():
                pass
            case _:
                self._hear_answer(message)
        self.last_frame = line
        return message

    def _hear_answer(self, answer: Answer) -> None:
        request = self._open.get(answer.request_id)
        answers: RequestType = ToolRequest if isinstance(answer, ToolResponse) else InferenceRequest
        if request is None or request.type is not answers or answer.index != request.next_index:
            raise RemoteProtocolError("out_of_order")
        self._answered(answer)

    def send(self, message: FromAgent) -> bytes:
        """``message`` as the bytes to write.

        Raises:
            LocalProtocolError: it is not due or passes an advertised limit. Nothing changed.
        """
        state = self._may_say(type(message))
        max_bytes = self.limits.max_frame_bytes
        if isinstance(message, (ToolRequest, InferenceRequest)):
            if message.request_id in self._used:
                raise LocalProtocolError("duplicate_request_id")
            if self._in_flight >= self.limits.max_in_flight:
                raise LocalProtocolError("limit_exceeded")
            if isinstance(message, InferenceRequest):
                max_bytes = self.limits.max_inference_frame_bytes
        frame = encode_frame(message, max_bytes=max_bytes)
        if isinstance(message, (ToolRequest, InferenceRequest)):
            self._opened(message.request_id, OpenRequest(type(message)))
        elif isinstance(message, AttemptComplete):
            self._forget_open()
        self._state = state
        return frame
