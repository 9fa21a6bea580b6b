"""The table is the law, on both sides: everything that is not in it raises and changes nothing."""

import itertools
from typing import Any

import msgspec
import pytest

from protocol.connection import CLOSED, NEED_DATA, AgentConnection, BrokerConnection
from protocol.errors import LocalProtocolError, RemoteProtocolError
from protocol.limits import Limits
from protocol.messages import (
    AttemptCancel,
    AttemptComplete,
    Event,
    InferenceRequest,
    InferenceResponse,
    TaskStart,
    ToolRequest,
    ToolResponse,
)
from protocol.state import (
    TRANSITIONS,
    AttemptState,
    EndOfStream,
    Violation,
    after,
    expects_only_the_end,
    hears_agent,
    violation_of,
)
from tests.protocol.frames import (
    COMPLETE,
    EXAMPLES,
    event_line,
    inference_line,
    ready_line,
    task_start,
    tool_line,
)

FROM_AGENT = (Event, ToolRequest, InferenceRequest, AttemptComplete)
FROM_BROKER = (TaskStart, ToolResponse, InferenceResponse, AttemptCancel)
STATES = tuple(AttemptState)

LINES = {
    Event: event_line(),
    ToolRequest: tool_line("new"),
    InferenceRequest: inference_line("new"),
    AttemptComplete: COMPLETE,
}


def broker_in(state: AttemptState) -> BrokerConnection:
    """A broker in ``state``; where requests are answered, r1 is open (tool) and r2 (inference)."""
    connection = BrokerConnection(Limits())
    if state is AttemptState.IDLE:
        return connection
    connection.send(task_start())
    if state is AttemptState.STARTING:
        return connection
    if state in (AttemptState.RUNNING, AttemptState.CANCELLING):
        connection.receive_data(ready_line() + tool_line("r1") + inference_line("r2"))
        for _ in range(3):
            connection.next_event()
    if state is AttemptState.CANCELLING:
        connection.send(AttemptCancel(reason="user", grace_ms=1))
    if state is AttemptState.COMPLETED:
        connection.receive_data(COMPLETE)
        connection.next_event()
    if state is AttemptState.DONE:
        connection.receive_data(b"")
        assert connection.next_event() is CLOSED
    if state is AttemptState.ERROR:
        connection.receive_data(b"noise\n")
        with pytest.raises(RemoteProtocolError):
            connection.next_event()
    assert connection.state is state
    return connection


def fitting(message_type: type[Any]) -> Any:
    """A message of the broker that answers what is open."""
    if message_type is InferenceResponse:
        return msgspec.structs.replace(EXAMPLES[InferenceResponse], request_id="r2")
    return EXAMPLES[message_type]


@pytest.mark.parametrize(("state", "message"), list(itertools.product(STATES, FROM_BROKER)))
def test_only_the_table_lets_a_broker_speak(state: AttemptState, message: type[Any]) -> None:
    connection = broker_in(state)
    target = TRANSITIONS[state].get(message)
    before = (dict(connection.open_requests), connection.features)

    if target is None:
        with pytest.raises(LocalProtocolError) as caught:
            connection.send(fitting(message))
        assert caught.value.code == violation_of(state)
        assert connection.state is state
        assert (dict(connection.open_requests), connection.features) == before
    else:
        assert connection.send(fitting(message)).endswith(b"\n")
        assert connection.state is target


@pytest.mark.parametrize(("state", "message"), list(itertools.product(STATES, FROM_AGENT)))
def test_only_the_table_lets_an_agent_be_heard(state: AttemptState, message: type[Any]) -> None:
    connection = broker_in(state)
    if state is AttemptState.DONE:
        with pytest.raises(LocalProtocolError):
            connection.receive_data(LINES[message])
        return
    target = TRANSITIONS[state].get(message)

    connection.receive_data(LINES[message])

    if target is None:
        with pytest.raises(RemoteProtocolError) as caught:
            connection.next_event()
        if state is not AttemptState.ERROR:
            assert caught.value.code == violation_of(state)
        assert connection.state is AttemptState.ERROR
    else:
        assert isinstance(connection.next_event(), message)
        assert connection.state is target


@pytest.mark.parametrize("state", [state for state in STATES if state is not AttemptState.DONE])
def test_the_end_is_done_unless_there_was_an_error(state: AttemptState) -> None:
    connection = broker_in(state)

    connection.receive_data(b"")

    if state is AttemptState.ERROR:
        with pytest.raises(RemoteProtocolError):
            connection.next_event()
    else:
        assert connection.next_event() is CLOSED
        assert connection.next_event() is CLOSED
        assert connection.state is AttemptState.DONE


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("message", [*FROM_AGENT, *FROM_BROKER, EndOfStream, Violation])
def test_the_one_function_reads_the_table(state: AttemptState, message: type[Any]) -> None:
    assert after(state, message) is TRANSITIONS[state].get(message)


def test_where_an_agent_is_heard_all_its_messages_are_legal() -> None:
    for state in STATES:
        legal = [message in TRANSITIONS[state] for message in FROM_AGENT]
        assert legal == [hears_agent(state)] * 4

    assert [state for state in STATES if expects_only_the_end(state)] == [AttemptState.COMPLETED]


def test_nothing_comes_before_the_start_on_the_agents_side() -> None:
    broker = broker_in(AttemptState.RUNNING)
    frames = (
        broker.send(EXAMPLES[ToolResponse]),  # type: ignore[arg-type]
        broker.send(fitting(InferenceResponse)),
        broker.send(EXAMPLES[AttemptCancel]),  # type: ignore[arg-type]
    )
    for frame in frames:
        agent = AgentConnection()
        agent.receive_data(frame)
        with pytest.raises(RemoteProtocolError) as caught:
            agent.next_event()
        assert caught.value.code == "out_of_order"
        for message in FROM_AGENT:
            with pytest.raises(LocalProtocolError):
                agent.send(EXAMPLES[message])  # type: ignore[arg-type]


@pytest.mark.parametrize("message", FROM_AGENT)
def test_an_agent_says_nothing_before_the_start_or_after_the_end(message: type[Any]) -> None:
    before, done = AgentConnection(), AgentConnection()
    done.receive_data(BrokerConnection(Limits()).send(task_start()))
    done.next_event()
    done.send(AttemptComplete(status="blocked"))

    for connection, code in ((before, "out_of_order"), (done, "after_complete")):
        state = connection.state
        with pytest.raises(LocalProtocolError) as caught:
            connection.send(EXAMPLES[message])  # type: ignore[arg-type]
        assert caught.value.code == code
        assert connection.state is state
        assert connection.next_event() is NEED_DATA
