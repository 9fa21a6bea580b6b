"""The agent's side: what it takes from a later broker, and what makes it leave."""

import json
from typing import Any

import msgspec
import pytest

from protocol.connection import CLOSED, NEED_DATA, AgentConnection, BrokerConnection
from protocol.errors import LocalProtocolError, RemoteProtocolError
from protocol.limits import Limits
from protocol.messages import (
    AttemptCancel,
    AttemptComplete,
    TaskStart,
    ToolRequest,
    ToolResponse,
)
from protocol.state import AttemptState
from tests.protocol.frames import (
    EXAMPLES,
    inference_answer,
    inference_piece,
    task_start,
    tool_answer,
    tool_failure,
    tool_progress,
)


def request(request_id: str = "r1") -> ToolRequest:
    return ToolRequest(request_id=request_id, tool="read_file", input={"path": "a"})


def frame(message: Any) -> bytes:
    return msgspec.json.encode(message) + b"\n"


def agent(limits: Limits | None = None, **changes: Any) -> AgentConnection:
    connection = AgentConnection()
    connection.receive_data(frame(task_start(limits, **changes)))
    assert isinstance(connection.next_event(), TaskStart)
    return connection


def take_all(connection: AgentConnection) -> None:
    while connection.next_event() is not NEED_DATA:
        pass


def violation(connection: AgentConnection) -> str:
    with pytest.raises(RemoteProtocolError) as caught:
        take_all(connection)
    assert connection.state is AttemptState.ERROR
    return caught.value.code


def test_both_sides_understand_each_other() -> None:
    broker, ours = BrokerConnection(Limits()), AgentConnection()
    ours.receive_data(broker.send(task_start()))
    assert ours.next_event() == task_start()
    broker.receive_data(ours.send(request("r1")))
    assert broker.next_event() == request("r1")
    ours.receive_data(broker.send(tool_answer("r1")))
    assert ours.next_event() == tool_answer("r1")
    broker.receive_data(ours.send(AttemptComplete(status="succeeded")))
    assert broker.next_event() == AttemptComplete(status="succeeded")
    ours.receive_data(b"")
    assert ours.next_event() is CLOSED


def add_members(value: Any) -> Any:
    """``value`` as a later broker would send it: with a member more in every object of ours."""
    if isinstance(value, list):
        return [add_members(item) for item in value]
    if isinstance(value, dict):
        kept = {name: value[name] for name in ("inputSchema", "result") if name in value}
        return {**{name: add_members(item) for name, item in value.items()}, "later": 1, **kept}
    return value


@pytest.mark.parametrize("message", [TaskStart, AttemptCancel, ToolResponse])
def test_members_of_a_later_broker_are_ignored(message: type[Any]) -> None:
    connection = AgentConnection() if message is TaskStart else agent()
    if message is ToolResponse:
        connection.send(request())
    later = add_members(msgspec.to_builtins(EXAMPLES[message]))

    connection.receive_data(json.dumps(later).encode() + b"\n")

    assert connection.next_event() == EXAMPLES[message]


def test_codes_and_features_of_a_later_broker_are_taken() -> None:
    connection = agent(features=("telepathy",))
    connection.send(request())
    later = msgspec.to_builtins(tool_failure())
    later["error"]["code"] = "moon_in_the_way"

    connection.receive_data(json.dumps(later).encode() + b"\n")

    answer = connection.next_event()
    assert isinstance(answer, ToolResponse)
    assert answer.error is not None
    assert answer.error.code == "moon_in_the_way"


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"noise\n", "malformed_frame"),
        (b'{"v":1,"v":1}\n', "malformed_frame"),
        (b'{"v":2,"type":"attempt.cancel"}\n', "version_mismatch"),
        (b'{"v":1,"type":"attempt.pause"}\n', "unknown_type"),
        (b'{"v":1,"type":"event"}\n', "wrong_direction"),
        (b'{"v":1,"type":"attempt.cancel"}\n', "invalid_message"),
        (frame(tool_answer("r 1")), "invalid_message"),
        (frame(task_start()), "out_of_order"),
        (frame(tool_answer("r9")), "out_of_order"),
        (frame(tool_answer("r1", 1)), "out_of_order"),
        (frame(inference_answer("r1")), "out_of_order"),
        (frame(tool_answer("r1")) * 2, "out_of_order"),
        (frame(tool_progress("r1")) * 2, "out_of_order"),
        (frame(inference_piece("r1")), "out_of_order"),
        (frame(AttemptCancel(reason="user", grace_ms=1)) * 2, "out_of_order"),
    ],
)
def test_what_a_broker_may_not_say_is_a_reason_to_leave(line: bytes, code: str) -> None:
    connection = agent()
    connection.send(request("r1"))
    connection.receive_data(line)

    assert violation(connection) == code


def test_a_start_must_advertise_every_limit() -> None:
    for missing in ("maxFrameBytes", "eventRate"):
        start = msgspec.to_builtins(task_start())
        del start["limits"][missing]
        connection = AgentConnection()
        connection.receive_data(json.dumps(start).encode() + b"\n")
        assert violation(connection) == "invalid_message"


def test_the_start_sets_the_limits() -> None:
    limits = Limits(max_in_flight=1, max_frame_bytes=300, max_response_frame_bytes=10_000)
    connection = agent(limits)
    connection.send(request("r1"))

    with pytest.raises(LocalProtocolError) as caught:
        connection.send(request("r2"))
    assert caught.value.code == "limit_exceeded"
    connection.receive_data(frame(tool_answer("r1")))
    connection.next_event()
    with pytest.raises(LocalProtocolError) as caught:
        connection.send(msgspec.structs.replace(request("r2"), input={"a": "x" * 300}))
    assert caught.value.code == "frame_too_large"
    connection.send(request("r2"))
    with pytest.raises(LocalProtocolError) as caught:
        connection.send(request("r1"))
    assert caught.value.code == "duplicate_request_id"
    connection.receive_data(b"x" * 10_000)
    assert violation(connection) == "frame_too_large"


def test_what_crosses_the_last_word_is_ignored() -> None:
    connection = agent()
    connection.send(request("r1"))
    connection.send(AttemptComplete(status="failed"))

    connection.receive_data(frame(tool_answer("r1")) + frame(EXAMPLES[AttemptCancel]))

    assert connection.next_event() is NEED_DATA
    connection.receive_data(b"")
    assert connection.next_event() is CLOSED
