"""One prepared model call, asked of its source and told to the agent frame by frame.

Makes exactly one final frame for every call, and never turns a cut answer into a whole
one. Retries nothing and decides nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, assert_never, final

import msgspec
import trio

from broker.attempts.budget import BudgetCounter
from broker.attempts.completeness import StreamCheck, is_whole_response
from broker.attempts.inference import Failed, Finished, InferenceCall, InferenceSource
from protocol.codes import WireCode
from protocol.limits import MAX_STREAM_EVENTS, MAX_STREAM_FRAME_BYTES
from protocol.messages import InferenceResponse, ProviderEvent, Usage, wire_error

#: Bytes of events in one streaming frame: a reader sees text at once, a writer is not busy.
_FLUSH_BYTES: Final = 16 * 1024
#: What stands around the one event of a frame: ids, index and flags.
_ENVELOPE_BYTES: Final = 1024
#: Bytes of JSON for one token, to hold a part of the budget before the provider has counted.
_BYTES_PER_TOKEN: Final = 4

_NO_USAGE: Final = Usage(input_tokens=0, output_tokens=0)
_TIMED_OUT: Final = Failed("upstream_timeout")

Send = Callable[[InferenceResponse], None]
"""Puts one whole frame in the queue of the agent's pipe. Never waits, so a call that is
stopped has sent a frame or has not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """How a call ended, for the ledger. ``code`` is ``None`` for a whole answer."""

    code: WireCode | None
    frames: int
    usage: Usage


async def serve_call(
    call: InferenceCall,
    *,
    source: InferenceSource,
    budget: BudgetCounter,
    send: Send,
    max_response_bytes: int,
) -> Served:
    """Answer ``call`` with as many frames as it takes, the last of them final.

    The budget holds the call's tokens from before the source is asked until it has
    answered, also when the task is cancelled. An answer that stops short of its own end
    is ``upstream_error``, never a success.
    """
    frames = _FrameWriter(call, send, max_response_bytes=max_response_bytes)
    worst = Usage(
        input_tokens=call.body_bytes // _BYTES_PER_TOKEN + 1, output_tokens=call.max_output_tokens
    )
    held = budget.reserve(input_tokens=worst.input_tokens, output_tokens=worst.output_tokens)
    if held is None:
        return frames.finish(Failed("budget_exhausted"), used=_NO_USAGE)
    used = worst
    try:
        answer = await _ask(call, source, frames)
        if answer.usage is not None:
            used = answer.usage
        elif not frames.started and answer != _TIMED_OUT:
            used = _NO_USAGE
    finally:
        budget.settle(held, input_tokens=used.input_tokens, output_tokens=used.output_tokens)
    return frames.finish(answer, used=used)


async def _ask(
    call: InferenceCall, source: InferenceSource, frames: "_FrameWriter"
) -> Finished | Failed:
    """The source's answer, or ``Failed`` where the source ran out of time or stopped short."""
    with trio.move_on_after(call.timeout_seconds) as scope:
        answer = await source.answer(call, frames.emit)
    if scope.cancelled_caught:
        return _TIMED_OUT
    if isinstance(answer, Failed):
        return answer
    if frames.too_large:
        return Failed("result_too_large", usage=answer.usage)
    if not frames.is_whole(answer):
        return Failed("upstream_error", usage=answer.usage)
    return answer


@final
class _FrameWriter:
    """The frames of one call: contiguous, bounded, and exactly one final."""

    def __init__(self, call: InferenceCall, send: Send, *, max_response_bytes: int) -> None:
        self._call: Final = call
        self._send: Final = send
        self._max_bytes: Final = max_response_bytes - _ENVELOPE_BYTES
        self._check: Final = StreamCheck(call.api)
        self._index = 0
        self._bytes = 0
        self._held: ProviderEvent | None = None
        self.started = False
        self.too_large = False

    def emit(self, events: Sequence[ProviderEvent]) -> None:
        """Send ``events`` in order. Only the last may be too large for a streaming frame."""
        batch: list[ProviderEvent] = []
        size = 0
        for event in events:
            self._check.see(event)
            event_bytes = len(msgspec.json.encode(event))
            self._bytes += event_bytes
            if self._held is not None or self._bytes > self._max_bytes:
                self.too_large = True
            if self.too_large:
                return
            if batch and (len(batch) == MAX_STREAM_EVENTS or size + event_bytes > _FLUSH_BYTES):
                self._send_events(batch)
                batch, size = [], 0
            if event_bytes > MAX_STREAM_FRAME_BYTES - _ENVELOPE_BYTES:
                self._held = event
            else:
                batch.append(event)
                size += event_bytes
        if batch:
            self._send_events(batch)

    def is_whole(self, answer: Finished) -> bool:
        """Whether what came fits what was asked for and ends as it should."""
        if self._call.stream:
            return answer.response is None and self._check.is_whole
        return answer.response is not None and is_whole_response(self._call.api, answer.response)

    def finish(self, answer: Finished | Failed, *, used: Usage) -> Served:
        """Send the one final frame."""
        if isinstance(answer, Finished) and answer.response is not None:
            size = len(msgspec.json.encode(answer.response))
            if size > self._max_bytes:
                answer = Failed("result_too_large")
        match answer:
            case Finished():
                frame = InferenceResponse(
                    request_id=self._call.request_id,
                    index=self._index,
                    final=True,
                    ok=True,
                    events=(self._held,) if self._held else (),
                    response=answer.response,
                    usage=answer.usage,
                    model=self._call.model,
                    finish_reason=answer.finish,
                )
            case Failed():
                frame = InferenceResponse(
                    request_id=self._call.request_id,
                    index=self._index,
                    final=True,
                    ok=False,
                    error=wire_error(answer.code, retry_after_ms=answer.retry_after_ms),
                )
            case other:
                assert_never(other)
        self._send(frame)
        code = answer.code if isinstance(answer, Failed) else None
        return Served(code=code, frames=self._index + 1, usage=used)

    def _send_events(self, events: Sequence[ProviderEvent]) -> None:
        frame = InferenceResponse(
            request_id=self._call.request_id,
            index=self._index,
            final=False,
            ok=True,
            events=tuple(events),
        )
        self._index += 1
        self.started = True
        self._send(frame)
