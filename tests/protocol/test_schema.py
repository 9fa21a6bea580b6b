"""The published schemas are the code's, and a validator agrees with the decoder on them."""

import copy
import json
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from protocol.codec import Dropped, Rejected, decode_from_agent, decode_from_broker
from protocol.codes import WIRE_TEXT, ViolationCode
from protocol.errors import RemoteProtocolError
from protocol.events import KINDS
from protocol.limits import Limits
from protocol.messages import FromAgent, FromBroker
from protocol.schema import agent_schema, bundle, schema_digest
from tests.protocol.bad_lines import BAD_LINES
from tests.protocol.frames import (
    EXAMPLES,
    event_line,
    inference_answer,
    inference_line,
    inference_piece,
    ready_line,
    tool_failure,
    tool_line,
    tool_progress,
)

PUBLISHED = Path(__file__).parents[2] / "schemas" / "v1"
SCHEMA = agent_schema()

#: Bad lines that only the codec can see as bad: bytes of a line, a text or an object,
#: ``1.0`` as an integer, and what a line is besides its message.
ONLY_CODEC = {
    "timeout 1.0",
    "an intent over its bytes",
    "meta too large",
    "an input of 600 KB",
    "text over its bytes",
    "data of 200 KB",
    "a common line over 1 MiB",
}
#: Refused before it is decoded.
ONLY_FRAMING = {"inference over 8 MiB"}
#: Bad only because of what was said before.
ONLY_CONNECTION = {"a stream nobody agreed on", "state nobody agreed on"}

EVENTS: dict[str, Any] = {
    "agent.ready": json.loads(ready_line())["data"],
    "agent.message": {"text": "a", "messageId": "m1", "partial": True},
    "agent.thought": {"text": "a"},
    "agent.plan": {"items": [{"text": "a", "status": "pending"}]},
    "agent.progress": {"phase": "read", "fraction": 1000},
    "agent.tool": {"name": "bash", "status": "started", "toolCallId": "c1", "summary": "s"},
    "agent.usage": {"model": "m", "inputTokens": 1, "outputTokens": 2, "reasoningTokens": 3},
    "agent.log": {"level": "info", "text": "a"},
    "agent.output": {"format": "text", "line": "a"},
    "agent.state": {"state": {"a": [1]}},
    "request.cancel": {"requestId": "r1"},
    "x.vendor.thing": [1, None],
    "x.vendor.a.b": "text",
}

AGENT_LINES: list[bytes] = [
    *(event_line(kind, data) for kind, data in EVENTS.items()),
    event_line(at=5, requestId="r1", meta={"traceparent": "00-a", "com.example/a": {}}),
    tool_line(),
    tool_line(toolCallId="call_1", intent="why", meta={"a.b/c": 1}),
    inference_line(),
    inference_line(stream=True, purpose="side", timeoutMs=0, headers={"anthropic-beta": "x"}),
    b'{"v":1,"type":"attempt.complete","status":"failed","summary":"s","error":'
    b'{"code":"c","message":"m"},"result":{"a":1},"meta":null}',
]
BROKER_LINES: list[bytes] = [
    msgspec.json.encode(message)
    for message in (
        *(EXAMPLES[kind] for kind in get_args(FromBroker)),
        tool_progress(),
        tool_failure(),
        inference_piece(),
        inference_answer(),
    )
]


def validator(side: str) -> Draft202012Validator:
    return Draft202012Validator({"$ref": f"#/$defs/{side}", "$defs": SCHEMA["$defs"]})


AGENT = validator("FromAgent")
BROKER = validator("FromBroker")


def agent_takes(line: bytes) -> bool:
    try:
        decode_from_broker(line)
    except RemoteProtocolError:
        return False
    return True


def broker_takes(line: bytes) -> bool:
    try:
        return not isinstance(decode_from_agent(line, limits=Limits()), Rejected | Dropped)
    except RemoteProtocolError:
        return False


def test_the_published_files_are_the_codes() -> None:
    files = {path.name: path.read_bytes() for path in PUBLISHED.iterdir() if "agent" in path.name}
    made = bundle()

    for name, content in made.items():
        assert (PUBLISHED / name).read_bytes() == content, (
            "run: airlock protocol schema --out schemas/v1"
        )
    assert set(files) <= set(made)


def test_the_digest_is_of_the_published_files() -> None:
    import hashlib

    digests = {
        path.name: "sha256:" + hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(PUBLISHED.iterdir())
        if path.name in bundle()
    }
    canonical = json.dumps(digests, sort_keys=True, separators=(",", ":")).encode()

    assert schema_digest() == "sha256:" + hashlib.sha256(canonical).hexdigest()


def test_the_schema_is_a_schema() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    for message in (*get_args(FromAgent), *get_args(FromBroker)):
        definition = SCHEMA["$defs"][message.__name__]
        assert {"v", "type"} <= set(definition["required"])
        assert definition["description"].startswith(
            "Agent to broker:" if message in get_args(FromAgent) else "Broker to agent"
        )
    for name, definition in SCHEMA["$defs"].items():
        assert "``" not in definition.get("description", ""), name
        closed = definition.get("additionalProperties") is False
        if name in {message.__name__ for message in (*get_args(FromAgent), *KINDS.values())}:
            assert closed, name
        if name in {message.__name__ for message in get_args(FromBroker)}:
            assert not closed, name


def test_patterns_end_the_same_in_every_language() -> None:
    found: list[str] = []

    def walk(value: Any) -> None:
        if isinstance(value, dict):
            if isinstance(value.get("pattern"), str):
                found.append(value["pattern"])
            for member in value.values():
                walk(member)
        elif isinstance(value, list):
            for member in value:
                walk(member)

    walk(SCHEMA)

    assert found
    for pattern in found:
        assert pattern.startswith("^")
        assert pattern.endswith(r"(?![\s\S])")
        assert "$" not in pattern


