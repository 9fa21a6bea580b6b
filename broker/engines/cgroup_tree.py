"""Where the control groups of a process lie and which limits they have; changes none.

Reads the kernel's own files. A control group that is not shown here (another mount
namespace, no mount at all) counts as one without limits.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

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
    memory, pids, cpu = (folders.get(name) for name in CONTROLLERS)
    return GroupLimits(
        memory_bytes=_read_bound(memory, "memory.max", "memory.limit_in_bytes"),
        pids=_read_bound(pids, "pids.max"),
        cpus=_read_cpus(cpu),
        swap_limited=_read_bound(memory, "memory.swap.max", "memory.memsw.limit_in_bytes")
        is not None,
    )


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


def _read_bound(folder: Path | None, *names: str) -> int | None:
    """The first of the files that exists, as a number; None for "no limit"."""
    for name in names if folder is not None else ():
        try:
            text = (folder / name).read_text().strip()  # type: ignore[operator]
        except OSError:
            continue
        return int(text) if text.isdecimal() and int(text) < _NO_LIMIT else None
    return None


def _read_cpus(folder: Path | None) -> float | None:
    if folder is None:
        return None
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
