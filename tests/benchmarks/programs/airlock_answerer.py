"""The trusted side of one attempt on its own standard streams, without a sandbox between.

Usage: airlock_answerer.py FOLDER TEXT_BYTES IN_FLIGHT

A repository with one file of TEXT_BYTES is made in the empty FOLDER and staged, and the
agent at the other end is served as by ``broker.attempts.attempt``: connection, gate,
stage and ledger are the product's. The ledger is synced behind the answers.
"""

import os
import subprocess
import sys
from pathlib import Path

import trio
from texts import text_of

from broker.attempts.agents import Agent
from broker.attempts.asking import NobodyToAsk
from broker.attempts.attempt import now_ms
from broker.attempts.conversation import Conversation
from broker.attempts.eventlog import EventLog
from broker.attempts.offers import make_task_start
from broker.attempts.opening import build_world
from broker.attempts.pipe import Pipe
from broker.attempts.prepare import Prepared
from broker.attempts.progress import Counters
from broker.attempts.recorder import Recorder
from broker.attempts.spec import AttemptSpec
from broker.engines.spec import HostRoot
from broker.evidence.ledger import Ledger
from broker.evidence.store import ArtifactStore
from broker.recipes.catalog import no_catalog
from broker.stage.snapshot import stage_checkout
from protocol.connection import BrokerConnection
from protocol.digest import digest_bytes
from protocol.ids import Id
from protocol.limits import Limits

#: Requests of one run: more rounds than anyone asks for, within the ledger's own bound.
MAX_REQUESTS = 90_000


def main() -> None:
    folder = Path(sys.argv[1])
    make_repository(folder / "repository", text_of(int(sys.argv[2])))
    trio.run(serve, folder, int(sys.argv[3]))


def make_repository(folder: Path, text: str) -> None:
    file = folder / "src" / "package" / "module.txt"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    for command in (["init", "--quiet"], ["add", "--all"]):
        subprocess.run(["git", *command], cwd=folder, check=True)


async def serve(folder: Path, in_flight: int) -> None:
    """Serve the agent at the other end of stdin and stdout until it goes."""
    spec = make_spec(folder, in_flight)
    prepared = make_prepared(spec, folder / "scratch")
    recorder = Recorder(
        Ledger.open(spec.out / "ledger", spec.attempt_id, clock=now_ms),
        ArtifactStore.open(spec.out / "artifacts"),
    )
    events = EventLog(spec.out / "events.jsonl", limits=spec.limits, clock=now_ms)
    world = build_world(
        spec,
        prepared,
        recorder=recorder,
        counters=Counters(),
        approver=NobodyToAsk(),
        clock=now_ms,
        runs=folder / "runs",
        on_waiting=lambda waiting: None,
    )
    connection = BrokerConnection(spec.limits)
    pipe = open_pipe()
    pipe.queue(
        connection.send(make_task_start(spec, prepared.staged, prepared.catalog, inference=None))
    )
    conversation = Conversation(
        pipe,
        connection,
        world.gate,
        recorder=recorder,
        events=events,
        inference=None,
        limits=spec.limits,
        on_progress=lambda: None,
        withdraw=world.approvals.withdraw,
    )
    async with trio.open_nursery() as streams:
        streams.start_soon(recorder.keep_synced)
        streams.start_soon(lambda: pipe.write_all(stall_seconds=spec.limits.write_stall_ms / 1000))
        await conversation.run()
        streams.cancel_scope.cancel()


def open_pipe() -> Pipe:
    """Our standard streams as the agent's; it has no standard error."""
    silent, _ = os.pipe()
    return Pipe(
        stdin=trio.lowlevel.FdStream(1),
        stdout=trio.lowlevel.FdStream(0),
        stderr=trio.lowlevel.FdStream(silent),
    )


def make_spec(folder: Path, in_flight: int) -> AttemptSpec:
    out = folder / "out"
    out.mkdir()
    return AttemptSpec(
        attempt_id=Id("benchmark"),
        repo=folder / "repository",
        ref=None,
        instruction="Read one file again and again.",
        agent="benchmark",
        agent_arguments=(),
        host_catalog=None,
        inference=None,
        engine="bubblewrap",
        approve="never",
        listed_recipes=frozenset(),
        out=out,
        state=folder / "state",
        deadline_seconds=3600,
        allow_unpinned=False,
        limits=Limits(max_in_flight=in_flight, max_requests=MAX_REQUESTS),
    )


def make_prepared(spec: AttemptSpec, scratch: Path) -> Prepared:
    scratch.mkdir()
    digest = digest_bytes(b"benchmark")
    return Prepared(
        staged=stage_checkout(spec.repo, scratch=scratch),
        catalog=no_catalog(),
        agent=Agent(name="folder", root=HostRoot(None, digest), argv=("agent",), digest=digest),
        engine=None,  # nothing is spawned here
        places={},
        inference=None,
    )


if __name__ == "__main__":
    main()
