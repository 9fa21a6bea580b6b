"""Stock git as the judge: what ``git apply`` makes of an index, or of a working tree.

One scratch repository for many patches. ``git apply --cached`` does to an index what
``git apply --index`` does to an index and a working tree; the second is asked too, less
often, because it costs files.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pygit2

from broker.stage.tree import MODE_EXECUTABLE, StagedTree
from tests.stage.differential.writer import git_id
from tests.stage.patches import Exact
from tests.stage.repositories import ENVIRONMENT

#: Path to mode and git id.
Listed = dict[str, tuple[int, str]]


class GitJudge:
    """A scratch repository in ``folder``, made here."""

    def __init__(self, folder: Path, *, objects: Path | None = None) -> None:
        self._folder: Final = folder
        folder.mkdir()
        subprocess.run(
            ["git", "init", "-q", "-b", "main", str(folder)], env=ENVIRONMENT, check=True
        )
        if objects is not None:
            (folder / ".git/objects/info/alternates").write_text(f"{objects}\n")
        self._repository: Final = pygit2.Repository(str(folder))
        self._base: Final = folder / ".git/base-index"
        self._index: Final = folder / ".git/case-index"
        self._environment: Final = ENVIRONMENT | {"GIT_INDEX_FILE": str(self._index)}

    def load(self, files: Exact) -> None:
        """``files`` are what the next patches are applied to."""
        blobs = {
            path: (mode, str(self._repository.create_blob(data)))
            for path, (data, mode) in files.items()
        }
        self.load_listed(blobs)

    def load_listed(self, files: Mapping[str, tuple[int, str]]) -> None:
        """The same for files whose content the repository has already."""
        self._base.unlink(missing_ok=True)
        index = pygit2.Index(str(self._base))
        for path, (mode, oid) in files.items():
            index.add(pygit2.IndexEntry(path, pygit2.Oid(hex=oid), mode))
        index.write()

    def load_tree(self, tree: str) -> Listed:
        """The same for a tree or commit that the repository has; what git lists of it."""
        self._base.unlink(missing_ok=True)
        subprocess.run(
            ["git", "read-tree", tree],
            cwd=self._folder, env=ENVIRONMENT | {"GIT_INDEX_FILE": str(self._base)}, check=True,
        )  # fmt: skip
        return self._entries(self._base)

    def cached(self, patch: bytes) -> Listed | None:
        """What ``git apply --cached`` makes of the files; ``None`` when it refuses."""
        shutil.copyfile(self._base, self._index)
        if not self._applies(["--cached"], patch):
            return None
        return self._listed()

    def indexed(self, patch: bytes, files: Exact) -> Listed | None:
        """What ``git apply --index`` makes of index and working tree, which must agree."""
        for name in os.listdir(self._folder):
            if name != ".git":
                path = self._folder / name
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        for path, (data, mode) in files.items():
            file = self._folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
            file.chmod(0o755 if mode == MODE_EXECUTABLE else 0o644)
        shutil.copyfile(self._base, self._index)
        self._git(["update-index", "-q", "--refresh"])
        if not self._applies(["--index"], patch):
            return None
        listed = self._listed()
        for path, (mode, oid) in listed.items():
            file = self._folder / path
            assert git_id(file.read_bytes()) == oid.encode()
            assert bool(file.stat().st_mode & 0o100) == (mode == MODE_EXECUTABLE)
        return listed

    def _applies(self, options: list[str], patch: bytes) -> bool:
        return self._git(["apply", *options, "--binary", "-"], patch).returncode == 0

    def _git(
        self, arguments: list[str], data: bytes | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            ["git", *arguments],
            cwd=self._folder, env=self._environment, input=data, capture_output=True, check=False,
        )  # fmt: skip

    def _listed(self) -> Listed:
        return self._entries(self._index)

    def _entries(self, file: Path) -> Listed:
        index = pygit2.Index(str(file))
        return {entry.path: (int(entry.mode), str(entry.id)) for entry in index}


def listed(tree: StagedTree) -> Listed:
    """Our tree as git lists it."""
    return {path: (entry.mode, git_id(tree.read(path)).decode()) for path, entry in tree.items()}
