"""One line to one message: the quick way gives what the thorough way gives."""

import json
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from protocol.bounds import TRIVIAL_BYTES, is_trivial, misspelled, passed_bound
from protocol.codec import Dropped, Rejected, decode_from_agent, encode_frame
from protocol.errors import LocalProtocolError, RemoteProtocolError
from protocol.events import AgentPlan, PlanItem
from protocol.limits import Limits
from protocol.messages import AttemptComplete, Event, FromAgent, ToolRequest
from tests.protocol.frames import (
    COMPLETE,
    EXAMPLES,
    event_line,
    inference_line,
    ready_line,
    tool_line,
)

LINES = [
    tool_line(),
    tool_line(toolCallId="c1", intent="why", meta={"traceparent": "a"}),
    inference_line(headers={"anthropic-beta": "a"}, timeoutMs=5),
    event_line(),
    event_line(requestId="r1", at=5),
    ready_line(),
    COMPLETE,
    b'{"v":1,"type":"attempt.complete","status":"failed","error":{"code":"c","message":"m"}}\n',
]


def outcome(line: bytes) -> Any:
    try:
        return decode_from_agent(line, limits=Limits())
    except RemoteProtocolError as error:
        return error.code, error.reason


def padded(line: bytes) -> bytes:
    """The same line for JSON, too long for the quick way."""
    return line.rstrip(b"\n") + b" " * TRIVIAL_BYTES


def members(text: str) -> list[str]:
    """The members of a flat or nested object, as the raw text of each."""
    return [json.dumps({name: value})[1:-1] for name, value in json.loads(text).items()]


ODD_MEMBERS = [
    '"v": 1', '"v": true', '"v": 1.0', '"intent": null', '"meta": null', '"at": null', '"x": 1',
    '"kind": "x.a.b"', '"data": {"a": 1, "a": 2}', '"tool": "A"', '"requestId": "r2"',
    '"requestId": "a b"', '"headers": {}', '"at": 9007199254740992', '"type": "event"',
    '"input": {"n": 9007199254740992}', '"input": {"a": [[]], "b": {}}', '"status": "failed"',
    '"error": {"code": "a", "code": "a", "message": ""}', '"result": {}',
    '"data": {"text": "a:b", "partial": false}',
]  # fmt: skip


@st.composite
def raw_objects(draw: st.DrawFn) -> bytes:
    """A message whose members are dropped, doubled, swapped and given odd values, as text."""
    parts = members(draw(st.sampled_from(LINES)).decode())
    extra = draw(
        st.lists(
            st.sampled_from([*parts, *ODD_MEMBERS]),
            max_size=3,
        )
    )
    kept = [part for part in parts if draw(st.integers(0, 9))]
    return ("{" + ", ".join(draw(st.permutations(kept + extra))) + "}\n").encode()


@settings(max_examples=1500)
@given(raw_objects())
@example(b'{"type":"event","kind":"x.a.b","kind":"x.a.b","data":1}\n')
@example(b'{"v":1,"type":"event","kind":"x.a.b","data":1,"at":null,"at":null}\n')
@example(
    b'{"v":1,"type":"tool.request","requestId":"r","tool":"a","input":{"n":9007199254740992}}\n'
)
@example(b'{"v":1,"type":"tool.request","requestId":"r","tool":"a","input":{},"toolCallId":"!"}\n')
@example(b'{"v":1,"type":"tool.request","requestId":"r","tool":"A","input":{}}\n')
@example(b'{"v":1,"type":"tool.request","requestId":"!","tool":"a","input":{}}\n')
def test_the_quick_way_gives_what_the_thorough_way_gives(line: bytes) -> None:
    assert is_trivial(line)
    assert not is_trivial(padded(line))

    assert outcome(line) == outcome(padded(line))


