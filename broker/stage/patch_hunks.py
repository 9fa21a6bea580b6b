"""Text hunks: the ``@@`` line and its body become one ``Hunk``, or a refusal.

The counts of the ``@@`` line are law: a body that is longer or shorter than they say is
malformed, never cut. Nothing here knows a file.
"""

import re
from typing import Final, Literal

from broker.stage.patch_plan import Hunk, PatchRefusal
from broker.stage.patch_text import PatchText

__all__ = ["HunkReader"]

_COUNT: Final = rb"(0|[1-9][0-9]{0,8})"
_HEADER: Final = re.compile(
    rb"@@ -%b(?:,%b)? \+%b(?:,%b)? @@(?: .*)?" % (_COUNT, _COUNT, _COUNT, _COUNT), re.S
)

#: Context, then removed, then added lines, each any number of them. An empty line is an
#: empty context line whose blank an editor has stripped; git takes both.
_BLOCK: Final = re.compile(rb"((?: [^\n]*+\n|\n)*+)((?:-[^\n]*+\n)*+)((?:\+[^\n]*+\n)*+)")

_NO_NEWLINE: Final = b"\\ No newline at end of file\n"


class HunkReader:
    """Reads the hunks of one file, which must come in order and apart from each other."""

    def __init__(self, text: PatchText, *, file: int) -> None:
        self._text = text
        self._file = file
        self._index = 0
        self._old_end = 0
        self._shift = 0

    def read(self) -> Hunk:
        """The hunk at the current line; the line after it is current then.

        Raises ``PatchRefusal``: ``patch_malformed``, or ``patch_no_change`` when the
        hunk has only context.
        """
        header = _HEADER.fullmatch(self._text.line)
        if header is None:
            raise self._refusal("patch_malformed")
        old_line, old_count = _range(header[1], header[2])
        new_line, new_count = _range(header[3], header[4])
        # A range without lines names the line before it, so 0 is right only there.
        if old_line < 0 or new_line < 0 or old_line < self._old_end:
            raise self._refusal("patch_malformed")
        body = _Body()
        start = self._text.after
        end = body.read(self._text.data, start, old_count, new_count)
        if end is None:
            wrong = _first_wrong(self._text.data, start, old_count, new_count)
            raise self._refusal("patch_malformed", at=wrong)
        if not body.added and not body.removed:
            raise self._refusal("patch_no_change")
        hunk = Hunk(
            line=old_line,
            agreed=new_line == old_line + self._shift,
            old=b"".join(body.old),
            new=b"".join(body.new),
            # Stock git holds hunks to both rules, and so does it place them: one that
            # starts at line 1 begins the file, one without context below ends it.
            at_start=old_line == 0,
            at_end=not body.trailing or body.old_ended or body.new_ended,
            added=body.added,
            removed=body.removed,
        )
        self._text.move(end)
        self._index += 1
        self._old_end = old_line + old_count
        self._shift += new_count - old_count
        return hunk

    def _refusal(
        self, code: Literal["patch_malformed", "patch_no_change"], *, at: int | None = None
    ) -> PatchRefusal:
        line = self._text.number(at)
        return PatchRefusal(code, file=self._file, hunk=self._index, line=line)


