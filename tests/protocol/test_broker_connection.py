"""The broker's side: counts, answers, features, and what an agent can never make it do."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.connection import CLOSED, NEED_DATA, BrokerConnection, Dropped, Rejected
from protocol.errors import LocalProtocolError, RemoteProtocolError
from protocol.events import AgentMessage, AgentReady
from protocol.limits import MAX_INVALID, MAX_STREAM_FRAME_BYTES, Limits
from protocol.messages import (
    AttemptCancel,
    AttemptComplete,
    Event,
    InferenceRequest,
    InferenceResponse,
    ProviderEvent,
    ToolRequest,
    ToolResponse,
    ViolationAt,
    ViolationPosition,
    wire_error,
)
from protocol.state import AttemptState
from tests.protocol.bad_lines import BAD_LINES
from tests.protocol.frames import (
    COMPLETE,
    DECISION,
    GOOD,
    event_line,
    inference_answer,
    inference_line,
    inference_piece,
    ready_line,
    started,
    task_start,
    tool_answer,
    tool_failure,
    tool_line,
    tool_progress,
)


def take_all(connection: BrokerConnection) -> list[Any]:
    """Everything until more data is needed."""
    found: list[Any] = []
    while (event := connection.next_event()) not in (NEED_DATA, CLOSED):
        found.append(event)
    return found


def violation(connection: BrokerConnection) -> str:
    with pytest.raises(RemoteProtocolError) as caught:
        take_all(connection)
    assert connection.state is AttemptState.ERROR
    return caught.value.code


def test_a_whole_attempt() -> None:
    connection = started()
    connection.receive_data(ready_line() + tool_line("r1") + inference_line("r2", stream=True))

    ready, tool, inference = take_all(connection)

    assert isinstance(ready.data, AgentReady)
    assert tool == ToolRequest(request_id="r1", tool="read_file", input={"path": "a"})
    assert isinstance(inference, InferenceRequest)
    assert list(connection.open_requests) == ["r1", "r2"]
    for message in (
        tool_progress("r1"),
        inference_piece("r2"),
        tool_answer("r1", 1),
        inference_answer("r2", 1),
    ):
        assert msgspec.json.decode(connection.send(message))["v"] == 1
    assert dict(connection.open_requests) == {}
    connection.receive_data(event_line() + COMPLETE)
    message, complete = take_all(connection)
    assert message.data == AgentMessage(text="hello")
    assert complete == AttemptComplete(status="succeeded")
    connection.receive_data(b"")
    assert connection.next_event() is CLOSED


def test_the_position_and_the_line_are_of_the_last_message() -> None:
    connection = started()
    connection.receive_data(b"\n" + GOOD + b"noise\n" + GOOD)

    connection.next_event()

    assert connection.last_frame == GOOD[:-1]
    assert (connection.frames, connection.bytes) == (1, 1 + len(GOOD))
    violation(connection)
    assert (connection.frames, connection.bytes) == (2, 1 + len(GOOD) + len(b"noise\n"))


def test_after_a_violation_nothing_is_kept() -> None:
    connection = started()
    connection.receive_data(b"noise\n")
    violation(connection)

    for _ in range(100):
        connection.receive_data(GOOD * 100)
    connection.receive_data(b"")
    connection.receive_data(b"")

    assert not connection._lines._ready
    assert violation(connection) == "malformed_frame"


@pytest.mark.parametrize("again", [tool_line("r1"), inference_line("r1"), tool_line("r1", x=1)])
@pytest.mark.parametrize("answered", [True, False])
def test_a_request_id_is_used_once_for_both_kinds_for_ever(again: bytes, answered: bool) -> None:
    connection = started()
    connection.receive_data(tool_line("r1"))
    take_all(connection)
    if answered:
        connection.send(tool_answer("r1"))

    connection.receive_data(again)

    assert violation(connection) == "duplicate_request_id"


def test_the_id_of_a_refused_request_is_used_too() -> None:
    connection = started()
    connection.receive_data(tool_line("r1", input=1) + tool_line("r1"))

    rejected = connection.next_event()

    assert isinstance(rejected, Rejected)
    assert b'"pointer":"/input"' in connection.reject(rejected)
    assert violation(connection) == "duplicate_request_id"


@pytest.mark.parametrize("size", [2, 3, 4])
def test_requests_in_flight_at_their_limit(size: int) -> None:
    connection = started(Limits(max_in_flight=3))
    connection.receive_data(b"".join(tool_line(f"r{number}") for number in range(size)))

    found = take_all(connection)

    assert [isinstance(item, Rejected) for item in found] == [number >= 3 for number in range(size)]
    for item in found:
        if isinstance(item, Rejected):
            assert item.code == "too_many_in_flight"
            connection.reject(item)
    connection.send(tool_answer("r0"))
    connection.receive_data(tool_line("next"))
    assert isinstance(connection.next_event(), ToolRequest)


def test_a_refused_request_takes_no_place_of_another() -> None:
    connection = started(Limits(max_in_flight=1))
    connection.receive_data(tool_line("r1") + tool_line("r2") + tool_line("r3", input=1))
    take_all(connection)

    connection.send(tool_answer("r1"))
    connection.receive_data(tool_line("r4"))

    assert isinstance(connection.next_event(), ToolRequest)


def test_requests_at_their_limit_and_at_twice_that() -> None:
    connection = started(Limits(max_requests=5))

    for number in range(10):
        connection.receive_data(tool_line(f"r{number}"))
        (item,) = take_all(connection)
        if number < 5:
            connection.send(tool_answer(f"r{number}"))
        else:
            assert item.code == "limit_exceeded"
            connection.reject(item)
    connection.receive_data(tool_line("r10"))

    assert violation(connection) == "limit_exceeded"


def test_events_at_their_limit_and_at_twice_that() -> None:
    connection = started(Limits(max_events=5))
    connection.receive_data(GOOD * 10)

    found = take_all(connection)

    assert [isinstance(item, Event) for item in found] == [True] * 5 + [False] * 5
    assert found[5] == Dropped("limit_exceeded")
    assert connection.invalid == 0
    connection.receive_data(GOOD)
    assert violation(connection) == "limit_exceeded"


@pytest.mark.parametrize("count", [MAX_INVALID - 1, MAX_INVALID, MAX_INVALID + 1])
def test_invalid_messages_at_their_limit(count: int) -> None:
    connection = started(Limits(max_in_flight=1))
    bad = [event_line("agent.dance"), None]
    lines = (bad[number % 2] or tool_line(f"r{number}", input=1) for number in range(count))
    connection.receive_data(b"".join(lines))

    if count > MAX_INVALID:
        assert violation(connection) == "too_many_invalid"
    else:
        assert len(take_all(connection)) == connection.invalid == count


def test_what_a_model_gets_wrong_is_not_counted_as_invalid() -> None:
    connection = started(Limits(max_in_flight=1))
    for number in range(3 * MAX_INVALID):
        connection.receive_data(tool_line(f"r{number}"))
        take_all(connection)

    assert connection.invalid == 0


@pytest.mark.parametrize(
    ("line", "bound", "code"),
    [
        (lambda size: tool_line(input={"a": "x" * size}), "max_tool_input_bytes", "too_large"),
        (lambda size: event_line("x.a.b", "x" * (size + 6)), "max_event_bytes", "event_rejected"),
        (
            lambda size: event_line("agent.state", {"state": {"a": "x" * size}}),
            "agent_state_bytes",
            "event_rejected",
        ),
    ],
)
@pytest.mark.parametrize("over", [-1, 0, 1])
def test_sizes_at_their_limit(line: Any, bound: str, code: str, over: int) -> None:
    limit = 2000
    connection = started(Limits(**{bound: limit}), ready=True)
    connection.receive_data(line(limit - len(b'{"a":""}') + over))

    (item,) = take_all(connection)

    if over > 0:
        assert item.code == code
    else:
        assert isinstance(item, (ToolRequest, Event))


@pytest.mark.parametrize("over", [-1, 0, 1])
def test_lines_at_their_limit_by_type(over: int) -> None:
    limits = Limits(max_frame_bytes=1000, max_inference_frame_bytes=3000)
    common, inference = tool_line(input={"a": ""}), inference_line(body={"a": ""})
    common = tool_line(input={"a": "x" * (1000 + over - len(common))})
    inference = inference_line(body={"a": "x" * (3000 + over - len(inference))})

    for line, size in ((common, 1000), (inference, 3000)):
        assert len(line) == size + over
        connection = started(limits)
        connection.receive_data(GOOD + line)
        assert isinstance(connection.next_event(), Event)
        if over > 0:
            assert violation(connection) == "frame_too_large"
        else:
            (item,) = take_all(connection)
            assert isinstance(item, (ToolRequest, InferenceRequest))


def test_a_large_inference_request_that_is_bad_is_answered() -> None:
    connection = started()
    connection.receive_data(inference_line(body={"a": "x" * 2**21}, stream=0))

    (rejected,) = take_all(connection)

    assert (rejected.code, rejected.pointer) == ("invalid_message", "/stream")
    assert b'"inference.response"' in connection.reject(rejected)


def test_the_pointer_names_only_what_we_named() -> None:
    tricks = {
        "x` - at `$.intent": "",
        "intent": "/intent",
        "headers": "",
        "a/b": "",
    }
    for number, (name, pointer) in enumerate(tricks.items()):
        connection = started()
        connection.receive_data(tool_line(f"r{number}", **{name: 1}))
        (rejected,) = take_all(connection)
        assert rejected.pointer == pointer

    connection = started()
    connection.receive_data(
        inference_line("a", headers={"x` - at `$.api": "1"})
        + inference_line("b", headers={"anthropic-beta": 1})
        + inference_line("c", meta={"x` - at `$.api": "1"})
    )
    assert [item.pointer for item in take_all(connection)] == [
        "/headers",
        "/headers/anthropic-beta",
        "/meta",
    ]


def test_every_request_gets_one_final_answer_and_no_second() -> None:
    connection = started(ready=True)
    connection.receive_data(tool_line("r1") + inference_line("r2"))
    take_all(connection)

    connection.send(tool_answer("r1"))
    connection.fail("r2", wire_error("upstream_error"))

    for message in (
        tool_answer("r1"),
        tool_failure("r1", 1),
        tool_progress("r1", 1),
        inference_answer("r2"),
        inference_answer("r3"),
        tool_answer("r3"),
    ):
        with pytest.raises(LocalProtocolError):
            connection.send(message)
    with pytest.raises(LocalProtocolError):
        connection.fail("r1", wire_error("cancelled"))


@pytest.mark.parametrize("index", [0, 2])
def test_indexes_of_answers_have_no_gap(index: int) -> None:
    connection = started(ready=True)
    connection.receive_data(tool_line("r1") + inference_line("r2", stream=True))
    take_all(connection)
    connection.send(tool_progress("r1"))
    connection.send(inference_piece("r2"))

    for message in (tool_answer("r1", index), inference_answer("r2", index)):
        with pytest.raises(LocalProtocolError):
            connection.send(message)
    connection.send(tool_answer("r1", 1))
    connection.send(inference_answer("r2", 1))


def test_an_answer_is_of_the_kind_of_its_request() -> None:
    connection = started()
    connection.receive_data(tool_line("r1") + inference_line("r2"))
    take_all(connection)

    for message in (inference_answer("r1"), tool_answer("r2")):
        with pytest.raises(LocalProtocolError):
            connection.send(message)


@pytest.mark.parametrize("features", [[], ["tool_progress"], ["inference_streaming"]])
def test_pieces_are_sent_only_where_both_sides_named_the_feature(features: list[str]) -> None:
    connection = started()
    connection.receive_data(
        ready_line(features=[*features, "telepathy"])
        + tool_line("r1")
        + inference_line("r2", stream=True)
    )
    _, _, inference = take_all(connection)

    assert connection.features == set(features)
    if "tool_progress" in features:
        connection.send(tool_progress("r1"))
    else:
        with pytest.raises(LocalProtocolError):
            connection.send(tool_progress("r1"))
    if "inference_streaming" in features:
        connection.send(inference_piece("r2"))
    else:
        assert (inference.code, inference.pointer) == ("unsupported_feature", "/stream")


def test_a_feature_that_was_not_offered_stays_off() -> None:
    connection = started(features=("agent_state",))
    connection.receive_data(ready_line())
    take_all(connection)

    assert connection.features == {"agent_state"}


def test_a_request_that_did_not_ask_for_a_stream_gets_none() -> None:
    connection = started(ready=True)
    connection.receive_data(inference_line("r1"))
    take_all(connection)

    with pytest.raises(LocalProtocolError):
        connection.send(inference_piece("r1"))


def test_features_are_named_once() -> None:
    connection = started(ready=True)
    connection.receive_data(ready_line(features=[]))

    assert take_all(connection) == [Dropped("event_rejected")]
    assert connection.features


def test_after_a_cancel_requests_are_still_given_out_to_be_answered() -> None:
    connection = started(ready=True)
    connection.receive_data(tool_line("r1"))
    take_all(connection)
    connection.send(AttemptCancel(reason="user", grace_ms=10))
    connection.receive_data(tool_line("r2") + inference_line("r3") + GOOD + COMPLETE)

    for request_id in ("r1", "r2", "r3"):
        if request_id != "r1":
            connection.next_event()
        frame = msgspec.json.decode(connection.fail(request_id, wire_error("cancelled")))
        assert (frame["final"], frame["error"]["code"]) == (True, "cancelled")
    assert [type(item) for item in take_all(connection)] == [Event, AttemptComplete]


def test_a_cancel_can_cross_the_start() -> None:
    connection = BrokerConnection(Limits())
    connection.send(task_start())
    connection.send(AttemptCancel(reason="user", grace_ms=10))
    connection.receive_data(tool_line("r1"))

    assert isinstance(connection.next_event(), ToolRequest)


@pytest.mark.parametrize("cancelled_before", [True, False])
def test_a_cancel_is_sent_once_also_after_a_violation(cancelled_before: bool) -> None:
    connection = started()
    position = ViolationPosition(frame=1, byte=2)
    cancel = AttemptCancel(
        reason="protocol_violation",
        grace_ms=2000,
        violation=ViolationAt(code="malformed_frame", at=position),
    )
    if cancelled_before:
        connection.send(AttemptCancel(reason="user", grace_ms=1))
    connection.receive_data(b"noise\n")
    violation(connection)

    if not cancelled_before:
        assert b"malformed_frame" in connection.send(cancel)
    with pytest.raises(LocalProtocolError):
        connection.send(cancel)


def test_open_requests_are_dropped_by_the_last_word() -> None:
    connection = started()
    connection.receive_data(tool_line("r1") + COMPLETE)
    take_all(connection)

    assert dict(connection.open_requests) == {}
    with pytest.raises(LocalProtocolError) as caught:
        connection.send(tool_answer("r1"))
    assert caught.value.code == "after_complete"


@pytest.mark.parametrize("tail", [GOOD, COMPLETE, b"noise\n", b"x" * 2**24, b"{"])
def test_anything_after_the_last_word_is_a_violation_of_that(tail: bytes) -> None:
    connection = started()
    connection.receive_data(COMPLETE + tail)
    assert isinstance(connection.next_event(), AttemptComplete)

    if tail == b"{":
        assert connection.next_event() is NEED_DATA
        connection.receive_data(b"")

    assert violation(connection) == "after_complete"


def test_blank_lines_after_the_last_word_are_nothing() -> None:
    connection = started()
    connection.receive_data(COMPLETE + b"\n \r\n")
    take_all(connection)
    connection.receive_data(b"")

    assert connection.next_event() is CLOSED


def test_what_is_advertised_is_what_is_enforced() -> None:
    connection = BrokerConnection(Limits(max_requests=7))
    with pytest.raises(LocalProtocolError):
        connection.send(task_start())
    assert connection.state is AttemptState.IDLE
    connection.send(task_start(Limits(max_requests=7)))


@pytest.mark.parametrize("changes", [{"attempt_id": "a b"}, {"deadline_ms": -1}, {"tools": [1]}])
def test_a_start_of_the_wrong_form_is_not_sent(changes: dict[str, Any]) -> None:
    connection = BrokerConnection(Limits())
    with pytest.raises(LocalProtocolError):
        connection.send(task_start(**changes))
    assert connection.state is AttemptState.IDLE


@pytest.mark.parametrize(
    "result", [{"a": "\ud800"}, {"a": object()}, msgspec.Raw(b'{"a":\n1}'), {"a": "x" * 2**23}]
)
def test_a_result_that_cannot_be_a_line_is_not_sent(result: Any) -> None:
    connection = started()
    connection.receive_data(tool_line("r1"))
    take_all(connection)
    answer = msgspec.structs.replace(tool_answer("r1"), result=result)

    with pytest.raises(LocalProtocolError):
        connection.send(answer)

    connection.send(tool_failure("r1"))


def test_a_piece_of_a_stream_stays_small() -> None:
    connection = started(ready=True)
    connection.receive_data(inference_line("r1", stream=True))
    take_all(connection)
    events = (ProviderEvent(data="x" * MAX_STREAM_FRAME_BYTES),)
    piece = InferenceResponse(request_id="r1", index=0, final=False, ok=True, events=events)

    with pytest.raises(LocalProtocolError):
        connection.send(piece)


def test_results_may_be_encoded_already() -> None:
    connection = started()
    connection.receive_data(tool_line("r1"))
    take_all(connection)
    answer = msgspec.structs.replace(tool_answer("r1"), result=msgspec.Raw(b'{"a":1}'))

    assert msgspec.json.decode(connection.send(answer))["result"] == {"a": 1}


@pytest.mark.parametrize(
    "members",
    [
        {"final": False},
        {"final": False, "status": "running", "ok": True},
        {"final": True, "ok": True, "result": {}},
        {"final": True, "ok": True, "decision": DECISION},
        {"final": True, "ok": True, "decision": DECISION, "result": {}, "status": "running"},
        {"final": True, "ok": True, "decision": DECISION, "result": []},
        {"final": True, "ok": False},
        {"final": True, "ok": False, "error": wire_error("not_found"), "result": {}},
        {"final": True},
    ],
)
def test_an_answer_is_progress_or_a_result_or_an_error(members: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"tool\.response"):
        ToolResponse(request_id="r1", index=0, **members)


@settings(max_examples=200)
@given(
    st.lists(
        st.binary(max_size=60)
        | st.sampled_from(
            [bad.data for bad in BAD_LINES if len(bad.data) < 999] + [GOOD, COMPLETE]
        ),
        max_size=6,
    ),
    st.booleans(),
)
def test_any_bytes_give_messages_or_a_violation(chunks: list[bytes], end: bool) -> None:
    connection = started()
    try:
        for chunk in chunks:
            if chunk:
                connection.receive_data(chunk)
            take_all(connection)
        if end:
            connection.receive_data(b"")
            take_all(connection)
    except RemoteProtocolError:
        assert connection.state is AttemptState.ERROR
