"""One attempt from its stage to its result: prepared, started, served, ended, collected.

Whatever happens after the agent was started, the sandbox is gone, the ledger says how
it ended and the result folder is complete when ``run`` returns. The checkout is only
ever read.
"""

import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, final

import msgspec
import trio

from broker.attempts.asking import Approver
from broker.attempts.conversation import VIOLATION_GRACE_MS, Conversation, Ending
from broker.attempts.eventlog import EventLog
from broker.attempts.faults import fault_of
from broker.attempts.finishing import finish, finish_unstarted
from broker.attempts.offers import make_task_start
from broker.attempts.opening import World, build_world, record_start
from broker.attempts.pipe import Pipe
from broker.attempts.prepare import Prepared, prepare
from broker.attempts.progress import Counters, Watcher
from broker.attempts.recorder import Recorder
from broker.attempts.scratch import scratch_folder
from broker.attempts.spec import AttemptResult, AttemptSpec
from broker.engines.process import Exit, Sandbox
from broker.engines.spec import SandboxSpec
from broker.evidence.ledger import Ledger
from broker.evidence.store import ArtifactStore
from protocol import records
from protocol.connection import CLOSED, NEED_DATA, BrokerConnection
from protocol.errors import Fault, Refusal, RemoteProtocolError
from protocol.messages import CancelReason
from protocol.records import AttemptState

#: What an agent sees of an environment; nothing of the host's.
AGENT_ENVIRONMENT: Final = (
    ("PATH", "/usr/local/bin:/usr/bin:/bin"),
    ("HOME", "/tmp"),
    ("TMPDIR", "/tmp"),
    ("LANG", "C.UTF-8"),
    ("AGENT_PROTOCOL_VERSION", "1"),
)
#: How long the agent may still live when its grace is over (protocol.md 3.4).
KILL_GRACE_MS: Final = 2_000
#: How long the rest of its standard error is read once it has ended: a process that it
#: left behind may hold the pipe.
STDERR_SECONDS: Final = 0.5
#: A second Ctrl-C that comes after this is one of somebody who will not wait.
IMPATIENT_SECONDS: Final = 1.0
#: The engine's own dead-man switch fires this long after our deadline.
DEADLINE_SLACK_SECONDS: Final = 60.0


def now_ms() -> int:
    """Milliseconds since 1970, by the broker's clock."""
    return time.time_ns() // 1_000_000


