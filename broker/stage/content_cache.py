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

from itertools import islice
from pathlib import Path
from struct import Struct
from typing import Final

import msgspec

from broker.stage.cache_files import cache_name, read_sealed, write_sealed

#: Blobs remembered for one repository: twice the files of the largest stage.
MAX_ENTRIES: Final = 200_000

MAX_BYTES: Final = MAX_ENTRIES * 61

#: Repositories remembered: 64 files of at most 12 MB; the oldest go first.
MAX_REPOSITORIES: Final = 64

MARK_PLAIN: Final = 0
MARK_PRIVATE_KEY: Final = 1
MARK_CREDENTIAL: Final = 2
MARK_LFS_POINTER: Final = 3

_RECORD: Final = Struct("<20s41s")
_KNOWN: Final = Struct("<32sQB")
_FORMAT: Final = b"airlock blobs 1"
_SUFFIX: Final = ".blobs"


class Known(msgspec.Struct, frozen=True, gc=False):
    """What is known of one blob: its sha256 blob id, size in bytes, and a ``MARK_``."""

    digest: bytes
    size: int
    mark: int


class ContentCache:
    """The blobs of one repository. Made by ``load``; ``save`` writes what was added."""

    def __init__(self, path: Path | None) -> None:
        self._path: Final = path
        self._held: dict[bytes, bytes] | None = None
        self._new: Final[dict[bytes, Known]] = {}

    @classmethod
    def load(cls, folder: Path | None, objects: Path) -> "ContentCache":
        """What ``folder`` remembers of the repository at ``objects``; ``None``: nothing.

        It is read when it is first asked for something.
        """
        return cls(None if folder is None else folder / (cache_name(objects) + _SUFFIX))

    def get(self, oid: bytes) -> Known | None:
        """What is known of the blob with git id ``oid``."""
        packed = self._old().get(oid)
        return self._new.get(oid) if packed is None else Known(*_KNOWN.unpack(packed))

    def add(self, oid: bytes, known: Known) -> None:
        """Remember ``known``, which was computed from the blob's own bytes."""
        self._new[oid] = known

    def _old(self) -> dict[bytes, bytes]:
        held = self._held
        if held is None:
            body = b"" if self._path is None else read_sealed(self._path, _FORMAT, MAX_BYTES)
            # Another format: nothing is known.
            body = b"" if body is None or len(body) % _RECORD.size else body
            held = self._held = dict(_RECORD.iter_unpack(body))
        return held

    def save(self) -> None:
        """Write what was added. A cache that cannot be written is no failure."""
        if self._path is None or not self._new:
            return
        # What was just used is kept first: older blobs are mostly of past commits.
        new = {
            oid: _KNOWN.pack(known.digest, known.size, known.mark)
            for oid, known in self._new.items()
        }
        kept = islice({**new, **self._old()}.items(), MAX_ENTRIES)
        body = b"".join([part for record in kept for part in record])
        write_sealed(self._path, _FORMAT, body, most=MAX_REPOSITORIES)
