"""Which engine runs a root on this machine, or why none may.

Chooses by what an engine was found to enforce here, never by its name or version. An
engine that lacks a required control is refused, not used with a warning.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final, assert_never

import trio

from broker.engines.bubblewrap import BubblewrapEngine
from broker.engines.engine import Engine, SelfTest
from broker.engines.owners import claim_owner
from broker.engines.podman import PodmanEngine
from broker.engines.podman_host import has_subordinate_ids, prepare_podman_host
from broker.engines.programs import find_program, run_program
from broker.engines.spec import (
    EngineChoice,
    EngineName,
    FolderRoot,
    HostRoot,
    ImageRoot,
    Root,
)
from protocol.engine_codes import EngineReason
from protocol.errors import Fault

_VERSION_SECONDS: Final = 10.0


class EngineUnavailable(Fault):
    """No engine can run the root here; ``reasons`` says why for each that was tried."""

    def __init__(
        self,
        reasons: Sequence[tuple[EngineName, EngineReason]],
        *,
        found: SelfTest | None = None,
    ) -> None:
        super().__init__("engine_unavailable")
        self.reasons: Final = tuple(reasons)
        self.found: Final = found  #: what the self-test saw, if it came to its end


async def select_engine(name: EngineChoice, root: Root, *, state: Path) -> Engine:
    """The engine for ``root``, self-tested on this machine and found to hold.

    ``auto`` takes the one that this kind of root is made for. Raises
    ``EngineUnavailable`` with closed reasons.
    """
    chosen = _made_for(root) if name == "auto" else name
    if chosen not in _able(root):
        raise EngineUnavailable([(chosen, "root_not_supported")])
    engine = await open_engine(chosen, state=state)
    await verify_engine(engine)
    return engine


async def verify_engine(engine: Engine) -> SelfTest:
    """What ``engine`` was found to enforce, or ``EngineUnavailable``: it is not enough."""
    try:
        found = await engine.self_test()
    except Fault as fault:
        raise EngineUnavailable([(engine.name, _why_not(engine, fault))]) from fault
    missing = found.guarantees.missing()
    if missing:
        raise EngineUnavailable([(engine.name, _why_missing(missing))], found=found)
    return found


async def open_engine(name: EngineName, *, state: Path) -> Engine:
    """The engine of that name, not yet verify_engine, or ``EngineUnavailable``."""
    match name:
        case "bubblewrap":
            program = await _installed(name, "bwrap")
            return BubblewrapEngine(
                program=program,
                version=await _version(program),
                owner=claim_owner(state / "engines" / name / "owners"),
                state=state,
            )
        case "podman":
            program = await _installed(name, "podman")
            prepare = partial(prepare_podman_host, program, state=state)
            try:
                host = await trio.to_thread.run_sync(prepare)
            except OSError as error:
                raise Fault("store_unwritable") from error
            return PodmanEngine(
                host,
                version=await _version(program),
                owner=claim_owner(state / "engines" / name / "owners"),
                state=state,
            )
        case "docker" | "apple":
            raise EngineUnavailable([(name, "not_supported")])
        case other:
            assert_never(other)


async def _installed(name: EngineName, program: str) -> str:
    path = find_program(program)
    if path is None:
        raise EngineUnavailable([(name, "not_installed")])
    return path


def _why_not(engine: Engine, fault: Fault) -> EngineReason:
    """The likeliest reason for a self-test that did not come to its end."""
    if engine.name == "bubblewrap" and fault.code == "sandbox_never_ran":
        return "user_namespaces_off"
    if engine.name == "podman" and engine.rootless and not has_subordinate_ids():
        return "subordinate_ids_missing"
    return "self_test_failed"


def _why_missing(missing: Sequence[str]) -> EngineReason:
    if set(missing) <= {"memory", "pids"}:
        return "limits_not_enforced"
    return "control_not_enforced"


def _made_for(root: Root) -> EngineName:
    match root:
        case HostRoot() | FolderRoot():
            return "bubblewrap"
        case ImageRoot():
            return "podman"


def _able(root: Root) -> frozenset[EngineName]:
    match root:
        case HostRoot() | FolderRoot():
            return frozenset({"bubblewrap"})
        case ImageRoot():
            return frozenset({"podman", "docker", "apple"})


async def _version(program: str) -> str:
    """The last word of ``--version``'s first line, if it looks like a version."""
    done = await run_program((program, "--version"), timeout_seconds=_VERSION_SECONDS)
    words = done.stdout[:200].decode("ascii", "replace").split()
    last = words[-1] if words else ""
    return last if last and set(last) <= set("0123456789.") else "unknown"
