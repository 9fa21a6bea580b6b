"""Random trees, and random changes of them: what patches are made from. Seeded, no I/O."""

import random
from dataclasses import dataclass
from typing import Final, Literal

from broker.stage.tree import MODE_EXECUTABLE, MODE_FILE
from tests.stage.patches import Exact

NAMES: Final = (
    "a", "b.txt", "Makefile", "x y", "x b/y", "a b/a b", "ä.txt", 'q"uote', 'd"/o"ne', "d/one",
    "d/two", "d/e/f", "t", "t/under", "trailing ", " leading", "日本/語.md", "a/b/c", "dev/null",
    "-dash", "@@ -1 +1 @@", "%s$&", "😀.py", "b/b", "rename from a", "café/ñ o.c", "1.0/2", "x,y",
    "a:b", "d/one.bak", "..x", "x..", "e.sh", "e.bin", "ǅ", "t2/a/b/c/d/e", "'single'", "(x)", "$x",
    "a\u00a0b", "x a/x b/x", "Größe 10:30", "2026-01-01 10:00:00", "x.patch", "diff --git a",
)  # fmt: skip
LINES: Final = (
    b"", b"", b"a", b"b", b"}", b"    pass", b"a b\t", b" lead", b"-", b"--", b"-- ", b"--- a/x",
    b"+++ b/x", b"@@ -1 +1 @@", b"\\", b"\\ No newline at end of file", b"diff --git a/x b/x",
    b"crlf\r", b"\r", b"ff\x0c", b"cr\rin", "sep\u2028".encode(), b"\xe4\xf6 latin", b"$& \\1 %s",
    b"\x1b[31m", b"\xef\xbb\xbf", b"GIT binary patch", b"index 123..456", b"x" * 300, b"+", b" ",
    b"trailing  ", b"\ttabbed", b"rename to y", b"*** End Patch", b"@@", b"new mode 100755",
)  # fmt: skip

Operation = Literal["create", "modify", "delete", "rename", "copy"]
File = tuple[bytes, int]


@dataclass(frozen=True, slots=True)
class Change:
    """One file before and after; the names are those that a patch would give it."""

    operation: Operation
    old: str | None
    new: str | None
    before: File | None
    after: File | None


