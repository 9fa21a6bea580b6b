"""One line to one message or to one closed refusal, and one message to one line.

Two steps: the line becomes an object within the JSON profile (``protocol.profile``),
then the object becomes the Struct of its type. What msgspec says about a bad one is
never passed on, because it quotes the peer; what comes out is a code, and a pointer
made of our own field names.
"""

import contextlib
import re
from typing import Any, Final, TypeVar, get_args

import msgspec

from protocol.bounds import is_trivial, misspelled, passed_bound
from protocol.codes import ViolationCode, WireCode
from protocol.errors import LocalProtocolError, RemoteProtocolError
from protocol.events import KINDS, AgentReady, AgentState, is_vendor_kind
from protocol.ids import ID_PATTERN, TOOL_NAME_PATTERN
from protocol.limits import EventRate, Limits
from protocol.messages import (
    AttemptComplete,
    Event,
    FromAgent,
    FromBroker,
    InferenceRequest,
    RequestType,
    TaskStart,
    ToolRequest,
)
from protocol.profile import decode_object, decode_plain

M = TypeVar("M")


class Rejected(msgspec.Struct, frozen=True, kw_only=True):
    """A request that is answered with an error and is not looked at further.

    ``pointer`` says where its message is bad (RFC 6901; ``""`` is the whole message)
    and is None where the message as such is not at fault.
    """

    request_id: str
    request_type: RequestType
    code: WireCode
    pointer: str | None = None


class Dropped(msgspec.Struct, frozen=True):
    """An event that is counted and not looked at further."""

    code: ViolationCode


#: Encoded again, JSON grows less than this many times (see ``protocol.bounds``).
_GROWTH: Final = 5

#: The end of msgspec's error texts. Before it, the text may quote the peer.
_PLACE: Final = re.compile(
    r" - at (?:`key` in )?`\$((?:\.[A-Za-z-]{1,32}|\[(?:[0-9]{1,4}|\.\.\.)\])*)`\Z"
)
_STEP: Final = re.compile(r"\.([A-Za-z-]+)|\[([0-9]+|\.\.\.)\]")
_matches_id: Final = re.compile(ID_PATTERN).match
_matches_tool_name: Final = re.compile(TOOL_NAME_PATTERN).match

_decode_plain: Final = msgspec.json.Decoder(FromAgent).decode
_encode: Final = msgspec.json.Encoder().encode
_encode_lines: Final = msgspec.json.Encoder().encode_lines


def _by_type(messages: Any) -> dict[str, Any]:
    return {message.__struct_config__.tag: message for message in get_args(messages)}


_FROM_AGENT: Final[dict[str, type[FromAgent]]] = _by_type(FromAgent)
_FROM_BROKER: Final[dict[str, type[FromBroker]]] = _by_type(FromBroker)


def decode_from_agent(line: bytes, *, limits: Limits) -> FromAgent | Rejected | Dropped:
    """The message that ``line`` (without its LF) is, within ``limits``.

    Raises:
        RemoteProtocolError: the line is nothing that can be answered or dropped.
    """
    message = None
    if len(line) < limits.max_frame_bytes and is_trivial(line):
        message = decode_plain(line, _decode_plain)
    if message is None or type(message.v) is not int or not _is_spelled(message):
        found = _any_message(line, limits)
        if isinstance(found, Rejected | Dropped):
            return found
        message = found
    if isinstance(message, ToolRequest):
        bound = limits.max_tool_input_bytes
        if len(line) * _GROWTH > bound and _is_over(message.input, line, bound):
            return Rejected(
                request_id=message.request_id,
                request_type=ToolRequest,
                code="too_large",
                pointer="/input",
            )
    elif isinstance(message, Event):
        return _typed_event(message, line, limits)
    return message


def decode_from_broker(line: bytes) -> FromBroker:
    """The message that ``line`` (without its LF) is; fields that we do not know are ignored.

    Raises:
        RemoteProtocolError: the line is not a message of the broker.
    """
    value = decode_object(line)
    struct = _struct_of(value, ours=_FROM_BROKER, theirs=_FROM_AGENT)
    message, _ = _convert(value, struct)
    if message is None:
        raise RemoteProtocolError("invalid_message")
    if misspelled(message) or (not is_trivial(line) and passed_bound(message) is not None):
        raise RemoteProtocolError("invalid_message")
    if isinstance(message, TaskStart) and not _advertises_all(value["limits"]):
        raise RemoteProtocolError("invalid_message")
    return message


def encode_frame(message: FromAgent | FromBroker, *, max_bytes: int) -> bytes:
    """``message`` as one line with its LF, of at most ``max_bytes`` bytes.

    Raises:
        LocalProtocolError: it cannot be one.
    """
    frame = b""
    with contextlib.suppress(TypeError, ValueError, OverflowError, RecursionError):
        frame = _encode_lines([message])
    if not frame:
        # Raised out here, because what it was would quote what could not be encoded.
        raise LocalProtocolError("invalid_message")
    if len(frame) > max_bytes:
        raise LocalProtocolError("frame_too_large")
    if frame.find(b"\n") != len(frame) - 1:
        # Only ``msgspec.Raw`` can bring a line feed along.
        raise LocalProtocolError("malformed_frame")
    return frame


