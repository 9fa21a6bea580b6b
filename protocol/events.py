"""The kinds of ``event`` and what the data of each is. Events are evidence, never authority.

Nothing here decides whether an event is kept; ``protocol.codec`` types it and
``protocol.connection`` counts it.
"""

import re
from typing import Annotated, Final, Literal

import msgspec

from protocol.fields import AgentPart, Feature, FeatureName, JsonObject, ShortText, text
from protocol.ids import END, WireId
from protocol.limits import KIB, Count

VENDOR_KIND_PATTERN: Final = r"^x(?:\.[A-Za-z0-9_-]{1,40}){2,3}" + END

_LINE_BYTES: Final = 64 * KIB


class Program(AgentPart, frozen=True):
    """A program by its own name and version."""

    name: ShortText
    version: ShortText


class AgentReady(AgentPart, frozen=True):
    """The agent speaks the offered version and turns on the features that it names."""

    protocol_version: Literal[1]
    agent: Program
    sdk: Program | None = None
    features: Annotated[tuple[FeatureName, ...], msgspec.Meta(max_length=32)] = ()


class AgentMessage(AgentPart, frozen=True):
    """Text of the agent, to be shown; ``partial`` pieces share a ``messageId``."""

    text: Annotated[str, text(_LINE_BYTES)]
    message_id: WireId | None = None
    partial: bool = False


class AgentThought(AgentPart, frozen=True):
    """Reasoning text of the agent, to be shown."""

    text: Annotated[str, text(_LINE_BYTES)]
    message_id: WireId | None = None
    partial: bool = False


class PlanItem(AgentPart, frozen=True):
    """One step of a plan."""

    text: Annotated[str, text(512)]
    status: Literal["pending", "in_progress", "completed"]


class AgentPlan(AgentPart, frozen=True):
    """The whole plan; it replaces the one before."""

    items: Annotated[tuple[PlanItem, ...], msgspec.Meta(max_length=64)]


class AgentProgress(AgentPart, frozen=True):
    """What the agent is at; ``fraction`` is per mille."""

    phase: ShortText
    fraction: Annotated[int, msgspec.Meta(ge=0, le=1000)] | None = None


class AgentTool(AgentPart, frozen=True):
    """A tool that the agent ran inside its own container."""

    name: ShortText
    status: Literal["started", "completed", "failed"]
    tool_call_id: WireId | None = None
    summary: Annotated[str, text(2048)] | None = None


class AgentUsage(AgentPart, frozen=True):
    """Tokens as the agent counts them; compared with the broker's count, never billed."""

    input_tokens: Count
    output_tokens: Count
    model: Annotated[str, text(128)] | None = None
    cached_input_tokens: Count | None = None
    cache_write_tokens: Count | None = None
    reasoning_tokens: Count | None = None


class AgentLog(AgentPart, frozen=True):
    """A line of the agent's log."""

    level: Literal["debug", "info", "warning", "error"]
    text: Annotated[str, text(8 * KIB)]


class AgentOutput(AgentPart, frozen=True):
    """A line that an unmodified agent printed, as it was."""

    format: Literal["claude.stream-json", "codex.exec-json", "opencode.run-json", "text"]
    line: Annotated[str, text(_LINE_BYTES)]


class AgentState(AgentPart, frozen=True):
    """The agent's own state; the latest one goes into a checkpoint."""

    state: JsonObject


class RequestCancel(AgentPart, frozen=True):
    """The agent lost interest in a request, which still gets its one final answer."""

    request_id: WireId


EventData = (
    AgentReady
    | AgentMessage
    | AgentThought
    | AgentPlan
    | AgentProgress
    | AgentTool
    | AgentUsage
    | AgentLog
    | AgentOutput
    | AgentState
    | RequestCancel
)

KINDS: Final[dict[str, type[EventData]]] = {
    "agent.ready": AgentReady,
    "agent.message": AgentMessage,
    "agent.thought": AgentThought,
    "agent.plan": AgentPlan,
    "agent.progress": AgentProgress,
    "agent.tool": AgentTool,
    "agent.usage": AgentUsage,
    "agent.log": AgentLog,
    "agent.output": AgentOutput,
    "agent.state": AgentState,
    "request.cancel": RequestCancel,
}

#: Kinds that only an agent may send that named the feature.
FEATURE_OF_KIND: Final[dict[str, Feature]] = {
    "agent.state": "agent_state",
    "request.cancel": "request_cancel",
}

_VENDOR_KIND: Final = re.compile(VENDOR_KIND_PATTERN)


def is_vendor_kind(kind: str) -> bool:
    """Whether ``kind`` is ``x.<vendor>.<name>``: stored as it is, with any data."""
    return _VENDOR_KIND.match(kind) is not None
