"""Files of a cache: private, sealed, replaced whole; a bad one is an absent one.

They hold what can be computed again and are safe to delete. Processes may share them and
the last writer wins. A file that another user could have written is not used.
"""

import os
import stat
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Final

from broker.stage.exclusions import RULES_VERSION

_SEAL_BYTES: Final = 32
_NEW: Final = ".new-"
_ABANDONED_SECONDS: Final = 3600.0


def cache_name(place: Path) -> str:
    """A name for what was learned at ``place``: by path, device and inode."""
    found = os.stat(place)
    where = b"%b\0%d\0%d" % (os.fsencode(os.path.realpath(place)), found.st_dev, found.st_ino)
    return sha256(where).hexdigest()


def read_sealed(path: Path, form: bytes, most: int) -> bytes | None:
    """The body of the file at ``path``, which must be of ``form`` and these rules.

    ``None`` when it is absent, torn, larger than ``most`` bytes, or not only ours.
    """
    data = _read_own(path, most + _SEAL_BYTES)
    seal, body = data[:_SEAL_BYTES], data[_SEAL_BYTES:]
    return body if data and seal == _seal(form, body) else None


def write_sealed(path: Path, form: bytes, body: bytes, *, most: int) -> None:
    """Write the file at ``path`` and keep the newest ``most`` of its suffix.

    A cache that cannot be written is no failure.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _replace(path, _seal(form, body), body)
        _drop_oldest(path.parent, path.suffix, most)
    except OSError:
        return


def _seal(form: bytes, body: bytes) -> bytes:
    seal = sha256(b"%b\0%d\0" % (form, RULES_VERSION))
    seal.update(body)
    return seal.digest()


def _read_own(path: Path, most: int) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    with open(descriptor, "rb", buffering=0) as file:
        found = os.fstat(descriptor)
        folder = os.stat(path.parent)
        if not stat.S_ISREG(found.st_mode) or found.st_size > most:
            return b""
        if not (_is_private(found) and _is_private(folder)):
            return b""
        return file.readall()


def _is_private(found: os.stat_result) -> bool:
    return found.st_uid == os.geteuid() and not found.st_mode & 0o022


def _replace(path: Path, seal: bytes, body: bytes) -> None:
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=_NEW)
    try:
        with open(descriptor, "wb") as file:
            file.write(seal)
            file.write(body)
        os.replace(name, path)
    except OSError:
        os.unlink(name)
        raise


def _drop_oldest(folder: Path, suffix: str, most: int) -> None:
    files = sorted(folder.glob("*" + suffix), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in files[most:]:
        path.unlink(missing_ok=True)
    # A writer that was killed leaves its new file behind; no living one takes this long.
    newest = files[0].stat().st_mtime if files else 0.0
    for path in folder.glob(_NEW + "*"):
        if path.stat().st_mtime < newest - _ABANDONED_SECONDS:
            path.unlink(missing_ok=True)
