"""Git's ignore rules, over bytes. Decides on names only; opens nothing and runs nothing.

Own rules and not libgit2's: its look-up opens ignore files by path, so a FIFO of that
name stops it for ever and a link leads it out of the checkout, and it drops a negated
rule that stands in a deeper file than the rule it negates. Tests hold these rules to
``git check-ignore``. Matching is linear in pattern and name.
"""

from collections.abc import Iterator
from typing import Final, Protocol, Self

import msgspec
import re2


def _options(*, case_sensitive: bool) -> re2.Options:
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.dot_nl = True
    options.log_errors = False
    options.case_sensitive = case_sensitive
    return options


_EXACT: Final = _options(case_sensitive=True)
_FOLDED: Final = _options(case_sensitive=False)

_BOM: Final = b"\xef\xbb\xbf"
_SLASH: Final = ord("/")
_PUNCTUATION: Final = b"!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
_CLASSES: Final[dict[bytes, frozenset[int]]] = {
    b"alnum": frozenset(byte for byte in range(128) if chr(byte).isalnum()),
    b"alpha": frozenset(byte for byte in range(128) if chr(byte).isalpha()),
    b"blank": frozenset(b" \t"),
    b"cntrl": frozenset(range(0x20)) | {0x7F},
    b"digit": frozenset(b"0123456789"),
    b"graph": frozenset(range(0x21, 0x7F)),
    b"lower": frozenset(range(ord("a"), ord("z") + 1)),
    b"print": frozenset(range(0x20, 0x7F)),
    b"punct": frozenset(_PUNCTUATION),
    b"space": frozenset(b" \t\n\r"),
    b"upper": frozenset(range(ord("A"), ord("Z") + 1)),
    b"xdigit": frozenset(b"0123456789abcdefABCDEF"),
}


class _Pattern(Protocol):
    def search(self, text: bytes) -> object | None: ...
    def fullmatch(self, text: bytes) -> object | None: ...


class _Rule(msgspec.Struct, frozen=True):
    pattern: _Pattern
    negated: bool
    folders_only: bool
    whole_path: bool  #: matched against the path below the file's folder, else the last name


class IgnoreRules:
    """The rules of one ignore file, for paths below the folder that the file stands in."""

    __slots__ = ("_any", "_rules")

    def __init__(self, rules: tuple[_Rule, ...], any_rule: _Pattern | None) -> None:
        self._rules: Final = rules
        # One look for all rules: most names meet none, and then nothing else is tried.
        self._any: Final = any_rule

    @classmethod
    def parse(cls, text: bytes, *, fold_case: bool = False) -> Self:
        """The rules of ``text``. A line that is no valid pattern matches nothing, as in git.

        ``fold_case`` is the repository's ``core.ignoreCase``.
        """
        options = _FOLDED if fold_case else _EXACT
        rules: list[_Rule] = []
        sources: list[bytes] = []
        for line in _lines(text):
            negated = line.startswith(b"!")
            pattern = line[1:] if negated else line
            folders_only = pattern.endswith(b"/")
            pattern = pattern[:-1] if folders_only else pattern
            whole_path = b"/" in pattern
            source = _regular(pattern.removeprefix(b"/"), whole_path=whole_path)
            if source is None or not pattern:
                continue
            compiled: _Pattern = re2.compile(source, options=options)
            rules.append(_Rule(compiled, negated, folders_only, whole_path))
            # Searched in the whole path: the start of a last name is the start of a part.
            sources.append(b"^" + source + b"$" if whole_path else b"(?:^|/)" + source + b"$")
        if not rules:
            return cls((), None)
        return cls(tuple(reversed(rules)), _union(sources, options))

    def verdict(self, path: bytes, *, is_folder: bool) -> bool | None:
        """``True``: ignored. ``False``: expressly not. ``None``: these rules do not say."""
        if self._any is None or self._any.search(path) is None:
            return None
        name = path.rpartition(b"/")[2]
        for rule in self._rules:
            if rule.folders_only and not is_folder:
                continue
            if rule.pattern.fullmatch(path if rule.whole_path else name) is not None:
                return not rule.negated
        return None


