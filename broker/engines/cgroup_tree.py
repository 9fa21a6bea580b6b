"""Where the control groups of a process lie and which limits they have; changes none.

Reads the kernel's own files. A control group that is not shown here (another mount
namespace, no mount at all) counts as one without limits.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

Number = TypeVar("Number", int, float)

#: What a sandbox must be bounded by.
CONTROLLERS: Final[tuple[str, ...]] = ("memory", "pids", "cpu")
#: Version 1 says "no limit" with the largest number of pages.
_NO_LIMIT: Final = 2**62


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """The limits of the control groups of a process; None where there is no limit."""

    memory_bytes: int | None
    pids: int | None
    cpus: float | None
    swap_limited: bool


def read_group_limits(pid: int) -> GroupLimits:
    """The limits that hold for process ``pid``, as the kernel's own files say."""
    try:
        groups = _parse_groups(Path(f"/proc/{pid}/cgroup").read_text())
    except (FileNotFoundError, ProcessLookupError):
        return GroupLimits(None, None, None, False)
    folders = _group_folders(groups)
    memory, pids, cpu = (_upwards(folders.get(name)) for name in CONTROLLERS)
    swap = _least(
        memory, lambda at: _read_bound(at, "memory.swap.max", "memory.memsw.limit_in_bytes")
    )
    return GroupLimits(
        memory_bytes=_least(
            memory, lambda at: _read_bound(at, "memory.max", "memory.limit_in_bytes")
        ),
        pids=_least(pids, lambda at: _read_bound(at, "pids.max")),
        cpus=_least(cpu, _read_cpus),
        swap_limited=swap is not None,
    )


def _upwards(folder: Path | None) -> list[Path]:
    """A group's folder and those of the groups above it: a limit of any of them holds."""
    if folder is None:
        return []
    return [at for at in (folder, *folder.parents) if (at / "cgroup.procs").exists()]


def _least(folders: list[Path], read: Callable[[Path], Number | None]) -> Number | None:
    bounds = [bound for at in folders if (bound := read(at)) is not None]
    return min(bounds, default=None)


def _group_folders(groups: Mapping[str, str]) -> dict[str, Path]:
    """The folder of a process's group per controller, in whichever version has it."""
    folders = {}
    for root, place, kind, _ in mounts():
        if kind == "cgroup2" and "" in groups:
            folder = below(place, root, groups[""])
            folders.update(dict.fromkeys(words(folder / "cgroup.controllers"), folder))
    for root, place, kind, options in mounts():
        for controller in CONTROLLERS:
            if kind == "cgroup" and controller in options.split(",") and controller in groups:
                folders[controller] = below(place, root, groups[controller])
    return folders


def _read_bound(folder: Path, *names: str) -> int | None:
    """The first of the files that exists, as a number; None for "no limit"."""
    for name in names:
        try:
            text = (folder / name).read_text().strip()
        except OSError:
            continue
        return int(text) if text.isdecimal() and int(text) < _NO_LIMIT else None
    return None


def _read_cpus(folder: Path) -> float | None:
    try:
        quota, period = (folder / "cpu.max").read_text().split()
    except OSError:
        quota_bound = _read_bound(folder, "cpu.cfs_quota_us")
        period_bound = _read_bound(folder, "cpu.cfs_period_us")
        if quota_bound is None or period_bound is None:
            return None
        return quota_bound / period_bound
    return None if quota == "max" else int(quota) / int(period)


def own_groups() -> dict[str, str]:
    """Our own group per controller; version 2's under the empty name."""
    return _parse_groups(Path("/proc/self/cgroup").read_text())


def _parse_groups(text: str) -> dict[str, str]:
    """A process's group per controller; version 2's under the empty name."""
    groups: dict[str, str] = {}
    for line in text.splitlines():
        _, names, path = line.split(":", 2)
        groups.update(dict.fromkeys(names.split(","), path))
    return groups


def mounts() -> list[tuple[str, Path, str, str]]:
    """Mounts as (root within the file system, place, type, options of the file system)."""
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        fields, kinds = before.split(), after.split()
        found.append((fields[3], Path(fields[4]), kinds[0], kinds[-1]))
    return found


def below(place: Path, root: str, path: str) -> Path:
    """``path`` of the hierarchy as a folder, where the mount shows only ``root`` of it."""
    inside = os.path.relpath(path, root)
    return place if inside.startswith("..") else place / inside


def words(path: Path) -> set[str]:
    """The words of a small file; none when it cannot be read."""
    try:
        return set(path.read_text().split())
    except OSError:
        return set()
