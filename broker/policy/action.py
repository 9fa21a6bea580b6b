"""What a person is asked to approve: a closed document that the broker alone wrote.

No text of the agent or of the repository is in it, only ids, digests, numbers and what
the owner's catalog says.
"""

from typing import Literal

import msgspec

from broker.policy.decision import Decision
from protocol.ids import Digest, Id, RecipeId


class RecipeAction(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The recipe that would run, as the trusted catalog defines it."""

    id: RecipeId
    recipe_digest: Digest
    image_digest: Digest
    argv: tuple[str, ...]
    timeout_ms: int
    max_output_bytes: int


class ActionDocument(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """``approval.request.action``. ``occurrence`` counts equal effects, from 1."""

    schema_version: Literal[1] = 1
    kind: Literal["action"] = "action"
    attempt_id: Id
    effect: str
    tool: str
    targets: tuple[str, ...]
    source_digest: Digest | None
    policy_digest: Digest
    recipe: RecipeAction | None
    occurrence: int


def action_document(
    decision: Decision, *, recipe: RecipeAction | None, occurrence: int
) -> ActionDocument:
    """The document for one decision that requires an approval."""
    return ActionDocument(
        attempt_id=decision.attempt_id,
        effect=decision.effect,
        tool=decision.tool,
        targets=decision.target_ids,
        source_digest=decision.source_digest,
        policy_digest=decision.bundle_digest,
        recipe=recipe,
        occurrence=occurrence,
    )