@final
class Attempt:
    """One attempt. ``run`` once; ``cancel`` from any task, at any time."""

    def __init__(self, spec: AttemptSpec, *, approver: Approver, watcher: Watcher) -> None:
        self._spec: Final = spec
        self._approver: Final = approver
        self._watcher: Final = watcher
        self._counters: Final = Counters()
        self._conversation: Conversation | None = None
        self._cancel_reason: CancelReason | None = None
        self._cancelled_at = math.inf
        self._preparing: Final = trio.CancelScope()

    def cancel(self, reason: CancelReason) -> None:
        """Ends the attempt in order: its open requests are answered, its result is written.

        The second time, if it comes a moment later, the agent's grace is over.
        """
        now = trio.current_time()
        again = now - self._cancelled_at > IMPATIENT_SECONDS
        self._cancelled_at = min(self._cancelled_at, now)
        self._cancel_reason = self._cancel_reason or reason
        if self._conversation is None:
            self._preparing.cancel()
        elif again:
            self._conversation.hurry()
        else:
            self._phase("cancelling")
            self._conversation.stop(reason)

    async def run(self) -> AttemptResult:
        """Runs the attempt. Raises ``Refusal`` or ``Fault`` when it could not be started."""
        spec = self._spec
        self._phase("staging")
        made = _make_out(spec.out, spec.repo)
        try:
            with scratch_folder(spec.state, spec.attempt_id) as scratch:
                with self._preparing:
                    prepared = await prepare(spec, scratch=_subfolder(scratch, "objects"))
                if self._preparing.cancelled_caught:
                    return await self._end_unstarted()
                try:
                    return await self._run_prepared(prepared, scratch)
                finally:
                    prepared.staged.tree.store.close()
        except BaseException:
            if made and not any(spec.out.iterdir()):
                spec.out.rmdir()
            raise

    async def _end_unstarted(self) -> AttemptResult:
        with trio.CancelScope(shield=True):
            recorder = await self._open_recorder()
            try:
                result = await finish_unstarted(self._spec, recorder)
            finally:
                await recorder.close()
        self._phase("done")
        return result

    async def _run_prepared(self, prepared: Prepared, scratch: Path) -> AttemptResult:
        spec, tree = self._spec, prepared.staged.tree
        self._counters.files, self._counters.bytes = tree.files, tree.bytes
        recorder = await self._open_recorder()
        events = EventLog(spec.out / "events.jsonl", limits=spec.limits, clock=now_ms)
        world = build_world(
            spec,
            prepared,
            recorder=recorder,
            counters=self._counters,
            approver=self._approver,
            clock=now_ms,
            runs=_subfolder(scratch, "runs"),
            on_waiting=lambda waiting: self._phase("awaiting_approval" if waiting else "running"),
        )
        try:
            await record_start(spec, prepared, world, recorder=recorder, events=events)
            ending, ended = await self._supervise(prepared, world, recorder, events)
            with trio.CancelScope(shield=True):
                self._enter("collecting", recorder)
                result = await finish(
                    spec, prepared, world, recorder, self._counters, ending, ended
                )
            self._phase("done")
            return result
        finally:
            try:
                events.close()
            finally:
                await recorder.close()

    async def _open_recorder(self) -> Recorder:
        spec = self._spec

        def opened() -> Recorder:
            ledger = Ledger.open(spec.out / "ledger", spec.attempt_id, clock=now_ms)
            return Recorder(ledger, ArtifactStore.open(spec.out / "artifacts"))

        return await trio.to_thread.run_sync(opened)

    # The agent ----------------------------------------------------------------

    async def _supervise(
        self, prepared: Prepared, world: World, recorder: Recorder, events: EventLog
    ) -> tuple[Ending, Exit | None]:
        """Runs the agent. What fails around a started agent is how its attempt ended."""
        try:
            return await self._run_agent(prepared, world, recorder, events)
        except (Fault, BaseExceptionGroup) as error:
            fault = fault_of(error)
            if fault is None:
                raise
            recorder.append(records.Diagnostic(code=fault.code))
            conversation = self._conversation
            if conversation is None:
                raise fault from error
            conversation.ending.outcome = "infrastructure"
            self._counters.violations[:] = conversation.violations
            return conversation.ending, None

    async def _run_agent(
        self, prepared: Prepared, world: World, recorder: Recorder, events: EventLog
    ) -> tuple[Ending, Exit | None]:
        spec = self._spec
        self._enter("starting", recorder)
        connection = BrokerConnection(spec.limits, quarantine_noise=prepared.quarantine_noise)
        start = make_task_start(
            spec,
            prepared.staged,
            prepared.catalog,
            inference=None if prepared.inference is None else prepared.inference.offer,
        )
        frame = connection.send(start)
        async with self._sandbox(prepared) as sandbox:
            assert sandbox.stdin is not None
            pipe = Pipe(stdin=sandbox.stdin, stdout=sandbox.stdout, stderr=sandbox.stderr)
            pipe.queue(frame)
            conversation = self._conversation = Conversation(
                pipe,
                connection,
                world.gate,
                recorder=recorder,
                events=events,
                inference=prepared.inference,
                limits=spec.limits,
                on_progress=lambda: self._watcher.progress(self._counters),
                withdraw=world.approvals.withdraw,
            )
            self._enter("running", recorder)
            ended = await self._serve(conversation, pipe, connection, sandbox, recorder)
        self._counters.violations.extend(conversation.violations)
        if (claim := conversation.ending.claim) is not None:
            await recorder.keep("agent_result", msgspec.json.encode(claim))
        self._note_stderr(pipe, recorder)
        if pipe.stderr_kept:
            await recorder.keep("agent_stderr", bytes(pipe.stderr_kept))
        return conversation.ending, ended

    @asynccontextmanager
    async def _sandbox(self, prepared: Prepared) -> AsyncIterator[Sandbox]:
        """The agent's sandbox, gone when the block is left."""
        spec = self._spec
        sandbox = await prepared.engine.spawn(
            SandboxSpec(
                role="agent",
                attempt_id=spec.attempt_id,
                root=prepared.agent.root,
                argv=prepared.agent.argv,
                env=AGENT_ENVIRONMENT,
                limits=spec.agent_limits,
                deadline_seconds=spec.deadline_seconds + DEADLINE_SLACK_SECONDS,
                work=None,
                stdin=True,
            )
        )
        try:
            yield sandbox
        finally:
            await sandbox.destroy()

    async def _serve(
        self,
        conversation: Conversation,
        pipe: Pipe,
        connection: BrokerConnection,
        sandbox: Sandbox,
        recorder: Recorder,
    ) -> Exit | None:
        limits = self._spec.limits
        async with trio.open_nursery() as streams:
            streams.start_soon(recorder.keep_synced)
            streams.start_soon(_write_all, pipe, limits.write_stall_ms / 1000)
            streams.start_soon(_drain_stderr, pipe, limits.max_stderr_bytes)
            streams.start_soon(self._watch_deadline, conversation)
            if self._cancel_reason is not None:
                conversation.stop(self._cancel_reason)
            ending = await conversation.run()
            pipe.finish()
            # Who was told to stop has had its grace; who ended by itself has this one.
            stopped = ending.claim is None and ending.outcome != "agent_exited"
            grace_ms = 0 if stopped else limits.exit_grace_ms
            if conversation.broken and ending.claim is None:
                grace_ms = VIOLATION_GRACE_MS
            ended = None
            for step_ms in (grace_ms, KILL_GRACE_MS):
                if ended is None and step_ms:
                    grace = step_ms / 1000
                    ended = await _await_exit(conversation, pipe, connection, sandbox, grace)
                if ended is None:
                    await sandbox.terminate()
            with trio.move_on_after(STDERR_SECONDS if ended is not None else 0):
                await pipe.drained.wait()
            streams.cancel_scope.cancel()
        return ended

    async def _watch_deadline(self, conversation: Conversation) -> None:
        await trio.sleep(self._spec.deadline_seconds)
        conversation.stop("deadline")

    def _note_stderr(self, pipe: Pipe, recorder: Recorder) -> None:
        if pipe.stderr_bytes > self._spec.limits.max_stderr_bytes:
            recorder.append(records.Diagnostic(code="stderr_truncated", bytes=pipe.stderr_bytes))

    def _enter(self, state: AttemptState, recorder: Recorder) -> None:
        recorder.append(records.AttemptStateChanged(state=state))
        recorder.write()
        self._phase(state)

    def _phase(self, phase: AttemptState) -> None:
        self._watcher.phase(phase, self._counters)


