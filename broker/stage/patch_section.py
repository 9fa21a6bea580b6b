"""The header of one patch section: what its lines say together, or that they disagree.

Every fact may be stated once, and all statements of a fact must be the same; which one
git or another tool would believe does not matter. Names and modes are not judged here.
"""

import re
from collections.abc import Callable
from typing import Final

from broker.stage.patch_paths import Name, bare_name, header_agrees, side_name, twin_name
from broker.stage.patch_plan import BinaryChange, FilePatch, Hunk, Operation
from broker.stage.patch_text import PatchText

__all__ = ["Malformation", "SectionHeader", "plain_section", "section_of", "usual_header"]

Change = tuple[Hunk, ...] | BinaryChange | None

_FIELD: Final = re.compile(
    rb"(index|old mode|new mode|new file mode|deleted file mode|rename from|rename to"
    rb"|copy from|copy to|similarity index|dissimilarity index) (.*)",
    re.S,
)
_MODE: Final = re.compile(rb"[0-7]{6}")
_PERCENT: Final = re.compile(rb"(?:100|[1-9]?[0-9])%")
_INDEX: Final = re.compile(rb"([0-9a-f]{4,64})\.\.([0-9a-f]{4,64})(?: ([0-7]{6}))?")
_ID_DIGITS: Final = (40, 64)

_KINDS: Final[tuple[tuple[bytes, Operation], ...]] = (
    (b"new file mode", "create"),
    (b"deleted file mode", "delete"),
    (b"rename from", "rename"),
    (b"copy from", "copy"),
)


#: The header that nearly every section has: text of one file changes, whose name needs no
#: quotes, and all of its lines name it alike.
_USUAL: Final = re.compile(
    rb"diff --git a/([!#-\[\]-~]++) b/\1\n"
    rb"index [0-9a-f]{4,64}\.\.[0-9a-f]{4,64}(?: ([0-7]{6}))?\n"
    rb"--- a/\1\n\+\+\+ b/\1\n"
)


class Malformation(Exception):
    """The lines of a section disagree. Caught where the line number is known."""


class SectionHeader:
    """The lines between ``diff --git`` and the content, each field at most once."""

    def __init__(self, names: bytes) -> None:
        self.names: Final = names
        self.old_side: bytes | None = None
        self.new_side: bytes | None = None
        self._fields: dict[bytes, bytes] = {}

    def take(self, line: bytes) -> bool:
        """Whether ``line`` is a header line that was not there before, and is now."""
        match = _FIELD.fullmatch(line)
        if match is None or match[1] in self._fields:
            return False
        self._fields[match[1]] = match[2]
        return True

    def get(self, field: bytes) -> bytes | None:
        """What follows ``field`` on its line, if there is one."""
        return self._fields.get(field)

    @property
    def only_index(self) -> bool:
        """Whether no field but ``index`` is there: the file keeps its name and mode."""
        return not self._fields or self._fields.keys() == {b"index"}

    @property
    def creates(self) -> bool:
        """Whether the section says that its file is new."""
        return b"new file mode" in self._fields

    @property
    def deletes(self) -> bool:
        """Whether the section says that its file goes away."""
        return b"deleted file mode" in self._fields

    def mode(self, field: bytes) -> int | None:
        """The mode of ``field``, six octal digits; which modes are allowed is not asked."""
        text = self._fields.get(field)
        if text is None:
            return None
        if _MODE.fullmatch(text) is None:
            raise Malformation
        return int(text, 8)

    def index(self) -> tuple[bytes, bytes, int | None] | None:
        """Old id, new id and mode of the ``index`` line."""
        text = self._fields.get(b"index")
        if text is None:
            return None
        match = _INDEX.fullmatch(text)
        if match is None:
            raise Malformation
        return match[1], match[2], None if match[3] is None else int(match[3], 8)

    def full_ids(self) -> tuple[bytes, bytes]:
        """Both ids of the ``index`` line, which must be whole and of one hash function."""
        index = self.index()
        if index is None or len(index[0]) not in _ID_DIGITS or len(index[0]) != len(index[1]):
            raise Malformation
        return index[0], index[1]


def usual_header(text: PatchText) -> Callable[[tuple[Hunk, ...]], FilePatch] | None:
    """What makes a section of its hunks, which are next then; ``None``: read it line by line.

    It says what ``section_of`` says of the same lines.
    """
    match = _USUAL.match(text.data, text.at)
    if match is None:
        return None
    text.move(match.end())
    path = match[1].decode()
    mode = None if match[2] is None else int(match[2], 8)

    def section(hunks: tuple[Hunk, ...]) -> FilePatch:
        return FilePatch(
            operation="modify",
            old_path=path,
            new_path=path,
            old_mode=mode,
            new_mode=mode,
            plain_names=True,
            change=hunks,
        )

    return section


