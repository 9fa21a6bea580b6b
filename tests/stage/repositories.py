"""Repositories made by stock git for tests, apart from the configuration of who runs them."""

import os
import subprocess
from pathlib import Path

ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_AUTHOR_NAME": "A",
    "GIT_AUTHOR_EMAIL": "a@example.invalid",
    "GIT_COMMITTER_NAME": "A",
    "GIT_COMMITTER_EMAIL": "a@example.invalid",
    "GIT_AUTHOR_DATE": "2026-01-01T00:00:00Z",
    "GIT_COMMITTER_DATE": "2026-01-01T00:00:00Z",
    "LC_ALL": "C.UTF-8",
}


class Git:
    """Stock git: ``git(folder, "status", "-s")`` is its output."""

    environment = ENVIRONMENT

    def __call__(self, folder: Path, *arguments: str, data: bytes | None = None) -> str:
        done = subprocess.run(
            ["git", "-c", "protocol.file.allow=always", *arguments],
            cwd=folder, env=ENVIRONMENT, input=data, capture_output=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.decode()


git = Git()


def write(folder: Path, files: dict[str, bytes]) -> None:
    for path, data in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)


def repository(folder: Path, files: dict[str, bytes], *, options: tuple[str, ...] = ()) -> Path:
    """A repository with one commit of ``files``; an empty mapping leaves the branch unborn."""
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q", "-b", "main", *options)
    write(folder, files)
    if files:
        git(folder, "add", "-A", "-f")
        git(folder, "commit", "-q", "-m", "base")
    return folder


def judged_digest(files: dict[str, tuple[int, bytes]], scratch: Path) -> str:
    """The id that stock git gives a tree of (mode, bytes) under sha256."""
    scratch.mkdir(parents=True)
    git(scratch, "init", "-q", "--object-format=sha256")
    for path, (mode, data) in files.items():
        write(scratch, {path: data})
        (scratch / path).chmod(0o755 if mode == 0o100755 else 0o644)
    git(scratch, "add", "-A", "-f")
    return "sha256:" + git(scratch, "write-tree").strip()
