"""The grammar of ``*** Begin Patch``: bytes become a ``PatchPlan`` or a refusal.

It reads each byte once, knows no tree, and skips nothing that it does not understand:

    *** Begin Patch
    *** Add File: PATH          then lines of ``+TEXT``; none make an empty file
    *** Delete File: PATH
    *** Update File: PATH       then hunks
    *** Move to: PATH           only as the line after ``Update File``; hunks may be absent
    @@ ANCHOR                   begins a hunk; several name a block within a block;
                                bare ``@@`` names none; the first hunk needs no ``@@``
     TEXT / -TEXT / +TEXT       context, old and new lines
    *** End of File             after a hunk: its old lines end the file
    *** End Patch

Taken as meant: a missing line feed after ``*** End Patch``; an empty line in a hunk as an
empty context line; empty lines where no content can be (around the patch, before the
first section, after ``Delete File``); blanks around an anchor. Refused as malformed:
anything before or after the patch (prose, code fences, here-documents), a missing end, a
line without a tag, line numbers (``@@ -1,2 +1,3 @@``), a carriage return behind a line of
the grammar that is no anchor, an empty line after added lines. Content is never adapted:
blanks, line ends and look-alike characters must be those of the file. A name that is
quoted, bold, or ends with a colon or a blank is not in its plain form.
"""

import re
from typing import Final, Literal

from broker.stage.patch_grammar import parse_patch
from broker.stage.patch_plan import (
    AGENT_BOUNDS,
    FilePatch,
    Hunk,
    PatchBounds,
    PatchPlan,
    PatchRefusal,
)
from broker.stage.patch_text import PatchText
from broker.stage.tree import MODE_FILE

__all__ = ["parse_any_patch", "parse_begin_patch"]

_BEGIN: Final = b"*** Begin Patch"
_END: Final = b"*** End Patch"
_ADD: Final = b"*** Add File: "
_UPDATE: Final = b"*** Update File: "
_DELETE: Final = b"*** Delete File: "
_MOVE: Final = b"*** Move to: "
_END_OF_FILE: Final = b"*** End of File"

_ADDED: Final = re.compile(rb"(?:\+[^\n]*+\n)*+")
_BODY: Final = re.compile(rb"(?:[ +-][^\n]*+\n|\n)*+")
_PLUS: Final = re.compile(rb"(?:\n\+[^\n]*+)++")
_MINUS: Final = re.compile(rb"(?:\n-[^\n]*+)++")
_EMPTY: Final = re.compile(rb"\n*+")
_NUMBERS: Final = re.compile(rb"@@ -[0-9]+(?:,[0-9]+)? \+[0-9]+(?:,[0-9]+)? @@")

_BLANKS: Final = b" \t\r"

#: Marks of prose around a name. A file that really has one can be named by git's form.
_MARKS: Final = b" \t\r`'\"*:<>"

_Code = Literal["patch_malformed", "patch_no_change"]


def parse_any_patch(data: bytes, *, bounds: PatchBounds = AGENT_BOUNDS) -> PatchPlan:
    """``data`` as a plan, in the dialect of its first line that is not empty.

    Raises ``PatchRefusal`` as ``parse_begin_patch`` and ``parse_patch`` do.
    """
    if data[:1] == b"\n":
        first = data.lstrip(b"\n")[: len(_BEGIN)]
    else:
        first = data[: len(_BEGIN)]
    parse = parse_begin_patch if first == _BEGIN else parse_patch
    return parse(data, bounds=bounds)


def parse_begin_patch(data: bytes, *, bounds: PatchBounds = AGENT_BOUNDS) -> PatchPlan:
    """``data`` as a plan whose hunks have no line: their context says where they belong.

    Raises ``PatchRefusal`` with ``payload_too_large``, ``patch_malformed``,
    ``patch_no_change`` (an update without changes), ``patch_too_many_files`` or
    ``patch_too_many_hunks``. Paths are taken as written: ``confine`` judges.
    """
    if len(data) > bounds.text_bytes:
        raise PatchRefusal("payload_too_large")
    nul = data.find(b"\0")
    if nul >= 0:
        raise PatchRefusal("patch_malformed", line=data.count(b"\n", 0, nul) + 1)
    text = data if data.endswith(b"\n") else data + b"\n"
    return PatchPlan(files=tuple(_Reader(text, bounds).sections()))


