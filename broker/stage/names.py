"""Names of a checkout as they are found: bytes, judged once, staged as written or not at all."""

import unicodedata
from collections.abc import Collection, Iterator
from typing import Final

from broker.stage.bounds import StageBounds
from broker.stage.exclusions import exclusion_of_path, fold_path, suspects
from protocol.decision_codes import ExclusionReason

#: Those that no staged name has: so a name that may be staged is shown as it is.
_ESCAPED_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


class PathJudge:
    """Turns path bytes of an index or a commit into text, or notes why they are excluded."""

    def __init__(self, bounds: StageBounds, excluded: dict[str, ExclusionReason]) -> None:
        self._bounds: Final = bounds
        self._texts: Final[dict[bytes, str | None]] = {}
        #: Printable path (the shortest excluded part) to its reason.
        self.excluded: Final = excluded

    def text_of(self, raw: bytes) -> str | None:
        """``raw`` as a path that may be staged, or ``None``. Raises ``Refusal`` for a bound."""
        if raw in self._texts:
            return self._texts[raw]
        text = raw.decode() if self.allows(raw) else None
        if text is not None:
            self._bounds.check_path(text)
        self._texts[raw] = text
        return text

    def allows(self, raw: bytes) -> bool:
        """Whether no part of ``raw`` is excluded by its name; why one is, is noted."""
        try:
            if exclusion_of_path(raw.decode()) is None:
                return True
        except UnicodeDecodeError:
            pass
        self._exclude(raw)
        return False

    def texts_of(self, folder: str, names: Collection[str]) -> set[str]:
        """Those of ``names``, files directly in ``folder``, that may be staged.

        ``folder`` itself is one that is allowed. Raises ``Refusal`` for a bound.
        """
        prefix = folder and folder + "/"
        suspected = suspects(names, below=folder.rpartition("/")[2])
        allowed = set(names)
        for name in suspected:
            if self.text_of((prefix + name).encode("utf-8", "surrogateescape")) is None:
                allowed.discard(name)
        if len(suspected) < len(names):
            # The longest name stands for all of them: what is not suspected is ASCII.
            self._bounds.check_path(prefix + max(allowed, key=len, default=""))
        return allowed

    def _exclude(self, raw: bytes) -> None:
        for part in prefixes(raw):
            reason = exclusion_of_name(part)
            if reason is not None:
                self.excluded[printable(part)] = reason
                return


def exclusion_of_name(raw: bytes) -> ExclusionReason | None:
    """``exclusion_of_path`` for path bytes that may not be UTF-8."""
    try:
        return exclusion_of_path(raw.decode())
    except UnicodeDecodeError:
        return "name_not_utf8"


def prefixes(raw: bytes) -> Iterator[bytes]:
    """``a``, ``a/b``, ``a/b/c`` for ``a/b/c``."""
    at = raw.find(b"/")
    while at >= 0:
        yield raw[:at]
        at = raw.find(b"/", at + 1)
    yield raw


def printable(raw: bytes) -> str:
    """``raw`` as text that is safe to show: what is not UTF-8 or not visible is escaped.

    A backslash is doubled, so that no two names are shown the same.
    """
    text = raw.decode("utf-8", "surrogateescape")
    if text.isprintable() and "\\" not in text:
        return text
    return "".join(map(_shown, text))


def _shown(char: str) -> str:
    code = ord(char)
    if char == "\\":
        return "\\\\"
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    if unicodedata.category(char) not in _ESCAPED_CATEGORIES:
        return char
    return f"\\x{code:02x}" if code < 0x80 else f"\\u{{{code:x}}}"


def collisions(paths: Collection[str]) -> frozenset[str]:
    """The files and folders of ``paths`` that differ from another only by case or form.

    Every twin is named, none is kept: which of them a file system that folds names would
    show is not ours to guess. Only the outermost colliding folders are named.
    """
    folders = folders_of(paths)
    folded, folded_folders = _folded(paths), _folded(folders)
    if (
        len(folded) == len(paths)
        and len(folded_folders) == len(folders)
        and folded.isdisjoint(folded_folders)
    ):
        return frozenset()
    spellings: dict[str, set[str]] = {}
    for path in (*paths, *folders):
        spellings.setdefault(fold_path(path), set()).add(path)
    twins = {path for same in spellings.values() if len(same) > 1 for path in same}
    return frozenset(path for path in twins if not _is_below(path, twins))


def twins_in(names: Collection[str]) -> bool:
    """Whether two of ``names``, all in one folder, differ only by case or form."""
    return len(_folded(names)) != len(names)


def _folded(paths: Collection[str]) -> set[str]:
    # Plain names, the usual case, are folded all at once; no name contains a NUL.
    together = "\0".join(paths)
    if together.isascii():
        return set(together.lower().split("\0")) if paths else set()
    return set(map(fold_path, paths))


def is_below_any(path: str, folders: Collection[str]) -> bool:
    """Whether ``path`` is in ``folders`` or lies below one of them."""
    return path in folders or _is_below(path, folders)


def _is_below(path: str, folders: Collection[str]) -> bool:
    at = path.find("/")
    while at >= 0:
        if path[:at] in folders:
            return True
        at = path.find("/", at + 1)
    return False


def folders_of(paths: Collection[str]) -> set[str]:
    """Every folder that a path of ``paths`` lies in, at any depth; not the root."""
    folders: set[str] = set()
    for path in paths:
        folder = path.rpartition("/")[0]
        while folder and folder not in folders:
            folders.add(folder)
            folder = folder.rpartition("/")[0]
    return folders
