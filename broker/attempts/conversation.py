"""One agent's pipe, served from its first frame to its last: dispatch, clocks, the end.

Reads are decided and answered in the task that read the line. Effects run as tasks of
their own, those on the tree in the order in which they were admitted. Every accepted
request gets one final answer; when the attempt stops first, that answer is ``cancelled``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, final

import trio

from broker.attempts.clocks import Clocks
from broker.attempts.eventlog import EventLog
from broker.attempts.gate import Gate
from broker.attempts.gatebook import Asked
from broker.attempts.inference_side import InferenceSide
from broker.attempts.notes import Notes
from broker.attempts.offered import CHANGES, DESCRIPTORS, READS, SLOW_READS
from broker.attempts.pipe import Pipe
from broker.attempts.recorder import Recorder
from protocol import records
from protocol.codes import Outcome, ViolationCode, WireCode
from protocol.connection import CLOSED, NEED_DATA, BrokerConnection, Dropped, Received, Rejected
from protocol.digest import digest_bytes
from protocol.errors import RemoteProtocolError
from protocol.limits import Limits
from protocol.messages import (
    AttemptCancel,
    AttemptComplete,
    CancelReason,
    Event,
    InferenceRequest,
    InferenceResponse,
    ToolRequest,
    ToolResponse,
    ViolationAt,
    ViolationPosition,
    wire_error,
)

#: How long an agent that broke the protocol may take to go by itself (protocol.md 3.9).
VIOLATION_GRACE_MS: Final = 2_000

#: Answers that may wait for an agent that does not read, in largest response frames: what
#: the open requests of one that does read can add up to stays below.
UNREAD_RESPONSES: Final = 2

#: Messages that are handled before others get their turn: some milliseconds of small reads.
TAKEN_AT_ONCE: Final = 64

_OUTCOMES: Final[dict[CancelReason, Outcome]] = {
    "user": "cancelled",
    "deadline": "deadline",
    "budget": "budget",
    "shutdown": "cancelled",
    "checkpoint_stop": "checkpointed",
    "protocol_violation": "protocol_error",
    "policy": "blocked",
}


@dataclass(slots=True)
class Ending:
    """How the conversation ended; the first cause is the one that counts."""

    outcome: Outcome | None = None
    claim: AttemptComplete | None = None


@final
class Conversation:
    """Serves one agent. ``run`` once; ``stop`` may be called from any task of the loop."""

    def __init__(
        self,
        pipe: Pipe,
        connection: BrokerConnection,
        gate: Gate,
        *,
        recorder: Recorder,
        events: EventLog,
        inference: InferenceSide | None,
        limits: Limits,
        on_progress: Callable[[], None],
        withdraw: Callable[[], None],
    ) -> None:
        self._pipe: Final = pipe
        self._connection: Final = connection
        self._gate: Final = gate
        self._recorder: Final = recorder
        self._notes: Final = Notes(recorder)
        self._events: Final = events
        self._inference: Final = inference
        self._limits: Final = limits
        self._on_progress: Final = on_progress
        self._withdraw: Final = withdraw
        self._turn: trio.Event | None = None
        self._effects: trio.Nursery | None = None
        self._scope: Final = trio.CancelScope()
        self._stopping = False
        self._ended = False
        #: Answers that leave together when all that arrived is handled, and their size.
        self._ready: Final[list[bytes]] = []
        self._ready_bytes = 0
        self._clocks: Final = Clocks(
            limits,
            has_open_requests=lambda: bool(connection.open_requests),
            on_time_out=self._time_out,
        )
        self._waiting = 0  #: requests that were open before the message at hand
        #: Whether a line of the agent was a violation, after which no line is read.
        self.broken = False
        self.ending: Final = Ending()
        self.violations: Final[list[ViolationCode]] = []

    async def run(self) -> Ending:
        """Serves until the agent completes, its stream ends, or the attempt was stopped."""
        async with trio.open_nursery() as clocks:
            clocks.start_soon(self._clocks.watch)
            clocks.start_soon(self._watch_stall)
            self._effects = await clocks.start(_keep_effects)
            with self._scope:
                await self._serve()
            clocks.cancel_scope.cancel()
        self._notes.flush()
        return self.ending

    def stop(
        self,
        reason: CancelReason,
        *,
        grace_ms: int | None = None,
        violation: ViolationCode | None = None,
    ) -> None:
        """Cancels the attempt: every open request is answered, then the agent is told.

        The agent has ``grace_ms`` to complete. The second call changes nothing.
        """
        if self._stopping or self.ending.outcome is not None:
            return
        self._stopping = True
        self._recorder.append(records.AttemptStateChanged(state="cancelling"))
        self.ending.outcome = _OUTCOMES[reason]
        self._withdraw()
        self._recorder.write()
        self._cancel_effects()
        if violation is None:
            self._notes.abandoned(len(self._connection.open_requests))
            self._recorder.write()
            for request_id in tuple(self._connection.open_requests):
                self._fail(request_id, "cancelled")
        grace = self._limits.cancel_grace_ms if grace_ms is None else grace_ms
        self._pipe.queue(
            self._connection.send(
                AttemptCancel(
                    reason=reason,
                    grace_ms=grace,
                    violation=violation and ViolationAt(code=violation, at=self._position()),
                )
            )
        )
        self._scope.deadline = trio.current_time() + grace / 1000

    def hurry(self) -> None:
        """Ends the grace of an attempt that was stopped."""
        if self._stopping:
            self._scope.cancel()

    def _cancel_effects(self) -> None:
        """Ends every effect; the agent is still heard."""
        if self._effects is not None:
            self._effects.cancel_scope.cancel()

    # Serving ------------------------------------------------------------------

    async def _serve(self) -> None:
        connection = self._connection
        while True:
            chunk = await self._pipe.read()
            connection.receive_data(chunk)
            while self._take_some():
                # The clocks, a cancel and the other attempts get their turn in a flood too.
                await trio.lowlevel.checkpoint()
            if self._ended:
                return

    def _take_some(self) -> bool:
        """Handles what has arrived, a bounded part; answers leave together, after their records.

        Whether there may be more. Sets ``_ended`` at the end: a completion, a violation, or
        the end of the stream.
        """
        connection, ready = self._connection, self._ready
        ended, taken = False, 0
        violation: RemoteProtocolError | None = None
        try:
            while not ended and taken < TAKEN_AT_ONCE:
                self._waiting = len(connection.open_requests)
                if (item := connection.next_event()) is NEED_DATA:
                    break
                taken += 1
                if item is CLOSED:
                    self.ending.outcome = self.ending.outcome or "agent_exited"
                    ended = True
                else:
                    self._clocks.heard()
                    if (answer := self._handle(item, connection.last_frame)) is not None:
                        ready.append(answer)
                        self._ready_bytes += len(answer)
                    ended = self.ending.claim is not None
        except RemoteProtocolError as error:
            violation = error
        self._ended = ended or violation is not None
        self._recorder.write()
        self._events.flush()
        if ready:
            self._pipe.queue(ready[0] if len(ready) == 1 else b"".join(ready))
            ready.clear()
            self._ready_bytes = 0
        if violation is not None:
            self._break_off(violation)
        self._on_progress()
        return taken == TAKEN_AT_ONCE and not self._ended

    def _handle(self, item: Received, frame: bytes) -> bytes | None:
        """The answer, where it can be given at once; an effect is started and answers later."""
        match item:
            case ToolRequest():
                return self._handle_tool(item, frame)
            case InferenceRequest():
                return self._handle_inference(item, frame)
            case Event():
                self._handle_event(item, frame)
            case AttemptComplete():
                self._notes.abandoned(self._waiting)
                self.ending.claim = item
                self.ending.outcome = self.ending.outcome or item.status
                self._cancel_effects()
            case Rejected():
                self._notes.refused(item.code, frame)
                return self._connection.reject(item)
            case Dropped(code="stdout_noise"):
                self._notes.noise(frame)
            case Dropped():
                self._notes.dropped(item.code, frame, trio.current_time())
        return None

    def _handle_tool(self, request: ToolRequest, frame: bytes) -> bytes | None:
        if (refused := self._refused()) is not None:
            self._notes.refused(refused, frame)
            return self._connection.fail(request.request_id, wire_error(refused))
        asked = Asked(request, self._gate.admit(request.request_id, frame), len(frame))
        if request.tool not in DESCRIPTORS:
            return self._connection.send(self._gate.unknown_tool(asked))
        if request.tool in READS - SLOW_READS and self._turn is None:
            return self._connection.send(self._gate.read(asked))
        assert self._effects is not None
        if request.tool not in READS:
            self._gate.book.request(asked)
        before, mine = self._turn, None
        if request.tool in CHANGES:
            mine = self._turn = trio.Event()
        self._effects.start_soon(self._effect, asked, before, mine)
        return None

    async def _effect(
        self, asked: Asked, before: trio.Event | None, mine: trio.Event | None
    ) -> None:
        """One request that waits for the patches before it; a patch holds up those behind."""
        request = asked.request
        assert isinstance(request, ToolRequest)
        try:
            if before is not None:
                await before.wait()
            if request.tool in SLOW_READS:
                answer = await self._gate.search(asked)
                self._recorder.write()
            elif request.tool in READS:
                answer = self._gate.read(asked)
                self._recorder.write()
            elif request.tool in CHANGES:
                answer = await self._gate.patch(asked)
            else:
                answer = await self._gate.recipe(asked, self._gate.tree)
            self._answer(answer)
        finally:
            if mine is not None:
                mine.set()
                if self._turn is mine:
                    self._turn = None

    def _refused(self) -> WireCode | None:
        """Why no request is taken now. Answers that the agent does not read hold it up."""
        if self._stopping:
            return "cancelled"
        unread = self._pipe.unsent + self._ready_bytes
        if unread > UNREAD_RESPONSES * self._limits.max_response_frame_bytes:
            return "too_many_in_flight"
        return None

    def _handle_inference(self, request: InferenceRequest, frame: bytes) -> bytes | None:
        if (refused := self._refused()) is not None:
            self._notes.refused(refused, frame)
            return self._connection.fail(request.request_id, wire_error(refused))
        asked = Asked(request, self._gate.admit(request.request_id, frame), len(frame))
        assert self._effects is not None
        self._gate.book.request(asked)
        self._effects.start_soon(self._infer, asked, self._inference)
        return None

    async def _infer(self, asked: Asked, side: InferenceSide | None) -> None:
        def send(frame: InferenceResponse) -> None:
            self._recorder.write()
            self._answer(frame)

        await self._gate.infer(asked, side=side, send=send)

    def _handle_event(self, event: Event, frame: bytes) -> None:
        if not self._events.admits(trio.current_time()):
            self._notes.dropped("event_rejected", frame, trio.current_time())
            return
        if not self._recorder.has_room_for_events():
            self._notes.dropped("limit_exceeded", frame, trio.current_time())
            return
        self._events.agent_event(event)
        self._recorder.append(
            records.EventSeen(
                kind=self._events.closed_kind(event.kind),
                digest=digest_bytes(frame),
                bytes=len(frame),
            )
        )

    def _answer(self, message: ToolResponse | InferenceResponse) -> None:
        """Queues an effect's answer, unless it came too late: the attempt stopped or ended."""
        is_open = message.request_id in self._connection.open_requests
        if is_open and not self._stopping and not self._ended:
            self._pipe.queue(self._connection.send(message))
            self._clocks.answered()

    def _fail(self, request_id: str, code: WireCode) -> None:
        self._pipe.queue(self._connection.fail(request_id, wire_error(code)))

    def _position(self) -> ViolationPosition:
        connection = self._connection
        return ViolationPosition(frame=connection.frames, byte=connection.bytes)

    # The end ------------------------------------------------------------------

    def _break_off(self, violation: RemoteProtocolError) -> None:
        """A violation that ends the attempt; after a completion it only flags it."""
        self.broken = True
        self._violation(violation.code, violation)
        if violation.reason == "truncated":
            self.ending.outcome = self.ending.outcome or "agent_exited"
            return
        self.stop("protocol_violation", grace_ms=VIOLATION_GRACE_MS, violation=violation.code)

    def _violation(self, code: ViolationCode, error: RemoteProtocolError | None = None) -> None:
        at = self._position()
        self.violations.append(code)
        self._recorder.append(
            records.Violation(
                code=code,
                reason=None if error is None else error.reason,
                fatal=True,
                frame=at.frame,
                byte=at.byte,
            )
        )
        self._recorder.write()

    def flag(self, error: RemoteProtocolError) -> None:
        """What came after the agent's last frame; the outcome stays as it is."""
        self.broken = True
        self._violation(error.code, error)

    async def _watch_stall(self) -> None:
        await self._pipe.stalled.wait()
        self._time_out("agent_not_reading")
        self._scope.cancel()

    def _time_out(self, code: ViolationCode) -> None:
        if self.ending.outcome is None:
            self._violation(code)
            self.stop("protocol_violation", grace_ms=VIOLATION_GRACE_MS, violation=code)


async def _keep_effects(*, task_status: trio.TaskStatus[trio.Nursery]) -> None:
    """Gives a nursery for effects that is cancelled apart from whoever serves the pipe."""
    async with trio.open_nursery() as effects:
        task_status.started(effects)
        await trio.sleep_forever()
