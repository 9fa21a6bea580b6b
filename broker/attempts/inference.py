"""A model call that the rules let through, and the port of whoever answers it.

Prepares and names; sends nothing, knows no credential, and does not decide whether a
call is allowed: the gate does that with the prepared call.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec

from broker.attempts.budget import BudgetCounter
from broker.attempts.dialects import FinishReason
from broker.attempts.request_rules import (
    RequestDenied,
    RequestRules,
    Stripped,
    apply_rules,
    clamp_output,
)
from protocol.codes import WireCode
from protocol.digest import canonical_json, digest_bytes
from protocol.errors import Refusal
from protocol.ids import Digest
from protocol.messages import Api, InferenceRequest, ProviderEvent, Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceCall:
    """One call that the rules let through, as it would be sent to a provider."""

    attempt_id: str
    request_id: str
    api: Api
    model: str  #: the alias; a source that talks to a provider knows the real name
    stream: bool
    purpose: Literal["main", "side"]
    body: dict[str, Any]
    headers: dict[str, str]
    max_output_tokens: int
    timeout_seconds: float
    body_digest: Digest  #: over the canonical JSON of ``body``
    body_bytes: int
    stripped: tuple[tuple[Stripped, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The whole answer was given: as ``response``, or as events when that is ``None``."""

    usage: Usage
    finish: FinishReason
    response: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Failed:
    """There is no answer, or only the beginning of one. ``usage`` is what is known of it."""

    code: WireCode
    retry_after_ms: int | None = None
    usage: Usage | None = None


Emit = Callable[[Sequence[ProviderEvent]], None]
"""Hands on the next events of a stream, in order. Never waits."""


class InferenceSource(Protocol):
    """Who answers inference: a script, a provider, the control plane."""

    async def answer(self, call: InferenceCall, emit: Emit) -> Finished | Failed:
        """Answer ``call``. A stream goes through ``emit``; anything else is the result.

        Returns ``Failed`` for every failure of the provider; what it raises is a bug.
        """


@dataclass(frozen=True, slots=True)
class ScriptedSpec:
    """``scripted:FILE``."""

    path: Path


def parse_inference_spec(text: str) -> ScriptedSpec:
    """The source that ``--inference`` names.

    ``Refusal("unsupported")`` for ``anthropic:``, ``openai:``, ``compatible:`` and
    ``control``, which this version does not serve, ``Refusal("inference_malformed")``
    for anything else.
    """
    scheme, colon, rest = text.partition(":")
    match scheme:
        case "scripted" if rest and "\0" not in rest:
            return ScriptedSpec(Path(rest))
        case "anthropic" | "openai" | "compatible" if rest:
            raise Refusal("unsupported")
        case "control" if not colon:
            raise Refusal("unsupported")
        case _:
            raise Refusal("inference_malformed")


def prepare_call(
    request: InferenceRequest,
    *,
    attempt_id: str,
    rules: RequestRules,
    budget: BudgetCounter,
    timeout_seconds: float,
) -> InferenceCall | RequestDenied:
    """What ``request`` may send, or the code it is answered with. Sends and holds nothing.

    The answer is bounded by what the budget has left now. ``timeout_seconds`` is the
    longest that the attempt allows; a request may ask for less.
    """
    headers = msgspec.to_builtins(request.headers) if request.headers else {}
    result = apply_rules(
        rules,
        api=request.api,
        model=request.model,
        stream=request.stream,
        body=request.body,
        headers=headers,
    )
    if isinstance(result, RequestDenied):
        return result
    output_tokens = budget.output_left(result.max_output_tokens)
    if output_tokens == 0:
        return RequestDenied("budget_exhausted")
    clamp_output(request.api, result.body, output_tokens)
    encoded = canonical_json(result.body)
    if request.timeout_ms is not None:
        timeout_seconds = min(timeout_seconds, request.timeout_ms / 1000)
    return InferenceCall(
        attempt_id=attempt_id,
        request_id=request.request_id,
        api=request.api,
        model=request.model,
        stream=request.stream,
        purpose=request.purpose or "main",
        body=result.body,
        headers=result.headers,
        max_output_tokens=output_tokens,
        timeout_seconds=timeout_seconds,
        body_digest=digest_bytes(encoded),
        body_bytes=len(encoded),
        stripped=result.stripped,
    )
