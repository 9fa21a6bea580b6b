"""What the fields of messages are made of: bounded texts, ids, free objects, base structs.

``max_length`` of msgspec counts characters and the protocol counts bytes of UTF-8, so
``text`` carries both: msgspec checks the first, ``protocol.bounds`` the second. Nothing
here looks at a value.
"""

from enum import IntEnum
from typing import Annotated, Any, Final, Literal, cast

import msgspec

from protocol.ids import END, ID_PATTERN, MODEL_ALIAS_PATTERN, TOOL_NAME_PATTERN
from protocol.limits import KIB, MAX_META_BYTES

#: Keys of ``meta``: a reversed domain, a slash and a name, or the three of W3C tracing.
META_KEY_PATTERN: Final = (
    r"^(?:traceparent|tracestate|baggage|"
    r"(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z0-9-]{1,63}/[A-Za-z0-9._-]{1,64})" + END
)

#: Where the bounds that msgspec cannot check are kept: in ``Meta.extra`` for the
#: decoder, and as these keywords in the published schema.
MAX_TEXT: Final = "maxUtf8Bytes"
MAX_ENCODED: Final = "maxEncodedBytes"


def text(max_bytes: int, *, min_length: int | None = None) -> msgspec.Meta:
    """The mark of a text of at most ``max_bytes`` bytes of UTF-8."""
    return msgspec.Meta(
        min_length=min_length,
        max_length=max_bytes,
        extra={MAX_TEXT: max_bytes},
        extra_json_schema={MAX_TEXT: max_bytes},
    )


def encoded(max_bytes: int) -> msgspec.Meta:
    """The mark of a free object of at most ``max_bytes`` bytes of compact JSON."""
    return msgspec.Meta(extra={MAX_ENCODED: max_bytes}, extra_json_schema={MAX_ENCODED: max_bytes})


def spelled(pattern: str) -> msgspec.Meta:
    """The mark of a name of the form ``pattern``, for members of a message itself.

    Checked by ``protocol.bounds``: msgspec's own pattern check costs more than the rest
    of a message.
    """
    return msgspec.Meta(
        min_length=1, extra={"pattern": pattern}, extra_json_schema={"pattern": pattern}
    )


MessageId = Annotated[str, spelled(ID_PATTERN)]
MessageToolName = Annotated[str, spelled(TOOL_NAME_PATTERN)]
MessageModelAlias = Annotated[str, spelled(MODEL_ALIAS_PATTERN)]

JsonObject = dict[str, Any]
"""A JSON object that the protocol carries and does not read."""

Payload = Annotated[Any, msgspec.Meta(extra_json_schema={"type": "object"})]
"""A JSON object that we send: a ``dict``, a Struct, or ``msgspec.Raw`` of an encoded one.
Decoded, it is always a ``dict``."""

MetaKey = Annotated[str, msgspec.Meta(pattern=META_KEY_PATTERN)]
Metadata = Annotated[dict[MetaKey, Any], encoded(MAX_META_BYTES)]
"""Stored, never read."""

ShortText = Annotated[str, text(64)]
Title = Annotated[str, text(128)]
Name = Annotated[str, text(256)]
Summary = Annotated[str, text(16 * KIB)]

Feature = Literal[
    "inference_streaming", "tool_progress", "request_cancel", "agent_state", "mirror_export"
]
"""Optional parts of the protocol: on when both sides name them."""

# A later peer may name more of them than this version knows.
FeatureName = Annotated[str, msgspec.Meta(pattern=TOOL_NAME_PATTERN)]

ErrorCode = Annotated[str, msgspec.Meta(pattern=r"^[a-z][a-z0-9_]{0,63}" + END)]
"""``WireCode`` as an agent must take it: with codes that it does not know yet."""

Api = Literal["openai.chat", "openai.responses", "anthropic.messages"]
"""The dialect of an inference body."""


class Version(IntEnum):
    """The one version, as our own messages have it: equal to 1, but no plain integer.

    So a decoded message shows whether ``v`` was in its line.
    """

    ONE = 1


def _our_version() -> Literal[1]:
    return cast(Literal[1], Version.ONE)


class Message(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename="camel",
    tag_field="type",
    omit_defaults=True,
):
    """A frame. ``v`` is always on the wire: a default made by a factory is not omitted."""

    v: Literal[1] = msgspec.field(default_factory=_our_version)


class AgentPart(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename="camel",
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """A part of a message of the agent: what it does not name is refused."""


class BrokerPart(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A part of a message of the broker: readers ignore what they do not know."""
