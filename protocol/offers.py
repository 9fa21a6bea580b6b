"""``task.start`` and its parts: what an agent is given and what it may ask for.

The broker's words to the agent; nothing in them is read back as authority.
"""

from typing import Annotated, Final, Literal

import msgspec

from protocol.fields import (
    Api,
    BrokerPart,
    FeatureName,
    JsonObject,
    Message,
    Metadata,
    Name,
    ShortText,
    Summary,
    Title,
    encoded,
    text,
)
from protocol.ids import WireCommit, WireDigest, WireId, WireModelAlias, WireRecipeId, WireToolName
from protocol.limits import (
    KIB,
    MAX_CONTEXT_BYTES,
    MAX_INPUT_SCHEMA_BYTES,
    Count,
    Limits,
    Ms,
)

_INSTRUCTION_BYTES: Final = 256 * KIB


class ContextItem(BrokerPart, frozen=True):
    """A text that belongs to the task, such as the issue it comes from."""

    name: Annotated[str, text(128)]
    media_type: ShortText
    text: Annotated[str, text(_INSTRUCTION_BYTES)]


class Task(BrokerPart, frozen=True):
    """What the agent is asked to do."""

    instruction: Annotated[str, text(_INSTRUCTION_BYTES)]
    title: Name | None = None
    context: Annotated[tuple[ContextItem, ...], msgspec.Meta(max_length=32)] = ()

    def __post_init__(self) -> None:
        if sum(len(item.text.encode()) for item in self.context) > MAX_CONTEXT_BYTES:
            raise ValueError("the context is larger than its limit")


class ReferenceOffer(BrokerPart, frozen=True):
    """A second repository, read-only under ``.odla-references/<alias>/``."""

    alias: WireRecipeId
    name: Name
    base_commit: WireCommit
    source_digest: WireDigest


class Repository(BrokerPart, frozen=True):
    """What is staged: the selected commit and the digest of the filtered tree."""

    name: Name
    base_commit: WireCommit
    source_digest: WireDigest
    references: Annotated[tuple[ReferenceOffer, ...], msgspec.Meta(max_length=16)] = ()


class ToolOffer(BrokerPart, frozen=True):
    """A tool that may be asked for by name. The list of offers is closed."""

    name: WireToolName
    description: Annotated[str, text(2048)]
    input_schema: Annotated[JsonObject, encoded(MAX_INPUT_SCHEMA_BYTES)]
    effect: Literal["read", "patch", "recipe", "control"]
    approval: Literal["never", "possible", "always"]
    max_result_bytes: Count


class RecipeOffer(BrokerPart, frozen=True):
    """A registered command that may be run by id; what it runs is behind the digest."""

    id: WireRecipeId
    timeout_ms: Ms
    max_output_bytes: Count
    recipe_digest: WireDigest
    title: Title | None = None


class ModelOffer(BrokerPart, frozen=True):
    """A model under the name that the agent uses for it."""

    alias: WireModelAlias
    role: Literal["main", "small"]
    context_tokens: Count | None = None
    max_output_tokens: Count | None = None


class Budget(BrokerPart, frozen=True):
    """What all inference of the attempt may use together; absent is not bounded here."""

    requests: Count | None = None
    input_tokens: Count | None = None
    output_tokens: Count | None = None
    cost_micros: Count | None = None


class InferenceOffer(BrokerPart, frozen=True):
    """The dialects and models that ``inference.request`` may name."""

    apis: Annotated[tuple[Api, ...], msgspec.Meta(max_length=3)]
    models: Annotated[tuple[ModelOffer, ...], msgspec.Meta(min_length=1, max_length=16)]
    streaming: bool
    hosted_tools: Annotated[tuple[ShortText, ...], msgspec.Meta(max_length=16)]
    budget: Budget


class Resume(BrokerPart, frozen=True):
    """Where an earlier attempt stopped; the staged tree already holds its patch.

    ``state`` is what the earlier agent sent as ``agent.state``.
    """

    parent_attempt_id: WireId
    checkpoint_digest: WireDigest
    patch_digest: WireDigest
    completed_effects: Count
    state: JsonObject | None = None
    summary: Summary | None = None


class TaskStart(Message, frozen=True, tag="task.start"):
    """Broker to agent: the first frame, once. Everything the agent is told about its attempt."""

    protocol_version: Literal[1]
    schema_digest: WireDigest
    attempt_id: WireId
    task: Task
    repository: Repository
    tools: Annotated[tuple[ToolOffer, ...], msgspec.Meta(max_length=32)]
    recipes: Annotated[tuple[RecipeOffer, ...], msgspec.Meta(max_length=16)]
    inference: InferenceOffer
    limits: Limits
    features: Annotated[tuple[FeatureName, ...], msgspec.Meta(max_length=16)]
    deadline_ms: Ms
    resume: Resume | None
    meta: Metadata | None = None
