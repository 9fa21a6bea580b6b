"""Small checkouts made by stock git, a survey of every byte in one, and patches for them."""

import hashlib
import stat
from pathlib import Path

from tests.stage.repositories import git, repository, write

#: What every test starts from. ``check`` passes when value.txt says 2.
FILES = {
    "README.md": b"# A small thing\n",
    "value.txt": b"1\n",
    "lines.txt": b"".join(b"line %d\n" % number for number in range(1, 21)),
    "tools/check": b'#!/bin/sh\ncat value.txt\ntest "$(cat value.txt)" = 2\n',
    "image.bin": bytes(range(256)) * 4,
}
RECIPES = (
    b'{"version":1,"recipes":['
    b'{"id":"check","command":["sh","tools/check"],"timeoutMs":20000},'
    b'{"id":"other","command":["true"]}]}'
)


def checkout(folder: Path, files: dict[str, bytes] | None = None) -> Path:
    """A checkout with one commit of ``files`` and the recipes."""
    return repository(
        folder, {"airlock.recipes.json": RECIPES, **(FILES if files is None else files)}
    )


def dirty(folder: Path) -> Path:
    """The same with a modified, an untracked and a deleted file, and an ignored one."""
    made = checkout(folder, {**FILES, "gone.txt": b"gone\n", ".gitignore": b"*.log\n"})
    write(made, {"lines.txt": FILES["lines.txt"] + b"mine\n", "new/untracked.txt": b"new\n"})
    write(made, {"noise.log": b"ignored\n"})
    (made / "gone.txt").unlink()
    return made


def survey(folder: Path) -> dict[str, tuple[int, int, str]]:
    """Mode, mtime and digest of everything below ``folder``, ``.git`` included."""
    found = {}
    for path in (folder, *sorted(folder.rglob("*"))):
        status = path.lstat()
        if stat.S_ISREG(status.st_mode):
            content = hashlib.sha256(path.read_bytes()).hexdigest()
        elif stat.S_ISLNK(status.st_mode):
            content = str(path.readlink())
        else:
            content = ""
        name = path.relative_to(folder).as_posix()
        found[name] = (status.st_mode, status.st_mtime_ns, content)
    return found


def status(folder: Path) -> str:
    """Stock git's view, which must not refresh the index that is being surveyed."""
    return git(folder, "--no-optional-locks", "status", "--porcelain")


def change(path: str, before: str, after: str) -> str:
    """A patch that turns a file of one line into another."""
    return (
        f"diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n"
        f"-{before}\n+{after}\n"
    )


def creation(path: str, *lines: str) -> str:
    """A patch that makes a new file."""
    body = "".join(f"+{line}\n" for line in lines)
    return (
        f"diff --git a/{path} b/{path}\nnew file mode 100644\n--- /dev/null\n+++ b/{path}\n"
        f"@@ -0,0 +1,{len(lines)} @@\n{body}"
    )
