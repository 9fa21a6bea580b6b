"""Trees and patches for tests, and stock git as the judge of what a patch does."""

import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from broker.stage.confinement import confine
from broker.stage.patch_grammar import parse_patch
from broker.stage.patch_plan import PatchRefusal
from broker.stage.patching import apply_plan
from broker.stage.store import BlobStore
from broker.stage.tree import MODE_EXECUTABLE, MODE_FILE, Entry, StagedTree
from protocol.ids import RepoPath
from tests.stage.repositories import ENVIRONMENT

#: Files by path: content, or content and mode.
Files = Mapping[str, bytes | tuple[bytes, int]]
Exact = dict[str, tuple[bytes, int]]


@contextmanager
def scratch_store() -> Iterator[BlobStore]:
    folder = Path(tempfile.mkdtemp())
    store = BlobStore.open(folder)
    try:
        yield store
    finally:
        store.close()
        shutil.rmtree(folder)


def exact(files: Files) -> Exact:
    return {
        path: (content, MODE_FILE) if isinstance(content, bytes) else content
        for path, content in files.items()
    }


def tree_of(store: BlobStore, files: Files) -> StagedTree:
    return StagedTree.build(
        store,
        {
            RepoPath(path): Entry(mode, store.put(data))
            for path, (data, mode) in exact(files).items()
        },
    )


def files_of(tree: StagedTree) -> Exact:
    return {path: (tree.read(path), entry.mode) for path, entry in tree.items()}


def patched(tree: StagedTree, patch: bytes) -> StagedTree:
    """What an agent's patch makes of ``tree``: parsed, confined, applied."""
    plan = parse_patch(patch)
    confine(plan, tree)
    return apply_plan(plan, tree)


def refusal(tree: StagedTree, patch: bytes) -> PatchRefusal | None:
    """Why a patch is refused, ``None`` when it is not. The tree never changes."""
    digest, before = tree.digest, files_of(tree)
    try:
        patched(tree, patch)
    except PatchRefusal as refused:
        return refused
    finally:
        assert (tree.digest, files_of(tree)) == (digest, before)
    return None


def code(tree: StagedTree, patch: bytes) -> str | None:
    refused = refusal(tree, patch)
    return None if refused is None else refused.code


def git_applies(before: Files, patch: bytes, *, object_format: str | None = None) -> Exact | None:
    """What stock ``git apply --binary`` makes of the files; ``None`` when it refuses.

    Outside of any repository, or in one of ``object_format``.
    """
    folder = Path(tempfile.mkdtemp())
    environment = ENVIRONMENT | {"GIT_CEILING_DIRECTORIES": str(folder.parent)}
    try:
        for path, (data, mode) in exact(before).items():
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
            file.chmod(0o755 if mode == MODE_EXECUTABLE else 0o644)
        if object_format is not None:
            subprocess.run(
                ["git", "init", "-q", f"--object-format={object_format}"],
                cwd=folder, env=environment, check=True,
            )  # fmt: skip
        done = subprocess.run(
            ["git", "apply", "--binary", "-"],
            cwd=folder, env=environment, input=patch, capture_output=True, check=False,
        )  # fmt: skip
        return _read_back(folder) if done.returncode == 0 else None
    finally:
        shutil.rmtree(folder)


def git_diff(before: Files, after: Files, *options: str) -> bytes:
    """What stock git says is the difference, with ``options`` for ``git diff``."""
    folder = Path(tempfile.mkdtemp())

    def run(*arguments: str) -> bytes:
        return subprocess.run(
            ["git", *arguments], cwd=folder, env=ENVIRONMENT, capture_output=True, check=True
        ).stdout

    try:
        run("init", "-q")
        for files in (before, after):
            for file in folder.iterdir():
                if file.name != ".git":
                    shutil.rmtree(file) if file.is_dir() else file.unlink()
            for path, (data, mode) in exact(files).items():
                target = folder / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(data)
                target.chmod(0o755 if mode == MODE_EXECUTABLE else 0o644)
            run("add", "-A", "-f")
            run("commit", "-q", "--allow-empty", "-m", "x")
        return run("diff", "--no-color", "--binary", "--full-index", *options, "HEAD~", "HEAD")
    finally:
        shutil.rmtree(folder)


def _read_back(folder: Path) -> Exact:
    found: Exact = {}
    for parent, folders, names in os.walk(folder):
        if ".git" in folders and parent == str(folder):
            folders.remove(".git")
        for name in names:
            file = Path(parent, name)
            status = file.lstat()
            assert stat.S_ISREG(status.st_mode), file
            mode = MODE_EXECUTABLE if status.st_mode & 0o100 else MODE_FILE
            found[str(file.relative_to(folder))] = (file.read_bytes(), mode)
    return found
