"""Messages and lines that the tests of the protocol share."""

import json
from typing import Any, Final

from protocol.connection import BrokerConnection
from protocol.limits import Limits
from protocol.messages import (
    AttemptCancel,
    AttemptComplete,
    Budget,
    Event,
    FromAgent,
    FromBroker,
    InferenceOffer,
    InferenceRequest,
    InferenceResponse,
    ModelOffer,
    ProviderEvent,
    Repository,
    Task,
    TaskStart,
    ToolRequest,
    ToolResponse,
    Usage,
    WireDecision,
    wire_error,
)
from protocol.tools import TOOL_FORMS

DIGEST: Final = "sha256:" + "0" * 64
FEATURES: Final = ("inference_streaming", "tool_progress", "request_cancel", "agent_state")
DECISION: Final = WireDecision(outcome="allowed", action_digest=DIGEST, policy_digest=DIGEST)
TOOLS: Final = tuple(
    form.offer(approval="never", max_result_bytes=1024) for form in TOOL_FORMS.values()
)
USAGE: Final = Usage(input_tokens=1, output_tokens=2)


def task_start(limits: Limits | None = None, **changes: Any) -> TaskStart:
    members: dict[str, Any] = {
        "protocol_version": 1,
        "schema_digest": DIGEST,
        "attempt_id": "attempt-1",
        "task": Task(instruction="Repair the sum."),
        "repository": Repository(name="tally", base_commit="0" * 40, source_digest=DIGEST),
        "tools": TOOLS,
        "recipes": (),
        "inference": InferenceOffer(
            apis=("openai.chat",),
            models=(ModelOffer(alias="main", role="main"),),
            streaming=True,
            hosted_tools=(),
            budget=Budget(),
        ),
        "limits": limits or Limits(),
        "features": FEATURES,
        "deadline_ms": 60_000,
        "resume": None,
    }
    return TaskStart(**{**members, **changes})


def line(message_type: str, /, **members: Any) -> bytes:
    """A line of the agent with its LF; ``None`` members are left out."""
    given = {name: value for name, value in members.items() if value is not None}
    return json.dumps({"v": 1, "type": message_type, **given}).encode() + b"\n"


def tool_line(request_id: str = "r1", **members: Any) -> bytes:
    return line(
        "tool.request",
        **{"requestId": request_id, "tool": "read_file", "input": {"path": "a"}, **members},
    )


def inference_line(request_id: str = "r1", **members: Any) -> bytes:
    body = {"model": "main", "messages": []}
    return line(
        "inference.request",
        **{
            "requestId": request_id,
            "api": "openai.chat",
            "model": "main",
            "stream": False,
            "body": body,
            **members,
        },
    )


def event_line(kind: str = "agent.message", data: Any = None, **members: Any) -> bytes:
    return line("event", kind=kind, data={"text": "hello"} if data is None else data, **members)


def ready_line(**members: Any) -> bytes:
    data = {
        "protocolVersion": 1,
        "agent": {"name": "test", "version": "1"},
        "features": list(FEATURES),
        **members,
    }
    return event_line("agent.ready", data)


COMPLETE: Final = line("attempt.complete", status="succeeded")
GOOD: Final = event_line()

#: One message of every type, by its type.
EXAMPLES: Final[dict[type[Any], FromAgent | FromBroker]] = {
    TaskStart: task_start(),
    Event: Event(kind="agent.message", data={"text": "hello"}),
    ToolRequest: ToolRequest(request_id="r1", tool="read_file", input={"path": "a"}),
    InferenceRequest: InferenceRequest(
        request_id="r1", api="openai.chat", model="main", stream=False, body={"model": "main"}
    ),
    ToolResponse: ToolResponse(
        request_id="r1", index=0, final=True, ok=True, decision=DECISION, result={"text": "x"}
    ),
    InferenceResponse: InferenceResponse(
        request_id="r1",
        index=0,
        final=True,
        ok=True,
        response={"id": "m"},
        usage=USAGE,
        model="main",
        finish_reason="stop",
    ),
    AttemptCancel: AttemptCancel(reason="user", grace_ms=1000),
    AttemptComplete: AttemptComplete(status="succeeded"),
}


def tool_answer(request_id: str = "r1", index: int = 0) -> ToolResponse:
    return ToolResponse(
        request_id=request_id, index=index, final=True, ok=True, decision=DECISION, result={}
    )


def tool_progress(request_id: str = "r1", index: int = 0) -> ToolResponse:
    return ToolResponse(request_id=request_id, index=index, final=False, status="running")


def tool_failure(request_id: str = "r1", index: int = 0) -> ToolResponse:
    return ToolResponse(
        request_id=request_id, index=index, final=True, ok=False, error=wire_error("not_found")
    )


def inference_piece(request_id: str = "r1", index: int = 0) -> InferenceResponse:
    return InferenceResponse(
        request_id=request_id,
        index=index,
        final=False,
        ok=True,
        events=(ProviderEvent(event="delta", data={"text": "a"}),),
    )


def inference_answer(request_id: str = "r1", index: int = 0) -> InferenceResponse:
    return InferenceResponse(
        request_id=request_id,
        index=index,
        final=True,
        ok=True,
        response={},
        usage=USAGE,
        model="main",
        finish_reason="stop",
    )


def started(
    limits: Limits | None = None, *, ready: bool = False, **changes: Any
) -> BrokerConnection:
    """A broker that has sent ``task.start``, and perhaps has heard that the agent is ready."""
    connection = BrokerConnection(limits or Limits())
    connection.send(task_start(limits, **changes))
    if ready:
        connection.receive_data(ready_line())
        assert isinstance(connection.next_event(), Event)
    return connection
