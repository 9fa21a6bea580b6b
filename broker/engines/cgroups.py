"""Control groups of our own for what bubblewrap starts: version 1 as root, 2 if delegated.

Finds out by making one whether a group can be made; believes no list of controllers.
Every group lies below the daemon's own, so the daemon's own limits hold too.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import trio

from broker.engines.cgroup_tree import CONTROLLERS, below, mounts, own_groups, words
from broker.engines.spec import SandboxLimits

#: One CPU period: the kernel's default, in microseconds.
_PERIOD_US: Final = 100_000
#: A group whose last process was just reaped can refuse ``rmdir`` for an instant.
_REMOVE_TRIES: Final = 100
_REMOVE_PAUSE_SECONDS: Final = 0.01

Version = Literal[1, 2]


@dataclass(frozen=True, slots=True)
class CgroupHome:
    """The folders in which groups are made, per controller (version 2: all the same)."""

    version: Version
    folders: Mapping[str, Path]


class Cgroup:
    """One control group with limits; holds a sandbox and nothing else."""

    def __init__(self, home: CgroupHome, name: str) -> None:
        self._version: Final = home.version
        self._folders: Final = {
            controller: folder / name for controller, folder in home.folders.items()
        }

    def make(self, limits: SandboxLimits) -> None:
        """Make the group and set every limit, or ``OSError``."""
        for folder in set(self._folders.values()):
            folder.mkdir(exist_ok=True)
        quota = max(1000, int(limits.cpus * _PERIOD_US))
        memory, pids, cpu = (self._folders[name] for name in CONTROLLERS)
        (pids / "pids.max").write_text(str(limits.pids))
        if self._version == 2:
            (memory / "memory.max").write_text(str(limits.memory_bytes))
            (memory / "memory.oom.group").write_text("1")
            _write_if_present(memory / "memory.swap.max", "0")
            (cpu / "cpu.max").write_text(f"{quota} {_PERIOD_US}")
            return
        (memory / "memory.limit_in_bytes").write_text(str(limits.memory_bytes))
        _write_if_present(memory / "memory.memsw.limit_in_bytes", str(limits.memory_bytes))
        (cpu / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
        (cpu / "cpu.cfs_quota_us").write_text(str(quota))

    def add(self, pid: int) -> None:
        """Move process ``pid`` into the group, or ``OSError``."""
        for folder in set(self._folders.values()):
            (folder / "cgroup.procs").write_text(str(pid))

    def out_of_memory_kills(self) -> int:
        """How many processes of the group the kernel killed for memory."""
        name = "memory.events" if self._version == 2 else "memory.oom_control"
        return _read_counter(self._folders["memory"] / name, "oom_kill")

    def pids(self) -> tuple[int, ...]:
        """Every process in the group now."""
        found: set[int] = set()
        for folder in set(self._folders.values()):
            try:
                found.update(map(int, (folder / "cgroup.procs").read_text().split()))
            except FileNotFoundError:
                continue
        return tuple(sorted(found))

    async def remove(self) -> bool:
        """Remove the empty group. False: something in it could not be removed."""
        for _ in range(_REMOVE_TRIES):
            left = {folder for folder in self._folders.values() if not _remove(folder)}
            if not left:
                return True
            await trio.sleep(_REMOVE_PAUSE_SECONDS)
        return False


def find_cgroup_home(probe_name: str) -> CgroupHome | None:
    """Where groups with every limit can be made, or None where they cannot."""
    for find in (_find_version_2, _find_version_1):
        home = find()
        if home is not None and _can_make(home, probe_name):
            return home
    return None


def stale_groups(home: CgroupHome, prefix: str) -> tuple[str, ...]:
    """Names of groups in ``home`` that begin with ``prefix``."""
    names: set[str] = set()
    for folder in set(home.folders.values()):
        names.update(path.name for path in folder.glob(f"{prefix}*") if path.is_dir())
    return tuple(sorted(names))


def _can_make(home: CgroupHome, name: str) -> bool:
    group = Cgroup(home, name)
    try:
        group.make(
            SandboxLimits(
                cpus=1.0,
                memory_bytes=64 * 1024 * 1024,
                pids=8,
                tmp_bytes=0,
                file_bytes=0,
                open_files=0,
            )
        )
    except OSError:
        return False
    finally:
        for folder in set(home.folders.values()):
            _remove(folder / name)
    return True


def _find_version_1() -> CgroupHome | None:
    own = own_groups()
    folders = {}
    for root, place, kind, options in mounts():
        for controller in CONTROLLERS:
            if kind == "cgroup" and controller in options.split(",") and controller in own:
                folders[controller] = below(place, root, own[controller])
    return CgroupHome(1, folders) if set(folders) == set(CONTROLLERS) else None


def _find_version_2() -> CgroupHome | None:
    own = own_groups()
    for root, place, kind, _ in mounts():
        if kind != "cgroup2" or "" not in own:
            continue
        folder = below(place, root, own[""])
        available = words(folder / "cgroup.controllers")
        if set(CONTROLLERS) <= available and _delegate(folder):
            return CgroupHome(2, dict.fromkeys(CONTROLLERS, folder))
    return None


def _delegate(folder: Path) -> bool:
    """Turn the controllers on for children of our own group.

    A group with processes may not have them on for its children (the root may), so we
    first step aside into a child; that works only if the group is ours alone.
    """
    control = folder / "cgroup.subtree_control"
    if set(CONTROLLERS) <= words(control):
        return True
    wanted = " ".join(f"+{name}" for name in CONTROLLERS)
    try:
        if words(folder / "cgroup.procs") == {str(os.getpid())}:
            aside = folder / "airlock"
            aside.mkdir(exist_ok=True)
            (aside / "cgroup.procs").write_text(str(os.getpid()))
        control.write_text(wanted)
    except OSError:
        return False
    return True


def _read_counter(path: Path, name: str) -> int:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.split()[0] == name), 0)


def _write_if_present(path: Path, value: str) -> None:
    if path.exists():
        path.write_text(value)


def _remove(folder: Path) -> bool:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
