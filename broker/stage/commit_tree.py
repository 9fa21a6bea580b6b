"""The files of a commit, listed from raw tree objects; bounded, and nothing is checked out."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from broker.stage.bounds import StageBounds
from broker.stage.store import BlobStore
from protocol.errors import Fault, Refusal

MODE_FOLDER: Final = 0o040000

_LINE: Final = re.compile(rb"([0-7]{5,6}) ([^\0]+)\0(.{20})", re.DOTALL)
_LINE_OVERHEAD: Final = 22

#: Folders counted against the bound on files: a tree that names one folder many times
#: over unfolds without end though it holds few files.
_FOLDERS_PER_FILE: Final = 4


#: Git knows this one without having it.
_EMPTY_TREE: Final = bytes.fromhex("4b825dc642cb6eb9a060e54bf8d69288fbee4904")


class CommitTree(msgspec.Struct, frozen=True):
    """What a commit holds where it is not as the caller knows it."""

    files: dict[bytes, tuple[int, bytes]]  #: path bytes to (mode, git id), all but folders
    same: frozenset[str]  #: folders that were not entered, each with all that lies below it


def list_commit_tree(
    store: BlobStore,
    root: bytes,
    bounds: StageBounds,
    *,
    known: Mapping[str, bytes] = MappingProxyType({}),
) -> CommitTree:
    """Everything below tree ``root``, but for what has the tree id of ``known``.

    ``known`` has git tree ids by folder; the root is ``""``. Modes and names are as
    written; the caller judges them. Raises ``Refusal`` for a bound,
    ``Refusal("checkout_partial")`` for a missing tree, ``Fault`` for a malformed one.
    """
    files: dict[bytes, tuple[int, bytes]] = {}
    same: set[str] = set()
    pending: list[tuple[bytes, int, bytes]] = [(b"", 0, root)]
    folders = 0
    while pending:
        prefix, depth, oid = pending.pop()
        path = prefix[:-1].decode("utf-8", "surrogateescape")
        if known.get(path) == oid:
            _check_exists(store, oid)
            same.add(path)
            continue
        folders += 1
        if folders > bounds.files * _FOLDERS_PER_FILE:
            raise Refusal("stage_too_many_files", figure=bounds.files)
        if depth > bounds.depth:
            raise Refusal("stage_too_deep", figure=bounds.depth)
        for mode, name, child in _lines(_read(store, oid)):
            if mode == MODE_FOLDER:
                pending.append((prefix + name + b"/", depth + 1, child))
            else:
                files[prefix + name] = (mode, child)
        # Here the filters have not spoken yet: what they exclude has a bound of its own.
        if len(files) > bounds.files + bounds.excluded:
            raise Refusal("stage_too_many_files", figure=bounds.files)
    return CommitTree(files=files, same=frozenset(same))


def _check_exists(store: BlobStore, oid: bytes) -> None:
    # Its content is known, but a commit without its tree is a damaged or partial one.
    if oid != _EMPTY_TREE and not store.has_git_tree(oid):
        raise Refusal("checkout_partial")


def _read(store: BlobStore, oid: bytes) -> bytes:
    try:
        return store.read_git_tree(oid)
    except Fault as error:
        raise Refusal("checkout_partial") from error


def _lines(raw: bytes) -> list[tuple[int, bytes, bytes]]:
    lines = _LINE.findall(raw)
    # What the pattern did not take up would be lost silently.
    if sum(len(mode) + len(name) for mode, name, _ in lines) + _LINE_OVERHEAD * len(lines) != len(
        raw
    ):
        raise Fault("checkout_unreadable")
    return [(int(mode, 8), name, oid) for mode, name, oid in lines]
