"""Putting a tree's difference on a checkout: its own paths, all of them or none."""

import os
from pathlib import Path

import pytest

from broker.stage import landing
from broker.stage.landing import check_landing, land
from broker.stage.snapshot import stage_checkout
from broker.stage.store import BlobStore
from broker.stage.tree import MODE_EXECUTABLE, MODE_FILE, Entry, StagedTree
from protocol.errors import Fault, Refusal
from protocol.ids import RepoPath
from tests.stage.repositories import git, repository, write

FILES = {
    "README.md": b"one\r\ntwo\n",
    "src/a.py": b"a\n",
    "src/b.py": b"b\n",
    "gone/only.txt": b"gone\n",
    "run.sh": b"#!/bin/sh\n",
}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    return repository(tmp_path / "checkout", FILES)


@pytest.fixture
def before(checkout: Path, tmp_path: Path) -> StagedTree:
    (tmp_path / "scratch").mkdir()
    return stage_checkout(checkout, scratch=tmp_path / "scratch").tree


def entry(store: BlobStore, data: bytes, mode: int = MODE_FILE) -> Entry:
    return Entry(mode, store.put(data))


def changed(tree: StagedTree) -> StagedTree:
    """Modifies, adds in a new folder, deletes a folder's last file, makes a file executable."""
    return tree.replace(
        {
            RepoPath("src/a.py"): entry(tree.store, b"A\xff\n"),
            RepoPath("new/deep/c.bin"): entry(tree.store, b"\0c"),
            RepoPath("gone/only.txt"): None,
            RepoPath("run.sh"): entry(tree.store, FILES["run.sh"], MODE_EXECUTABLE),
        }
    )


def survey(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Mode, inode and bytes of every file below ``folder``, ``.git`` included."""
    return {
        str(path.relative_to(folder)): (
            path.stat().st_mode,
            path.stat().st_ino,
            path.read_bytes(),
        )
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


def test_only_the_patchs_own_paths_change(checkout: Path, before: StagedTree) -> None:
    write(checkout, {"local.txt": b"mine\n", "README.md": b"my\r\nchange"})
    seen = survey(checkout)

    touched = land(checkout, before, changed(before))

    now = survey(checkout)
    assert touched == ("gone/only.txt", "new/deep/c.bin", "run.sh", "src/a.py")
    assert now["src/a.py"][2] == b"A\xff\n"
    assert now["new/deep/c.bin"][2] == b"\0c"
    assert now["run.sh"][0] & 0o111 == 0o111
    assert not (checkout / "gone").exists()
    assert {path: seen[path] for path in seen if path not in touched} == {
        path: now[path] for path in now if path not in touched
    }


def test_the_result_is_the_tree_that_git_sees(
    checkout: Path, before: StagedTree, tmp_path: Path
) -> None:
    after = changed(before)

    land(checkout, before, after)

    (tmp_path / "again").mkdir()
    assert stage_checkout(checkout, scratch=tmp_path / "again").tree.digest == after.digest
    assert git(checkout, "status", "--porcelain").split() == [
        "D", "gone/only.txt", "M", "run.sh", "M", "src/a.py", "??", "new/",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "data"),
    [("src/a.py", b"edited\n"), ("new/deep/c.bin", b"mine"), ("gone/only.txt", b"edited\n")],
)
def test_a_path_that_is_not_as_staged_refuses_all_of_it(
    checkout: Path, before: StagedTree, path: str, data: bytes
) -> None:
    write(checkout, {path: data})
    seen = survey(checkout)

    with pytest.raises(Refusal, match="changed while") as refusal:
        land(checkout, before, changed(before))

    assert refusal.value.code == "checkout_changed"
    assert survey(checkout) == seen


def test_a_deleted_path_refuses_all_of_it(checkout: Path, before: StagedTree) -> None:
    (checkout / "src/a.py").unlink()
    seen = survey(checkout)

    with pytest.raises(Refusal):
        land(checkout, before, changed(before))

    assert survey(checkout) == seen


def test_a_folder_that_became_a_link_is_not_followed(
    checkout: Path, before: StagedTree, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    write(outside, {"a.py": FILES["src/a.py"], "b.py": FILES["src/b.py"]})
    for path in ("a.py", "b.py"):
        (checkout / "src" / path).unlink()
    (checkout / "src").rmdir()
    (checkout / "src").symlink_to(outside)

    with pytest.raises(Refusal):
        land(checkout, before, changed(before))

    assert (outside / "a.py").read_bytes() == FILES["src/a.py"]
    assert sorted(os.listdir(outside)) == ["a.py", "b.py"]


def test_a_new_path_below_a_link_is_not_written(
    checkout: Path, before: StagedTree, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (checkout / "new").symlink_to(outside)

    with pytest.raises(Refusal):
        land(checkout, before, changed(before))

    assert list(outside.iterdir()) == []


def test_a_failure_in_the_middle_puts_everything_back(
    checkout: Path, before: StagedTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange, calls = landing._exchange, []

    def failing(top: int, step: landing._Step) -> None:
        calls.append(step.path)
        if len(calls) == 3:
            raise OSError(28, "no space")
        exchange(top, step)

    monkeypatch.setattr(landing, "_exchange", failing)
    (checkout / "src/a.py").chmod(0o600)
    seen = survey(checkout)

    with pytest.raises(Fault, match="as it was"):
        land(checkout, before, changed(before))

    assert survey(checkout) == seen
    assert not (checkout / "new").exists()


def test_a_dry_run_says_the_paths_and_writes_nothing(checkout: Path, before: StagedTree) -> None:
    seen = survey(checkout)

    assert len(check_landing(checkout, before, changed(before))) == 4

    assert survey(checkout) == seen


def test_a_failure_half_way_through_one_path_puts_it_back(
    checkout: Path, before: StagedTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = survey(checkout)
    rename = os.rename

    def full(source: str, target: str, **folders: int) -> None:
        if source.endswith(".new"):
            raise OSError(28, "no space")
        rename(source, target, **folders)

    monkeypatch.setattr(os, "rename", full)

    with pytest.raises(Fault, match="as it was"):
        land(checkout, before, changed(before))

    assert survey(checkout) == seen
