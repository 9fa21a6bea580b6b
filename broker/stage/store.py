"""Blobs of a stage: kept by content, read back verified; never a file of the checkout.

New content is appended to one nameless file in the scratch folder, so a blob costs no
file of its own and nothing is left behind, whatever ends the process. Content that a
repository already holds is not copied: its object database is an alternate that is
read by git id. A git id (SHA-1) is an address and never authority: what a ``Blob`` is
stands in its ``digest``, and ``load`` gives bytes of that digest or fails.
"""

import os
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final, NewType, Self

import msgspec
import pygit2
from pygit2.enums import ObjectType

from protocol.errors import Fault

BlobId = NewType("BlobId", bytes)
"""Where a store keeps a blob: 32 bytes (its digest, own content) or 20 (git id, alternate)."""

#: Recently loaded content kept in memory by each store. An agent reads the same few
#: dozen source files again and again; inflating them each time costs more than a read.
CACHE_BYTES: Final = 32 * 1024 * 1024

#: Content above this is not kept: one such file would push out hundreds of usual ones.
CACHED_BLOB_BYTES: Final = 1024 * 1024

_OWN_ID_BYTES: Final = 32

#: Small contents that come together are written in pieces of about this size.
_WRITE_BYTES: Final = 1024 * 1024


class Blob(msgspec.Struct, frozen=True, gc=False):
    """The content of one file: an address in its store, a size in bytes, and what it is."""

    oid: BlobId
    size: int
    digest: bytes  #: 32 bytes: the blob id that git gives under ``--object-format=sha256``


def blob_digest(data: bytes) -> bytes:
    """Git's sha256 blob id of ``data``, 32 bytes."""
    return sha256(b"blob %d\0%b" % (len(data), data)).digest()


