"""Content of a checkout as blobs of a store, with the verdict of the filters on it.

Content that the repository holds is named by its git id and not copied. Other content
is put into the store, but only after the filters have passed it.
"""

from hashlib import sha1, sha256
from typing import Final

import msgspec

from broker.stage.bounds import StageBounds
from broker.stage.content_cache import (
    MARK_CREDENTIAL,
    MARK_LFS_POINTER,
    MARK_PLAIN,
    MARK_PRIVATE_KEY,
    ContentCache,
    Known,
)
from broker.stage.credential_shapes import credential_of_content
from broker.stage.exclusions import HEAD_BYTES, exclusion_of_content, needs_content
from broker.stage.store import Blob, BlobId, BlobStore, blob_digest
from protocol.decision_codes import ExclusionReason
from protocol.errors import Refusal

_LFS_HEAD: Final = b"version https://git-lfs.github.com/spec/v"
#: The specification of pointers bounds them so.
_LFS_POINTER_BYTES: Final = 1024

_REASONS: Final[dict[int, ExclusionReason]] = {
    MARK_PRIVATE_KEY: "private_key",
    MARK_CREDENTIAL: "credential_content",
}


class Judged(msgspec.Struct, frozen=True, gc=False):
    """A blob that may be staged, or the reason why it may not."""

    blob: Blob | None
    reason: ExclusionReason | None
    is_pointer: bool = False


class Blobs:
    """Where the content of one staging comes from and goes to."""

    def __init__(self, store: BlobStore, cache: ContentCache, bounds: StageBounds) -> None:
        self._store: Final = store
        self._cache: Final = cache
        self._bounds: Final = bounds

    def known(self, oid: bytes) -> Known | None:
        """What is known already of the repository's blob ``oid``, without reading it."""
        return self._cache.get(oid)

    def of_git(self, path: str, oid: bytes) -> Judged:
        """The repository's blob ``oid`` as the file ``path``.

        Raises ``Refusal`` with ``checkout_partial`` when it is missing, or for the bound.
        """
        known = self._cache.get(oid) or self._learn(oid)
        self._bounds.check_size(known.size)
        if needs_content(path.rpartition("/")[2]):
            head = self._store.read(BlobId(oid))[:HEAD_BYTES]
            reason = exclusion_of_content(path, head)
        else:
            reason = _reason_of(known)
        return _judged(oid, known, reason)

    def is_git(self, oid: bytes, data: bytes) -> bool:
        """Whether ``data`` is the content of the repository's blob ``oid``."""
        return sha1(b"blob %d\0%b" % (len(data), data), usedforsecurity=False).digest() == oid

    def learn(self, oid: bytes, data: bytes) -> Known | None:
        """What ``data`` is if it is the content of the repository's blob ``oid``.

        Should another content have the same git id (SHA-1 collisions can be made), the
        store refuses to load it, since its sha256 is not the one computed here.
        """
        framed = b"blob %d\0%b" % (len(data), data)
        if sha1(framed, usedforsecurity=False).digest() != oid:
            return None
        known = self._cache.get(oid)
        if known is None:
            known = Known(sha256(framed).digest(), len(data), _mark_of(data))
            self._cache.add(oid, known)
        return known

    def of_same(self, path: str, oid: bytes, known: Known, data: bytes) -> Judged:
        """``data``, of which ``learn`` told what it is, as the file ``path``: not copied."""
        if needs_content(path.rpartition("/")[2]):
            return _judged(oid, known, exclusion_of_content(path, data[:HEAD_BYTES]))
        return _judged(oid, known, _reason_of(known))

    def of_new(self, path: str, data: bytes) -> Judged:
        """``data`` that the repository does not hold, as the file ``path``."""
        reason = exclusion_of_content(path, data[:HEAD_BYTES])
        if reason is not None:
            return Judged(None, reason)
        return Judged(self._store.put(data), None, _is_pointer(data))

    def is_pointer_to(self, oid: bytes, data: bytes) -> bool:
        """Whether the repository's blob ``oid`` is the LFS pointer of ``data``."""
        size = self._store.size_in_alternates(oid)
        if size is None or size > _LFS_POINTER_BYTES:
            return False
        pointer = self._store.read(BlobId(oid))
        if not _is_pointer(pointer):
            return False
        lines = pointer.split(b"\n")
        named = b"oid sha256:" + sha256(data).hexdigest().encode()
        return named in lines and b"size %d" % len(data) in lines

    def _learn(self, oid: bytes) -> Known:
        size = self._store.size_in_alternates(oid)
        if size is None:
            raise Refusal("checkout_partial")
        self._bounds.check_size(size)
        data = self._store.read(BlobId(oid))
        known = Known(blob_digest(data), size, _mark_of(data))
        self._cache.add(oid, known)
        return known


def _reason_of(known: Known) -> ExclusionReason | None:
    """Why content is excluded under any name."""
    return _REASONS.get(known.mark)


def _judged(oid: bytes, known: Known, reason: ExclusionReason | None) -> Judged:
    if reason is not None:
        return Judged(None, reason)
    blob = Blob(BlobId(oid), known.size, known.digest)
    return Judged(blob, None, known.mark == MARK_LFS_POINTER)


def _mark_of(data: bytes) -> int:
    match credential_of_content(data[:HEAD_BYTES]):
        case "private_key":
            return MARK_PRIVATE_KEY
        case "credential_content":
            return MARK_CREDENTIAL
        case None:
            return MARK_LFS_POINTER if _is_pointer(data) else MARK_PLAIN


def _is_pointer(data: bytes) -> bool:
    return len(data) <= _LFS_POINTER_BYTES and data.startswith(_LFS_HEAD)
