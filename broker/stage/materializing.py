"""Write files below a new folder, by directory handles; never through a link or over a file."""

import os
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from protocol.errors import Fault

_OPEN_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def write_files(folder: Path, files: Iterable[tuple[str, bool, bytes]]) -> None:
    """Write each (path, executable, bytes); paths are sorted and confined.

    ``folder`` is made if absent and must be empty. Raises ``Fault("store_unwritable")``;
    what was written by then stays for the owner of the folder to remove.
    """
    try:
        with ExitStack() as stack:
            _make_folder(folder)
            root = os.open(folder, _OPEN_FOLDER)
            stack.callback(os.close, root)
            if os.listdir(root):
                raise Fault("store_unwritable")
            _write_below(root, files)
    except OSError as error:
        raise Fault("store_unwritable") from error


def _make_folder(folder: Path) -> None:
    try:
        os.mkdir(folder, 0o755)
    except FileExistsError:
        return
    os.chmod(folder, 0o755)


def _write_below(root: int, files: Iterable[tuple[str, bool, bytes]]) -> None:
    #: Handles of the folders on the way to the last file, outermost first.
    names: list[str] = []
    handles = [root]
    try:
        for path, executable, data in files:
            *parents, name = path.split("/")
            shared = 0
            while shared < min(len(parents), len(names)) and parents[shared] == names[shared]:
                shared += 1
            while len(names) > shared:
                names.pop()
                os.close(handles.pop())
            for parent in parents[shared:]:
                handles.append(_new_folder(handles[-1], parent))
                names.append(parent)
            _new_file(handles[-1], name, data, mode=0o755 if executable else 0o644)
    finally:
        for handle in handles[1:]:
            os.close(handle)


def _new_folder(parent: int, name: str) -> int:
    os.mkdir(name, 0o755, dir_fd=parent)
    handle = os.open(name, _OPEN_FOLDER, dir_fd=parent)
    os.fchmod(handle, 0o755)
    return handle


def _new_file(parent: int, name: str, data: bytes, *, mode: int) -> None:
    handle = os.open(name, _NEW_FILE, mode, dir_fd=parent)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(handle, view) :]
        # The umask may have taken bits away.
        os.fchmod(handle, mode)
    finally:
        os.close(handle)
