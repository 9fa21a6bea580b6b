"""Lies put into a true patch: about names, modes, ids, counts, order, ends and places."""

import random
import re
from collections.abc import Callable
from typing import Final

from tests.stage.differential.trees import LINES, NAMES

_HEADER: Final = re.compile(rb"@@ -\d+")
_FIELDS: Final = (
    b"--- /dev/null\n", b"+++ /dev/null\n", b"--- a/a\n", b"+++ b/a\n", b"rename from a\n",
    b"rename to d/one\n", b"copy from a\n", b"copy to d/two\n", b"new file mode 100644\n",
    b"new file mode 100755\n", b"new file mode 120000\n", b"new file mode 160000\n",
    b"deleted file mode 100644\n", b"old mode 100644\n", b"new mode 100755\n", b"old mode 100755\n",
    b"new mode 100644\n", b"new mode 104755\n", b"index 0000000..e69de29\n", b"\n", b" \n",
    b"index 1234567..89abcde 100644\n", b"similarity index 100%\n", b"dissimilarity index 9%\n",
    b"GIT binary patch\n", b"literal 0\nHcmV?d00001\n\n", b"\\ No newline at end of file\n",
    b"@@ -1 +1 @@\n", b"@@ -0,0 +1 @@\n", b"@@ -1 +0,0 @@\n", b"@@ -1,2 +1,3 @@\n", b"-a\n",
    b"+a\n", b" a\n", b"Binary files a/a and b/a differ\n", b"-- \n2.39.5\n", b"Index: a\n",
    b"diff --git a/a b/a\n", b"diff --git a/d/one b/d/two\n", b"rename old a\n", b"rename new b\n",
    b"\\ Kein Zeilenumbruch am Dateiende.\n", b"@@ -1,0 +1,0 @@\n",
)  # fmt: skip

Mutation = Callable[[list[bytes], random.Random], list[bytes]]