def content(chance: random.Random) -> bytes:
    """Text of any kind, or binary, or nothing."""
    kind = chance.random()
    if kind < 0.06:
        return b""
    if kind < 0.14:
        return chance.randbytes(chance.choice((1, 10, 200, 3000)))
    if kind < 0.18:
        return b"\0\1\2" * chance.randrange(1, 300)
    few = chance.random() < 0.3
    lines = chance.choices(LINES, k=3) if few else LINES
    count = chance.choice((1, 2, 3, 5, 8, 12, 20, 40, 80))
    if chance.random() < 0.5:
        made = [chance.choice(lines) for _ in range(count)]
    else:
        made = [b"line %d" % number for number in range(count)]
        for _ in range(count // 6):
            made[chance.randrange(count)] = chance.choice(lines)
    end = chance.choice((b"\n", b"\n", b"\n", b"\r\n"))
    return end.join(made) + chance.choice((b"", end, end))


def edited(data: bytes, chance: random.Random) -> bytes:
    """``data`` with one to four small changes; it may come out as it was."""
    if b"\0" in data or not data:
        if not data or chance.random() < 0.2:
            return content(chance)
        at = chance.randrange(len(data))
        return data[:at] + chance.randbytes(chance.randrange(6)) + data[at + chance.randrange(9) :]
    lines = data.splitlines(keepends=True) if chance.random() < 0.5 else _split(data)
    for _ in range(chance.choice((1, 1, 1, 2, 3, 4))):
        at = chance.randrange(len(lines) + 1)
        new = chance.choice(LINES) + chance.choice((b"\n", b"\n", b"\r\n"))
        match chance.randrange(7):
            case 0 | 1:
                lines[at : at + 1] = [new]
            case 2:
                lines.insert(at, new)
            case 3:
                del lines[at : at + chance.randrange(1, 4)]
            case 4:
                lines[at:at] = lines[at : at + chance.randrange(1, 5)]
            case 5:
                lines[at : at + 2] = reversed(lines[at : at + 2])
            case _:
                lines[at : at + 1] = [b"changed %d\n" % chance.randrange(99)]
    made = b"".join(lines)
    if chance.random() < 0.15:
        made = made[:-1] if made.endswith(b"\n") else made + b"\n"
    return made


def tree(chance: random.Random) -> Exact:
    """A few files; no path is a file and a folder."""
    made: Exact = {}
    for name in chance.sample(NAMES, chance.randrange(1, 9)):
        if is_free(name, made):
            mode = MODE_EXECUTABLE if chance.random() < 0.25 else MODE_FILE
            made[name] = (content(chance), mode)
    return made


def is_free(name: str, files: Exact) -> bool:
    """Whether ``name`` can be added to ``files`` without being a folder and a file."""
    return name not in files and not any(
        name.startswith(other + "/") or other.startswith(name + "/") for other in files
    )


def changed(before: Exact, chance: random.Random, *, moves: bool = True) -> list[Change]:
    """One to four changes of ``before``, each of another path. May be empty."""
    after = dict(before)
    touched: set[str] = set()
    made: list[Change] = []
    for _ in range(chance.choice((1, 1, 1, 2, 3, 4))):
        change = _change(before, after, touched, chance, moves=moves)
        if change is not None:
            made.append(change)
            touched |= {name for name in (change.old, change.new) if name is not None}
            _apply(after, change)
    return made


def result(before: Exact, changes: list[Change]) -> Exact:
    """What ``changes`` make of ``before``."""
    after = dict(before)
    for change in changes:
        _apply(after, change)
    return after


def _apply(after: Exact, change: Change) -> None:
    if change.operation in ("rename", "delete"):
        assert change.old is not None
        del after[change.old]
    if change.new is not None:
        assert change.after is not None
        after[change.new] = change.after


def _change(
    before: Exact, after: Exact, touched: set[str], chance: random.Random, *, moves: bool
) -> Change | None:
    kind = chance.random()
    known = sorted(path for path in before if path not in touched)
    free = [name for name in NAMES if name not in touched and is_free(name, before | after)]
    if chance.random() < 0.1:
        # A file where a folder was, or the reverse.
        free = [name for name in NAMES if name not in touched and is_free(name, after)] or free
    if (kind < 0.15 or not known) and free:
        file = (content(chance), chance.choice((MODE_FILE, MODE_EXECUTABLE)))
        return Change("create", None, chance.choice(free), None, file)
    if not known:
        return None
    old = chance.choice(known)
    data, mode = file = before[old]
    if kind < 0.25:
        return Change("delete", old, None, file, None)
    if kind < 0.45 and free and moves:
        new = chance.choice(free)
        changed_data = data if chance.random() < 0.5 else edited(data, chance)
        return Change(
            chance.choice(("rename", "copy")), old, new, file, (changed_data, _mode(mode, chance))
        )
    if kind < 0.55:
        return Change("modify", old, old, file, (data, _other(mode)))
    after_file = (edited(data, chance), _mode(mode, chance))
    return None if after_file == file else Change("modify", old, old, file, after_file)


def _mode(mode: int, chance: random.Random) -> int:
    return _other(mode) if chance.random() < 0.1 else mode


def _other(mode: int) -> int:
    return MODE_FILE if mode == MODE_EXECUTABLE else MODE_EXECUTABLE


def _split(data: bytes) -> list[bytes]:
    pieces = [piece + b"\n" for piece in data.split(b"\n")]
    last = pieces.pop()[:-1]
    return [*pieces, last] if last else pieces
