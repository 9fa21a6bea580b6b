"""The published schemas of the agent protocol, made from the Structs that decode it.

``bundle`` gives the files as bytes and writes nothing. A message that the decoder takes
is one that the schema takes and the reverse, except for what only the codec can see:
duplicate keys, bytes (of a text, of an object, of a line), depth, and ``1.0`` where an
integer is meant.
"""

import json
from functools import cache
from typing import Any, Final, get_args

import msgspec

from protocol.codes import (
    RETRYABLE,
    VIOLATION_TEXT,
    WIRE_TEXT,
    FrameReason,
    ViolationCode,
    WireCode,
)
from protocol.digest import digest_bytes, digest_value
from protocol.events import FEATURE_OF_KIND, KINDS, VENDOR_KIND_PATTERN
from protocol.fields import Feature
from protocol.ids import Digest
from protocol.limits import MAX_BODY_DEPTH, MAX_INVALID, Limits
from protocol.messages import FromAgent, FromBroker
from protocol.tools import TOOL_FORMS

VERSION: Final = 1
AGENT_SCHEMA: Final = "agent.schema.json"

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_ID: Final = "urn:airlock:protocol:v1:"
_REF: Final = "#/$defs/{name}"

_NULL: Final = {"type": "null"}
_GIVEN: Final = {"not": _NULL}
_EMPTY: Final = {"maxItems": 0}

#: What the agent gets for each violation: F ends the attempt, D drops and counts.
#: ``limit_exceeded`` is an error answer, or a drop, up to twice the limit.
_DROPPED: Final[frozenset[ViolationCode]] = frozenset(
    {"stdout_noise", "event_rejected", "stderr_truncated"}
)

#: The parts that depend on a member: what must be there, and what must not.
_SHAPES: Final[dict[str, list[dict[str, Any]]]] = {
    "ToolResponse": [
        {
            "required": ["status"],
            "properties": {
                "final": {"const": False},
                "ok": _NULL,
                "status": _GIVEN,
                "decision": _NULL,
                "result": _NULL,
                "truncated": _EMPTY,
                "error": _NULL,
            },
        },
        {
            "required": ["ok", "decision", "result"],
            "properties": {
                "final": {"const": True},
                "ok": {"const": True},
                "decision": _GIVEN,
                "result": {"type": "object"},
                "status": _NULL,
                "actionDigest": _NULL,
                "output": _NULL,
                "error": _NULL,
            },
        },
        {
            "required": ["ok", "error"],
            "properties": {
                "final": {"const": True},
                "ok": {"const": False},
                "error": _GIVEN,
                "status": _NULL,
                "actionDigest": _NULL,
                "output": _NULL,
                "result": _NULL,
                "truncated": _EMPTY,
            },
        },
    ],
    "InferenceResponse": [
        {
            "required": ["events"],
            "properties": {
                "final": {"const": False},
                "ok": {"const": True},
                "events": {"minItems": 1},
                "response": _NULL,
                "usage": _NULL,
                "model": _NULL,
                "finishReason": _NULL,
                "error": _NULL,
            },
        },
        {
            "required": ["usage", "model", "finishReason"],
            "properties": {
                "final": {"const": True},
                "ok": {"const": True},
                "usage": _GIVEN,
                "model": _GIVEN,
                "finishReason": _GIVEN,
                "response": {"type": ["object", "null"]},
                "error": _NULL,
            },
        },
        {
            "required": ["error"],
            "properties": {
                "final": {"const": True},
                "ok": {"const": False},
                "error": _GIVEN,
                "events": _EMPTY,
                "response": _NULL,
                "usage": _NULL,
                "model": _NULL,
                "finishReason": _NULL,
            },
        },
    ],
}


def bundle() -> dict[str, bytes]:
    """The files of ``schemas/v1``: name to content."""
    return {
        AGENT_SCHEMA: _file(agent_schema()),
        "meta.json": _file(_meta()),
        "errors.json": _file(_errors()),
    }


@cache
def schema_digest() -> Digest:
    """The digest of the bundle: of the canonical object of its files' digests."""
    return digest_value({name: digest_bytes(content) for name, content in bundle().items()})


