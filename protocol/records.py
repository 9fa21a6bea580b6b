"""The closed bodies of ledger records: ids, digests, numbers and closed codes, never text.

Every fact that an attempt leaves behind is one of these types (policy.md 4.6). What
a peer wrote is named by its digest and its size and nothing else; a test walks every
field of every type and proves that none can hold a sentence. This module knows the
forms only: how records are chained is in ``broker.evidence``.
"""

from typing import Final, Literal

import msgspec

from protocol.codes import FrameReason, Outcome, ViolationCode
from protocol.record_codes import DiagnosticCode
from protocol.record_effects import (
    ApprovalConsumed,
    ApprovalDenied,
    ApprovalExpired,
    ApprovalGranted,
    ApprovalRequested,
    Conversion,
    Decision,
    EffectFinished,
    EffectStarted,
    InferenceFinished,
    InferenceStarted,
    Read,
    RecipeFinished,
    Request,
)
from protocol.record_fields import (
    ArtifactLabel,
    AttemptState,
    Body,
    Count,
    EventKind,
    ExitCode,
    Hash,
    Receipts,
    RecordCommit,
    RecordDigest,
    RecordId,
)
from protocol.refusal_codes import FaultCode

__all__ = [
    "CLOSING",
    "ApprovalConsumed",
    "ApprovalDenied",
    "ApprovalExpired",
    "ApprovalGranted",
    "ApprovalRequested",
    "Artifact",
    "ArtifactLabel",
    "AttemptBranched",
    "AttemptCompleted",
    "AttemptResumed",
    "AttemptStarted",
    "AttemptState",
    "AttemptStateChanged",
    "CheckpointCreated",
    "Conversion",
    "Decision",
    "Diagnostic",
    "EffectFinished",
    "EffectStarted",
    "Envelope",
    "EventSeen",
    "InferenceFinished",
    "InferenceStarted",
    "LedgerFull",
    "LedgerRecovered",
    "Read",
    "ReceiptIssued",
    "RecipeFinished",
    "Record",
    "Request",
    "Violation",
]


class AttemptStarted(Body, frozen=True, kw_only=True, tag="attempt.started"):
    """What is fixed before the agent's first byte: inputs, bounds and where they came from."""

    task_digest: RecordDigest
    policy_digest: RecordDigest
    limits_digest: RecordDigest
    base_commit: RecordCommit | None = None
    base_digest: RecordDigest
    source_digest: RecordDigest
    local_patch_digest: RecordDigest | None = None
    path_registry_digest: RecordDigest | None = None
    catalog_source: Literal["host", "repository", "none"]
    catalog_digest: RecordDigest
    image_registry_digest: RecordDigest | None = None
    agent_digest: RecordDigest | None = None
    engine: Literal["podman", "docker", "bubblewrap", "apple"]
    guarantees_digest: RecordDigest | None = None
    files: Count
    bytes: Count
    excluded: Count
    excluded_digest: RecordDigest | None = None
    recipes: Count
    max_requests: Count
    deadline_ms: Count
    budget_requests: Count | None = None
    budget_input_tokens: Count | None = None
    budget_output_tokens: Count | None = None
    evaluator_version: Count
    unsafe_testing: bool = False


class AttemptBranched(Body, frozen=True, kw_only=True, tag="attempt.branched"):
    """First record of an attempt that continues from an inspected point of another."""

    parent_attempt: RecordId
    parent_seq: Count
    parent_h: Hash
    parent_tree_size: Count
    parent_root: Hash
    checkpoint_digest: RecordDigest


class AttemptResumed(Body, frozen=True, kw_only=True, tag="attempt.resumed"):
    """The attempt continues from a checkpoint; its completed effects are not run again."""

    parent_attempt: RecordId
    checkpoint_digest: RecordDigest
    patch_digest: RecordDigest
    completed_effects: Count


class AttemptStateChanged(Body, frozen=True, kw_only=True, tag="attempt.state"):
    """The attempt entered a state (protocol.md 3.11)."""

    state: AttemptState


class EventSeen(Body, frozen=True, kw_only=True, tag="event"):
    """An event of the agent was accepted. What it says is an artifact at most."""

    kind: EventKind
    digest: RecordDigest
    bytes: Count


