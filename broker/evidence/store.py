"""Keeps the bytes that ledger records only name: one file for each label and digest.

A blob is durable, under its final name, before ``put`` returns, so that a record that
names it is never ahead of it. The content is quarantined: nothing here reads it, and a
name is made of a closed label and hex digits only.
"""

import hashlib
import os
import threading
from pathlib import Path
from typing import Final, get_args

from broker.evidence.database import flush_folder
from protocol.errors import Fault
from protocol.ids import Digest, parse_digest
from protocol.records import ArtifactLabel

#: One artifact: twice the largest result patch (8 MiB), and a recipe's largest output.
MAX_ARTIFACT_BYTES: Final = 16 * 1024 * 1024
#: Artifacts of one attempt, and their bytes: what a person can still look through.
MAX_ARTIFACTS: Final = 10_000
MAX_STORE_BYTES: Final = 1024 * 1024 * 1024

_LABELS: Final = frozenset(get_args(ArtifactLabel))
_UNFINISHED: Final = ".unfinished"


class ArtifactStore:
    """The artifacts of one attempt, in a folder that only its daemon writes to. Thread-safe."""

    def __init__(self, folder: Path, *, count: int, size: int) -> None:
        self._folder: Final = folder
        self._lock: Final = threading.Lock()
        self._count = count
        self._bytes = size

    @classmethod
    def open(cls, folder: Path) -> "ArtifactStore":
        """Opens or makes the store in ``folder``; what a crash left unfinished is removed.

        Raises ``Fault("artifact_unwritable")``.
        """
        try:
            if not folder.is_dir():
                folder.mkdir(mode=0o700, parents=True)
                flush_folder(folder.parent)
            folders = [folder / label for label in sorted(_LABELS) if (folder / label).is_dir()]
            for path in folders:
                (path / _UNFINISHED).unlink(missing_ok=True)
            sizes = [path.lstat().st_size for each in folders for path in each.iterdir()]
        except OSError as error:
            raise Fault("artifact_unwritable") from error
        return cls(folder, count=len(sizes), size=sum(sizes))

    def put(self, data: bytes, label: ArtifactLabel) -> Digest:
        """Keeps ``data`` durably under ``label``; its digest. The same again costs nothing.

        Raises ``Fault("artifacts_full")`` at a bound, before anything is written, and
        ``Fault("artifact_unwritable")``.
        """
        digest = hashlib.sha256(data).hexdigest()
        path = self._path(digest, label)
        try:
            with self._lock:
                if _read(path) != data:
                    self._admit(len(data))
                    self._write(path, data)
        except OSError as error:
            raise Fault("artifact_unwritable") from error
        return Digest("sha256:" + digest)

    def get(self, digest: Digest, label: ArtifactLabel) -> bytes:
        """The bytes that were kept, checked; raises ``Fault("artifact_damaged")``."""
        name = parse_digest(digest).removeprefix("sha256:")
        try:
            data = _read(self._path(name, label))
        except OSError as error:
            raise Fault("artifact_damaged") from error
        if data is None or hashlib.sha256(data).hexdigest() != name:
            raise Fault("artifact_damaged")
        return data

    def _admit(self, size: int) -> None:
        if (
            size > MAX_ARTIFACT_BYTES
            or self._count >= MAX_ARTIFACTS
            or self._bytes + size > MAX_STORE_BYTES
        ):
            raise Fault("artifacts_full")
        self._count += 1
        self._bytes += size

    def _path(self, name: str, label: ArtifactLabel) -> Path:
        assert label in _LABELS
        return self._folder / label / name

    def _write(self, path: Path, data: bytes) -> None:
        """Temporary file, sync, rename, sync of the folder: there whole or not at all."""
        if not path.parent.is_dir():
            path.parent.mkdir(mode=0o700)
            flush_folder(self._folder)
        unfinished = path.parent / _UNFINISHED
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        with open(os.open(unfinished, flags, 0o600), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(path)
        flush_folder(path.parent)


def _read(path: Path) -> bytes | None:
    """The bytes of a file up to the bound, None where there is none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    with open(descriptor, "rb") as file:
        return file.read(MAX_ARTIFACT_BYTES + 1)
