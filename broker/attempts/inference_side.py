"""Inference of one attempt as the gate sees it: who answers, under which rules and budget."""

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, final

import msgspec
import trio

from broker.attempts.budget import BudgetCounter
from broker.attempts.inference import InferenceCall, InferenceSource, prepare_call
from broker.attempts.relay import Send, serve_call
from broker.attempts.request_rules import RequestDenied, RequestRules
from broker.policy.registry import RouteRegistry
from protocol.codes import WireCode
from protocol.ids import Digest
from protocol.messages import InferenceOffer, InferenceRequest, InferenceResponse, Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceEnding:
    """How one prompt was answered: numbers, a digest over its frames, a closed code."""

    code: WireCode | None
    usage: Usage | None
    response_digest: Digest
    response_bytes: int
    duration_ms: int


OnEnding = Callable[[InferenceEnding], Awaitable[None]]
"""Told how a prompt ended, before its last frame leaves."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceSide:
    """What inference of one attempt is made of."""

    source: InferenceSource
    offer: InferenceOffer
    rules: RequestRules
    budget: BudgetCounter
    routes: RouteRegistry
    timeout_seconds: float
    max_response_bytes: int

    def prepare(self, request: InferenceRequest, attempt_id: str) -> InferenceCall | RequestDenied:
        """What ``request`` may send, or why not. Sends nothing."""
        return prepare_call(
            request,
            attempt_id=attempt_id,
            rules=self.rules,
            budget=self.budget,
            timeout_seconds=self.timeout_seconds,
        )

    async def serve(self, call: InferenceCall, on_ending: OnEnding, send: Send) -> None:
        """Has ``call`` answered. ``on_ending`` ends before the final frame is sent."""
        witness = _Witness(send)
        try:
            served = await serve_call(
                call,
                source=self.source,
                budget=self.budget,
                send=witness.send,
                max_response_bytes=self.max_response_bytes,
            )
        except trio.Cancelled:
            with trio.CancelScope(shield=True):
                await on_ending(witness.ending("cancelled", None))
            raise
        final = witness.final
        assert final is not None
        await on_ending(witness.ending(served.code, served.usage))
        send(final)


@final
class _Witness:
    """Hashes the frames of one answer, passes them on, and holds back the last one."""

    def __init__(self, send: Send) -> None:
        self._send: Final = send
        self._hash: Final = hashlib.sha256()
        self._bytes = 0
        self._began: Final = trio.current_time()
        self.final: InferenceResponse | None = None

    def send(self, frame: InferenceResponse) -> None:
        data = msgspec.json.encode(frame)
        self._hash.update(data)
        self._bytes += len(data)
        if frame.final:
            self.final = frame
        else:
            self._send(frame)

    def ending(self, code: WireCode | None, usage: Usage | None) -> InferenceEnding:
        return InferenceEnding(
            code=code,
            usage=usage,
            response_digest=Digest("sha256:" + self._hash.hexdigest()),
            response_bytes=self._bytes,
            duration_ms=int((trio.current_time() - self._began) * 1000),
        )
