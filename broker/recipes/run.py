"""Runs one registered recipe on a fresh copy of one exact tree, and throws the copy away.

The caller has decided already; nothing is decided here. The command is the catalog's,
without a shell; its standard input is empty; what it prints is bounded while it is
read; what it changes is discarded.
"""

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import trio

from broker.engines.engine import Engine
from broker.engines.process import Exit, Sandbox
from broker.engines.spec import Root, SandboxLimits, SandboxSpec
from broker.engines.work import measure_tree
from broker.recipes.catalog import Recipe
from broker.stage.tree import StagedTree
from protocol.errors import Fault
from protocol.ids import Digest, Id

RecipeStatus = Literal["passed", "failed", "timed_out", "output_limited"]

#: What a shell would say of a program that the kernel killed for memory: 128 + SIGKILL.
OUT_OF_MEMORY_CODE: Final = 137
#: One read from a recipe's pipe.
RECEIVE_BYTES: Final = 64 * 1024
#: The engine's own dead-man switch fires this long after ours would have.
DEADLINE_SLACK_SECONDS: Final = 15.0
#: What a recipe may add to its copy of the tree before it is stopped: a build of a large
#: project. It is looked at this often, and what is written in between is beyond the bound.
WORK_BYTES: Final = 2 * 1024 * 1024 * 1024
MEASURE_SECONDS: Final = 1.0
#: What a recipe sees of an environment; nothing of the host's.
RECIPE_ENVIRONMENT: Final = (
    ("PATH", "/usr/local/bin:/usr/bin:/bin"),
    ("HOME", "/tmp"),
    ("TMPDIR", "/tmp"),
    ("LANG", "C.UTF-8"),
    ("PYTHONDONTWRITEBYTECODE", "1"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeRun:
    """How one run of one recipe ended. ``stdout`` and ``stderr`` are untrusted bytes."""

    recipe: Recipe
    source_digest: Digest  #: the tree that was run on
    status: RecipeStatus
    exit_code: int | None  #: 0 to 255, absent when it was stopped
    duration_ms: int
    stdout: bytes
    stderr: bytes
    output_digest: Digest  #: over both outputs, each length-prefixed

    @property
    def output_limited(self) -> bool:
        """Whether output was cut at the recipe's bound."""
        return self.status == "output_limited"


class _Output:
    """Both outputs of a recipe under one bound; full once it has been passed."""

    def __init__(self, limit: int) -> None:
        self._left = limit
        self.parts: dict[str, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}
        self.full = trio.Event()

    async def collect(self, name: str, stream: trio.abc.ReceiveStream) -> None:
        """Reads ``stream`` to its end or to the bound, whichever is first."""
        part = self.parts[name]
        while chunk := await stream.receive_some(RECEIVE_BYTES):
            part += chunk[: self._left]
            if len(chunk) > self._left:
                self._left = 0
                self.full.set()
                return
            self._left -= len(chunk)


async def run_recipe(
    recipe: Recipe,
    *,
    tree: StagedTree,
    engine: Engine,
    root: Root,
    limits: SandboxLimits,
    attempt_id: Id,
    folder: Path,
    on_started: Callable[[], None] = lambda: None,
) -> RecipeRun:
    """Runs ``recipe`` on a fresh copy of ``tree`` made in ``folder`` (absent before and after).

    Raises ``Fault("sandbox_never_ran")`` when the command could not be started and
    ``Fault("engine_failed")`` when the engine failed.
    """
    try:
        await trio.to_thread.run_sync(tree.materialize, folder)
        await engine.prepare_work(folder)
        spec = SandboxSpec(
            role="recipe",
            attempt_id=attempt_id,
            root=root,
            argv=recipe.command,
            env=RECIPE_ENVIRONMENT,
            limits=limits,
            deadline_seconds=recipe.timeout_ms / 1000 + DEADLINE_SLACK_SECONDS,
            work=folder,
            stdin=False,
        )
        sandbox = await engine.spawn(spec)
        try:
            on_started()
            return await _supervise(recipe, sandbox, tree, folder)
        finally:
            await sandbox.destroy()
    finally:
        with trio.CancelScope(shield=True):
            await engine.remove_work(folder)


async def _supervise(recipe: Recipe, sandbox: Sandbox, tree: StagedTree, folder: Path) -> RecipeRun:
    output = _Output(recipe.max_output_bytes)
    began = trio.current_time()
    ended: Exit | None = None
    with trio.move_on_after(recipe.timeout_ms / 1000):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_watch_size, folder, 2 * tree.bytes + WORK_BYTES, output.full)
            ended = await _wait(sandbox, output)
            nursery.cancel_scope.cancel()
    duration = math.ceil((trio.current_time() - began) * 1000)
    if ended is not None and ended.kind == "never_ran":
        raise Fault("sandbox_never_ran")
    status = _status(ended, limited=output.full.is_set())
    stdout, stderr = bytes(output.parts["stdout"]), bytes(output.parts["stderr"])
    return RecipeRun(
        recipe=recipe,
        source_digest=tree.digest,
        status=status,
        exit_code=_exit_code(ended) if status in ("passed", "failed") else None,
        duration_ms=duration,
        stdout=stdout,
        stderr=stderr,
        output_digest=_output_digest(stdout, stderr),
    )


async def _watch_size(folder: Path, limit: int, full: trio.Event) -> None:
    """Sets ``full`` when ``folder`` takes more than ``limit`` bytes of disk."""
    while True:
        await trio.sleep(MEASURE_SECONDS)
        if await measure_tree(folder) > limit:
            full.set()
            return


async def _wait(sandbox: Sandbox, output: _Output) -> Exit | None:
    """The exit, or None when the output passed its bound first."""
    result: Exit | None = None

    async def until_exit(scope: trio.CancelScope) -> None:
        nonlocal result
        result = await sandbox.wait()
        # A grandchild may still hold a pipe; what was printed before the exit is there now.
        scope.deadline = trio.current_time() + 1.0

    async def until_full(scope: trio.CancelScope) -> None:
        await output.full.wait()
        scope.cancel()

    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(until_exit, scope)
            nursery.start_soon(until_full, scope)
            async with trio.open_nursery() as readers:
                readers.start_soon(output.collect, "stdout", sandbox.stdout)
                readers.start_soon(output.collect, "stderr", sandbox.stderr)
            if not output.full.is_set():
                result = await sandbox.wait()
            nursery.cancel_scope.cancel()
    return None if output.full.is_set() else result


def _status(ended: Exit | None, *, limited: bool) -> RecipeStatus:
    if limited:
        return "output_limited"
    if ended is None or ended.kind == "timeout":
        return "timed_out"
    return "passed" if ended.kind == "exit" and ended.code == 0 else "failed"


def _exit_code(ended: Exit | None) -> int | None:
    """0 to 255 as a shell would say it: 128 and the signal's number for one that was killed."""
    if ended is not None and ended.kind == "oom":
        return OUT_OF_MEMORY_CODE
    if ended is None or ended.code is None:
        return None
    return (128 + ended.code if ended.kind == "signal" else ended.code) & 0xFF


def _output_digest(stdout: bytes, stderr: bytes) -> Digest:
    hasher = hashlib.sha256()
    for part in (stdout, stderr):
        hasher.update(len(part).to_bytes(8, "big") + part)
    return Digest("sha256:" + hasher.hexdigest())
