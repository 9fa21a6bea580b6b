"""The difference of two trees: as a list of paths, and as a patch for stock git.

The patch is made from bytes, never through a repository's configuration or attributes,
so it is the same everywhere. It is parsed and applied by our own applier before it is
returned; one that does not give the new tree never leaves.
"""

from typing import Final, Literal

import msgspec
import pygit2
from pygit2.enums import DiffOption

from broker.stage.binary_patch import git_id
from broker.stage.patch_grammar import parse_patch
from broker.stage.patch_paths import quote_name
from broker.stage.patch_plan import RESULT_BOUNDS, PatchPlan, PatchRefusal
from broker.stage.patching import results
from broker.stage.store import Blob
from broker.stage.tree import Entry, StagedTree, TreeDifference
from protocol.ids import RepoPath

__all__ = ["TreeChange", "changes", "make_patch"]

#: An id that stands for absence; its length also says that ours are SHA-1 ids, which
#: is what stock git computes in a SHA-1 repository and outside of any.
_ABSENT: Final = b"0" * 40

_BINARY: Final = b"GIT binary patch\n"


class TreeChange(msgspec.Struct, frozen=True):
    """One path at which two trees differ; ``mode`` is a change of the mode alone."""

    path: RepoPath
    change: Literal["added", "modified", "deleted", "mode"]


def changes(before: StagedTree, after: StagedTree) -> tuple[TreeChange, ...]:
    """Every path at which ``after`` differs from ``before``, sorted by its bytes."""
    return tuple(
        TreeChange(difference.path, _change(difference)) for difference in before.differences(after)
    )


def make_patch(before: StagedTree, after: StagedTree, *, utf8: bool = False) -> bytes:
    """The patch from ``before`` to ``after`` as ``git diff --binary --full-index`` gives it.

    Empty only when the trees are equal. With ``utf8`` the patch is UTF-8 text: files
    that are not go as binary; otherwise only files with NUL bytes do. Raises
    ``PatchRefusal("payload_too_large")`` above 8 MiB, ``Fault`` when a store fails.
    """
    sections: list[bytes] = []
    size = 0
    for difference in before.differences(after):
        section = _section(difference, before, after, utf8=utf8)
        size += len(section)
        if size > RESULT_BOUNDS.text_bytes:
            raise PatchRefusal("payload_too_large")
        sections.append(section)
    patch = b"".join(sections)
    if sections:
        _verify(parse_patch(patch, bounds=RESULT_BOUNDS), before, after)
    return patch


def _change(difference: TreeDifference) -> Literal["added", "modified", "deleted", "mode"]:
    old, new = difference.before, difference.after
    if old is None:
        return "added"
    if new is None:
        return "deleted"
    return "mode" if old.blob.digest == new.blob.digest else "modified"


def _section(
    difference: TreeDifference, before: StagedTree, after: StagedTree, *, utf8: bool
) -> bytes:
    old, new = difference.before, difference.after
    old_data = b"" if old is None else before.store.load(old.blob)
    new_data = b"" if new is None else after.store.load(new.blob)
    name = difference.path.encode()
    old_name, new_name = quote_name(b"a/" + name), quote_name(b"b/" + name)
    lines = [b"diff --git %b %b\n" % (old_name, new_name), _mode_lines(old, new)]
    if old is None or new is None or old_data != new_data:
        lines.append(_index_line(old, new, old_data, new_data))
    if old_data != new_data:
        # Git puts a tab after a name with a space, so that its end is seen.
        tab = b"\t" if b" " in name else b""
        old_side = b"/dev/null" if old is None else old_name + tab
        new_side = b"/dev/null" if new is None else new_name + tab
        text = b"--- %b\n+++ %b\n" % (old_side, new_side)
        lines.append(_content(old_data, new_data, text, utf8=utf8))
    return b"".join(lines)


def _mode_lines(old: Entry | None, new: Entry | None) -> bytes:
    if old is None:
        assert new is not None
        return b"new file mode %06o\n" % new.mode
    if new is None:
        return b"deleted file mode %06o\n" % old.mode
    if old.mode != new.mode:
        return b"old mode %06o\nnew mode %06o\n" % (old.mode, new.mode)
    return b""


def _index_line(old: Entry | None, new: Entry | None, old_data: bytes, new_data: bytes) -> bytes:
    old_id = _ABSENT if old is None else git_id(old_data, like=_ABSENT)
    new_id = _ABSENT if new is None else git_id(new_data, like=_ABSENT)
    same = old is not None and new is not None and old.mode == new.mode
    return b"index %b..%b%b\n" % (old_id, new_id, b" %06o" % old.mode if same and old else b"")


def _content(old: bytes, new: bytes, sides: bytes, *, utf8: bool) -> bytes:
    """The part after the header: text hunks, or binary where text would not be right."""
    # Git looks for a NUL only near the beginning; in a patch none may be anywhere.
    if b"\0" not in old and b"\0" not in new:
        text = _hunks(old, new)
        if not utf8 or _is_utf8(text):
            return sides + text
    return _binary(old, new)


def _hunks(old: bytes, new: bytes) -> bytes:
    data: bytes = pygit2.Patch.create_from(old, new, flag=DiffOption.FORCE_TEXT).data
    return data[data.index(b"\n@@ ") + 1 :]


def _binary(old: bytes, new: bytes) -> bytes:
    # libgit2 takes the shorter of delta and literal for each direction.
    flags = DiffOption.SHOW_BINARY | DiffOption.FORCE_BINARY
    data: bytes = pygit2.Patch.create_from(old, new, flag=flags).data
    return data[data.index(b"\n" + _BINARY) + 1 :]


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _verify(plan: PatchPlan, before: StagedTree, after: StagedTree) -> None:
    """The plan gives exactly ``after``; anything else is a bug of ours and no patch."""
    entries: dict[RepoPath, Entry | None] = {}
    for path, result in results(plan, before, bounds=RESULT_BOUNDS).items():
        entries[path] = None
        if result is not None:
            held = after.get(path)
            content = result.content
            data = before.store.load(content) if isinstance(content, Blob) else content
            if held is None or after.store.load(held.blob) != data:
                raise AssertionError("the patch makes other content")
            entries[path] = Entry(result.mode, held.blob)
    if before.replace(entries).digest != after.digest:
        raise AssertionError("the patch makes another tree")