class Artifact(Body, frozen=True, kw_only=True, tag="artifact"):
    """A blob is in the content store, durable before this record."""

    label: ArtifactLabel
    digest: RecordDigest
    bytes: Count
    request: Count | None = None


class Violation(Body, frozen=True, kw_only=True, tag="violation"):
    """The agent broke a rule of the pipe (protocol.md 3.9)."""

    code: ViolationCode
    reason: FrameReason | None = None
    fatal: bool
    frame: Count
    byte: Count
    frame_digest: RecordDigest | None = None
    frame_bytes: Count = 0


class Diagnostic(Body, frozen=True, kw_only=True, tag="diagnostic"):
    """Something worth a count and, where bytes were seen, their size and digest."""

    code: Literal[DiagnosticCode, ViolationCode, FaultCode]
    count: Count = 1
    bytes: Count = 0
    digest: RecordDigest | None = None
    exit_code: ExitCode | None = None


class ReceiptIssued(Body, frozen=True, kw_only=True, tag="receipt.issued"):
    """A signed receipt exists. ``payload_digest`` is its identity, ``key_id`` who signed."""

    kind: Literal["code_verification", "code_deployment", "effect", "checkpoint"]
    receipt_digest: RecordDigest
    payload_digest: RecordDigest
    key_id: Hash


class CheckpointCreated(Body, frozen=True, kw_only=True, tag="checkpoint.created"):
    """A portable checkpoint was sealed."""

    checkpoint_digest: RecordDigest
    patch_digest: RecordDigest
    state_digest: RecordDigest


class AttemptCompleted(Body, frozen=True, kw_only=True, tag="attempt.completed"):
    """The end of an attempt. ``claim`` is what the agent said of itself, never a fact."""

    outcome: Outcome
    claim: Literal["succeeded", "failed", "cancelled", "blocked"] | None = None
    patch_digest: RecordDigest | None = None
    patch_bytes: Count = 0
    patch_files: Count = 0
    candidate_digest: RecordDigest | None = None
    receipt_digests: Receipts = ()
    checkpoint_digest: RecordDigest | None = None
    requests: Count = 0
    allowed: Count = 0
    denied: Count = 0
    required_approval: Count = 0
    violations: Count = 0
    exit_code: ExitCode | None = None


class LedgerRecovered(Body, frozen=True, kw_only=True, tag="ledger.recovered"):
    """The ledger was opened again after a writer that did not close it.

    Records from ``durable`` on were not promised to outlive a power loss; of them
    ``torn_records`` were unreadable and were cut, with the digest of what was cut.
    """

    durable: Count
    torn_records: Count = 0
    torn_bytes: Count = 0
    torn_digest: RecordDigest | None = None


class LedgerFull(Body, frozen=True, kw_only=True, tag="ledger.full"):
    """A bound of the ledger was reached; only the attempt's end is recorded after this."""

    bound: Literal["records", "bytes"]
    records: Count
    bytes: Count


Record = (
    AttemptStarted
    | AttemptBranched
    | AttemptResumed
    | AttemptStateChanged
    | Request
    | Conversion
    | Decision
    | Read
    | ApprovalRequested
    | ApprovalGranted
    | ApprovalDenied
    | ApprovalConsumed
    | ApprovalExpired
    | EffectStarted
    | EffectFinished
    | RecipeFinished
    | InferenceStarted
    | InferenceFinished
    | EventSeen
    | Artifact
    | Violation
    | Diagnostic
    | ReceiptIssued
    | CheckpointCreated
    | AttemptCompleted
    | LedgerRecovered
    | LedgerFull
)
"""Every body that a record can have."""

#: What may still be recorded once a bound of the ledger has been reached.
CLOSING: Final = (
    AttemptStateChanged,
    ApprovalExpired,
    EffectFinished,
    RecipeFinished,
    InferenceFinished,
    Artifact,
    Violation,
    Diagnostic,
    ReceiptIssued,
    CheckpointCreated,
    AttemptCompleted,
    LedgerFull,
)


class Envelope(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The part that every record has, beside its body and its hash.

    ``b`` is the first sequence number that was not yet durable when this record was
    made: everything before it had been synced. ``epoch`` counts the writers.
    """

    v: Literal[1]
    attempt: RecordId
    seq: Count
    b: Count
    epoch: Count
    prev: Hash
    at: Count  #: milliseconds since 1970 by the broker's clock
