"""The law of one attempt: which message is legal when. One table, one function reads it.

Rules of this file:

1. Every change of state is in ``TRANSITIONS``; no other module compares states.
2. The file does not know which side it runs on, so that both are held to the same law.

``IDLE`` is before ``task.start``; ``STARTING`` until the first valid frame of the agent;
``RUNNING`` until one side ends it; ``CANCELLING`` after ``attempt.cancel``, where requests
that crossed it on the way are still legal and are answered ``cancelled``; ``COMPLETED``
after ``attempt.complete``, where nothing is; ``DONE`` after the end of the agent's
stream. ``ERROR`` is after a violation: all that is left is to tell the agent.

The table says what may be said, not how often: that a request id is new, that a request
is answered once and that a cancel is sent once is kept by ``protocol.connection``.
"""

from enum import Enum
from typing import Final

from protocol.codes import ViolationCode
from protocol.messages import (
    AttemptCancel,
    AttemptComplete,
    Event,
    FromAgent,
    FromBroker,
    InferenceRequest,
    InferenceResponse,
    TaskStart,
    ToolRequest,
    ToolResponse,
)


class AttemptState(Enum):
    """Where an attempt is, as both ends of its pipe see it."""

    IDLE = "idle"
    STARTING = "starting"
    RUNNING = "running"
    CANCELLING = "cancelling"
    COMPLETED = "completed"
    DONE = "done"
    ERROR = "error"


class EndOfStream:
    """Stands for the end of the agent's stream in the table."""


class Violation:
    """Stands for what the peer may never do in the table."""


Happening = type[FromAgent] | type[FromBroker] | type[EndOfStream] | type[Violation]

_S = AttemptState

TRANSITIONS: Final[dict[AttemptState, dict[Happening, AttemptState]]] = {
    _S.IDLE: {
        TaskStart: _S.STARTING,
        EndOfStream: _S.DONE,
        Violation: _S.ERROR,
    },
    _S.STARTING: {
        Event: _S.RUNNING,
        ToolRequest: _S.RUNNING,
        InferenceRequest: _S.RUNNING,
        AttemptCancel: _S.CANCELLING,
        AttemptComplete: _S.COMPLETED,
        EndOfStream: _S.DONE,
        Violation: _S.ERROR,
    },
    _S.RUNNING: {
        Event: _S.RUNNING,
        ToolRequest: _S.RUNNING,
        ToolResponse: _S.RUNNING,
        InferenceRequest: _S.RUNNING,
        InferenceResponse: _S.RUNNING,
        AttemptCancel: _S.CANCELLING,
        AttemptComplete: _S.COMPLETED,
        EndOfStream: _S.DONE,
        Violation: _S.ERROR,
    },
    _S.CANCELLING: {
        Event: _S.CANCELLING,
        ToolRequest: _S.CANCELLING,
        ToolResponse: _S.CANCELLING,
        InferenceRequest: _S.CANCELLING,
        InferenceResponse: _S.CANCELLING,
        AttemptComplete: _S.COMPLETED,
        EndOfStream: _S.DONE,
        Violation: _S.ERROR,
    },
    _S.COMPLETED: {
        EndOfStream: _S.DONE,
        Violation: _S.ERROR,
    },
    _S.DONE: {},
    _S.ERROR: {
        AttemptCancel: _S.ERROR,
    },
}


def after(state: AttemptState, happening: Happening) -> AttemptState | None:
    """The state that ``happening`` leads to, or None where it is illegal."""
    return TRANSITIONS[state].get(happening)


def hears_agent(state: AttemptState) -> bool:
    """Whether any message of the agent is legal in ``state``."""
    return AttemptComplete in TRANSITIONS[state]


def awaits_first_frame(state: AttemptState) -> bool:
    """Whether the agent has been told its task and has not said anything valid yet."""
    return state is AttemptState.STARTING


def expects_only_the_end(state: AttemptState) -> bool:
    """Whether no message is legal in ``state``, but the stream has not ended."""
    legal = TRANSITIONS[state].keys()
    return EndOfStream in legal and legal <= {EndOfStream, Violation}


def violation_of(state: AttemptState) -> ViolationCode:
    """What an illegal message in ``state`` is called."""
    return _VIOLATIONS.get(state, "out_of_order")


_VIOLATIONS: Final[dict[AttemptState, ViolationCode]] = {
    _S.COMPLETED: "after_complete",
    _S.DONE: "after_complete",
}
