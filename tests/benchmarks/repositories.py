"""Generated git repositories: the same content on every machine, nothing fetched.

Files look like source text: about 7 KB each on average, a dozen in a folder, a few
binary ones. Their times lie in the past, so that git need not read them again to know
that they are unchanged, and their objects are in one pack, as after a clone.
"""

import os
import random
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Final

#: Average size of a file of the checkout that the design's figures were taken on (bytes).
FILE_BYTES: Final = 7_300

#: Files in one folder, and folders in one top-level folder.
PER_FOLDER: Final = 12
PER_TOP: Final = 25

_SEED: Final = 20
_WORDS: Final = (
    "return", "value", "index", "for", "while", "buffer", "length", "offset", "result",
    "self", "reader", "writer", "if", "else", "none", "count", "state", "limit", "token",
)  # fmt: skip
#: 2024-01-01, before any run.
_PAST: Final = 1_704_067_200

_GIT_ENVIRONMENT: Final = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_AUTHOR_NAME": "benchmark",
    "GIT_AUTHOR_EMAIL": "benchmark@example.invalid",
    "GIT_AUTHOR_DATE": f"{_PAST} +0000",
    "GIT_COMMITTER_NAME": "benchmark",
    "GIT_COMMITTER_EMAIL": "benchmark@example.invalid",
    "GIT_COMMITTER_DATE": f"{_PAST} +0000",
    "PATH": os.environ.get("PATH", os.defpath),
    "LC_ALL": "C",
}


def git(folder: Path, *arguments: str | Path) -> bytes:
    """Run stock git in ``folder`` without any user's configuration; its output."""
    return subprocess.run(
        ["git", *map(str, arguments)],
        cwd=folder,
        env=_GIT_ENVIRONMENT,
        check=True,
        capture_output=True,
    ).stdout


def git_fails(folder: Path, *arguments: str | Path) -> bool:
    """Run stock git for its refusal; True if it refused."""
    done = subprocess.run(
        ["git", *map(str, arguments)], cwd=folder, env=_GIT_ENVIRONMENT, capture_output=True
    )
    return done.returncode != 0


def make_checkout(folder: Path, *, files: int) -> list[str]:
    """A committed repository of ``files`` files in ``folder``, which must not exist; its paths."""
    chance = random.Random(_SEED)
    folder.mkdir(parents=True)
    paths = [_path(index) for index in range(files)]
    for index, path in enumerate(paths):
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        size = int(FILE_BYTES * chance.lognormvariate(-0.5, 1.0))
        target.write_bytes(chance.randbytes(size) if index % 100 == 99 else _text(chance, size))
    into_the_past(folder, paths)
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "config", "gc.auto", "0")
    commit(folder)
    git(folder, "repack", "-a", "-d", "--quiet")
    return paths


def commit(folder: Path) -> None:
    """Commit everything that is in ``folder``."""
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message=generated")


def change_lines(folder: Path, paths: Iterable[str], *, seed: int) -> None:
    """Change, insert and remove lines at three places of each text file of ``paths``."""
    chance = random.Random(seed)
    for path in paths:
        target = folder / path
        lines = target.read_bytes().splitlines(keepends=True)
        for part in range(3):
            at = (len(lines) * (2 * part + 1)) // 6
            new = _text(chance, 60 + 120 * part)
            lines[at : at + 1 + part // 2] = new.splitlines(keepends=True)
        target.write_bytes(b"".join(lines))


def into_the_past(folder: Path, paths: Iterable[str]) -> None:
    """Set the times of files so that git's index does not doubt them."""
    for path in paths:
        os.utime(folder / path, (_PAST, _PAST))


def is_text(path: str) -> bool:
    """True for the generated files that are text."""
    return path.endswith(".py")


def _path(index: int) -> str:
    inner, outer = index // PER_FOLDER, index // (PER_FOLDER * PER_TOP)
    suffix = "bin" if index % 100 == 99 else "py"
    return f"area{outer:03}/package{inner:05}/module{index:06}.{suffix}"


def _text(chance: random.Random, size: int) -> bytes:
    lines: list[str] = []
    total = 0
    while total < size:
        words = chance.choices(_WORDS, k=chance.randint(2, 9))
        line = f"{'    ' * chance.randint(0, 3)}{' '.join(words)} {chance.randint(0, 9999)}\n"
        lines.append(line)
        total += len(line)
    return "".join(lines).encode() or b"\n"