def mutated(patch: bytes, chance: random.Random) -> bytes:
    """``patch`` with one to three lies in it; it may still be true."""
    lines = patch.split(b"\n")
    lines = [line + b"\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        lines = chance.choice(_MUTATIONS)(lines, chance) if lines else lines
    return b"".join(lines)


def _place(lines: list[bytes], chance: random.Random, prefixes: tuple[bytes, ...]) -> int | None:
    places = [at for at, line in enumerate(lines) if line.startswith(prefixes)]
    return chance.choice(places) if places else None


def _line_change(lines: list[bytes], chance: random.Random) -> list[bytes]:
    at = chance.randrange(len(lines))
    match chance.randrange(6):
        case 0:
            return lines[:at] + lines[at + 1 :]
        case 1:
            return [*lines[:at], lines[at], *lines[at:]]
        case 2:
            return [*lines[:at], chance.choice(_FIELDS), *lines[at:]]
        case 3:
            return [*lines[:at], chance.choice(_FIELDS), *lines[at + 1 :]]
        case 4:
            return lines[:at] + lines[at : at + 2][::-1] + lines[at + 2 :]
        case _:
            other = chance.randrange(len(lines))
            return lines[:other] + lines[at : at + chance.randrange(1, 12)] + lines[other:]


def _byte(lines: list[bytes], chance: random.Random) -> list[bytes]:
    at = chance.randrange(len(lines))
    place = chance.randrange(len(lines[at]))
    byte = bytes((chance.choice(b' +-\\@/ab019\n\r\t"\x00\xff.,%'),))
    kept = lines[at][place + chance.randrange(2) :]
    return [*lines[:at], lines[at][:place] + byte + kept, *lines[at + 1 :]]


def _number(lines: list[bytes], chance: random.Random) -> list[bytes]:
    """A count or a line of a hunk that is off by a little."""
    at = _place(lines, chance, (b"@@ -",))
    if at is None:
        return lines
    numbers = list(re.finditer(rb"\d+", lines[at]))[:4]
    if not numbers:
        return lines
    number = chance.choice(numbers)
    value = max(0, int(number[0]) + chance.choice((-2, -1, 1, 1, 2, 5, 1000)))
    return [
        *lines[:at],
        lines[at][: number.start()] + b"%d" % value + lines[at][number.end() :],
        *lines[at + 1 :],
    ]


def _body(lines: list[bytes], chance: random.Random) -> list[bytes]:
    """A line of a body that has another tag, or other words."""
    at = _place(lines, chance, (b" ", b"+", b"-"))
    if at is None:
        return lines
    line = chance.choice(
        (
            chance.choice((b" ", b"+", b"-", b"")) + lines[at][1:],
            lines[at][:1] + chance.choice(LINES) + b"\n",
            lines[at].rstrip() + b"\n",
            lines[at].rstrip(b"\n") + b"\r\n",
        )
    )
    return [*lines[:at], line, *lines[at + 1 :]]


def _name(lines: list[bytes], chance: random.Random) -> list[bytes]:
    """Another name on one line, or everywhere, or another way to write it."""
    at = _place(lines, chance, (b"--- ", b"+++ ", b"diff --git ", b"rename ", b"copy "))
    if at is None:
        return lines
    head, _, name = lines[at].rstrip(b"\n").rpartition(b" ")
    other = chance.choice(
        (
            chance.choice((b"a/", b"b/", b"")) + chance.choice(NAMES).encode(),
            name.replace(b"/", b"//", 1), name.replace(b"/", b"/./", 1), b'"%b"' % name,
            name.replace(b"a/", b"b/", 1), name.replace(b"b/", b"", 1), name + b"\t", name + b" ",
            name + b"\t2026-01-01 10:00:00", name.replace(b"/", b"/../", 1), name.upper(),
            name.replace(b"\\303", b"\\303\\274"), b"/" + name, b"/dev/null", b"c/x",
        )
    )  # fmt: skip
    if chance.random() < 0.3:
        return [line.replace(name, other) for line in lines]
    return [*lines[:at], head + b" " + other + b"\n", *lines[at + 1 :]]


def _mode(lines: list[bytes], chance: random.Random) -> list[bytes]:
    at = _place(lines, chance, (b"old mode", b"new mode", b"new file", b"deleted file", b"index "))
    if at is None:
        return lines
    mode = chance.choice((b"100644", b"100755", b"120000", b"160000", b"100664", b"040000", b"0"))
    line = re.sub(rb"1[02]0\d{3}", mode, lines[at])
    return [*lines[:at], line, *lines[at + 1 :]]


def _sections(lines: list[bytes], chance: random.Random) -> list[bytes]:
    """Sections, or hunks, in another order, twice, or left out."""
    opening = chance.choice((b"diff --git ", b"--- ", b"@@ -"))
    starts = [at for at, line in enumerate(lines) if line.startswith(opening)]
    if not starts:
        return lines
    ends = [*starts[1:], len(lines)]
    parts = [lines[start:end] for start, end in zip(starts, ends, strict=True)]
    match chance.randrange(3):
        case 0:
            chance.shuffle(parts)
        case 1:
            parts.insert(chance.randrange(len(parts) + 1), chance.choice(parts))
        case _:
            parts.pop(chance.randrange(len(parts)))
    return [*lines[: starts[0]], *(line for part in parts for line in part)]


def _bodies(lines: list[bytes], chance: random.Random) -> list[bytes]:
    """Two hunks of the same size that have each other's place."""
    starts = [at for at, line in enumerate(lines) if line.startswith(b"@@ -")]
    bodies: list[tuple[int, int]] = []
    for start in starts:
        end = start + 1
        while end < len(lines) and lines[end].startswith((b" ", b"+", b"-", b"\\", b"\n")):
            end += 1
        bodies.append((start + 1, end))
    if len(bodies) < 2:
        return lines
    at = chance.randrange(len(bodies) - 1)
    (one, one_end), (other, other_end) = bodies[at], bodies[at + 1]
    middle = lines[one_end:other]
    return [
        *lines[:one],
        *lines[other:other_end],
        *middle,
        *lines[one:one_end],
        *lines[other_end:],
    ]


def _ends(lines: list[bytes], chance: random.Random) -> list[bytes]:
    """The ends of the text, or of all of its lines."""
    match chance.randrange(6):
        case 0:
            return [*lines[:-1], lines[-1].rstrip(b"\n")]
        case 1:
            return [line.rstrip(b"\n") + b"\r\n" for line in lines]
        case 2:
            return [line for line in lines if not line.startswith(b"\\ ")]
        case 3:
            return [line.rstrip(b" \t\n") + b"\n" for line in lines]
        case 4:
            return [*lines, chance.choice((b"\n", b"-- \n", b"thanks\n", b"```\n", b" \n"))]
        case _:
            return [chance.choice((b"\n", b"Here it is:\n", b"```diff\n", b"From: x\n")), *lines]


_MUTATIONS: Final[tuple[Mutation, ...]] = (
    _line_change, _line_change, _byte, _number, _number, _body, _body, _bodies, _name, _mode,
    _sections, _ends,
)  # fmt: skip