class _Body:
    """The two sides of one hunk, read run by run."""

    __slots__ = ("added", "new", "new_ended", "old", "old_ended", "removed", "trailing")

    def __init__(self) -> None:
        self.old: list[bytes] = []
        self.new: list[bytes] = []
        self.old_ended = self.new_ended = False  #: without a line feed, as marked
        self.added = self.removed = 0
        self.trailing = False  #: the last line is context

    def read(self, data: bytes, at: int, old_left: int, new_left: int) -> int | None:
        """The offset after the body, ``None`` when it is not what the counts say."""
        last = b""  # the run before, while the mark of an unterminated line may follow
        block_at = _BLOCK.match
        while old_left or new_left:
            match = block_at(data, at)
            assert match is not None
            context, minus, plus = match.groups()
            kept = context.count(b"\n") if context else 0
            removed = minus.count(b"\n") if minus else 0
            added = plus.count(b"\n") if plus else 0
            if kept + removed > old_left or kept + added > new_left:
                context, minus, plus = _fitted(context, minus, plus, old_left, new_left)
                kept, removed = context.count(b"\n"), minus.count(b"\n")
                added = plus.count(b"\n")
                if not (kept or removed) or kept + added > new_left:
                    return None
            size = self._add(context, minus, plus)
            if not size:
                # Only the mark of an unterminated side may stand between lines, and
                # such a side has no further line.
                if not self._end_side(data, at, last):
                    return None
                if (self.old_ended and old_left) or (self.new_ended and new_left):
                    return None
                size = len(_NO_NEWLINE)
            self.added += added
            self.removed += removed
            old_left -= kept + removed
            new_left -= kept + added
            last = plus or minus or context
            at += size
        self.trailing = last[:1] not in (b"+", b"-", b"")
        if data.startswith(b"\\", at):
            return at + len(_NO_NEWLINE) if self._end_side(data, at, last) else None
        return at

    def _add(self, context: bytes, minus: bytes, plus: bytes) -> int:
        """Put runs of lines on their sides; a run loses all of its tags at once."""
        if context:
            # A line that has lost its blank begins with nothing to take off.
            text = (b"\n" + context).replace(b"\n ", b"\n")[1:]
            self.old.append(text)
            self.new.append(text)
        if minus:
            self.old.append(minus[1:].replace(b"\n-", b"\n"))
        if plus:
            self.new.append(plus[1:].replace(b"\n+", b"\n"))
        return len(context) + len(minus) + len(plus)

    def _end_side(self, data: bytes, at: int, last: bytes) -> bool:
        """Whether the mark of a line without a line feed stands at ``at``, after ``last``."""
        if not last or not data.startswith(_NO_NEWLINE, at):
            return False
        if not last.startswith(b"+"):
            self.old[-1] = self.old[-1][:-1]
            self.old_ended = True
        if not last.startswith(b"-"):
            self.new[-1] = self.new[-1][:-1]
            self.new_ended = True
        return True


def _fitted(
    context: bytes, minus: bytes, plus: bytes, old_left: int, new_left: int
) -> tuple[bytes, bytes, bytes]:
    """The runs without lines that look like theirs and follow the body.

    These are empty lines after a body, and the ``---`` line of the next section after
    lines that are removed.
    """
    kept = context.count(b"\n")
    fitting = min(kept, old_left, new_left)
    if fitting < kept:
        return _cut(context, fitting), b"", b""
    if minus.count(b"\n") > old_left - kept:
        return context, _cut(minus, old_left - kept), b""
    return context, minus, plus


def _cut(run: bytes, lines: int) -> bytes:
    """The first ``lines`` lines of ``run``, which has more."""
    if not lines:
        return b""
    return b"\n".join(run.split(b"\n", lines)[:lines]) + b"\n"


def _first_wrong(data: bytes, at: int, old_left: int, new_left: int) -> int:
    """Where the first line begins that the body may not have; slow, for a refusal."""
    last = b""
    while (end := data.find(b"\n", at)) >= 0:
        tag = data[at : at + 1]
        if data.startswith(_NO_NEWLINE, at) and last:
            # The side that ends here has no further line.
            old_left = old_left if last == b"+" else 0
            new_left = new_left if last == b"-" else 0
            last = b""
        elif tag in (b" ", b"\n") and old_left and new_left:
            old_left, new_left, last = old_left - 1, new_left - 1, tag
        elif tag == b"-" and old_left:
            old_left, last = old_left - 1, tag
        elif tag == b"+" and new_left:
            new_left, last = new_left - 1, tag
        else:
            return at
        at = end + 1
    return at


def _range(start: bytes, count: bytes | None) -> tuple[int, int]:
    """A range as 0-based first line and number of lines; -1 when the start is impossible."""
    lines = 1 if count is None else int(count)
    return (int(start) if lines == 0 else int(start) - 1), lines
