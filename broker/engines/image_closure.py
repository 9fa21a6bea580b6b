"""The files of this machine that make a Python program run with nothing else around it.

Names what an image holds; writes nothing, and never runs what it looks at.
"""

import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from broker.engines.image_elf import find_library, is_elf, parse_elf
from protocol.errors import Refusal

PYTHON: Final = Path("/usr/bin/python3")

#: The user that sandboxes run as; engines name it again on their own command lines.
SANDBOX_USER: Final = 10001

_TOOL_NAMES: Final = (
    "sh basename cat chmod comm cp cut date diff dirname echo env expr false find grep head id join"
    " ln ls mkdir mktemp mv nproc od paste printf pwd readlink realpath rm rmdir sed seq sha256sum"
    " sleep sort stat tail tee test touch tr true uname uniq wc which xargs"
)
#: What a recipe may expect besides Python. Absent ones are left out.
TOOLS: Final = tuple(_TOOL_NAMES.split())

_LEFT_OUT_NAMES: Final = (
    "__pycache__ dist-packages ensurepip idle_test idlelib lib2to3 pydoc_data site-packages test"
    " tests tkinter turtle.py turtledemo EXTERNALLY-MANAGED"
)
#: Parts of the standard library that need a display, an installer or a source tree.
_LEFT_OUT: Final = frozenset(_LEFT_OUT_NAMES.split())
_LEFT_OUT_PREFIXES: Final = (
    "config-",
    "_test",
    "_ctypes_test",
    "xxlimited",
    "_xxtestfuzz",
    "_tkinter",
)

_PYTHON_NAME: Final = re.compile(r"python3\.\d{1,2}")
_PASSWD: Final = (
    b"root:x:0:0:root:/:/usr/sbin/nologin\nagent:x:10001:10001:agent:/tmp:/usr/sbin/nologin\n"
)
_GROUP: Final = b"root:x:0:\nagent:x:10001:\n"
_MERGED: Final = ("bin", "lib", "lib64", "sbin")
_MOUNT_POINTS: Final = ("dev", "etc", "proc", "run", "sys", "work")
_SCRATCH: Final = ("tmp", "var/tmp")


@dataclass(frozen=True, slots=True)
class ImageEntry:
    """One name in an image: path without a leading slash, and exactly what is there."""

    path: str
    mode: int
    content: Path | bytes | None = None  #: a regular file, from the host or as given
    link: str | None = None  #: a symbolic link's target; neither of both is a directory


def host_closure() -> tuple[ImageEntry, ...]:
    """Python, its standard library, a shell, a few tools and all that they load, sorted by path.

    Raises ``Refusal("unsupported")`` when this machine's ``/usr/bin/python3`` is not of a
    known shape or a library that it needs is missing.
    """
    entries: dict[str, ImageEntry] = {}
    _add_skeleton(entries)
    python = PYTHON.resolve()
    if _PYTHON_NAME.fullmatch(python.name) is None or not python.is_file():
        raise Refusal("unsupported")
    _add_program(entries, python)
    _add(entries, ImageEntry("usr/bin/python3", 0o777, link=python.name))
    folders = [
        folder for name in ("lib", "lib64") if (folder := Path("/usr", name, python.name)).is_dir()
    ]
    if not folders:
        raise Refusal("unsupported")
    for folder in folders:
        _add_library_folder(entries, folder)
    for tool in TOOLS:
        _add_tool(entries, tool)
    return complete(entries.values())


def complete(entries: Iterable[ImageEntry]) -> tuple[ImageEntry, ...]:
    """``entries`` and every folder above them, sorted, so that a tar reader makes no guess."""
    named = {entry.path: entry for entry in entries}
    for path in list(named):
        for parent in Path(path).parents:
            if parent.parts:
                named.setdefault(str(parent), ImageEntry(str(parent), 0o755))
    return tuple(named[path] for path in sorted(named))


def _add_skeleton(entries: dict[str, ImageEntry]) -> None:
    """Mount points must be there before: a read-only root cannot get new ones."""
    for name in _MOUNT_POINTS:
        _add(entries, ImageEntry(name, 0o755))
    for name in _SCRATCH:
        _add(entries, ImageEntry(name, 0o1777))
    for name in _MERGED:
        host = Path("/", name)
        if host.is_symlink() and host.resolve() == Path("/usr", name):
            _add(entries, ImageEntry(name, 0o777, link=f"usr/{name}"))
    _add(entries, ImageEntry("etc/passwd", 0o644, _PASSWD))
    _add(entries, ImageEntry("etc/group", 0o644, _GROUP))


def _add(entries: dict[str, ImageEntry], entry: ImageEntry) -> None:
    entries.setdefault(entry.path, entry)


def _add_tool(entries: dict[str, ImageEntry], tool: str) -> None:
    for folder in ("/usr/bin", "/bin"):
        host = Path(folder, tool)
        if host.is_file():
            _add_program(entries, host.parent.resolve() / tool)
            return


def _add_program(entries: dict[str, ImageEntry], path: Path) -> None:
    """An executable under its own name, and the libraries and the loader that it needs."""
    data = path.read_bytes()
    _add(entries, ImageEntry(_image_path(path), 0o755, path.resolve()))
    if is_elf(data):
        _add_needed(entries, data, path.resolve())


def _add_library_folder(entries: dict[str, ImageEntry], folder: Path) -> None:
    for path in _library_files(folder):
        data = path.read_bytes() if ".so" in path.suffixes else b""
        if is_elf(data) and not _can_load(data, path):
            continue  # an extension whose library is not installed here cannot be imported either
        _add(entries, ImageEntry(_image_path(path), 0o644, path))
        if is_elf(data):
            _add_needed(entries, data, path)


def _library_files(folder: Path) -> Iterator[Path]:
    """The regular files of a standard library; links (to host configuration) are left out."""
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if entry.name in _LEFT_OUT or entry.name.startswith(_LEFT_OUT_PREFIXES):
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _library_files(Path(entry.path))
        elif stat.S_ISREG(entry.stat(follow_symlinks=False).st_mode):
            yield Path(entry.path)


def _can_load(data: bytes, path: Path) -> bool:
    elf = parse_elf(data)
    return all(find_library(name, search=elf.search, origin=path.parent) for name in elf.needed)


def _add_needed(entries: dict[str, ImageEntry], data: bytes, path: Path) -> None:
    """What ``path`` needs, and what that needs, each under the name it is asked for by."""
    elf = parse_elf(data)
    found = [Path(elf.loader)] if elf.loader else []
    for name in elf.needed:
        library = find_library(name, search=elf.search, origin=path.parent)
        if library is None:
            raise Refusal("unsupported")
        found.append(library)
    for library in found:
        place = library.parent.resolve() / library.name
        if _image_path(place) not in entries:
            _add(entries, ImageEntry(_image_path(place), 0o755, library.resolve()))
            _add_needed(entries, library.read_bytes(), library.resolve())


def _image_path(path: Path) -> str:
    return str(path).removeprefix("/")
