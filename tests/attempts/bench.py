"""A conversation without a sandbox: the test is the agent, and recipes are scripted.

Stage, connection, gate, approvals, ledger and recipe runner are the real ones; only the
engine is not, so that thousands of turns cost seconds.
"""

import json
import shutil
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import trio
from trio.testing import MemoryReceiveStream, memory_stream_one_way_pair

from broker.attempts.agents import Agent
from broker.attempts.asking import Approver, NobodyToAsk
from broker.attempts.attempt import now_ms
from broker.attempts.conversation import Conversation
from broker.attempts.eventlog import EventLog
from broker.attempts.gate import EVALUATE, Evaluate
from broker.attempts.offers import make_task_start
from broker.attempts.opening import World, build_world, record_start
from broker.attempts.pipe import Pipe
from broker.attempts.prepare import Prepared, _inference_side
from broker.attempts.progress import Counters
from broker.attempts.recipes import RecipePlace
from broker.attempts.recorder import Recorder
from broker.engines.spec import Exit, HostRoot, SandboxSpec
from broker.evidence.ledger import Ledger
from broker.evidence.store import ArtifactStore
from broker.recipes.catalog import Recipe, repository_catalog
from broker.stage.snapshot import Staged
from broker.stage.store import BlobStore
from broker.stage.tree import Entry, StagedTree
from protocol import records
from protocol.connection import BrokerConnection
from protocol.errors import Fault
from protocol.ids import Digest, Id, RepoPath
from protocol.limits import Limits
from tests.attempts.checkouts import FILES, RECIPES
from tests.attempts.puppetry import ledger_of, make_spec
from tests.attempts.steps import Step

DIGEST = Digest("sha256:" + "5" * 64)
IMAGE = "host@" + DIGEST