def pointer_of(text: str, value: dict[str, Any], struct: type[msgspec.Struct]) -> str:
    """Where msgspec found the fault, as a pointer of our names; ``""`` where it is not sure.

    The text of an unknown member of the message itself ends with the peer's name for it,
    which could be made to look like a place.
    """
    known = struct.__struct_encode_fields__
    if not value.keys() <= {"type", *known} and text.startswith("Object contains unknown field"):
        return ""
    place = _PLACE.search(text)
    steps: list[str] = []
    for name, index in _STEP.findall(place[1]) if place else ():
        if index == "...":
            break
        steps.append(name or index)
    if steps and steps[0] not in known:
        return ""
    return "".join(f"/{step}" for step in steps)


def _struct_of(
    value: dict[str, Any], *, ours: dict[str, type[M]], theirs: dict[str, Any]
) -> type[M]:
    """The Struct of the message that ``value`` says it is."""
    version = value.get("v")
    if version != 1 or type(version) is not int:
        raise RemoteProtocolError("version_mismatch")
    kind = value.get("type")
    if type(kind) is not str:
        raise RemoteProtocolError("unknown_type")
    struct = ours.get(kind)
    if struct is None:
        raise RemoteProtocolError("wrong_direction" if kind in theirs else "unknown_type")
    return struct


def _convert(value: Any, struct: type[M]) -> tuple[M | None, str]:
    """``value`` as ``struct``, or None and what msgspec says about it.

    Its exception ends here, so that it is not the context of one that goes on.
    """
    try:
        return msgspec.convert(value, struct), ""
    except msgspec.ValidationError as error:
        return None, str(error)


def _refusal_of(
    value: dict[str, Any], struct: type[FromAgent], *, pointer: str | None = None, fault: str = ""
) -> Rejected | Dropped:
    """What becomes of a message of ``struct``'s type that does not have its form.

    It is bad at ``pointer``, or where the text ``fault`` of msgspec says.
    """
    if struct is Event:
        return Dropped("event_rejected")
    if struct is AttemptComplete:
        raise RemoteProtocolError("invalid_message")
    request_id = value.get("requestId")
    if not isinstance(request_id, str) or _matches_id(request_id) is None:
        raise RemoteProtocolError("malformed_request")
    return Rejected(
        request_id=request_id,
        request_type=ToolRequest if struct is ToolRequest else InferenceRequest,
        code="invalid_message",
        pointer=pointer_of(fault, value, struct) if pointer is None else pointer,
    )


def _is_spelled(message: FromAgent) -> bool:
    """What ``misspelled`` says, spelled out for the type that comes most."""
    if isinstance(message, ToolRequest):
        return (
            _matches_id(message.request_id) is not None
            and _matches_tool_name(message.tool) is not None
            and (message.tool_call_id is None or _matches_id(message.tool_call_id) is not None)
        )
    return misspelled(message) is None


def _any_message(line: bytes, limits: Limits) -> FromAgent | Rejected | Dropped:
    """The message of any ``line``: first as an object of the profile, then as its Struct."""
    large = len(line) >= limits.max_frame_bytes
    try:
        value = decode_object(line)
    except RemoteProtocolError:
        if large:
            raise RemoteProtocolError("frame_too_large") from None
        raise
    if large and value.get("type") != "inference.request":
        raise RemoteProtocolError("frame_too_large")
    struct = _struct_of(value, ours=_FROM_AGENT, theirs=_FROM_BROKER)
    message, fault = _convert(value, struct)
    if message is None:
        return _refusal_of(value, struct, fault=fault)
    pointer = misspelled(message)
    if pointer is None and not is_trivial(line):
        pointer = passed_bound(message)
    if pointer is not None:
        return _refusal_of(value, struct, pointer=pointer)
    return message


def _advertises_all(limits: dict[str, Any]) -> bool:
    """Whether every limit is on the wire: the values of our code are for our own side."""
    return limits.keys() >= set(Limits.__struct_encode_fields__) and limits[
        "eventRate"
    ].keys() >= set(EventRate.__struct_encode_fields__)


def _typed_event(event: Event, line: bytes, limits: Limits) -> Event | Dropped:
    """``event`` with its data as the Struct of its kind."""
    if _is_over(event.data, line, limits.max_event_bytes):
        return Dropped("event_rejected")
    struct = KINDS.get(event.kind)
    if struct is None:
        return event if is_vendor_kind(event.kind) else Dropped("event_rejected")
    data, _ = _convert(event.data, struct)
    if data is None:
        if struct is AgentReady and _names_another_version(event.data):
            raise RemoteProtocolError("version_mismatch")
        return Dropped("event_rejected")
    if not is_trivial(line) and passed_bound(data) is not None:
        return Dropped("event_rejected")
    if isinstance(data, AgentState) and _is_over(data.state, line, limits.agent_state_bytes):
        return Dropped("event_rejected")
    return msgspec.structs.replace(event, data=data)


def _names_another_version(data: Any) -> bool:
    version = data.get("protocolVersion") if isinstance(data, dict) else None
    return type(version) is int and version != 1


def _is_over(value: Any, line: bytes, bound: int) -> bool:
    """Whether ``value``, a part of ``line``, is over ``bound`` bytes of compact JSON."""
    return len(line) * _GROWTH > bound and len(_encode(value)) > bound
