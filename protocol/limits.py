"""The bounds of one attempt: each has a name, a unit and a reason, and is advertised.

``Limits`` is what ``task.start`` tells the agent and what the broker enforces; the
constants are fixed for version 1. Nothing here enforces anything.
"""

from typing import Annotated, Final

import msgspec

KIB: Final = 1024
MIB: Final = 1024 * KIB

#: I-JSON: the integers that every reader holds exactly.
MAX_SAFE_INTEGER: Final = 2**53 - 1

#: Nesting of one line, the message itself counted. Hand-written JSON stays below 20.
MAX_DEPTH: Final = 64

#: Nesting of an inference body or response, itself counted: tool schemas of providers
#: nest deeper than messages do.
MAX_BODY_DEPTH: Final = 128

#: Invalid messages (dropped events, requests with a bad field) in one attempt. A
#: working agent sends none; a hundred leave room for one that is being debugged.
MAX_INVALID: Final = 100

#: Text before the first frame of an image that asked for it: a runtime's banner or its
#: warnings, not a log.
MAX_NOISE_LINES: Final = 64
MAX_NOISE_BYTES: Final = 64 * KIB

#: A streaming frame is one write to the agent; above this a slow reader would hold
#: too much at once.
MAX_STREAM_FRAME_BYTES: Final = 256 * KIB

#: Provider events in one streaming frame, so that one frame stays one short task.
MAX_STREAM_EVENTS: Final = 64

#: ``meta`` is stored with every ledger record and never read.
MAX_META_BYTES: Final = 8 * KIB

#: The result patch is binary-capable; the text patches of the agent are bounded by
#: ``max_patch_bytes``.
MAX_RESULT_PATCH_BYTES: Final = 8 * MIB

#: All ``task.context`` items together, so that ``task.start`` stays a small frame.
MAX_CONTEXT_BYTES: Final = 1 * MIB

#: The claim that ends an attempt is kept whole in the ledger.
MAX_CLAIM_BYTES: Final = 64 * KIB

#: One tool's input schema: every model is sent all of them on every turn.
MAX_INPUT_SCHEMA_BYTES: Final = 16 * KIB

Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_SAFE_INTEGER)]
"""How many; bytes too."""

Ms = Annotated[int, msgspec.Meta(ge=0, le=MAX_SAFE_INTEGER)]
"""Milliseconds."""

_Positive = Annotated[int, msgspec.Meta(ge=1, le=MAX_SAFE_INTEGER)]
_Depth = Annotated[int, msgspec.Meta(ge=MAX_DEPTH, le=MAX_DEPTH)]


class EventRate(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """How fast events may come; what is over is dropped and counted."""

    per_second: _Positive = 200
    burst: _Positive = 1000


class Limits(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The bounds of one attempt, in bytes, milliseconds and counts."""

    #: A line of the agent, its LF counted; a 256 KiB patch doubles when it is escaped.
    max_frame_bytes: _Positive = 1 * MIB
    #: The same for ``inference.request``: 200k tokens of context are about 1 MB of
    #: JSON, a million about 5 MB, and images come on top.
    max_inference_frame_bytes: _Positive = 8 * MIB
    #: A line of the broker: the largest is an inference response.
    max_response_frame_bytes: _Positive = 8 * MIB
    #: Requests without a final answer. Real agents open 2 at once.
    max_in_flight: _Positive = 16
    max_requests: _Positive = 10_000
    max_events: _Positive = 100_000
    #: ``data`` of one event, encoded.
    max_event_bytes: _Positive = 128 * KIB
    event_rate: EventRate = EventRate()
    #: ``input`` of one tool request, encoded.
    max_tool_input_bytes: _Positive = 512 * KIB
    #: The text of one patch.
    max_patch_bytes: _Positive = 256 * KIB
    #: What one read gives at most.
    max_read_bytes: _Positive = 256 * KIB
    #: The latest ``agent.state``, which a checkpoint carries.
    agent_state_bytes: _Positive = 64 * KIB
    #: Standard error that is kept; the rest is counted.
    max_stderr_bytes: _Positive = 1 * MIB
    start_timeout_ms: Ms = 60_000
    #: No frame while no request is open. A model may think for a long time.
    idle_timeout_ms: Ms = 1_800_000
    #: How long the agent may leave its standard input unread.
    write_stall_ms: Ms = 30_000
    cancel_grace_ms: Ms = 10_000
    exit_grace_ms: Ms = 10_000
    #: Fixed in version 1; ``MAX_BODY_DEPTH`` inside ``body``.
    max_depth: _Depth = MAX_DEPTH