class _Reader:
    """Reads the sections of one patch, one after the other."""

    def __init__(self, data: bytes, bounds: PatchBounds) -> None:
        self._text = PatchText(data)
        self._bounds = bounds
        self._hunks_left = bounds.hunks
        self._file = 0
        self._hunk: int | None = None

    def sections(self) -> list[FilePatch]:
        """Every section; at least one."""
        text = self._text
        self._skip_empty()
        self._expect(_BEGIN)
        self._skip_empty()
        files: list[FilePatch] = []
        while text.line != _END:
            self._file, self._hunk = len(files), None
            if self._file == self._bounds.files:
                raise PatchRefusal("patch_too_many_files", file=self._file)
            files.append(self._section())
        if not files:
            raise self._refusal("patch_malformed")
        text.advance()
        self._skip_empty()
        if not text.ended():
            raise self._refusal("patch_malformed")
        return files

    def _section(self) -> FilePatch:
        line = self._text.line
        if line.startswith(_ADD):
            return self._added(line[len(_ADD) :])
        if line.startswith(_UPDATE):
            return self._updated(line[len(_UPDATE) :])
        if line.startswith(_DELETE):
            self._text.advance()
            self._skip_empty()
            return _file("delete", old=line[len(_DELETE) :], new=None, change=None)
        raise self._refusal("patch_malformed")

    def _added(self, name: bytes) -> FilePatch:
        self._text.advance()
        body = self._run(_ADDED)
        if not body:
            return _file("create", old=None, new=name, change=None)
        self._count_hunk()
        content = (b"\n" + body).replace(b"\n+", b"\n")[1:]
        hunk = Hunk(line=0, agreed=True, old=b"", new=content, at_start=True, at_end=True,
                    added=body.count(b"\n"), removed=0)  # fmt: skip
        return _file("create", old=None, new=name, change=(hunk,))

    def _updated(self, name: bytes) -> FilePatch:
        text = self._text
        start = text.at
        text.advance()
        moved: bytes | None = None
        if text.line.startswith(_MOVE):
            moved = text.line[len(_MOVE) :]
            text.advance()
        hunks: list[Hunk] = []
        while not text.ended() and (
            text.line.startswith(b"@@") or (not hunks and text.line[:1] in (b" ", b"+", b"-", b""))
        ):
            self._hunk = len(hunks)
            self._count_hunk()
            hunks.append(self._read_hunk())
        if moved is not None:
            return _file("rename", old=name, new=moved, change=tuple(hunks) or None)
        if not hunks:
            raise self._refusal("patch_no_change", start)
        return _file("modify", old=name, new=name, change=tuple(hunks))

    def _read_hunk(self) -> Hunk:
        text = self._text
        start = text.at
        anchors: list[bytes] = []
        while text.line.startswith(b"@@"):
            if text.line[2:3] not in (b"", b" ") or _NUMBERS.match(text.line):
                raise self._refusal("patch_malformed")
            anchor = text.line[2:].strip(_BLANKS)
            if anchor:
                anchors.append(anchor)
            text.advance()
        body = self._run(_BODY)
        if not body:
            raise self._refusal("patch_malformed")
        # As one text in which each line follows a line feed, so that no line is handled alone.
        text_lines = b"\n" + body[:-1]
        added, removed = text_lines.count(b"\n+"), text_lines.count(b"\n-")
        if not added and not removed:
            raise self._refusal("patch_no_change", start)
        at_end = text.line == _END_OF_FILE
        if at_end:
            text.advance()
        return Hunk(
            line=None, agreed=False, old=_side(text_lines, _PLUS), new=_side(text_lines, _MINUS),
            at_start=False, at_end=at_end, added=added, removed=removed, anchors=tuple(anchors),
        )  # fmt: skip

    def _count_hunk(self) -> None:
        self._hunks_left -= 1
        if self._hunks_left < 0:
            raise PatchRefusal("patch_too_many_hunks", file=self._file)

    def _run(self, pattern: re.Pattern[bytes]) -> bytes:
        """The lines from the current one on that ``pattern`` takes."""
        match = pattern.match(self._text.data, self._text.at)
        assert match is not None  # it takes no line as well
        self._text.move(match.end())
        return match[0]

    def _expect(self, line: bytes) -> None:
        if self._text.line != line:
            raise self._refusal("patch_malformed")
        self._text.advance()

    def _skip_empty(self) -> None:
        self._run(_EMPTY)

    def _refusal(self, code: _Code, at: int | None = None) -> PatchRefusal:
        line = self._text.number(at)
        return PatchRefusal(code, file=self._file, hunk=self._hunk, line=line)


def _side(lines: bytes, other: re.Pattern[bytes]) -> bytes:
    """The lines that are not of the ``other`` side, without their tags.

    An empty line has lost its tag, so there is nothing to take off. A patch holds no NUL:
    it marks the tags until all are found, because a line may begin with what looks like one.
    """
    kept = other.sub(b"", lines)
    for tag in (b"\n ", b"\n-", b"\n+"):
        kept = kept.replace(tag, b"\n\0")
    return kept.replace(b"\n\0", b"\n")[1:] + b"\n" if kept else b""


def _file(
    operation: Literal["create", "modify", "delete", "rename"],
    *,
    old: bytes | None,
    new: bytes | None,
    change: tuple[Hunk, ...] | None,
) -> FilePatch:
    names = [name for name in (old, new) if name is not None]
    return FilePatch(
        operation=operation,
        old_path=None if old is None else _decoded(old),
        new_path=None if new is None else _decoded(new),
        old_mode=None,
        new_mode=MODE_FILE if operation == "create" else None,
        plain_names=all(name.strip(_MARKS) == name for name in names),
        change=change,
        # The form has no place for what a delete takes away.
        states_content=operation != "delete",
    )


def _decoded(name: bytes) -> str:
    return name.decode(errors="surrogateescape")