def _union(sources: list[bytes], options: re2.Options) -> _Pattern:
    try:
        union: _Pattern = re2.compile(b"|".join(sources), options=options)
    except re2.error:
        # More rules than re2's bound on memory holds in one: each is tried, none is lost.
        return _Everything()
    return union


class _Everything:
    def search(self, text: bytes) -> object | None:
        return text

    def fullmatch(self, text: bytes) -> object | None:
        return text


def _lines(text: bytes) -> Iterator[bytes]:
    for line in text.removeprefix(_BOM).split(b"\n"):
        if line.startswith(b"#"):
            continue
        kept = _without_trailing_spaces(line.removesuffix(b"\r").partition(b"\0")[0])
        if kept:
            yield kept


def _without_trailing_spaces(line: bytes) -> bytes:
    kept = line.rstrip(b" ")
    if kept == line:
        return line
    backslashes = len(kept) - len(kept.rstrip(b"\\"))
    # An odd number of backslashes escapes the first of the spaces.
    return kept + b" " if backslashes % 2 else kept


def _regular(pattern: bytes, *, whole_path: bool) -> bytes | None:
    """``pattern`` as a regular expression over bytes; ``None`` when it can match nothing."""
    out: list[bytes] = []
    at = 0
    literal_so_far = True
    while at < len(pattern):
        byte = pattern[at : at + 1]
        if byte == b"*":
            # Git matches a literal start apart, so stars right after it start a part too.
            starts_part = (whole_path and literal_so_far) or pattern[at - 1 : at] in (b"", b"/")
            source, at = _stars(pattern, at, starts_part=starts_part)
        elif byte == b"?":
            source, at = b"[^/]", at + 1
        elif byte == b"[":
            bracket = _bracket(pattern, at + 1)
            if bracket is None:
                return None
            source, at = bracket
        else:
            at += byte == b"\\"
            if at == len(pattern):
                return None
            source, at = b"\\x%02x" % pattern[at], at + 1
        literal_so_far = literal_so_far and byte not in (b"*", b"?", b"[", b"\\")
        out.append(source)
    return b"".join(out)


def _stars(pattern: bytes, at: int, *, starts_part: bool) -> tuple[bytes, int]:
    end = at
    while pattern[end : end + 1] == b"*":
        end += 1
    rest = pattern[end:]
    ends_part = rest == b"" or rest.startswith((b"/", b"\\/"))
    if end - at == 1 or not starts_part or not ends_part:
        return b"[^/]*", end
    if rest.startswith(b"/"):
        return b"(?:.*/)?", end + 1
    return b".*", end


def _bracket(pattern: bytes, at: int) -> tuple[bytes, int] | None:
    """The class whose first byte is at ``at``, and where it ends; ``None``: never closed."""
    negated = pattern[at : at + 1] in (b"!", b"^")
    at += negated
    members: set[int] = set()
    before = 0
    first = True
    while first or pattern[at : at + 1] != b"]":
        first = False
        if at >= len(pattern):
            return None
        byte = pattern[at]
        if pattern[at : at + 2] == b"[:" and (end := pattern.find(b"]", at + 2)) >= 0:
            named = pattern[at + 2 : end]
            if named.endswith(b":"):
                known = _CLASSES.get(named[:-1])
                if known is None:
                    return None
                members |= known
                at, before = end + 1, 0
                continue
        is_range = byte == ord("-") and before and pattern[at + 1 : at + 2] not in (b"", b"]")
        at += bool(is_range)
        at += pattern[at : at + 1] == b"\\"
        if at >= len(pattern):
            return None
        members |= set(range(before, pattern[at] + 1)) if is_range else {pattern[at]}
        before = 0 if is_range else pattern[at]
        at += 1
    members = set(range(256)) - members if negated else members
    return _class_of(members - {_SLASH}), at + 1


def _class_of(members: set[int]) -> bytes:
    if not members:
        return b"[^\\x00-\\xff]"
    return b"[" + b"".join(b"\\x%02x" % byte for byte in sorted(members)) + b"]"