def agent_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of every message; ``FromAgent`` and ``FromBroker`` in ``$defs``."""
    messages = get_args(FromAgent) + get_args(FromBroker)
    _, parts = msgspec.json.schema_components([*messages, *KINDS.values()], ref_template=_REF)
    definitions: dict[str, Any] = {**parts}
    for message in messages:
        definition = definitions[message.__name__]
        definition["properties"]["v"] = {"const": VERSION}
        definition["required"] = sorted({"v", "type", *definition["required"]})
    for name, shapes in _SHAPES.items():
        definitions[name]["oneOf"] = shapes
    for name in ("Limits", "EventRate"):
        # They have values in the code, and are all advertised on the wire.
        definitions[name]["required"] = sorted(definitions[name]["properties"])
    definitions["Event"] |= _event_rules()
    for definition in definitions.values():
        # Docstrings mark names with two backticks, schemas with one.
        definition["description"] = definition["description"].replace("``", "`")
    definitions["FromAgent"] = _one_of(get_args(FromAgent))
    definitions["FromBroker"] = _one_of(get_args(FromBroker))
    return {
        "$schema": _DIALECT,
        "$id": f"{_ID}{AGENT_SCHEMA}",
        "title": "airlock agent protocol, version 1",
        "description": "One line of the pipe between a broker and an agent.",
        "anyOf": [{"$ref": "#/$defs/FromAgent"}, {"$ref": "#/$defs/FromBroker"}],
        "$defs": dict(sorted(definitions.items())),
    }


def _one_of(messages: tuple[Any, ...]) -> dict[str, Any]:
    """Exactly one of ``messages``, told apart by ``type``."""
    refs = {
        message.__struct_config__.tag: _REF.format(name=message.__name__) for message in messages
    }
    return {
        "oneOf": [{"$ref": ref} for ref in refs.values()],
        "discriminator": {"propertyName": "type", "mapping": refs},
    }


def _event_rules() -> dict[str, Any]:
    """Which kinds there are, and the data of each."""
    return {
        "anyOf": [
            {"properties": {"kind": {"enum": list(KINDS)}}},
            {"properties": {"kind": {"pattern": VENDOR_KIND_PATTERN}}},
        ],
        "allOf": [
            {
                "if": {"properties": {"kind": {"const": kind}}},
                "then": {"properties": {"data": {"$ref": _REF.format(name=data.__name__)}}},
            }
            for kind, data in KINDS.items()
        ],
    }


def _meta() -> dict[str, Any]:
    """What there is besides the messages: directions, kinds, features, limits, tools."""
    return {
        "protocol": "agent",
        "version": VERSION,
        "messages": [
            {"type": message.__struct_config__.tag, "direction": direction}
            for direction, messages in (
                ("agent_to_broker", get_args(FromAgent)),
                ("broker_to_agent", get_args(FromBroker)),
            )
            for message in messages
        ],
        "eventKinds": [{"kind": kind, "feature": FEATURE_OF_KIND.get(kind)} for kind in KINDS],
        "features": list(get_args(Feature)),
        "defaultLimits": msgspec.to_builtins(Limits()),
        "fixedLimits": {"maxBodyDepth": MAX_BODY_DEPTH, "maxInvalid": MAX_INVALID},
        "tools": [
            {"name": form.name, "effect": form.effect, "inputSchema": form.input_schema()}
            for form in TOOL_FORMS.values()
        ],
    }


def _errors() -> dict[str, Any]:
    """Every code that can stand in a message, with its one text."""
    return {
        "version": VERSION,
        "requestErrors": [
            {"code": code, "message": WIRE_TEXT[code], "retryable": code in RETRYABLE}
            for code in get_args(WireCode)
        ],
        "violations": [
            {
                "code": code,
                "message": VIOLATION_TEXT[code],
                "class": "dropped" if code in _DROPPED else "fatal",
            }
            for code in get_args(ViolationCode)
        ],
        "frameReasons": list(get_args(FrameReason)),
    }


def _file(document: dict[str, Any]) -> bytes:
    return json.dumps(document, indent=2, ensure_ascii=False).encode() + b"\n"
