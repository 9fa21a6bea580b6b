"""Every message of agent protocol version 1, one Struct each; its docstring is the schema's.

Messages of the agent refuse unknown fields, messages of the broker carry them past.
Nothing here knows an order or a state; ``protocol.state`` does.
"""

from typing import Annotated, Any, Final, Literal

import msgspec

from protocol.codes import RETRYABLE, WIRE_TEXT, ViolationCode, WireCode
from protocol.fields import (
    AgentPart,
    Api,
    BrokerPart,
    ErrorCode,
    Feature,
    JsonObject,
    Message,
    MessageId,
    MessageModelAlias,
    MessageToolName,
    Metadata,
    Name,
    Payload,
    ShortText,
    Summary,
    encoded,
    text,
)
from protocol.ids import WireDigest
from protocol.limits import (
    KIB,
    MAX_CLAIM_BYTES,
    MAX_STREAM_EVENTS,
    Count,
    EventRate,
    Limits,
    Ms,
)
from protocol.offers import (
    Budget,
    ContextItem,
    InferenceOffer,
    ModelOffer,
    RecipeOffer,
    ReferenceOffer,
    Repository,
    Resume,
    Task,
    TaskStart,
    ToolOffer,
)

__all__ = [
    "Api",
    "AttemptCancel",
    "AttemptComplete",
    "Budget",
    "CancelReason",
    "ClaimError",
    "ContextItem",
    "Event",
    "EventRate",
    "Feature",
    "FromAgent",
    "FromBroker",
    "InferenceHeaders",
    "InferenceOffer",
    "InferenceRequest",
    "InferenceResponse",
    "Limits",
    "Message",
    "ModelOffer",
    "ProviderEvent",
    "RecipeOffer",
    "RecipeOutput",
    "ReferenceOffer",
    "Repository",
    "RequestType",
    "Resume",
    "Task",
    "TaskStart",
    "ToolOffer",
    "ToolRequest",
    "ToolResponse",
    "Truncation",
    "Usage",
    "ViolationAt",
    "ViolationPosition",
    "WireDecision",
    "WireError",
    "wire_error",
]

#: Kinds are ``agent.<name>``, ``request.cancel`` and ``x.<vendor>.<name>``.
MAX_KIND_BYTES: Final = 128


class WireError(BrokerPart, frozen=True):
    """Why a request has no result. ``message`` is chosen by ``code`` alone.

    ``details`` holds closed codes, numbers and digests only, for instance ``reason``.
    Later brokers may have more codes: one that is not known is not retryable.
    """

    code: ErrorCode
    message: Name
    retryable: bool
    retry_after_ms: Ms | None = None
    details: JsonObject | None = None


class WireDecision(BrokerPart, frozen=True):
    """What the policy said, about exactly which action, under which policy."""

    outcome: Literal["allowed", "approved", "denied"]
    action_digest: WireDigest
    policy_digest: WireDigest


class Truncation(BrokerPart, frozen=True):
    """A member of the result that was cut, and how many bytes it had."""

    field: ShortText
    total_bytes: Count


class RecipeOutput(BrokerPart, frozen=True):
    """A piece of a running recipe's output."""

    stream: Literal["stdout", "stderr"]
    text: Annotated[str, text(16 * KIB)]


class Usage(BrokerPart, frozen=True):
    """Tokens that one inference used, as the broker counts them."""

    input_tokens: Count
    output_tokens: Count
    cached_input_tokens: Count = 0
    cache_write_tokens: Count = 0
    reasoning_tokens: Count = 0


class ProviderEvent(BrokerPart, frozen=True):
    """One event of the provider's stream: its name and its data, an object or a text."""

    data: JsonObject | str
    event: ShortText | None = None


class ViolationPosition(BrokerPart, frozen=True):
    """The line at fault: how many lines came, and how many bytes up to its end."""

    frame: Count
    byte: Count


class ViolationAt(BrokerPart, frozen=True):
    """What the agent did wrong on the pipe, and where."""

    code: ViolationCode
    at: ViolationPosition


class InferenceHeaders(
    AgentPart,
    frozen=True,
    rename={"anthropic_version": "anthropic-version", "anthropic_beta": "anthropic-beta"},
):
    """The only headers that are passed on."""

    anthropic_version: Annotated[str, text(2048)] | None = None
    anthropic_beta: Annotated[str, text(2048)] | None = None


class ClaimError(AgentPart, frozen=True):
    """Why the agent says it failed, in its own words."""

    code: ShortText
    message: Annotated[str, text(2048)]


class Event(Message, frozen=True, forbid_unknown_fields=True, tag="event"):
    """Agent to broker: something to show or to keep. It changes no decision and no budget.

    What ``data`` is depends on ``kind``; for ``x.<vendor>.<name>`` it is any JSON.
    """

    kind: Annotated[str, text(MAX_KIND_BYTES, min_length=1)]
    #: Decoded: the Struct of its kind (``protocol.events``), or plain JSON.
    data: Any
    at: Ms | None = None
    request_id: MessageId | None = None
    meta: Metadata | None = None


