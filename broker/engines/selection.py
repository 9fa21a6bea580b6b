"""Which engine runs a root on this machine, or why none may.

Chooses by what an engine was found to enforce here, never by its name or version. An
engine that lacks a required control is refused, not used with a warning.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

import trio

from broker.engines.bubblewrap import BubblewrapEngine, find_bubblewrap
from broker.engines.engine import Engine
from broker.engines.owners import claim_owner
from broker.engines.podman import PodmanEngine
from broker.engines.podman_host import prepare_podman_host
from broker.engines.programs import find_program, run_program
from broker.engines.spec import (
    EngineChoice,
    EngineName,
    FolderRoot,
    HostRoot,
    ImageRoot,
    Root,
)
from protocol.codes import EngineReason
from protocol.errors import Fault

_VERSION_SECONDS: Final = 10.0


class EngineUnavailable(Fault):
    """No engine can run the root here; ``reasons`` says why for each that was tried."""

    def __init__(self, reasons: Sequence[tuple[EngineName, EngineReason]]) -> None:
        super().__init__("engine_unavailable")
        self.reasons: Final = tuple(reasons)


async def select_engine(name: EngineChoice, root: Root, *, state: Path) -> Engine:
    """The engine for ``root``. ``auto`` takes the one that its kind of root is made for.

    Raises ``EngineUnavailable`` with closed reasons.
    """
    chosen = _made_for(root) if name == "auto" else name
    if chosen not in _able(root):
        raise EngineUnavailable([(chosen, "root_not_supported")])
    return await open_engine(chosen, state=state)


async def open_engine(name: EngineName, *, state: Path) -> Engine:
    """The engine of that name, not yet probed, or ``EngineUnavailable``."""
    match name:
        case "bubblewrap":
            program = find_bubblewrap()
            if program is None:
                raise EngineUnavailable([(name, "not_installed")])
            version = await _version(program)
            owner = claim_owner(state / "engines" / "owners")
            return BubblewrapEngine(program=program, version=version, owner=owner, state=state)
        case "podman":
            program = find_program("podman")
            if program is None:
                raise EngineUnavailable([(name, "not_installed")])
            version = await _version(program)
            owner = claim_owner(state / "engines" / "owners")
            try:
                host = await trio.to_thread.run_sync(
                    partial(prepare_podman_host, program, state=state)
                )
            except OSError as error:
                raise Fault("store_unwritable") from error
            return PodmanEngine(host, version=version, owner=owner, state=state)
        case "docker" | "apple":
            raise EngineUnavailable([(name, "not_supported")])


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
