"""From an asked read, listing or search to the labelled input that is decided on.

The agent's text is converted at once and for good; what cannot be converted is a
``ConversionRejected``, which the gate turns into a deny. Constants are looked up by the
path that was converted, never by another reading of it. Nothing is performed here.
"""

from typing import Final

from broker.policy.canonical import MAX_SAFE_INTEGER, Value
from broker.policy.conversion_policy import (
    INTEGER_SOURCE_BYTES,
    ConversionPolicy,
    IntegerOutput,
)
from broker.policy.conversions import ConversionRejected, Converter
from broker.policy.decision import RequestRef, Subject
from broker.policy.descriptors import ToolDescriptor
from broker.policy.fields import agent_text, registered_ids
from broker.policy.mint import AttemptMint
from broker.policy.paths import PathRegistry
from broker.policy.policy_input import Argument, PolicyInput, ordered
from broker.policy.tool_table import (
    LIST,
    MAX_LIMIT,
    MAX_OFFSET,
    MAX_QUERY_BYTES,
    READ,
    SEARCH,
)


def _integer(conversion_id: str, minimum: int, maximum: int) -> ConversionPolicy:
    return ConversionPolicy(
        conversion_id,
        output=IntegerOutput(minimum=minimum, maximum=maximum),
        maximum_source_bytes=INTEGER_SOURCE_BYTES,
    )


_READ_OFFSET: Final = _integer("read.offset.v1", 0, MAX_OFFSET)
_READ_LIMIT: Final = _integer("read.limit.v1", 1, MAX_LIMIT)
_LIST_LIMIT: Final = _integer("list.limit.v1", 1, MAX_LIMIT)
_SEARCH_LIMIT: Final = _integer("search.limit.v1", 1, MAX_LIMIT)


def read_input(
    mint: AttemptMint,
    registry: PathRegistry,
    request: RequestRef,
    *,
    path: object,
    offset: object = None,
    limit: object = None,
) -> PolicyInput:
    """A read of one file. ``offset`` and ``limit`` are the agent's, None for the default."""
    converter = Converter()
    text = agent_text(path, MAX_QUERY_BYTES, "selector_not_registered")
    file = converter.registered_id(
        mint.agent_wrote(text, request=request, field="path"),
        policy=registry.conversion,
        registry=registry.files,
    )
    (file_id,) = registered_ids(file)
    staged = registry.file(text)
    if staged is None:
        raise ConversionRejected("selector_not_registered")
    handle = mint.file_handle(
        file_id,
        digest=staged.digest,
        size=staged.size,
        readers=registry.readers_of(text, otherwise=mint.file_readers),
    )
    return PolicyInput(
        mint.answers,
        READ,
        (
            mint.attempt,
            Argument("file", "selector", file),
            handle,
            _number(mint, converter, request, "limit", limit, MAX_LIMIT, _READ_LIMIT),
            _number(mint, converter, request, "offset", offset, 0, _READ_OFFSET),
            mint.source(registry.tree_digest),
        ),
        request,
        Subject(registry.tree_digest, (file_id,)),
    )


def list_input(
    mint: AttemptMint,
    registry: PathRegistry,
    request: RequestRef,
    *,
    prefix: object = "",
    cursor: object = None,
    limit: object = None,
) -> PolicyInput:
    """A listing below a registered directory: a read of every file there."""
    payload: Value = None
    if cursor is not None:
        payload = agent_text(cursor, MAX_QUERY_BYTES, "payload_too_large")
    return _below(
        mint, registry, request, tool=LIST, prefix=prefix, limit=limit,
        payload=("cursor", payload), policy=_LIST_LIMIT,
    )  # fmt: skip


def search_input(
    mint: AttemptMint,
    registry: PathRegistry,
    request: RequestRef,
    *,
    query: object,
    regex: bool = False,
    prefix: object = "",
    limit: object = None,
) -> PolicyInput:
    """A search below a registered directory: a read of every file there."""
    text = agent_text(query, MAX_QUERY_BYTES, "payload_too_large")
    return _below(
        mint, registry, request, tool=SEARCH, prefix=prefix, limit=limit,
        payload=("query", {"text": text, "regex": regex}), policy=_SEARCH_LIMIT,
    )  # fmt: skip


def _below(
    mint: AttemptMint,
    registry: PathRegistry,
    request: RequestRef,
    *,
    tool: ToolDescriptor,
    prefix: object,
    limit: object,
    payload: tuple[str, Value],
    policy: ConversionPolicy,
) -> PolicyInput:
    """A read of every file below a directory; nobody learns more than all of them hold."""
    converter = Converter()
    text = agent_text(prefix, MAX_QUERY_BYTES, "selector_not_registered")
    directory = converter.registered_id(
        mint.agent_wrote(text, request=request, field="prefix"),
        policy=registry.directory_conversion,
        registry=registry.directories,
    )
    (name,) = registered_ids(directory)
    handle = mint.constant(
        {"directoryId": name, "registryDigest": registry.digest},
        identity=f"handle.{name}",
        readers=registry.readers_below(text, otherwise=mint.file_readers),
    )
    field, value = payload
    arguments = (
        mint.attempt,
        Argument(field, "payload", mint.payload(value, request=request, field=field)),
        Argument("directory", "selector", directory),
        Argument("handle", "authority", handle),
        _number(mint, converter, request, "limit", limit, MAX_LIMIT, policy),
        mint.source(registry.tree_digest),
    )
    return PolicyInput(
        mint.answers,
        tool,
        ordered(arguments),
        request,
        Subject(registry.tree_digest, (name,)),
    )


def _number(
    mint: AttemptMint,
    converter: Converter,
    request: RequestRef,
    name: str,
    given: object,
    default: int,
    policy: ConversionPolicy,
) -> Argument:
    """The agent's number after its conversion, or our own where it gave none."""
    if given is None:
        return mint.default(name, default)
    if type(given) is not int or abs(given) > MAX_SAFE_INTEGER:
        raise ConversionRejected("selector_out_of_range")
    wrote = mint.agent_wrote(given, request=request, field=name)
    return Argument(name, "selector", converter.integer(wrote, policy=policy))
