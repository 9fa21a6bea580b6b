"""Changes written as a patch in all the forms that agents and tools give it.

An independent writer: difflib makes the hunks, the standard library the binary parts.
Each form says the change truly; ``mutations`` makes lies of it.
"""

import base64
import random
import zlib
from dataclasses import dataclass
from difflib import SequenceMatcher
from hashlib import sha1
from typing import Final

from tests.stage.differential.trees import Change, File

_ESCAPES: Final = dict(zip(b'\a\b\t\n\v\f\r"\\', b'abtnvfr"\\', strict=True))
_MARK: Final = b"\\ No newline at end of file\n"


@dataclass(frozen=True, slots=True)
class Style:
    """What one patch looks like; what is not here is random at each place."""

    context: int
    git_form: bool
    index: str  #: ``none``, ``short`` or ``full``
    quote_path: bool
    strips_blanks: bool
    headings: bool
    offset: int  #: how far all stated lines are from where they belong
    jitter: int  #: how far each hunk may be from there besides
    trims: float  #: how often a hunk has less context on one side
    splits: bool  #: whether hunks stand as near to each other as they can
    blank_lines: bool  #: whether empty lines stand between sections


def style(chance: random.Random) -> Style:
    return Style(
        context=chance.choice((3, 3, 3, 3, 1, 2, 5, 0)),
        git_form=chance.random() < 0.8,
        index=chance.choice(("none", "short", "full", "full")),
        quote_path=chance.random() < 0.7,
        strips_blanks=chance.random() < 0.1,
        headings=chance.random() < 0.2,
        offset=chance.choice((0, 0, 0, 0, 0, 0, 1, -1, 2, 7, -2, 40)),
        jitter=chance.choice((0, 0, 0, 0, 1, 3, 30)),
        trims=chance.choice((0.0, 0.0, 0.0, 0.3, 1.0)),
        splits=chance.random() < 0.2,
        blank_lines=chance.random() < 0.1,
    )


def write(changes: list[Change], style: Style, chance: random.Random) -> bytes:
    """The patch of ``changes``; a section that a form cannot say is left out."""
    sections = [_section(change, style, chance) for change in changes]
    gap = b"\n" if style.blank_lines else b""
    return gap.join(section for section in sections if section)


def git_id(data: bytes) -> bytes:
    return sha1(b"blob %d\0%b" % (len(data), data), usedforsecurity=False).hexdigest().encode()


def _section(change: Change, style: Style, chance: random.Random) -> bytes:
    old_data = b"" if change.before is None else change.before[0]
    new_data = b"" if change.after is None else change.after[0]
    binary = b"\0" in old_data + new_data or (style.git_form and chance.random() < 0.03)
    if not style.git_form:
        return _plain(change, old_data, new_data, style, chance)
    old_name, new_name = change.old or change.new or "", change.new or change.old or ""
    lines = [b"diff --git %b %b\n" % (_name("a/" + old_name, style), _name("b/" + new_name, style))]
    lines += _modes(change)
    if change.operation in ("rename", "copy"):
        if chance.random() < 0.7:
            lines.append(b"similarity index %d%%\n" % (100 if old_data == new_data else 87))
        verb = change.operation.encode()
        lines.append(b"%b from %b\n" % (verb, _name(old_name, style)))
        lines.append(b"%b to %b\n" % (verb, _name(new_name, style)))
    if old_data != new_data or change.before is None or change.after is None:
        lines += _index(change, old_data, new_data, style, binary=binary)
    if old_data == new_data:
        return b"".join(lines)
    if binary:
        lines.append(_binary(old_data, new_data, change, chance))
    else:
        lines += _sides(change, style)
        lines.append(_hunks(old_data, new_data, style, chance))
    return b"".join(lines)


def _plain(
    change: Change, old_data: bytes, new_data: bytes, style: Style, chance: random.Random
) -> bytes:
    if change.operation in ("rename", "copy") or b"\0" in old_data + new_data:
        return b""
    if old_data == new_data:
        return b""
    return b"".join([*_sides(change, style), _hunks(old_data, new_data, style, chance)])


def _sides(change: Change, style: Style) -> list[bytes]:
    old = b"/dev/null" if change.before is None else _side("a/", change.old or "", style)
    new = b"/dev/null" if change.after is None else _side("b/", change.new or "", style)
    return [b"--- %b\n" % old, b"+++ %b\n" % new]


def _side(prefix: str, name: str, style: Style) -> bytes:
    tab = b"\t" if " " in name else b""
    return _name(prefix + name, style) + tab


def _name(name: str, style: Style) -> bytes:
    raw = name.encode()
    needs = any(byte < 0x20 or byte in b'"\\\x7f' for byte in raw)
    if not needs and (not style.quote_path or raw.isascii()):
        return raw
    made = bytearray()
    for byte in raw:
        if byte in _ESCAPES:
            made += b"\\%c" % _ESCAPES[byte]
        elif byte < 0x20 or byte == 0x7F or (byte >= 0x80 and style.quote_path):
            made += b"\\%03o" % byte
        else:
            made.append(byte)
    return b'"%b"' % bytes(made)


def _modes(change: Change) -> list[bytes]:
    old, new = change.before, change.after
    if old is None:
        return [b"new file mode %06o\n" % _mode(new)]
    if new is None:
        return [b"deleted file mode %06o\n" % _mode(old)]
    if old[1] != new[1] and change.operation != "copy":
        return [b"old mode %06o\n" % old[1], b"new mode %06o\n" % new[1]]
    if old[1] != new[1]:
        return [b"old mode %06o\nnew mode %06o\n" % (old[1], new[1])]
    return []


def _mode(file: File | None) -> int:
    assert file is not None
    return file[1]


