"""What ``/proc`` tells about a sandbox from outside; never asks the sandbox itself."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from broker.engines.cgroup_tree import read_group_limits
from broker.engines.spec import EngineName, Facts

NAMESPACES: Final = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")
_CAPABILITY_SETS: Final = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """One process as the host's kernel sees it; ``None`` where it could not look."""

    kernel_uid: int | None
    no_capabilities: bool | None
    no_new_privileges: bool | None
    seccomp_filter: bool | None
    own_namespaces: tuple[str, ...]


def read_process_facts(pid: int) -> ProcessFacts:
    """The facts of process ``pid``, all unknown when it is gone."""
    status = _read_status(pid)
    if not status:
        return ProcessFacts(None, None, None, None, ())
    return ProcessFacts(
        kernel_uid=int(status["Uid"].split()[1]),
        no_capabilities=all(int(status[name], 16) == 0 for name in _CAPABILITY_SETS),
        no_new_privileges=status["NoNewPrivs"] == "1",
        seccomp_filter=status["Seccomp"] == "2",
        own_namespaces=tuple(kind for kind in NAMESPACES if _is_own(pid, kind)),
    )


def read_facts(
    pid: int, *, engine: EngineName, engine_version: str, rootless: bool, image: str | None
) -> Facts:
    """What the host sees of the sandbox whose program is process ``pid``."""
    seen = read_process_facts(pid)
    limits = read_group_limits(pid)
    return Facts(
        engine=engine,
        engine_version=engine_version,
        rootless=rootless,
        image=image,
        kernel_uid=seen.kernel_uid,
        no_capabilities=seen.no_capabilities,
        no_new_privileges=seen.no_new_privileges,
        seccomp_filter=seen.seccomp_filter,
        own_namespaces=seen.own_namespaces,
        memory_bytes=limits.memory_bytes,
        pids=limits.pids,
        cpus=limits.cpus,
        swap_limited=limits.swap_limited,
    )


def read_children(pid: int) -> tuple[int, ...]:
    """The children of process ``pid``, or none when it is gone."""
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            found += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split())
    except (FileNotFoundError, ProcessLookupError):
        return tuple(found)
    return tuple(found)


def processes_with_argument(prefix: bytes) -> dict[int, tuple[bytes, ...]]:
    """Running processes of which an argument begins with ``prefix``: pid to argv."""
    found = {}
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        try:
            argv = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if any(argument.startswith(prefix) for argument in argv):
            found[int(name)] = tuple(argv)
    return found


def _read_status(pid: int) -> dict[str, str]:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _is_own(pid: int, kind: str) -> bool:
    """Whether it has another namespace than we; one that we may not look at is another."""
    try:
        theirs = os.readlink(f"/proc/{pid}/ns/{kind}")
    except PermissionError:
        return True
    except OSError:
        return False
    return theirs != os.readlink(f"/proc/self/ns/{kind}")
