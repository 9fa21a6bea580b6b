"""Which folders of this host make up the root of a bubblewrap sandbox.

Reads names and link targets only. Nothing outside of ``/usr``, the loader's cache and
the table of alternatives is ever part of a ``HostRoot``: no home, no ``/etc``, no
``/var``, no ``/run``, no ``/opt``.
"""

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from protocol.errors import Refusal

#: Our own files in ``/etc``: programs ask for a user's name and for localhost.
ETC_FILES: Final = (
    ("/etc/passwd", b"agent:x:10001:10001:agent:/tmp:/bin/sh\n"),
    ("/etc/group", b"agent:x:10001:\n"),
    ("/etc/hosts", b"127.0.0.1 localhost agent\n::1 localhost agent\n"),
    ("/etc/nsswitch.conf", b"passwd: files\ngroup: files\nhosts: files\n"),
)
#: Kernel tables that tell about the host; bound over with /dev/null where they exist.
PROC_MASKS: Final = (
    "/proc/keys",
    "/proc/timer_list",
    "/proc/kallsyms",
    "/proc/config.gz",
    "/proc/cmdline",
)
_TOP_LINKS: Final = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_FROM_ETC: Final = ("/etc/ld.so.cache", "/etc/alternatives")
#: Made by bubblewrap itself, or of no use to anyone inside.
_NOT_FROM_FOLDER: Final = frozenset({"proc", "dev", "sys", "tmp", "work", "adapter", "run"})


@dataclass(frozen=True, slots=True)
class Layout:
    """The parts of a root: pairs of (source, place), in the order to be made."""

    binds: tuple[tuple[str, str], ...]
    links: tuple[tuple[str, str], ...]
    #: Places that are covered by an empty read-only folder. ``/usr/local`` is: what an
    #: administrator put there (tools, configuration, keys) is the host's, not a root's.
    hidden: tuple[str, ...]
    files: tuple[tuple[str, bytes], ...]
    masks: tuple[str, ...]


def read_host_layout() -> Layout:
    """The layout of a ``HostRoot`` on this machine."""
    binds = [("/usr", "/usr")]
    links = []
    for name in _TOP_LINKS:
        place = f"/{name}"
        if os.path.islink(place):
            links.append((os.readlink(place), place))
        elif os.path.isdir(place):
            binds.append((place, place))
    binds.extend((path, path) for path in _FROM_ETC if os.path.exists(path))
    hidden = ("/usr/local",) if os.path.isdir("/usr/local") else ()
    return Layout(tuple(binds), tuple(links), hidden, ETC_FILES, read_masks())


def read_folder_layout(folder: Path, *, seen_at: str) -> Layout:
    """The layout of the root file system in ``folder``, which bubblewrap sees as ``seen_at``.

    Its top level is made anew so that mount points need not exist in it. Raises
    ``Refusal("not_a_directory")``.
    """
    binds = []
    links = []
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        raise Refusal("not_a_directory") from error
    for entry in entries:
        if entry.name in _NOT_FROM_FOLDER:
            continue
        mode = entry.stat(follow_symlinks=False).st_mode
        place = f"/{entry.name}"
        if stat.S_ISLNK(mode):
            links.append((os.readlink(entry.path), place))
        elif stat.S_ISDIR(mode) or stat.S_ISREG(mode):
            binds.append((f"{seen_at}{place}", place))
    return Layout(tuple(binds), tuple(links), (), (), read_masks())


def read_masks() -> tuple[str, ...]:
    """Those of ``PROC_MASKS`` that this kernel has."""
    return tuple(path for path in PROC_MASKS if os.path.exists(path))


def read_staging_point() -> str:
    """A folder over which root may mount in a private namespace before it drops."""
    for path in ("/mnt", "/media", "/srv"):
        if os.path.isdir(path) and not os.path.islink(path):
            return path
    raise Refusal("unsupported")