def _index(
    change: Change, old_data: bytes, new_data: bytes, style: Style, *, binary: bool
) -> list[bytes]:
    kind = "full" if binary else style.index
    if kind == "none":
        return []
    old = b"0" * 40 if change.before is None else git_id(old_data)
    new = b"0" * 40 if change.after is None else git_id(new_data)
    if kind == "short":
        old, new = old[:7], new[:7]
    stated = b""
    if change.before is not None and change.after is not None:
        same = change.before[1] == change.after[1]
        stated = b" %06o" % change.before[1] if same else b""
    return [b"index %b..%b%b\n" % (old, new, stated)]


def _binary(old: bytes, new: bytes, change: Change, chance: random.Random) -> bytes:
    forward, back = _part(old, new, chance), _part(new, old, chance)
    if change.after is not None and chance.random() < 0.2:
        back = b""
    return b"GIT binary patch\n" + forward + back


def _part(source: bytes, target: bytes, chance: random.Random) -> bytes:
    if source and target and chance.random() < 0.5:
        body = _delta(source, target)
        return b"delta %d\n%b\n" % (len(body), _base85(zlib.compress(body)))
    return b"literal %d\n%b\n" % (len(target), _base85(zlib.compress(target)))


def _base85(data: bytes) -> bytes:
    lines = []
    for at in range(0, len(data), 52):
        piece = data[at : at + 52]
        size = len(piece)
        tag = 0x40 + size if size <= 26 else 0x60 + size - 26
        lines.append(b"%c%b\n" % (tag, base64.b85encode(piece, pad=True)))
    return b"".join(lines)


def _delta(source: bytes, target: bytes) -> bytes:
    """Copies of the common start and end, and what is between as it is."""
    start = 0
    while start < min(len(source), len(target), 0xFFFF) and source[start] == target[start]:
        start += 1
    end = 0
    most = min(len(source) - start, len(target) - start, 0xFFFF)
    while end < most and source[-1 - end] == target[-1 - end]:
        end += 1
    made = bytearray(_number(len(source)) + _number(len(target)))
    if start:
        made += b"\xb0" + start.to_bytes(2, "little")
    middle = target[start : len(target) - end]
    for at in range(0, len(middle), 127):
        piece = middle[at : at + 127]
        made += bytes((len(piece),)) + piece
    if end:
        made += b"\xbf" + (len(source) - end).to_bytes(4, "little") + end.to_bytes(2, "little")
    return bytes(made)


def _number(value: int) -> bytes:
    made = bytearray()
    while value >= 0x80:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)


def _hunks(old_data: bytes, new_data: bytes, style: Style, chance: random.Random) -> bytes:
    old, new = _lines(old_data), _lines(new_data)
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    context = style.context if style.context or old else 1
    groups = list(matcher.get_grouped_opcodes(context))
    if style.splits:
        groups = [part for group in groups for part in _split(group)]
    return b"".join(_hunk(group, old, new, style, chance) for group in groups)


#: As difflib has them: what, and both ranges of lines.
Group = list[tuple[str, int, int, int, int]]


def _split(group: Group) -> list[Group]:
    """Hunks that share no line and leave none between them."""
    changes = [at for at, code in enumerate(group) if code[0] != "equal"]
    if len(changes) < 2:
        return [group]
    cut = changes[0] + 1
    return [group[:cut], *_split(group[cut:])]


def _hunk(
    group: Group, old: list[bytes], new: list[bytes], style: Style, chance: random.Random
) -> bytes:
    if chance.random() < style.trims:
        group = _trimmed(group, chance)
    body: list[bytes] = []
    for what, old_from, old_to, new_from, new_to in group:
        if what == "equal":
            body += [_line(b" ", line, style) for line in old[old_from:old_to]]
            continue
        body += [_line(b"-", line, style) for line in old[old_from:old_to]]
        body += [_line(b"+", line, style) for line in new[new_from:new_to]]
    # All of a file comes or goes: its place is never another.
    offset = style.offset + chance.randint(0, style.jitter) if old and new else 0
    old_range = _range(group[0][1], group[-1][2], offset, chance)
    new_range = _range(group[0][3], group[-1][4], offset, chance)
    heading = b" def heading():" if style.headings else b""
    return b"@@ -%b +%b @@%b\n%b" % (old_range, new_range, heading, b"".join(body))


def _trimmed(group: Group, chance: random.Random) -> Group:
    """The hunk with less context before or behind it."""
    made = list(group)
    if made[0][0] == "equal" and len(made) > 1 and chance.random() < 0.5:
        what, old_from, old_to, new_from, new_to = made[0]
        cut = chance.randrange(old_to - old_from + 1)
        made[0] = (what, old_from + cut, old_to, new_from + cut, new_to)
    if made[-1][0] == "equal" and len(made) > 1 and chance.random() < 0.5:
        what, old_from, old_to, new_from, new_to = made[-1]
        cut = chance.randrange(old_to - old_from + 1)
        made[-1] = (what, old_from, old_to - cut, new_from, new_to - cut)
    return made


def _range(start: int, end: int, offset: int, chance: random.Random) -> bytes:
    count = end - start
    line = start + (1 if count else 0)
    if line:
        line = max(line + offset, 1)
    if count == 1 and chance.random() < 0.8:
        return b"%d" % line
    return b"%d,%d" % (line, count)


def _line(tag: bytes, line: bytes, style: Style) -> bytes:
    if not line.endswith(b"\n"):
        return tag + line + b"\n" + _MARK
    if style.strips_blanks and tag == b" " and line == b"\n":
        return line
    return tag + line


def _lines(data: bytes) -> list[bytes]:
    pieces = [piece + b"\n" for piece in data.split(b"\n")]
    last = pieces.pop()[:-1]
    return [*pieces, last] if last else pieces
