"""The one grammar of git's unified patches: bytes become a ``PatchPlan`` or a refusal.

It reads each byte once, knows no tree, and skips nothing that it does not understand.

A patch is a sequence of sections of one kind. Either each starts with ``diff --git``,
or none does and each starts with ``--- a/NAME``, ``+++ b/NAME`` and ``@@``. Empty lines
may stand around and between sections; any other text there is malformed: prose, code
fences, mail headers and signatures, ``Index:`` lines. What is skipped could hide a
section that another reader of the same text would obey. For the same reason the last
line must end, counts must be right, and each name must be the same wherever it stands.
"""

import re
from typing import Final

from broker.stage.binary_patch import BinaryReader, Malformed
from broker.stage.patch_hunks import read_hunks
from broker.stage.patch_plan import (
    AGENT_BOUNDS,
    BinaryChange,
    FilePatch,
    Hunk,
    PatchBounds,
    PatchPlan,
    PatchRefusal,
)
from broker.stage.patch_section import (
    Malformation,
    SectionHeader,
    plain_section,
    section_of,
    usual_header,
)
from broker.stage.patch_text import PatchText

__all__ = ["parse_patch"]

_GIT: Final = b"diff --git "
_OLD: Final = b"--- "
_NEW: Final = b"+++ "
_BINARY: Final = b"GIT binary patch"
_EMPTY_LINES: Final = re.compile(rb"\n*+")


def parse_patch(data: bytes, *, bounds: PatchBounds = AGENT_BOUNDS) -> PatchPlan:
    """``data`` as a plan: steps 1 to 3 of confinement (size, grammar, counts).

    Raises ``PatchRefusal`` with ``payload_too_large``, ``patch_malformed``,
    ``patch_no_change`` (a hunk of nothing but context), ``patch_too_many_files`` or
    ``patch_too_many_hunks``. Paths and modes are taken as written: ``confine`` judges.
    """
    if len(data) > bounds.text_bytes:
        raise PatchRefusal("payload_too_large")
    nul = data.find(b"\0")
    if nul >= 0:
        raise PatchRefusal("patch_malformed", line=data.count(b"\n", 0, nul) + 1)
    if not data.endswith(b"\n"):
        raise PatchRefusal("patch_malformed", line=data.count(b"\n") + 1)
    files = _Reader(data, bounds).sections()
    if len(files) > bounds.files:
        raise PatchRefusal("patch_too_many_files", file=bounds.files)
    hunks = 0
    for index, file in enumerate(files):
        hunks += len(file.change) if isinstance(file.change, tuple) else 0
        if hunks > bounds.hunks:
            raise PatchRefusal("patch_too_many_hunks", file=index)
    return PatchPlan(files=tuple(files))


class _Reader:
    """Reads the sections of one patch, one after the other."""

    def __init__(self, data: bytes, bounds: PatchBounds) -> None:
        self._text = PatchText(data)
        self._file = 0
        self._binary = BinaryReader(bounds)

    def sections(self) -> list[FilePatch]:
        """Every section; at least one, all of one kind."""
        text = self._text
        self._skip_empty()
        if text.ended():
            raise self._malformed()
        git_form = text.line.startswith(_GIT)
        opening = _GIT if git_form else _OLD
        files: list[FilePatch] = []
        while not text.ended():
            if not text.line.startswith(opening):
                # What is wrong here is what follows the file before.
                raise self._malformed()
            self._file = len(files)
            files.append(self._git_section() if git_form else self._plain_section())
            self._skip_empty()
        return files

    def _git_section(self) -> FilePatch:
        text = self._text
        start = text.at
        usual = usual_header(text)
        if usual is not None:
            return usual(read_hunks(text, file=self._file))
        header = SectionHeader(self._expect(_GIT))
        while header.take(text.line):
            text.advance()
        change: tuple[Hunk, ...] | BinaryChange | None = None
        try:
            if text.line.startswith(_OLD):
                header.old_side = self._expect(_OLD)
                header.new_side = self._expect(_NEW)
                change = read_hunks(self._text, file=self._file)
            elif text.line == _BINARY:
                text.advance()
                change = self._binary_change(header)
            return section_of(header, change)
        except Malformation:
            raise self._malformed(start) from None

    def _plain_section(self) -> FilePatch:
        start = self._text.at
        old_side, new_side = self._expect(_OLD), self._expect(_NEW)
        try:
            return plain_section(old_side, new_side, read_hunks(self._text, file=self._file))
        except Malformation:
            raise self._malformed(start) from None

    def _binary_change(self, header: SectionHeader) -> BinaryChange:
        # Git refuses binary patches whose ids are abbreviated, and so would it ours.
        old_id, new_id = header.full_ids()
        try:
            forward = self._binary.read(self._text)
            reverse = None
            if self._text.line.startswith((b"literal ", b"delta ")):
                reverse = self._binary.read(self._text)
        except Malformed:
            raise self._malformed() from None
        if _is_absent(old_id) != header.creates or _is_absent(new_id) != header.deletes:
            raise Malformation
        if header.deletes and reverse is None:
            # Without it only a SHA-1 id would say what is deleted.
            raise Malformation
        return BinaryChange(old_id=old_id, new_id=new_id, forward=forward, reverse=reverse)

    def _expect(self, prefix: bytes) -> bytes:
        line = self._text.line
        if not line.startswith(prefix):
            raise self._malformed()
        self._text.advance()
        return line[len(prefix) :]

    def _skip_empty(self) -> None:
        # At once: a patch may be nothing but empty lines, and a step for each is slow.
        empty = _EMPTY_LINES.match(self._text.data, self._text.at)
        if empty is not None and empty[0]:
            self._text.move(empty.end())

    def _malformed(self, at: int | None = None) -> PatchRefusal:
        return PatchRefusal("patch_malformed", file=self._file, line=self._text.number(at))


def _is_absent(object_id: bytes) -> bool:
    return not object_id.strip(b"0")