@settings(max_examples=500)
@given(st.sampled_from(LINES), st.data())
def test_a_member_that_came_twice_is_seen_in_every_message(
    line: bytes, data: st.DataObject
) -> None:
    parts = members(line.decode())
    again = data.draw(st.sampled_from(parts))
    without_version = [part for part in parts if not part.startswith('"v"')]
    kept = data.draw(st.sampled_from([parts, without_version]))
    order = data.draw(st.permutations([*kept, again]))
    if order.count(again) < 2:
        return  # The version was taken away and put back.

    doubled = ("{" + ",".join(order) + "}").encode()

    assert outcome(doubled) == ("malformed_frame", "duplicate_key")


@pytest.mark.parametrize("line", LINES)
def test_null_is_the_same_as_absent(line: bytes) -> None:
    value = json.loads(line)
    struct = {message.__struct_config__.tag: message for message in get_args(FromAgent)}[
        value["type"]
    ]
    optional = {
        field.encode_name: None
        for field in msgspec.structs.fields(struct)
        if field.default is None and field.encode_name not in value
    }

    assert outcome(json.dumps({**value, **optional}).encode()) == outcome(line)


@pytest.mark.parametrize("message_type", list(get_args(FromAgent)))
def test_what_is_sent_is_what_is_received(message_type: Any) -> None:
    message = EXAMPLES[message_type]
    frame = encode_frame(message, max_bytes=1000)  # type: ignore[arg-type]

    received = decode_from_agent(frame, limits=Limits())

    if isinstance(received, Event):
        received = msgspec.structs.replace(received, data=msgspec.to_builtins(received.data))
    assert received == message
    assert json.loads(frame)["v"] == 1


def test_a_version_of_our_own_is_told_from_one_on_the_wire() -> None:
    ours = ToolRequest(request_id="r1", tool="a", input={})
    theirs = outcome(tool_line("r1", tool="a", input={}))

    assert ours == theirs
    assert type(ours.v) is not int
    assert type(theirs.v) is int


def test_a_frame_that_we_send_counts_its_line_feed() -> None:
    message = AttemptComplete(status="succeeded")
    size = len(encode_frame(message, max_bytes=1000))

    encode_frame(message, max_bytes=size)
    with pytest.raises(LocalProtocolError) as caught:
        encode_frame(message, max_bytes=size - 1)
    assert caught.value.code == "frame_too_large"


@pytest.mark.parametrize("size", [511, 512, 513])
@pytest.mark.parametrize("unit", ["e", "é", "\U0001f600"])
def test_a_text_is_bounded_in_bytes(size: int, unit: str) -> None:
    text = unit * (size // len(unit.encode())) + "e" * (size % len(unit.encode()))
    assert len(text.encode()) == size

    for ascii_only in (True, False):
        value = {**json.loads(tool_line()), "intent": text}
        found = outcome(json.dumps(value, ensure_ascii=ascii_only).encode())
        if size <= 512:
            assert isinstance(found, ToolRequest)
        else:
            assert isinstance(found, Rejected)
            assert (found.code, found.pointer) == ("invalid_message", "/intent")


def test_bounds_point_into_lists() -> None:
    items = [{"text": "a", "status": "pending"}, {"text": "é" * 257, "status": "pending"}]
    assert outcome(event_line("agent.plan", {"items": items[:1]})).kind == "agent.plan"
    assert outcome(event_line("agent.plan", {"items": items})) == Dropped("event_rejected")

    plan = AgentPlan(items=tuple(PlanItem(**item) for item in items))  # type: ignore[arg-type]
    assert passed_bound(plan) == "/items/1/text"
    assert misspelled(plan) is None


def test_a_free_object_is_bounded_as_it_would_be_written() -> None:
    # ``1e15`` is 4 bytes here and 18 when it is written again.
    numbers = {"a.b/c": [1e15] * 460}
    spelled = json.dumps(numbers).replace("1000000000000000.0", "1e15")
    line = tool_line(meta={}).replace(b'"meta": {}', b'"meta": ' + spelled.encode())
    assert len(line) < 3000

    found = outcome(line)

    assert isinstance(found, Rejected)
    assert found.pointer == "/meta"
