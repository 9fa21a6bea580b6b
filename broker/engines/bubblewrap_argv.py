"""The command line of bubblewrap, as a pure function of what is asked.

Starts nothing and looks at nothing. The options go to bubblewrap through a descriptor
(``--args``): its own command line is readable inside as ``/proc/1/cmdline`` and must
not show a path of the host.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from broker.engines.layout import Layout
from broker.engines.spec import (
    ADAPTER_PATH,
    DEFAULT_PATH,
    INSIDE_ID,
    SHM_BYTES,
    WORK_PATH,
    SandboxLimits,
    SandboxSpec,
)

#: Started by root in a mount namespace of its own: shows the folders that the sandbox
#: gets under neutral names, then gives up root for good. Without it an unprivileged
#: bubblewrap could not reach a folder below a 0700 home. The host sees none of it.
_STAGE_SCRIPT: Final = """set -e
at=$1 uid=$2; shift 2
mount -n -t tmpfs -o mode=0755,size=64k,nosuid,nodev,noexec airlock "$at"
while [ "$1" != -- ]; do mkdir "$at/$1"; mount -n --bind "$2" "$at/$1"; shift 2; done
shift
cd /
exec setpriv --reuid "$uid" --regid "$uid" --clear-groups --inh-caps=-all --no-new-privs \
--pdeathsig KILL -- "$@"
"""
#: The parent-death signal is set by now. If the parent died before it was, we have
#: another parent, and nothing would ever end us: end here.
_PARENT_SCRIPT: Final = '[ "$PPID" = "$0" ] && exec "$@"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Descriptors:
    """The numbers of the descriptors that bubblewrap inherits, the same on both sides."""

    args: int
    seccomp: int
    status: int
    files: tuple[int, ...]  #: one per file of the layout, in its order


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where bubblewrap finds the folders that the specification names."""

    adapter: str | None
    work: str | None


def bubblewrap_options(
    spec: SandboxSpec, *, layout: Layout, places: Places, descriptors: Descriptors
) -> tuple[str, ...]:
    """The options of ``bwrap`` for ``spec``: what ``--args`` carries."""
    limits = spec.limits
    options = [
        *("--unshare-all", "--unshare-user", "--disable-userns"),
        *("--die-with-parent", "--new-session", "--clearenv"),
    ]
    for name, value in _environment(spec):
        options += ["--setenv", name, value]
    for source, place in layout.binds:
        options += ["--ro-bind", source, place]
    for place in layout.hidden:
        options += ["--tmpfs", place, "--remount-ro", place]
    for target, place in layout.links:
        options += ["--symlink", target, place]
    for (place, _), number in zip(layout.files, descriptors.files, strict=True):
        options += ["--perms", "0644", "--file", str(number), place]
    options += ["--proc", "/proc", "--dev", "/dev"]
    options += ["--perms", "1777", "--size", str(SHM_BYTES), "--tmpfs", "/dev/shm"]
    options += ["--remount-ro", "/dev"]
    options += ["--perms", "1777", "--size", str(limits.tmp_bytes), "--tmpfs", "/tmp"]
    for mask in layout.masks:
        options += ["--ro-bind", "/dev/null", mask]
    if "/home" not in {place for _, place in layout.binds}:
        options += ["--perms", "0755", "--dir", "/home"]
    if places.adapter is not None:
        options += ["--ro-bind", places.adapter, ADAPTER_PATH]
    if places.work is not None:
        options += ["--bind", places.work, WORK_PATH]
    return (
        *options,
        *("--remount-ro", "/"),
        *("--uid", str(INSIDE_ID), "--gid", str(INSIDE_ID), "--cap-drop", "ALL"),
        *("--hostname", "agent"),
        *("--chdir", "/tmp" if places.work is None else WORK_PATH),
        *("--seccomp", str(descriptors.seccomp)),
        *("--json-status-fd", str(descriptors.status)),
    )


def bubblewrap_command(
    program: str, *, name: str, args: int, argv: Sequence[str]
) -> tuple[str, ...]:
    """``bwrap`` itself. ``--unsetenv NAME`` changes nothing: it is how a sweep finds it."""
    return (program, "--args", str(args), "--unsetenv", name, "--", *argv)


def limited(
    command: Sequence[str], *, limits: SandboxLimits, memory: bool, pids: bool
) -> tuple[str, ...]:
    """``command`` under resource limits, soft and hard. ``memory``: of each process."""
    bounds = {
        "nofile": limits.open_files,
        "core": 0,
        "fsize": limits.file_bytes,
        **({"nproc": limits.pids} if pids else {}),
        **({"data": limits.memory_bytes} if memory else {}),
    }
    return (
        "prlimit",
        *(f"--{name}={value}:{value}" for name, value in bounds.items()),
        "--",
        *command,
    )


def as_user(command: Sequence[str], *, parent: int) -> tuple[str, ...]:
    """``command`` bound to the life of process ``parent``, without new privileges."""
    return (
        *("setpriv", "--no-new-privs", "--pdeathsig", "KILL", "--"),
        *_with_parent(command, parent),
    )


def as_root(
    command: Sequence[str],
    *,
    parent: int,
    uid: int,
    staging_point: str,
    staged: Sequence[tuple[str, str]],
) -> tuple[str, ...]:
    """The same for a caller that is root: ``command`` runs as ``uid`` without groups.

    ``staged`` are pairs of (name, host folder); a folder is seen at
    ``<staging_point>/<name>`` by ``command`` and by nothing else.
    """
    folders = [part for pair in staged for part in pair]
    return (
        *("unshare", "--mount", "--propagation", "private", "--"),
        *("/bin/sh", "-c", _STAGE_SCRIPT, "airlock", staging_point, str(uid)),
        *(*folders, "--", *_with_parent(command, parent)),
    )


def _with_parent(command: Sequence[str], parent: int) -> tuple[str, ...]:
    return ("/bin/sh", "-c", _PARENT_SCRIPT, str(parent), *command)


def _environment(spec: SandboxSpec) -> tuple[tuple[str, str], ...]:
    given = dict(spec.env)
    return tuple({"PATH": DEFAULT_PATH, "HOME": "/tmp", "LANG": "C.UTF-8", **given}.items())