def test_the_tables_have_every_code() -> None:
    errors = json.loads(bundle()["errors.json"])

    assert {entry["code"]: entry["message"] for entry in errors["requestErrors"]} == WIRE_TEXT
    assert [entry["code"] for entry in errors["violations"]] == list(get_args(ViolationCode))
    meta = json.loads(bundle()["meta.json"])
    assert [entry["kind"] for entry in meta["eventKinds"]] == list(KINDS)
    assert meta["defaultLimits"]["maxFrameBytes"] == 2**20


@pytest.mark.parametrize("line", AGENT_LINES)
def test_good_messages_of_an_agent_are_taken_by_both(line: bytes) -> None:
    assert list(AGENT.iter_errors(json.loads(line))) == []
    assert broker_takes(line)
    assert not BROKER.is_valid(json.loads(line))


@pytest.mark.parametrize("line", BROKER_LINES)
def test_good_messages_of_a_broker_are_taken_by_both(line: bytes) -> None:
    assert list(BROKER.iter_errors(json.loads(line))) == []
    assert agent_takes(line)
    assert not AGENT.is_valid(json.loads(line))


@pytest.mark.parametrize("bad", BAD_LINES, ids=lambda bad: bad.name)
def test_bad_messages_are_refused_by_both(bad: Any) -> None:
    if bad.code == "malformed_frame":
        return
    try:
        value = json.loads(bad.data)
    except ValueError:
        return
    valid = AGENT.is_valid(value)

    assert valid == (bad.name in ONLY_CODEC | ONLY_CONNECTION | ONLY_FRAMING)
    assert broker_takes(bad.data) == (bad.name in ONLY_CONNECTION | ONLY_FRAMING)


SCALARS = st.sampled_from(
    [None, True, False, 0, 1, -1, 2**53 - 1, 1.5, "", "a", "r1", "A b", "a\n", "succeeded", "x.a.b",
     "agent.message", "é", [], {}, {"a": 1}, ["a"], "task.start", "event", "sha256:" + "0" * 64]
).map(copy.deepcopy)  # fmt: skip
NAMES = st.sampled_from(
    ["v", "type", "requestId", "kind", "data", "tool", "input", "meta", "extra", "status", "ok",
     "final", "index", "result", "error", "events", "response", "decision", "text", "usage"]
)  # fmt: skip


@st.composite
def mutations(draw: st.DrawFn, lines: list[bytes]) -> Any:
    """A good message with a few members changed, taken away, added or copied."""
    value = copy.deepcopy(json.loads(draw(st.sampled_from(lines))))
    for _ in range(draw(st.integers(1, 3))):
        place: Any = value
        while True:
            inner = [item for item in _members(place) if isinstance(item, (dict, list)) and item]
            if not inner or draw(st.booleans()):
                break
            place = draw(st.sampled_from(inner))
        key = draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        match draw(st.integers(0, 3)):
            case 0:
                place[key] = draw(SCALARS)
            case 1:
                del place[key]
            case 2 if isinstance(place, dict):
                place[draw(NAMES)] = draw(SCALARS)
            case _:
                other = json.loads(draw(st.sampled_from(lines)))
                place[key] = other.get(key, draw(SCALARS))
        if not value:
            break
    return value


def _members(place: Any) -> list[Any]:
    return list(place.values()) if isinstance(place, dict) else list(place)


FUZZ = settings(
    max_examples=500, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@FUZZ
@given(mutations(AGENT_LINES))
def test_a_validator_and_the_broker_agree_on_any_message(value: Any) -> None:
    assert AGENT.is_valid(value) == broker_takes(json.dumps(value).encode())


@FUZZ
@given(mutations(BROKER_LINES))
def test_a_validator_and_the_agent_agree_on_any_message(value: Any) -> None:
    assert BROKER.is_valid(value) == agent_takes(json.dumps(value).encode())


#: Members whose text is a name, a digest or another closed form.
CLOSED_FORMS = {
    "requestId", "toolCallId", "messageId", "attemptId", "schemaDigest", "baseCommit",
    "sourceDigest", "actionDigest", "policyDigest", "tool", "model", "alias", "kind", "code",
}  # fmt: skip


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of the texts in ``value`` that have a closed form."""
    if isinstance(value, str):
        return [path] if path[-1] in CLOSED_FORMS else []
    if not isinstance(value, (dict, list)):
        return []
    items = value.items() if isinstance(value, dict) else enumerate(value)
    free = {"input", "body", "result", "response", "inputSchema", "error"} if "v" in value else ()
    return [leaf for key, item in items if key not in free for leaf in leaves(item, (*path, key))]


@pytest.mark.parametrize("line", [*AGENT_LINES, *BROKER_LINES])
@pytest.mark.parametrize("spoil", ["{}\n", "{}\r", "{}\u2028", "\n{}", " {}", "{}\0", "{}é"])
def test_a_closed_form_is_matched_to_its_very_end(line: bytes, spoil: str) -> None:
    value = json.loads(line)
    for path in leaves(value):
        if path[-1] == "model" and value["type"] == "event":
            continue  # The agent's own name for it.
        spoiled = copy.deepcopy(value)
        place = spoiled
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = spoil.format(place[path[-1]])

        assert not AGENT.is_valid(spoiled), path
        assert not BROKER.is_valid(spoiled), path
        data = json.dumps(spoiled).encode()
        assert not broker_takes(data), path
        assert not agent_takes(data), path