def _make_out(out: Path, repo: Path) -> bool:
    """Makes the result folder, if it was absent; it must be empty and outside of the checkout."""
    if out.resolve().is_relative_to(repo.resolve()):
        raise Refusal("out_inside_checkout")
    try:
        if out.exists():
            if not out.is_dir() or any(out.iterdir()):
                raise Refusal("out_not_empty")
            return False
        out.mkdir(mode=0o700, parents=True)
    except OSError as error:
        raise Fault("out_unwritable") from error
    return True


def _subfolder(folder: Path, name: str) -> Path:
    made = folder / name
    made.mkdir(mode=0o711)
    return made


async def _write_all(pipe: Pipe, stall_seconds: float) -> None:
    await pipe.write_all(stall_seconds=stall_seconds)


async def _drain_stderr(pipe: Pipe, limit: int) -> None:
    await pipe.drain_stderr(limit=limit)


async def _await_exit(
    conversation: Conversation,
    pipe: Pipe,
    connection: BrokerConnection,
    sandbox: Sandbox,
    grace_seconds: float,
) -> Exit | None:
    """The agent's own end, if it comes in time. Its output is read on, so that it can end."""
    with trio.move_on_after(grace_seconds):
        await _read_out(conversation, pipe, connection)
        return await sandbox.wait()
    return None


async def _read_out(conversation: Conversation, pipe: Pipe, connection: BrokerConnection) -> None:
    """Reads what comes after the last frame; a frame there is a violation that is flagged."""
    flagged = conversation.broken
    while True:
        if not flagged:
            try:
                while connection.next_event() not in (NEED_DATA, CLOSED):
                    pass
            except RemoteProtocolError as error:
                flagged = True
                conversation.flag(error)
        if not (chunk := await pipe.read()):
            return
        connection.receive_data(chunk)
