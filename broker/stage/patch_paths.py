"""Names in patch headers: git's quoting, read by one left-to-right pass and written.

A name is taken as written or marked as not plain; nothing is cleaned, trimmed or
guessed, and no name is looked up here.
"""

import re
from typing import Final, NamedTuple

__all__ = ["Name", "bare_name", "header_agrees", "quote_name", "side_name", "twin_name"]

_ESCAPES: Final[dict[int, int]] = {
    ord(letter): value
    for letter, value in zip('abtnvfr"\\', (7, 8, 9, 10, 11, 12, 13, 34, 92), strict=True)
}
_LETTERS: Final[dict[int, bytes]] = {value: b"\\%c" % letter for letter, value in _ESCAPES.items()}
_QUOTED: Final = re.compile(rb'"((?:[^"\\]|\\["\\abtnvfr]|\\[0-3][0-7]{2})*)"')
_ESCAPE: Final = re.compile(rb"\\([0-3][0-7]{2}|.)", re.S)
_MUST_QUOTE: Final = re.compile(rb'[\x00-\x1f\x7f"\\\x80-\xff]')
_MUST_QUOTE_ASCII: Final = re.compile(rb'[\x00-\x1f\x7f"\\]')


class Name(NamedTuple):
    """A path as a header names it, without ``a/`` or ``b/``.

    ``plain`` is false when the name is not in the form in which git writes it: no
    prefix, a needless or foreign quoting, a control character or backslash outside of
    quotes, bytes that are not UTF-8. Such a name is only good for a refusal.
    """

    path: str
    plain: bool


def side_name(field: bytes, prefix: bytes) -> Name | None:
    """The name after ``--- `` or ``+++ ``; ``None`` for ``/dev/null``.

    Git ends a name that holds a space with one tab, and so may any name. A time stamp
    after a tab is not git's form.
    """
    if field == b"/dev/null":
        return None
    return _without_prefix(field[:-1] if field.endswith(b"\t") else field, prefix)


def bare_name(field: bytes) -> Name:
    """The name after ``rename from `` and its like, which has no prefix."""
    return _without_prefix(field, b"")


def twin_name(field: bytes) -> Name | None:
    """The one name of ``diff --git a/NAME b/NAME``; ``None`` when the two differ.

    Unquoted names may hold spaces, even `` b/``: the two have one length, so there is
    one place to cut.
    """
    sides = _sides(field)
    if sides is None:
        return None
    old, new = _without_prefix(sides[0], b"a/"), _without_prefix(sides[1], b"b/")
    if old.path != new.path and old.plain and new.plain:
        return None
    return Name(old.path, old.plain and new.plain)


def header_agrees(field: bytes, old: str, new: str) -> bool:
    """Whether ``diff --git`` with ``field`` names exactly these two paths."""
    raw_old, raw_new = (_bytes(prefix + path) for prefix, path in (("a/", old), ("b/", new)))
    if field == b"%b %b" % (raw_old, raw_new):
        return True
    if b'"' not in field:
        return False
    sides = _sides(field)
    return sides is not None and (
        _without_prefix(sides[0], b"a/") == (old, True)
        and _without_prefix(sides[1], b"b/") == (new, True)
    )


def quote_name(name: bytes) -> bytes:
    """``name`` (with its prefix) as git writes it by default: quoted where it must be."""
    if _MUST_QUOTE.search(name) is None:
        return name
    return b'"%b"' % _MUST_QUOTE.sub(_escaped, name)


def _sides(field: bytes) -> tuple[bytes, bytes] | None:
    """The two names of a ``diff --git`` line, still quoted and prefixed."""
    if field.startswith(b'"'):
        first = _QUOTED.match(field)
        if first is None or field[first.end() : first.end() + 1] != b" ":
            return None
        return field[: first.end()], field[first.end() + 1 :]
    # A plain unquoted name holds no quote, so the first one opens the second name.
    before, quote, after = field.partition(b' "')
    if quote:
        return before, b'"' + after
    middle = len(field) // 2
    if len(field) % 2 == 0 or field[middle : middle + 1] != b" ":
        return None
    return field[:middle], field[middle + 1 :]


def _without_prefix(field: bytes, prefix: bytes) -> Name:
    plain = True
    name = field
    if field.startswith(b'"'):
        body = _QUOTED.fullmatch(field)
        plain = body is not None
        if body is not None:
            name = _ESCAPE.sub(_unescaped, body[1])
            plain = field in (quote_name(name), _quote_ascii(name)) and (
                _MUST_QUOTE.search(name) is not None
            )
    elif _MUST_QUOTE_ASCII.search(field) is not None:
        plain = False
    if name.startswith(prefix):
        name = name[len(prefix) :]
    else:
        plain = False
    try:
        return Name(name.decode(), plain)
    except UnicodeDecodeError:
        return Name(name.decode(errors="surrogateescape"), False)


def _quote_ascii(name: bytes) -> bytes:
    # Git's form under core.quotePath=false: other bytes stay as they are.
    return b'"%b"' % _MUST_QUOTE_ASCII.sub(_escaped, name)


def _escaped(match: re.Match[bytes]) -> bytes:
    value = match[0][0]
    return _LETTERS.get(value) or b"\\%03o" % value


def _unescaped(match: re.Match[bytes]) -> bytes:
    escape: bytes = match[1]
    if len(escape) == 3:
        return bytes((int(escape, 8),))
    return bytes((_ESCAPES[escape[0]],))


def _bytes(path: str) -> bytes:
    return path.encode(errors="surrogateescape")