@dataclass
class ScriptedEngine:
    """An engine whose sandboxes print ``value.txt`` and pass when it says 2.

    ``hold`` keeps every run until it is set; ``runs`` is the tree that each was given.
    """

    name: Any = "bubblewrap"
    version: str = "0"
    rootless: bool = False
    hold: trio.Event | None = None
    fails: str = ""  #: where the engine fails: ``spawn``, ``wait`` or ``start``
    runs: list[dict[str, bytes]] = field(default_factory=list)
    specs: list[SandboxSpec] = field(default_factory=list)

    async def probe(self) -> Any:
        raise AssertionError("not asked")

    async def self_test(self) -> Any:
        raise AssertionError("not asked")

    async def sweep(self) -> int:
        return 0

    async def prepare_work(self, folder: Path) -> None:
        await trio.lowlevel.checkpoint()

    async def remove_work(self, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        await trio.lowlevel.checkpoint()

    async def spawn(self, spec: SandboxSpec) -> Any:
        assert spec.work is not None
        work = spec.work
        files = {
            path.relative_to(work).as_posix(): path.read_bytes()
            for path in work.rglob("*")
            if path.is_file()
        }
        self.runs.append(files)
        self.specs.append(spec)
        if self.fails == "spawn":
            raise Fault("engine_failed")
        return ScriptedSandbox(files.get("value.txt", b""), self.hold, self.fails)


class ScriptedSandbox:
    """A program that prints ``text`` and exits."""

    def __init__(self, text: bytes, hold: trio.Event | None, fails: str) -> None:
        self.stdout = MemoryReceiveStream()
        self.stderr = MemoryReceiveStream()
        self.stdout.put_data(text)
        self.stdout.put_eof()
        self.stderr.put_eof()
        self._exit = Exit("exit", 0 if text == b"2\n" else 1)
        self._hold = hold
        self._fails = fails
        self.destroyed = False

    async def wait(self) -> Exit:
        if self._hold is not None:
            await self._hold.wait()
        await trio.lowlevel.checkpoint()
        if self._fails == "wait":
            raise Fault("engine_failed")
        return Exit("never_ran", None) if self._fails == "start" else self._exit

    async def destroy(self, grace_seconds: float = 0.0) -> None:
        with trio.CancelScope(shield=True):
            await trio.lowlevel.checkpoint()
        self.destroyed = True


class DeafStream(trio.abc.SendStream):
    """The input of an agent that never reads: a full pipe."""

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await trio.sleep_forever()

    async def wait_send_all_might_not_block(self) -> None:
        await trio.sleep_forever()

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


class AgentEnd:
    """The agent's side: what it sends goes into the broker's end; every frame that it got."""

    def __init__(self, stdin: MemoryReceiveStream, stdout: MemoryReceiveStream) -> None:
        self.stdin = stdin
        self.stdout = stdout
        self.frames: list[dict[str, Any]] = []
        self.closed = False
        self.served = trio.Event()
        self._buffer = b""
        self._news = trio.Event()

    def send(self, *steps: Step) -> None:
        """Everything before the broker looks."""
        for step in steps:
            self.write(as_line(step))

    def write(self, data: bytes) -> None:
        self.stdout.put_data(data)

    def end(self) -> None:
        self.stdout.put_eof()

    async def read(self) -> None:
        """Takes frames until the broker closes the stream."""
        async for chunk in self.stdin:
            *lines, self._buffer = (self._buffer + bytes(chunk)).split(b"\n")
            self.frames += [json.loads(line) for line in lines]
            self._news.set()
            self._news = trio.Event()
        self.closed = True
        self._news.set()

    async def until(self, found: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The first frame that ``found`` holds for; it must come before the stream's end."""
        seen = 0
        while True:
            for frame in self.frames[seen:]:
                if found(frame):
                    return frame
            seen = len(self.frames)
            assert not self.closed, self.frames
            await self._news.wait()

    async def until_closed(self) -> None:
        """The broker has closed the stream: the conversation is over."""
        while not self.closed:
            await self._news.wait()

    async def until_served(self) -> None:
        """The conversation is over, whether or not the agent reads."""
        await self.served.wait()

    async def answer(self, request_id: str) -> dict[str, Any]:
        """The final answer to a request."""
        return await self.until(lambda f: f.get("requestId") == request_id and f["final"])

    def finals(self) -> dict[str, list[dict[str, Any]]]:
        """The final answers by request id."""
        found: dict[str, list[dict[str, Any]]] = {}
        for frame in self.frames:
            if frame.get("final"):
                found.setdefault(frame["requestId"], []).append(frame)
        return found


@dataclass
class Bench:
    """One conversation and everything that it stands on."""

    folder: Path
    world: World
    conversation: Conversation
    pipe: Pipe
    recorder: Recorder
    events: EventLog
    engine: ScriptedEngine
    connection: BrokerConnection
    counters: Counters
    start: bytes

    @property
    def ledger(self) -> list[records.Record]:
        """The verified ledger; the conversation must have ended."""
        return ledger_of(self.folder)

    async def until_running(self, runs: int) -> None:
        """So many recipes have been started."""
        while len(self.engine.runs) < runs:
            await trio.sleep(0.005)

    async def serve(self, served: trio.Event) -> None:
        """The conversation to its end, and every frame of it written."""
        self.pipe.queue(self.start)
        stall = self.connection.limits.write_stall_ms / 1000
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(self.pipe.write_all, stall_seconds=stall))
            await self.conversation.run()
            self.pipe.finish()
            served.set()


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What differs between two benches."""

    files: Mapping[str, bytes] = field(default_factory=lambda: FILES)
    limits: Limits = field(default_factory=Limits)
    approve: Any = "never"
    listed: frozenset[str] = frozenset()
    approver: Approver = field(default_factory=NobodyToAsk)
    evaluate: Evaluate = EVALUATE
    inference: str | None = None
    hold: bool = False
    fails: str = ""  #: see ``ScriptedEngine``
    deaf: bool = False  #: the agent does not read


def make_tree(store: BlobStore, files: Mapping[str, bytes]) -> StagedTree:
    return StagedTree.build(
        store,
        {RepoPath(path): Entry(0o100644, store.put(data)) for path, data in files.items()},
    )


async def make_bench(folder: Path, pipe: Pipe, setting: Setting) -> Bench:
    """Opens an attempt in ``folder`` (made here) whose agent is at the other end of ``pipe``."""
    folder.mkdir()
    for name in ("objects", "runs"):
        (folder / name).mkdir()
    store = BlobStore.open(folder / "objects")
    tree = make_tree(store, setting.files)
    staged = Staged(
        tree=tree,
        base_commit=None,
        base_tree=tree,
        excluded=(),
        tracked=tree.files,
        untracked=0,
        converted=(),
        pointers=(),
    )
    spec = make_spec(
        "a task",
        repo=folder,
        state=folder,
        out=folder,
        limits=setting.limits,
        approve=setting.approve,
        listed_recipes=setting.listed,
        inference=setting.inference,
    )
    read = {"airlock.recipes.json": RECIPES}.get
    catalog = repository_catalog(read, image=IMAGE, max_output_bytes=4096)
    assert catalog is not None
    engine = ScriptedEngine(hold=trio.Event() if setting.hold else None, fails=setting.fails)
    root = HostRoot(None, DIGEST)
    prepared = Prepared(
        staged=staged,
        catalog=catalog,
        agent=Agent(name="adapter", root=root, argv=("agent",), digest=DIGEST),
        engine=engine,
        places={r.id: RecipePlace(recipe=r, engine=engine, root=root) for r in catalog.recipes},
        inference=_inference_side(spec),
    )
    recorder = Recorder(
        Ledger.open(folder / "ledger", Id(spec.attempt_id), clock=now_ms),
        ArtifactStore.open(folder / "artifacts"),
    )
    events = EventLog(folder / "events.jsonl", limits=setting.limits, clock=now_ms)
    counters = Counters()
    world = build_world(
        spec,
        prepared,
        recorder=recorder,
        counters=counters,
        approver=setting.approver,
        clock=now_ms,
        runs=folder / "runs",
        on_waiting=lambda waiting: None,
        evaluate=setting.evaluate,
    )
    await record_start(spec, prepared, world, recorder=recorder, events=events)
    connection = BrokerConnection(setting.limits)
    start = connection.send(
        make_task_start(
            spec,
            staged,
            catalog,
            inference=None if prepared.inference is None else prepared.inference.offer,
        )
    )
    conversation = Conversation(
        pipe,
        connection,
        world.gate,
        recorder=recorder,
        events=events,
        inference=prepared.inference,
        limits=setting.limits,
        on_progress=lambda: None,
        withdraw=world.approvals.withdraw,
    )
    return Bench(
        folder=folder,
        world=world,
        conversation=conversation,
        pipe=pipe,
        recorder=recorder,
        events=events,
        engine=engine,
        connection=connection,
        counters=counters,
        start=start,
    )


@asynccontextmanager
async def conversing(folder: Path, **changes: Any) -> AsyncIterator[tuple[Bench, AgentEnd]]:
    """A running conversation and its agent's end; both are over when the block is left.

    The block must end the conversation: by a completion, by the end of its stream, or
    by a violation.
    """
    to_agent, stdin = memory_stream_one_way_pair()
    stdout, stderr = MemoryReceiveStream(), MemoryReceiveStream()
    stderr.put_eof()
    setting = Setting(**changes)
    pipe = Pipe(stdin=DeafStream() if setting.deaf else to_agent, stdout=stdout, stderr=stderr)
    bench = await make_bench(folder, pipe, setting)
    agent = AgentEnd(stdin, stdout)
    try:
        with trio.fail_after(30):
            async with trio.open_nursery() as nursery:
                if not setting.deaf:
                    nursery.start_soon(agent.read)
                nursery.start_soon(bench.serve, agent.served)
                yield bench, agent
    finally:
        bench.events.close()
        await bench.recorder.close()


def recipe_of(bench: Bench, name: str) -> Recipe:
    """A recipe of the bench's catalog."""
    return bench.world.runner._recipe(name).recipe


def as_line(step: Step) -> bytes:
    """A step's frame as a line."""
    return json.dumps({"v": 1, **step["frame"]}).encode() + b"\n"