class BlobStore:
    """Content by address. Safe to use from several threads; made by ``open``."""

    def __init__(self, descriptor: int, alternates: list[pygit2.Odb]) -> None:
        self._descriptor = descriptor
        self._alternates = alternates
        self._end = 0
        self._own: dict[bytes, tuple[int, int]] = {}
        self._recent: OrderedDict[bytes, bytes] = OrderedDict()
        self._recent_bytes = 0
        self._lock = threading.Lock()

    @classmethod
    def open(cls, scratch: Path, *, alternates: Sequence[Path] = ()) -> Self:
        """An empty store whose new content lives in ``scratch`` (an existing folder).

        ``alternates`` are ``objects`` folders of git repositories; they are only read.
        Raises ``Fault("store_unwritable")`` or ``Fault("checkout_unreadable")``.
        """
        try:
            # The handle is closed again below; the duplicate keeps the nameless file.
            with tempfile.TemporaryFile(dir=scratch, prefix="blobs-") as file:
                descriptor = os.dup(file.fileno())
        except OSError as error:
            raise Fault("store_unwritable") from error
        try:
            # Opened one by one, because only so libgit2 follows their own alternates.
            databases = [pygit2.Odb(str(folder)) for folder in alternates]
        except (pygit2.GitError, OSError, ValueError) as error:
            os.close(descriptor)
            raise Fault("checkout_unreadable") from error
        return cls(descriptor, databases)

    def put(self, data: bytes) -> Blob:
        """``data`` as a blob of this store; the same content is kept once.

        Raises ``Fault("store_unwritable")``, for example when the disk is full; the
        store is then as it was before.
        """
        return self.put_all((data,))[0]

    def put_all(self, contents: Iterable[bytes]) -> list[Blob]:
        """Each of ``contents`` as a blob, in the same order: ``put`` of all or none."""
        blobs: list[Blob] = []
        new: dict[bytes, tuple[int, int]] = {}
        waiting: list[bytes] = []
        with self._lock:
            written = end = self._end
            for data in contents:
                digest, size = blob_digest(data), len(data)
                blobs.append(Blob(oid=BlobId(digest), size=size, digest=digest))
                if digest in self._own or digest in new:
                    continue
                new[digest] = end, size
                waiting.append(data)
                end += size
                if end - written >= _WRITE_BYTES:
                    _write_all(self._descriptor, b"".join(waiting), offset=written)
                    written, waiting = end, []
            _write_all(self._descriptor, b"".join(waiting), offset=written)
            self._own.update(new)
            self._end = end
        return blobs

    def read(self, oid: BlobId) -> bytes:
        """The bytes at ``oid``: those that were put, or those of an alternate.

        Raises ``Fault("checkout_unreadable")`` when an alternate does not give them
        (any more), and ``KeyError`` for own content that was never put.
        """
        if len(oid) == _OWN_ID_BYTES:
            offset, size = self._own[oid]
            return _read_all(self._descriptor, size, offset=offset)
        return self._read_object(oid, ObjectType.BLOB)

    def read_git_tree(self, oid: bytes) -> bytes:
        """The raw tree object of an alternate; raises ``Fault("checkout_unreadable")``."""
        return self._read_object(oid, ObjectType.TREE)

    def has_git_tree(self, oid: bytes) -> bool:
        """Whether an alternate has the tree object with this git id."""
        return self._size(oid, ObjectType.TREE) is not None

    def size_in_alternates(self, oid: bytes) -> int | None:
        """The size in bytes of the blob with this git id; ``None`` when no alternate has it."""
        return self._size(oid, ObjectType.BLOB)

    def _size(self, oid: bytes, wanted: ObjectType) -> int | None:
        name = pygit2.Oid(raw=oid)
        for database in self._alternates:
            try:
                kind, size = database.read_header(name)
            except KeyError:
                continue
            except (pygit2.GitError, OSError, ValueError) as error:
                raise Fault("checkout_unreadable") from error
            return size if kind == wanted else None
        return None

    def load(self, blob: Blob) -> bytes:
        """The bytes of ``blob``: exactly those that its digest names.

        Raises ``Fault("checkout_unreadable")`` when the store gives others.
        """
        digest = blob.digest
        with self._lock:
            known = self._recent.get(digest)
            if known is not None:
                self._recent.move_to_end(digest)
                return known
        data = self.read(blob.oid)
        if blob_digest(data) != digest:
            raise Fault("checkout_unreadable")
        if len(data) <= CACHED_BLOB_BYTES:
            self._remember(digest, data)
        return data

    def close(self) -> None:
        """Give the scratch space back. May be called again; nothing can be read after it."""
        with self._lock:
            descriptor, self._descriptor = self._descriptor, -1
            self._own.clear()
            self._recent.clear()
            self._recent_bytes = 0
            self._alternates = []
        if descriptor >= 0:
            os.close(descriptor)

    def _read_object(self, oid: bytes, wanted: ObjectType) -> bytes:
        name = pygit2.Oid(raw=oid)
        for database in self._alternates:
            try:
                kind, data = database.read(name)
            except KeyError:
                continue
            except (pygit2.GitError, OSError, ValueError) as error:
                raise Fault("checkout_unreadable") from error
            if kind != wanted:
                break
            return data
        raise Fault("checkout_unreadable")

    def _remember(self, digest: bytes, data: bytes) -> None:
        with self._lock:
            if digest in self._recent:
                return
            self._recent[digest] = data
            self._recent_bytes += len(data)
            while self._recent_bytes > CACHE_BYTES:
                _, dropped = self._recent.popitem(last=False)
                self._recent_bytes -= len(dropped)


def _write_all(descriptor: int, data: bytes, *, offset: int) -> None:
    view = memoryview(data)
    try:
        while view:
            written = os.pwrite(descriptor, view, offset)
            view = view[written:]
            offset += written
    except OSError as error:
        raise Fault("store_unwritable") from error


def _read_all(descriptor: int, size: int, *, offset: int) -> bytes:
    try:
        data = os.pread(descriptor, size, offset)
        while len(data) < size:
            more = os.pread(descriptor, size - len(data), offset + len(data))
            if not more:
                raise Fault("store_unwritable")
            data += more
    except OSError as error:
        raise Fault("store_unwritable") from error
    return data
