"""Content-addressed adapter folders: what is mounted at ``/adapter`` is what its digest says.

Copies plain files with fixed modes into ``state/adapters/<sha256>/`` and checks them
again whenever it hands the folder out. Never follows a link and never runs what it copies.
"""

import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from protocol.digest import DIGEST_PREFIX, digest_value
from protocol.errors import Fault, Refusal
from protocol.ids import Digest, parse_id, parse_repo_path

#: Where an engine shows the folder, and how the adapter in it is started: isolated from the
#: environment and from site packages. Python runs the folder's ``__main__.py``.
ADAPTER_MOUNT: Final = "/adapter"
ADAPTER_COMMAND: Final = ("/usr/bin/python3", "-I", "-S", "-B", ADAPTER_MOUNT)

#: An adapter is a program, not a data set: the largest known agent is one 300 MB executable.
MAX_BUNDLE_FILES: Final = 20_000
MAX_BUNDLE_BYTES: Final = 1024 * 1024 * 1024

_CHUNK_BYTES: Final = 1024 * 1024
_LEFT_OUT: Final = frozenset({"__pycache__"})


@dataclass(frozen=True, slots=True)
class Bundle:
    """An adapter folder that was verified when this was made."""

    name: str
    digest: Digest  #: over the sorted (path, mode, sha256) of every file
    folder: Path


@dataclass(frozen=True, slots=True, order=True)
class BundleFile:
    """One file of a folder: relative path, 0o644 or 0o755, content digest, size in bytes."""

    path: str
    mode: int
    digest: str
    size: int


def build_bundle(name: str, *, source: Path, state: Path) -> Bundle:
    """``source`` as a content-addressed folder below ``state/adapters``.

    The same files give the same digest, whoever owns them and whenever they were written.
    A folder that is there already is used only if it still is what its digest says, and
    made afresh otherwise. Raises ``Refusal`` for a source with links or special files or
    over its bounds, ``Fault("store_unwritable")`` if the folder cannot be written.
    """
    parse_id(name)
    if not source.is_dir():
        raise Refusal("not_a_directory")
    files = describe_folder(source)
    digest = digest_files(files)
    store = state / "adapters"
    folder = store / digest.removeprefix(DIGEST_PREFIX)
    try:
        if not _is_intact(folder, digest):
            _write(source, files, store=store, folder=folder)
            if not _is_intact(folder, digest):
                raise Refusal("checkout_changed")
    except OSError as error:
        raise Fault("store_unwritable") from error
    return Bundle(name, digest, folder)


def describe_folder(folder: Path) -> tuple[BundleFile, ...]:
    """Every file below ``folder``, sorted by path. Python's caches are left out."""
    files: list[BundleFile] = []
    total = 0
    for path, status in _walk(folder):
        total += status.st_size
        if len(files) >= MAX_BUNDLE_FILES or total > MAX_BUNDLE_BYTES:
            raise Refusal("file_too_large", figure=MAX_BUNDLE_BYTES)
        name = parse_repo_path(
            os.fsencode(path.relative_to(folder)).decode("utf-8", "surrogateescape")
        )
        mode = 0o755 if status.st_mode & 0o111 else 0o644
        files.append(BundleFile(name, mode, _digest_file(path), status.st_size))
    return tuple(sorted(files))


def digest_files(files: tuple[BundleFile, ...]) -> Digest:
    """The digest of a folder that holds exactly ``files``."""
    return digest_value([[file.path, file.mode, file.digest] for file in sorted(files)])


def _walk(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """The regular files below ``folder``; a link or special file is refused, not skipped."""
    with os.scandir(folder) as entries:
        found = sorted(entries, key=lambda entry: entry.name)
    for entry in found:
        status = entry.stat(follow_symlinks=False)
        if stat.S_ISDIR(status.st_mode):
            if entry.name not in _LEFT_OUT:
                yield from _walk(Path(entry.path))
        elif stat.S_ISREG(status.st_mode):
            yield Path(entry.path), status
        else:
            raise Refusal("path_not_confined")


def _digest_file(path: Path) -> str:
    """sha256 of a file's content as 64 hex digits."""
    state = hashlib.sha256()
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            state.update(chunk)
    return state.hexdigest()


def _is_intact(folder: Path, digest: Digest) -> bool:
    """Whether ``folder`` holds exactly the files, bytes and modes that ``digest`` names."""
    if folder.is_symlink() or not folder.is_dir():
        return False
    try:
        files = describe_folder(folder)
    except Refusal:
        return False
    exact = all(stat.S_IMODE((folder / file.path).stat().st_mode) == file.mode for file in files)
    return exact and digest_files(files) == digest


def _write(source: Path, files: tuple[BundleFile, ...], *, store: Path, folder: Path) -> None:
    """Copy ``files`` next to ``folder`` and put the copy in its place in one step."""
    store.mkdir(mode=0o755, parents=True, exist_ok=True)
    store.chmod(0o755)  # a sandbox's user must be able to pass through
    with tempfile.TemporaryDirectory(dir=store, prefix=".new-") as scratch:
        fresh = Path(scratch) / "adapter"
        fresh.mkdir()
        for file in files:
            target = fresh / file.path
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / file.path, target, follow_symlinks=False)
            target.chmod(file.mode)
        for directory, _, _ in os.walk(fresh):
            os.chmod(directory, 0o755)
        if folder.is_symlink() or folder.exists():
            folder.rename(Path(scratch) / "damaged")
        fresh.rename(folder)
