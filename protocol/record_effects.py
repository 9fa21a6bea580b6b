"""The ledger bodies of one request: asked, decided, approved, started, finished.

Log before act: the body that authorizes an effect is durable before the effect
begins, and the one that says how it ended before the answer leaves.
"""

from typing import Literal

from protocol.codes import WireCode
from protocol.decision_codes import DecisionReason
from protocol.record_fields import (
    Body,
    Conversions,
    Count,
    DecisionOutcome,
    EffectCode,
    EffectStatus,
    ExitCode,
    RecordDigest,
    RecordId,
    RecordModel,
    RecordRecipe,
    RecordTool,
    Signature,
    Targets,
)


class Request(Body, frozen=True, kw_only=True, tag="request"):
    """A request was admitted. ``tool`` is absent when no tool of the name asked for is offered."""

    request: Count
    kind: Literal["tool", "inference"]
    tool: RecordTool | None = None
    frame_digest: RecordDigest
    frame_bytes: Count


class Conversion(Body, frozen=True, kw_only=True, tag="conversion"):
    """One attempt to turn an untrusted value into a safe one."""

    request: Count
    policy_id: RecordId
    policy_digest: RecordDigest
    source_digest: RecordDigest
    ordinal: Count
    outcome: Literal["accepted", "rejected"]
    reason: DecisionReason | None = None
    datum_id: RecordDigest | None = None


class Decision(Body, frozen=True, kw_only=True, tag="decision"):
    """What the gate said to one request, and about what exactly."""

    request: Count
    decision_id: RecordId
    outcome: DecisionOutcome
    reason: DecisionReason
    action_digest: RecordDigest
    effect_key: RecordDigest | None = None
    tool: RecordTool | None = None
    tool_digest: RecordDigest | None = None
    targets: Targets = ()
    source_digest: RecordDigest
    policy_digest: RecordDigest
    untrusted_control: bool
    evaluator_version: Count


class Read(Body, frozen=True, kw_only=True, tag="read"):
    """A read of the stage: its request, decision and effect in one record.

    The three are always written together, before the answer leaves, and a read changes
    nothing; so one record says as much as three. ``status`` is ``refused`` for a denial.
    """

    request: Count
    tool: RecordTool
    frame_digest: RecordDigest
    frame_bytes: Count
    conversions: Conversions = ()
    decision_id: RecordId
    outcome: DecisionOutcome
    reason: DecisionReason
    action_digest: RecordDigest
    targets: Targets = ()
    source_digest: RecordDigest
    policy_digest: RecordDigest
    untrusted_control: bool
    evaluator_version: Count
    status: EffectStatus
    code: EffectCode | None = None
    result_digest: RecordDigest | None = None
    result_bytes: Count = 0
    truncated: bool = False


class ApprovalRequested(Body, frozen=True, kw_only=True, tag="approval.requested"):
    """A person, or a standing grant, is asked about one exact action."""

    request: Count
    action_digest: RecordDigest
    expires_at: Count


class ApprovalGranted(Body, frozen=True, kw_only=True, tag="approval.granted"):
    """One exact action was approved, once. ``standing`` names a grant made at the start."""

    action_digest: RecordDigest
    principal: RecordId
    standing: bool
    expires_at: Count
    signature: Signature | None = None


class ApprovalDenied(Body, frozen=True, kw_only=True, tag="approval.denied"):
    """An approval was refused, or what came was not an exact grant."""

    action_digest: RecordDigest
    principal: RecordId | None = None
    reason: DecisionReason


class ApprovalConsumed(Body, frozen=True, kw_only=True, tag="approval.consumed"):
    """A grant was used up, before its effect; it is not given back."""

    action_digest: RecordDigest
    request: Count


class ApprovalExpired(Body, frozen=True, kw_only=True, tag="approval.expired"):
    """An approval ran out, or its attempt ended first, before anyone used it."""

    action_digest: RecordDigest


class EffectStarted(Body, frozen=True, kw_only=True, tag="effect.started"):
    """An effect is about to happen, on the tree that was decided about."""

    request: Count
    decision_id: RecordId
    action_digest: RecordDigest
    effect_key: RecordDigest
    source_digest: RecordDigest


class EffectFinished(Body, frozen=True, kw_only=True, tag="effect.finished"):
    """How an effect ended. ``interrupted`` closes one that a restart found open."""

    request: Count
    effect_key: RecordDigest
    status: EffectStatus
    code: EffectCode | None = None
    before_digest: RecordDigest
    after_digest: RecordDigest
    changed_paths: Count = 0
    result_digest: RecordDigest | None = None
    result_bytes: Count = 0
    receipt_digest: RecordDigest | None = None


class RecipeFinished(Body, frozen=True, kw_only=True, tag="recipe.finished"):
    """What the host saw of one recipe run; the outputs are artifacts."""

    request: Count
    recipe: RecordRecipe
    definition_digest: RecordDigest
    source_digest: RecordDigest
    status: Literal["passed", "failed", "timed_out", "output_limited"]
    exit_code: ExitCode | None = None
    duration_ms: Count
    stdout_bytes: Count
    stderr_bytes: Count
    output_digest: RecordDigest


class InferenceStarted(Body, frozen=True, kw_only=True, tag="inference.started"):
    """A model request is about to leave. ``ordinal`` counts the tries of this request."""

    request: Count
    ordinal: Count
    api: Literal["openai.chat", "openai.responses", "anthropic.messages"]
    model: RecordModel
    body_digest: RecordDigest
    body_bytes: Count
    stripped_tools: Count = 0


class InferenceFinished(Body, frozen=True, kw_only=True, tag="inference.finished"):
    """How one try of a model request ended. Tokens are as the provider counted them."""

    request: Count
    ordinal: Count
    status: Literal["ok", "error", "cancelled", "interrupted"]
    code: WireCode | None = None
    response_digest: RecordDigest | None = None
    response_bytes: Count = 0
    input_tokens: Count = 0
    output_tokens: Count = 0
    cached_input_tokens: Count = 0
    duration_ms: Count = 0