class ToolRequest(Message, frozen=True, forbid_unknown_fields=True, tag="tool.request"):
    """Agent to broker: one effect, asked for by the name of a tool.

    ``input`` has the form that ``task.start`` gave for the tool. ``intent`` is the
    model's prose and is part of no digest.
    """

    request_id: MessageId
    tool: MessageToolName
    input: JsonObject
    tool_call_id: MessageId | None = None
    intent: Annotated[str, text(512)] | None = None
    meta: Metadata | None = None


class InferenceRequest(Message, frozen=True, forbid_unknown_fields=True, tag="inference.request"):
    """Agent to broker: one call of a model, in a provider's dialect, without credentials.

    ``body`` is the provider's own request. ``model`` repeats ``body.model`` so that the
    two can be compared.
    """

    request_id: MessageId
    api: Api
    model: MessageModelAlias
    stream: bool
    body: JsonObject
    headers: InferenceHeaders | None = None
    purpose: Literal["main", "side"] | None = None
    timeout_ms: Ms | None = None
    meta: Metadata | None = None


class AttemptComplete(Message, frozen=True, forbid_unknown_fields=True, tag="attempt.complete"):
    """Agent to broker: the last frame, once. A claim, never a fact."""

    status: Literal["succeeded", "failed", "cancelled", "blocked"]
    summary: Summary | None = None
    error: ClaimError | None = None
    result: Annotated[JsonObject, encoded(MAX_CLAIM_BYTES)] | None = None
    meta: Metadata | None = None


class ToolResponse(Message, frozen=True, tag="tool.response"):
    """Broker to agent: progress of a tool request, or its one final answer.

    Not final: ``status``, and perhaps ``actionDigest`` and ``output``. Final and ok:
    ``decision`` and ``result``. Final and not ok: ``error``, and ``decision`` when the
    policy was asked. A recipe that ran and failed is ok.
    """

    request_id: MessageId
    index: Count
    final: bool
    status: Literal["awaiting_approval", "queued", "running"] | None = None
    action_digest: WireDigest | None = None
    output: RecipeOutput | None = None
    ok: bool | None = None
    decision: WireDecision | None = None
    result: Payload | None = None
    truncated: Annotated[tuple[Truncation, ...], msgspec.Meta(max_length=8)] = ()
    error: WireError | None = None

    def __post_init__(self) -> None:
        match (self.final, self.ok):
            case (False, None):
                good = self.status is not None and not (
                    self.decision or self.truncated or self.error or self.result is not None
                )
            case (True, True):
                good = (
                    self.decision is not None
                    and _is_object(self.result)
                    and not (self.error or self.status or self.action_digest or self.output)
                )
            case (True, False):
                good = self.error is not None and not (
                    self.truncated
                    or self.status
                    or self.action_digest
                    or self.output
                    or self.result is not None
                )
            case _:
                good = False
        if not good:
            raise ValueError("a tool.response is progress, a result or an error")


class InferenceResponse(Message, frozen=True, tag="inference.response"):
    """Broker to agent: a piece of a stream, or the one final answer.

    Not final: ``events``. Final and ok: ``usage``, ``model``, ``finishReason``, and
    either ``response`` or the last ``events``. Final and not ok: ``error``.
    """

    request_id: MessageId
    index: Count
    final: bool
    ok: bool
    events: Annotated[tuple[ProviderEvent, ...], msgspec.Meta(max_length=MAX_STREAM_EVENTS)] = ()
    response: Payload | None = None
    usage: Usage | None = None
    model: MessageModelAlias | None = None
    finish_reason: Literal["stop", "length", "tool_calls", "content_filter", "other"] | None = None
    error: WireError | None = None

    def __post_init__(self) -> None:
        summary = (self.usage, self.model, self.finish_reason)
        match (self.final, self.ok):
            case (False, True):
                good = bool(self.events) and self.response is None and self.error is None
                good = good and summary == (None, None, None)
            case (True, True):
                good = self.error is None and None not in summary
                good = good and (self.response is None or _is_object(self.response))
            case (True, False):
                good = self.error is not None and not self.events and self.response is None
                good = good and summary == (None, None, None)
            case _:
                good = False
        if not good:
            raise ValueError("an inference.response is a piece, a result or an error")


CancelReason = Literal[
    "user", "deadline", "budget", "shutdown", "checkpoint_stop", "protocol_violation", "policy"
]


class AttemptCancel(Message, frozen=True, tag="attempt.cancel"):
    """Broker to agent, at most once: stop. Every open request is answered ``cancelled``."""

    reason: CancelReason
    grace_ms: Ms
    violation: ViolationAt | None = None


RequestType = type[ToolRequest] | type[InferenceRequest]
"""Which kind of request a request id belongs to."""

FromAgent = Event | ToolRequest | InferenceRequest | AttemptComplete
FromBroker = TaskStart | ToolResponse | InferenceResponse | AttemptCancel


def wire_error(
    code: WireCode,
    *,
    retry_after_ms: int | None = None,
    details: dict[str, Any] | None = None,
) -> WireError:
    """The error of ``code`` with its fixed text. ``details`` must hold closed values only."""
    return WireError(
        code=code,
        message=WIRE_TEXT[code],
        retryable=code in RETRYABLE,
        retry_after_ms=retry_after_ms,
        details=details,
    )


def _is_object(value: Any) -> bool:
    return isinstance(value, (dict, msgspec.Struct, msgspec.Raw))
