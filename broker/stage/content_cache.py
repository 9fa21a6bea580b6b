"""What was once learned of a repository's blobs: git id to sha256 id, size and verdict.

It saves reading unchanged content again; without it everything is read, and the result
is the same. One file per repository, safe to delete, replaced whole, so that processes
may share it and the last writer wins.

A git id is SHA-1, for which collisions can be made. A repository could therefore teach
the cache a wrong digest for a blob of its own choice, so what one repository taught is
never used for another: the file is named for its object folder (path, device, inode).
Within one repository a wrong digest is a refusal at the first read and not wrong bytes,
because the store compares what it loads with the digest. A file that another user could
have written is not used.
"""

import os
import stat
import tempfile
from collections.abc import Mapping
from hashlib import sha1, sha256
from pathlib import Path
from struct import Struct
from typing import Final

import msgspec

from broker.stage.exclusions import RULES_VERSION

#: Blobs remembered for one repository: twice the files of the largest stage.
MAX_ENTRIES: Final = 200_000

#: Repositories remembered: 64 files of at most 12 MB; the oldest go first.
MAX_REPOSITORIES: Final = 64

MARK_PLAIN: Final = 0
MARK_PRIVATE_KEY: Final = 1
MARK_CREDENTIAL: Final = 2
MARK_LFS_POINTER: Final = 3
_MARK_LISTED: Final = 4

_RECORD: Final = Struct("<20s32sQB")
_SEAL_BYTES: Final = 32
_FORMAT: Final = b"airlock blobs 1"
_SUFFIX: Final = ".blobs"
_NEW: Final = ".new-"
_ABANDONED_SECONDS: Final = 3600.0


class Known(msgspec.Struct, frozen=True, gc=False):
    """What is known of one blob: its sha256 blob id, size in bytes, and a ``MARK_``."""

    digest: bytes
    size: int
    mark: int


class ContentCache:
    """The blobs of one repository. Made by ``load``; ``save`` writes what was added."""

    def __init__(self, path: Path | None, known: dict[bytes, Known]) -> None:
        self._path: Final = path
        self._old: Final = known
        self._new: Final[dict[bytes, Known]] = {}

    @classmethod
    def load(cls, folder: Path | None, objects: Path) -> "ContentCache":
        """What ``folder`` remembers of the repository at ``objects``; ``None``: nothing."""
        if folder is None:
            return cls(None, {})
        path = folder / _name_for(objects)
        return cls(path, _parse(_read_own(path)))

    def get(self, oid: bytes) -> Known | None:
        """What is known of the blob with git id ``oid``."""
        return self._old.get(oid) or self._new.get(oid)

    def add(self, oid: bytes, known: Known) -> None:
        """Remember ``known``, which was computed from the blob's own bytes."""
        self._new[oid] = known

    def listed_files(self, tree: bytes) -> int | None:
        """How many files a commit's tree was found to hold, when it was listed before."""
        known = self.get(_listed(tree))
        return None if known is None or known.mark != _MARK_LISTED else known.size

    def add_listed(self, tree: bytes, files: int) -> None:
        """Remember that ``tree`` was listed to its end and holds ``files`` files."""
        self.add(_listed(tree), Known(bytes(_SEAL_BYTES), files, _MARK_LISTED))

    def save(self) -> None:
        """Write what was added. A cache that cannot be written is no failure."""
        if self._path is None or not self._new:
            return
        # What was just used is kept first: older blobs are mostly of past commits.
        kept = dict(list({**self._new, **self._old}.items())[:MAX_ENTRIES])
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _replace(self._path, _serialize(kept))
            _drop_oldest(self._path.parent)
        except OSError:
            return


def _listed(tree: bytes) -> bytes:
    # Not the id itself: an index may name a tree where a blob belongs.
    return sha1(b"listed\0" + tree, usedforsecurity=False).digest()


def _name_for(objects: Path) -> str:
    found = os.stat(objects)
    place = b"%b\0%d\0%d" % (os.fsencode(os.path.realpath(objects)), found.st_dev, found.st_ino)
    return sha256(place).hexdigest() + _SUFFIX


def _seal(body: bytes) -> bytes:
    return sha256(b"%b\0%d\0%b" % (_FORMAT, RULES_VERSION, body)).digest()


def _serialize(known: Mapping[bytes, Known]) -> bytes:
    body = b"".join(
        _RECORD.pack(oid, value.digest, value.size, value.mark) for oid, value in known.items()
    )
    return _seal(body) + body


def _parse(data: bytes) -> dict[bytes, Known]:
    seal, body = data[:_SEAL_BYTES], data[_SEAL_BYTES:]
    # A torn file, another format, or verdicts of other rules: nothing is known.
    if len(body) % _RECORD.size or seal != _seal(body):
        return {}
    return {oid: Known(digest, size, mark) for oid, digest, size, mark in _RECORD.iter_unpack(body)}


def _read_own(path: Path) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    with open(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        folder = os.stat(path.parent)
        if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_ENTRIES * _RECORD.size * 2:
            return b""
        if not (_is_private(found) and _is_private(folder)):
            return b""
        return file.read()


def _is_private(found: os.stat_result) -> bool:
    return found.st_uid == os.geteuid() and not found.st_mode & 0o022


def _replace(path: Path, data: bytes) -> None:
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=_NEW)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
        os.replace(name, path)
    except OSError:
        os.unlink(name)
        raise


def _drop_oldest(folder: Path) -> None:
    files = sorted(folder.glob("*" + _SUFFIX), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in files[MAX_REPOSITORIES:]:
        path.unlink(missing_ok=True)
    # A writer that was killed leaves its new file behind; no living one takes this long.
    newest = files[0].stat().st_mtime if files else 0.0
    for path in folder.glob(_NEW + "*"):
        if path.stat().st_mtime < newest - _ABANDONED_SECONDS:
            path.unlink(missing_ok=True)
