"""The broker's side against the simplest model of it: a few sets, a dict and a flag."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, precondition, rule

from protocol.connection import CLOSED, NEED_DATA, BrokerConnection, Dropped, Rejected
from protocol.errors import LocalProtocolError, RemoteProtocolError
from protocol.limits import Limits
from protocol.messages import (
    AttemptCancel,
    AttemptComplete,
    Event,
    InferenceRequest,
    ToolRequest,
    wire_error,
)
from protocol.state import AttemptState
from tests.protocol.frames import (
    COMPLETE,
    GOOD,
    event_line,
    inference_answer,
    inference_line,
    inference_piece,
    ready_line,
    task_start,
    tool_answer,
    tool_line,
    tool_progress,
)

LIMITS = Limits(max_in_flight=3, max_requests=8)
IDS = st.sampled_from([f"r{number}" for number in range(24)])


class OneFinalAnswerForEachRequest(RuleBasedStateMachine):
    """What the agent sends arrives cut at any place; what the broker sends is tried at any time."""

    answered: Bundle[str] = Bundle("answered")

    def __init__(self) -> None:
        super().__init__()
        self.connection = BrokerConnection(LIMITS)
        self.connection.send(task_start(LIMITS))
        self.used: set[str] = set()
        self.open: dict[str, tuple[str, bool, int]] = {}  # id -> kind, counts, next index
        self.cancelled = self.completed = self.broken = self.ready = False

    def deliver(self, line: bytes, cut: int) -> Any:
        """The line in two chunks; what comes out, or the violation."""
        cut %= len(line)
        try:
            if cut:
                self.connection.receive_data(line[:cut])
                assert self.broken or self.connection.next_event() is NEED_DATA
            self.connection.receive_data(line[cut:])
            return self.connection.next_event()
        except RemoteProtocolError as error:
            return error.code

    def expect_violation(self, seen: Any, code: str) -> None:
        assert seen == code
        self.broken = True

    @rule(request_id=IDS, kind=st.sampled_from(["tool", "inference"]), good=st.booleans(),
          cut=st.integers(0, 500))  # fmt: skip
    @precondition(lambda self: not self.broken)
    def a_request_comes(self, request_id: str, kind: str, good: bool, cut: int) -> None:
        make = tool_line if kind == "tool" else inference_line
        seen = self.deliver(make(request_id, **({} if good else {"extra": 1})), cut)

        if self.completed:
            return self.expect_violation(seen, "after_complete")
        if request_id in self.used:
            return self.expect_violation(seen, "duplicate_request_id")
        self.used.add(request_id)
        in_flight = sum(counts for _, counts, _ in self.open.values())
        if len(self.used) > 2 * LIMITS.max_requests:
            return self.expect_violation(seen, "limit_exceeded")
        code = None
        if len(self.used) > LIMITS.max_requests:
            code = "limit_exceeded"
        elif not good:
            code = "invalid_message"
        elif in_flight >= LIMITS.max_in_flight:
            code = "too_many_in_flight"
        self.open[request_id] = (kind, code is None, 0)
        if code is None:
            assert isinstance(seen, ToolRequest if kind == "tool" else InferenceRequest)
        else:
            assert isinstance(seen, Rejected)
            assert seen.code == code
        return None

    @rule(good=st.booleans(), cut=st.integers(0, 500))
    @precondition(lambda self: not self.broken)
    def an_event_comes(self, good: bool, cut: int) -> None:
        seen = self.deliver(GOOD if good else event_line("agent.dance"), cut)
        if self.completed:
            self.expect_violation(seen, "after_complete")
        else:
            assert isinstance(seen, Event if good else Dropped)

    @rule()
    @precondition(lambda self: not (self.broken or self.completed or self.ready))
    def the_agent_is_ready(self) -> None:
        assert isinstance(self.deliver(ready_line(), 0), Event)
        self.ready = True

    @rule()
    @precondition(lambda self: not self.broken)
    def the_agent_completes(self) -> None:
        seen = self.deliver(COMPLETE, 0)
        if self.completed:
            self.expect_violation(seen, "after_complete")
        else:
            assert isinstance(seen, AttemptComplete)
            self.completed = True
            self.open.clear()

    @rule(line=st.sampled_from([b"noise\n", b"{}\n", b'{"v":1,"type":"task.start"}\n', b"\xff\n"]))
    @precondition(lambda self: not self.broken and len(self.used) > 3)
    def the_agent_breaks_the_protocol(self, line: bytes) -> None:
        assert isinstance(self.deliver(line, 0), str)
        self.broken = True

    @rule(request_id=IDS, index=st.integers(0, 3), kind=st.sampled_from(["tool", "inference"]),
          final=st.booleans())  # fmt: skip
    def the_broker_answers(self, request_id: str, index: int, kind: str, final: bool) -> None:
        make = {
            ("tool", True): tool_answer,
            ("tool", False): tool_progress,
            ("inference", True): inference_answer,
            ("inference", False): inference_piece,
        }[kind, final]
        known = self.open.get(request_id)
        partial = kind == "tool" and self.ready
        legal = (
            not (self.broken or self.completed)
            and known is not None
            and (known[0], known[2]) == (kind, index)
            and (final or partial)
        )

        try:
            self.connection.send(make(request_id, index))
        except LocalProtocolError:
            assert not legal
            return
        assert legal
        assert known is not None
        if final:
            del self.open[request_id]
        else:
            self.open[request_id] = (known[0], known[1], index + 1)

    @rule()
    @precondition(lambda self: self.open and not self.broken)
    def the_oldest_request_fails(self) -> None:
        oldest = next(iter(self.open))
        assert oldest == next(iter(self.connection.open_requests))
        self.connection.fail(oldest, wire_error("cancelled"))
        del self.open[oldest]

    @rule()
    def the_broker_cancels(self) -> None:
        # Once, after a violation too; not after the agent's last word, unless that came broken.
        legal = not self.cancelled and (self.broken or not self.completed)
        try:
            self.connection.send(AttemptCancel(reason="user", grace_ms=1))
        except LocalProtocolError:
            assert not legal
        else:
            assert legal
            self.cancelled = True

    @invariant()
    def open_requests_are_the_models(self) -> None:
        if not self.broken:
            assert list(self.connection.open_requests) == list(self.open)
            for request_id, (_, _, index) in self.open.items():
                assert self.connection.open_requests[request_id].next_index == index

    @invariant()
    def the_state_is_the_models(self) -> None:
        state = self.connection.state
        assert (state is AttemptState.ERROR) == self.broken
        if not self.broken:
            assert (state is AttemptState.COMPLETED) == self.completed
            if not self.completed:
                assert (state is AttemptState.CANCELLING) == self.cancelled

    def teardown(self) -> None:
        self.connection.receive_data(b"")
        if self.broken:
            return
        assert self.connection.next_event() is CLOSED


TestOneFinalAnswerForEachRequest = OneFinalAnswerForEachRequest.TestCase
TestOneFinalAnswerForEachRequest.settings = settings(max_examples=150, stateful_step_count=40)
