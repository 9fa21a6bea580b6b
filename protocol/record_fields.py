"""The scalars that a ledger record is made of: parsed ids, digests, numbers, closed codes.

Nothing here can hold a sentence: a string is an identifier, a digest, a hash or a
member of a closed set. The new types make a checker refuse unparsed text where a
record is made; the patterns make a reader refuse it where a record is read.
"""

from typing import Annotated, Final, Literal

import msgspec

from protocol.codes import WireCode
from protocol.decision_codes import PatchCode
from protocol.ids import (
    COMMIT_PATTERN,
    DIGEST_PATTERN,
    END,
    ID_PATTERN,
    MODEL_ALIAS_PATTERN,
    RECIPE_ID_PATTERN,
    TOOL_NAME_PATTERN,
    CommitSha,
    Digest,
    Id,
    ModelAlias,
    RecipeId,
    ToolName,
)
from protocol.refusal_codes import FaultCode

HASH_PATTERN: Final = r"^[0-9a-f]{64}" + END
SIGNATURE_PATTERN: Final = r"^[0-9a-f]{128}" + END

#: Integers stay exact in every JSON reader (I-JSON).
MAX_COUNT: Final = 2**53 - 1
#: Targets of one decision: a patch touches at most 64 files (stage.md).
MAX_TARGETS: Final = 64
#: Conversions of one request: every argument of a tool is converted at most once.
MAX_CONVERSIONS: Final = 16
#: Receipts of one attempt (policy.md 1.10: a receipt has at most 64 recipes).
MAX_RECEIPTS: Final = 64

RecordId = Annotated[Id, msgspec.Meta(pattern=ID_PATTERN)]
RecordDigest = Annotated[Digest, msgspec.Meta(pattern=DIGEST_PATTERN)]
RecordCommit = Annotated[CommitSha, msgspec.Meta(pattern=COMMIT_PATTERN)]
RecordTool = Annotated[ToolName, msgspec.Meta(pattern=TOOL_NAME_PATTERN)]
RecordRecipe = Annotated[RecipeId, msgspec.Meta(pattern=RECIPE_ID_PATTERN)]
RecordModel = Annotated[ModelAlias, msgspec.Meta(pattern=MODEL_ALIAS_PATTERN)]
Hash = Annotated[str, msgspec.Meta(pattern=HASH_PATTERN)]
Signature = Annotated[str, msgspec.Meta(pattern=SIGNATURE_PATTERN)]
Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]
ExitCode = Annotated[int, msgspec.Meta(ge=0, le=255)]
Targets = Annotated[tuple[RecordId, ...], msgspec.Meta(max_length=MAX_TARGETS)]
Conversions = Annotated[tuple[RecordDigest, ...], msgspec.Meta(max_length=MAX_CONVERSIONS)]
Receipts = Annotated[tuple[RecordDigest, ...], msgspec.Meta(max_length=MAX_RECEIPTS)]

AttemptState = Literal[
    "staging", "starting", "running", "awaiting_approval", "cancelling", "collecting", "done"
]
DecisionOutcome = Literal["allow", "deny", "require_approval"]
EffectStatus = Literal["done", "refused", "failed", "cancelled", "interrupted", "indeterminate"]
#: Why an effect ended as it did; the peer sees a ``WireCode``, the ledger the exact reason.
EffectCode = Literal[WireCode, PatchCode, FaultCode]
EventKind = Literal[
    "agent.ready",
    "agent.message",
    "agent.thought",
    "agent.plan",
    "agent.progress",
    "agent.tool",
    "agent.usage",
    "agent.log",
    "agent.output",
    "agent.state",
    "request.cancel",
    "extension",
]
"""Kinds of protocol.md 3.3; ``extension`` stands for every ``x.`` kind: its name is the peer's."""
ArtifactLabel = Literal[
    "agent_events",
    "agent_result",
    "agent_state",
    "agent_stderr",
    "catalog",
    "changed_tests",
    "checkpoint",
    "excluded_paths",
    "inference_request",
    "inference_response",
    "local_patch",
    "patch",
    "policy_bundle",
    "policy_input",
    "receipt",
    "recipe_stderr",
    "recipe_stdout",
    "result_patch",
    "task",
]
"""What a blob in the content store is. The content itself is never trusted for it."""


class Body(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename="camel",
    tag_field="t",
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """The closed part of one record. Its tag is the record's type."""