def section_of(header: SectionHeader, change: Change) -> FilePatch:
    """The section of ``header`` and ``change``; raises ``Malformation``."""
    operation: Operation = "modify"
    if header.only_index:
        index = header.index()
        old_mode = new_mode = None if index is None else index[2]
    else:
        operation = _operation(header)
        _check_percentages(header, operation)
        old_mode, new_mode = _modes(header, operation)
    old, new = _names(header, operation)
    plain = (old is None or old.plain) and (new is None or new.plain)
    if plain:
        _check_names(header, operation, old, new)
    _check_content(operation, change, changes_mode=old_mode != new_mode)
    return FilePatch(
        operation=operation,
        old_path=None if old is None else old.path,
        new_path=None if new is None else new.path,
        old_mode=old_mode,
        new_mode=new_mode,
        plain_names=plain,
        change=change,
    )


def _may_be_stamped(name: str) -> bool:
    """Whether git could take ``name`` for one with a time stamp behind it. Linear."""
    space = name.find(" ")
    return space >= 0 and name.find(":", space) >= 0


def plain_section(old_side: bytes, new_side: bytes, hunks: tuple[Hunk, ...]) -> FilePatch:
    """A section without ``diff --git``: sides and hunks only; raises ``Malformation``."""
    old, new = side_name(old_side, b"a/"), side_name(new_side, b"b/")
    operation: Operation = "modify"
    if old is None or new is None:
        operation = "create" if old is None else "delete"
    named = [name for name in (old, new) if name is not None]
    plain = all(name.plain and not _may_be_stamped(name.path) for name in named)
    if not named or (plain and named[0].path != named[-1].path):
        raise Malformation
    _check_content(operation, hunks, changes_mode=False)
    return FilePatch(
        operation=operation,
        old_path=None if old is None else old.path,
        new_path=None if new is None else new.path,
        old_mode=None,
        # Without a header line git makes an ordinary file.
        new_mode=0o100644 if operation == "create" else None,
        plain_names=plain,
        change=hunks,
    )


def _operation(header: SectionHeader) -> Operation:
    for verb in (b"rename", b"copy"):
        if (header.get(verb + b" from") is None) != (header.get(verb + b" to") is None):
            raise Malformation
    kinds = [operation for field, operation in _KINDS if header.get(field) is not None]
    if len(kinds) > 1:
        raise Malformation
    return kinds[0] if kinds else "modify"


def _check_percentages(header: SectionHeader, operation: Operation) -> None:
    moves = operation in ("rename", "copy")
    for field, allowed in (
        (b"similarity index", moves),
        (b"dissimilarity index", operation == "modify"),
    ):
        text = header.get(field)
        if text is not None and (not allowed or _PERCENT.fullmatch(text) is None):
            raise Malformation


def _modes(header: SectionHeader, operation: Operation) -> tuple[int | None, int | None]:
    index = header.index()
    stated = None if index is None else index[2]
    created, deleted = header.mode(b"new file mode"), header.mode(b"deleted file mode")
    old, new = header.mode(b"old mode"), header.mode(b"new mode")
    if (old is None) != (new is None) or (old is not None and old == new):
        raise Malformation
    if old is not None and (operation in ("create", "delete") or stated is not None):
        raise Malformation
    only = deleted if created is None else created
    if only is not None:
        if stated not in (None, only):
            raise Malformation
        return deleted, created
    if old is not None:
        return old, new
    return stated, stated


def _names(header: SectionHeader, operation: Operation) -> tuple[Name | None, Name | None]:
    old: Name | None
    new: Name | None
    if operation in ("rename", "copy"):
        verb = operation.encode()
        old = bare_name(header.get(verb + b" from") or b"")
        new = bare_name(header.get(verb + b" to") or b"")
    elif header.old_side is not None and header.new_side is not None:
        old, new = side_name(header.old_side, b"a/"), side_name(header.new_side, b"b/")
    else:
        both = twin_name(header.names)
        if both is None:
            raise Malformation
        old, new = both, both
        if operation == "create":
            old = None
        elif operation == "delete":
            new = None
    if (old is None) != (operation == "create") or (new is None) != (operation == "delete"):
        raise Malformation
    return old, new


def _check_names(
    header: SectionHeader, operation: Operation, old: Name | None, new: Name | None
) -> None:
    first, second = old or new, new or old
    assert first is not None
    assert second is not None
    moves = operation in ("rename", "copy")
    if (first.path != second.path) != moves:
        raise Malformation
    if not header_agrees(header.names, first.path, second.path):
        raise Malformation
    if moves and header.old_side is not None and header.new_side is not None:
        sides = (side_name(header.old_side, b"a/"), side_name(header.new_side, b"b/"))
        if sides != (old, new):
            raise Malformation


def _check_content(operation: Operation, change: Change, *, changes_mode: bool) -> None:
    if operation == "modify" and change is None and not changes_mode:
        raise Malformation
    if not isinstance(change, tuple) or operation not in ("create", "delete"):
        return
    # All of a file comes or goes: one hunk with nothing on the other side.
    hunk = change[0]
    other_side = hunk.old if operation == "create" else hunk.new
    if len(change) != 1 or other_side or hunk.line != 0 or not hunk.agreed:
        raise Malformation
