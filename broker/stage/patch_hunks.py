"""Text hunks: the ``@@`` line and its body become a ``Hunk``, or a refusal.

The counts of the ``@@`` line are law: a body that is longer or shorter than they say is
malformed, never cut. Nothing here knows a file.
"""

import re
from typing import Final, Literal

from broker.stage.patch_plan import Hunk, PatchRefusal
from broker.stage.patch_text import PatchText

__all__ = ["read_hunks"]

_COUNT: Final = rb"(0|[1-9][0-9]{0,8})"
_HEADER: Final = re.compile(
    rb"@@ -%b(?:,%b)? \+%b(?:,%b)? @@(?: [^\n]*)?\n" % (_COUNT, _COUNT, _COUNT, _COUNT)
)

#: Context, then removed, then added lines, each any number of them. An empty line is an
#: empty context line whose blank an editor has stripped; git takes both.
_BLOCK: Final = re.compile(rb"((?: [^\n]*+\n|\n)*+)((?:-[^\n]*+\n)*+)((?:\+[^\n]*+\n)*+)")

_NO_NEWLINE: Final = b"\\ No newline at end of file\n"


def read_hunks(text: PatchText, *, file: int) -> tuple[Hunk, ...]:
    """The hunks from the current line on; the line after the last is current then.

    They must come in order and apart from each other, and there is at least one. Raises
    ``PatchRefusal``: ``patch_malformed``, or ``patch_no_change`` for a hunk that has
    only context.
    """
    data, at = text.data, text.at
    hunks: list[Hunk] = []
    old_end = shift = 0
    while not hunks or data.startswith(b"@@", at):
        header = _HEADER.match(data, at)
        if header is None:
            raise _refusal("patch_malformed", text, at, file=file, hunk=len(hunks))
        old_line, old_count, new_line, new_count = _ranges(*header.groups())
        if old_line < old_end or new_line < 0:
            raise _refusal("patch_malformed", text, at, file=file, hunk=len(hunks))
        body = _body(data, header.end(), old_count, new_count)
        if body is None:
            wrong = _first_wrong(data, header.end(), old_count, new_count)
            raise _refusal("patch_malformed", text, wrong, file=file, hunk=len(hunks))
        old, new, kept, open_end, end = body
        if kept == old_count == new_count:
            raise _refusal("patch_no_change", text, at, file=file, hunk=len(hunks))
        # Stock git holds hunks to two rules, and so does it place them: one that starts
        # at line 1 begins the file, and one without context below ends it.
        hunk = Hunk(line=old_line, agreed=new_line == old_line + shift, old=old, new=new,
                    at_start=old_line == 0, at_end=not open_end,
                    added=new_count - kept, removed=old_count - kept)  # fmt: skip
        hunks.append(hunk)
        at, old_end = end, old_line + old_count
        shift += new_count - old_count
    text.move(at)
    return tuple(hunks)


def _ranges(
    old_start: bytes, old_lines: bytes | None, new_start: bytes, new_lines: bytes | None
) -> tuple[int, int, int, int]:
    """Both ranges as 0-based first line and number of lines; -1 for an impossible start.

    A range without lines names the line before it, so 0 is right only there.
    """
    old_count = 1 if old_lines is None else int(old_lines)
    new_count = 1 if new_lines is None else int(new_lines)
    return int(old_start) - (old_count > 0), old_count, int(new_start) - (new_count > 0), new_count


def _refusal(
    code: Literal["patch_malformed", "patch_no_change"],
    text: PatchText,
    at: int,
    *,
    file: int,
    hunk: int,
) -> PatchRefusal:
    return PatchRefusal(code, file=file, hunk=hunk, line=text.number(at))


#: Both sides, lines of context, whether more of the file may follow, and the offset after.
_Sides = tuple[bytes, bytes, int, bool, int]


def _body(data: bytes, at: int, old_left: int, new_left: int) -> _Sides | None:
    """A body of just so many lines; ``None`` when it is not what the counts say.

    A run of lines loses all of its tags at once.
    """
    old: list[bytes] = []
    new: list[bytes] = []
    context_lines, marked = 0, False
    last = b""  # the run before, while the mark of an unterminated line may follow
    while old_left or new_left:
        context, minus, plus = _BLOCK.match(data, at).groups()  # type: ignore[union-attr]
        kept, removed, added = context.count(b"\n"), minus.count(b"\n"), plus.count(b"\n")
        if kept + removed > old_left or kept + added > new_left:
            context, minus, plus = _fitted(context, minus, plus, old_left, new_left)
            kept, removed, added = (run.count(b"\n") for run in (context, minus, plus))
            if not (kept or removed) or kept + added > new_left:
                return None
        if context:
            # A line that has lost its blank begins with nothing to take off.
            lines = (b"\n" + context).replace(b"\n ", b"\n")[1:]
            old.append(lines)
            new.append(lines)
            context_lines += kept
        if minus:
            old.append(minus[1:].replace(b"\n-", b"\n"))
        if plus:
            new.append(plus[1:].replace(b"\n+", b"\n"))
        old_left -= kept + removed
        new_left -= kept + added
        size = len(context) + len(minus) + len(plus)
        if not size:
            size = _mark(data, at, last, (old, old_left), (new, new_left))
            if not size:
                return None
            marked = True
        last = plus or minus or context
        at += size
    size = _mark(data, at, last, (old, 0), (new, 0))
    open_end = not (marked or size) and last[:1] not in (b"+", b"-", b"")
    return b"".join(old), b"".join(new), context_lines, open_end, at + size


def _mark(
    data: bytes, at: int, last: bytes, old: tuple[list[bytes], int], new: tuple[list[bytes], int]
) -> int:
    """Size of the mark of an unterminated line at ``at``, after the run ``last``, or 0.

    It takes the line feed off the sides of that line, of which it must be the last: each
    side comes with how many lines it still lacks.
    """
    if not data.startswith(_NO_NEWLINE, at) or not last:
        return 0
    ended = [side for side, tag in ((old, b"+"), (new, b"-")) if not last.startswith(tag)]
    if any(left for _, left in ended):
        return 0
    for lines, _ in ended:
        lines[-1] = lines[-1][:-1]
    return len(_NO_NEWLINE)


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
