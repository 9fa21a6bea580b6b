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
    #: Where an engine makes groups of the same name by itself, and does not remove them.
    others: tuple[Path, ...] = ()

    def all_folders(self) -> tuple[str, ...]:
        """Every folder in which a group of a sandbox can lie."""
        return tuple(sorted({str(folder) for folder in (*self.folders.values(), *self.others)}))


class Cgroup:
    """One control group with limits; holds a sandbox and nothing else."""

    def __init__(self, home: CgroupHome, name: str) -> None:
        self._version: Final = home.version
        self._folders: Final = {
            controller: folder / name for controller, folder in home.folders.items()
        }
        self._all: Final = {*self._folders.values(), *(folder / name for folder in home.others)}

    def make(self, limits: SandboxLimits) -> None:
        """Make the group and set the limits of its controllers, or ``OSError``."""
        for folder in set(self._folders.values()):
            folder.mkdir(exist_ok=True)
        setters = {"memory": self._set_memory, "pids": _set_pids, "cpu": self._set_cpu}
        for controller, folder in self._folders.items():
            setters[controller](folder, limits)

    def _set_memory(self, folder: Path, limits: SandboxLimits) -> None:
        bound = str(limits.memory_bytes)
        if self._version == 2:
            (folder / "memory.max").write_text(bound)
            (folder / "memory.oom.group").write_text("1")
            _write_if_present(folder / "memory.swap.max", "0")
        else:
            (folder / "memory.limit_in_bytes").write_text(bound)
            _write_if_present(folder / "memory.memsw.limit_in_bytes", bound)

    def _set_cpu(self, folder: Path, limits: SandboxLimits) -> None:
        quota = max(1000, int(limits.cpus * _PERIOD_US))
        if self._version == 2:
            (folder / "cpu.max").write_text(f"{quota} {_PERIOD_US}")
        else:
            (folder / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
            (folder / "cpu.cfs_quota_us").write_text(str(quota))

    def add(self, pid: int) -> None:
        """Move process ``pid`` into the group, or ``OSError``."""
        for folder in set(self._folders.values()):
            (folder / "cgroup.procs").write_text(str(pid))

    def out_of_memory_kills(self) -> int:
        """How many processes of the group the kernel killed for memory."""
        name = "memory.events" if self._version == 2 else "memory.oom_control"
        return _read_counter(self._folders["memory"] / name, "oom_kill")

    def open_oom_event(self) -> int:
        """A descriptor that counts from now on how often the group ran out of memory.

        Version 1 only. Groups below this one, which may be gone by the time one asks,
        are counted here as long as the limit is this group's.
        """
        folder = self._folders["memory"]
        event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        try:
            with open(folder / "memory.oom_control") as control:
                line = f"{event} {control.fileno()}"
                (folder / "cgroup.event_control").write_text(line)
        except OSError:
            os.close(event)
            raise
        return event

    def pids(self) -> tuple[int, ...]:
        """Every process in the group and in those below it, now."""
        found: set[int] = set()
        for folder in set(self._folders.values()):
            for path in folder.rglob("cgroup.procs"):
                found.update(map(int, words(path)))
        return tuple(sorted(found))

    async def remove(self) -> bool:
        """Remove the empty group. False: something in it could not be removed."""
        for _ in range(_REMOVE_TRIES):
            left = {folder for folder in self._all if not _remove(folder)}
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


def find_memory_home() -> CgroupHome | None:
    """Version 1 at its root, memory only: where an engine's own groups can be put below.

    An engine names groups from the root of every hierarchy, so ours lies there too.
    """
    memory = None
    others = []
    for root, place, kind, options in mounts():
        if kind == "cgroup" and "memory" in options.split(",") and root == "/":
            memory = place
        elif kind in ("cgroup", "cgroup2"):
            others.append(place)
    return None if memory is None else CgroupHome(1, {"memory": memory}, tuple(others))


def stale_groups(home: CgroupHome, prefix: str) -> tuple[str, ...]:
    """Names of groups in ``home`` that begin with ``prefix``."""
    names: set[str] = set()
    for folder in {*home.folders.values(), *home.others}:
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


def _set_pids(folder: Path, limits: SandboxLimits) -> None:
    (folder / "pids.max").write_text(str(limits.pids))


def _remove(folder: Path) -> bool:
    """Remove a group and those below it, which an engine made and did not remove."""
    try:
        for entry in os.scandir(folder):
            if entry.is_dir(follow_symlinks=False) and not _remove(Path(entry.path)):
                return False
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
