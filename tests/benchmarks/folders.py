"""Fresh folders for rows that touch files: in memory where that is possible, or on disk."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_MEMORY: Final = Path("/dev/shm")

#: What the largest row writes; less room than this and the disk is used (bytes).
_ROOM: Final = 8 * 1024**3


@contextmanager
def memory_folder() -> Iterator[Path]:
    """A fresh folder on a tmpfs, or on disk on a machine without one; removed at the end."""
    usable = os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free >= _ROOM
    with tempfile.TemporaryDirectory(
        prefix="airlock-bench-", dir=_MEMORY if usable else None
    ) as folder:
        yield Path(folder)


@contextmanager
def disk_folder() -> Iterator[Path]:
    """A fresh folder where temporary files go; removed at the end."""
    with tempfile.TemporaryDirectory(prefix="airlock-bench-") as folder:
        yield Path(folder)


def file_system(folder: Path) -> str:
    """The type of the file system that holds ``folder``, as the kernel names it."""
    best, kind = "", "unknown"
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, mount, each, *_ = line.split()
        inside = os.path.commonpath([mount, folder.resolve()]) == mount
        if inside and len(mount) >= len(best):
            best, kind = mount, each
    return kind
