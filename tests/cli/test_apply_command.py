"""``airlock apply``: only after an attempt, only on its base, only the patch's own paths."""

import json
import shutil
from pathlib import Path

import pytest

from broker.stage.diff import make_patch
from broker.stage.snapshot import stage_checkout
from broker.stage.tree import MODE_FILE, Entry
from protocol.digest import digest_bytes
from protocol.ids import RepoPath
from tests.cli.conftest import Airlock
from tests.stage.repositories import git, repository, write

FILES = {"README.md": b"one\n", "src/a.py": b"a\n"}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    return repository(tmp_path / "checkout", FILES)


@pytest.fixture
def out(checkout: Path, tmp_path: Path) -> Path:
    """A result folder whose patch changes ``src/a.py`` and adds ``src/b.py``."""
    (tmp_path / "scratch").mkdir()
    staged = stage_checkout(checkout, scratch=tmp_path / "scratch")
    store = staged.tree.store
    candidate = staged.tree.replace(
        {
            RepoPath("src/a.py"): Entry(MODE_FILE, store.put(b"A\n")),
            RepoPath("src/b.py"): Entry(MODE_FILE, store.put(b"B\n")),
        }
    )
    patch = make_patch(staged.tree, candidate)
    folder = tmp_path / "out"
    write(folder, {"agent.diff": patch})
    document = {
        "attemptId": "at_1",
        "repo": str(checkout),
        "base": {"commit": staged.base_commit},
        "agentPatch": {"digest": digest_bytes(patch), "bytes": len(patch), "files": 2},
    }
    (folder / "attempt.json").write_text(json.dumps(document))
    return folder


def test_it_changes_the_patchs_paths_and_keeps_local_changes(
    airlock: Airlock, checkout: Path, out: Path
) -> None:
    write(checkout, {"README.md": b"mine\n", "local.txt": b"local\n"})

    done = airlock("apply", out, "--json")

    assert done.code == 0
    assert done.document["changed"] == [
        {"path": "src/a.py", "change": "modified"},
        {"path": "src/b.py", "change": "added"},
    ]
    assert (checkout / "src/a.py").read_bytes() == b"A\n"
    assert (checkout / "README.md").read_bytes() == b"mine\n"
    assert git(checkout, "status", "--porcelain").splitlines() == [
        " M README.md", " M src/a.py", "?? local.txt", "?? src/b.py",
    ]  # fmt: skip


def test_a_dry_run_changes_nothing(airlock: Airlock, checkout: Path, out: Path) -> None:
    done = airlock("apply", out, "--dry-run")

    assert done.code == 0
    assert "would change 2 files" in done.out
    assert git(checkout, "status", "--porcelain") == ""


def test_a_moved_base_is_refused(airlock: Airlock, checkout: Path, out: Path) -> None:
    git(checkout, "commit", "-q", "--allow-empty", "-m", "moved")

    done = airlock("apply", out)

    assert (done.code, "[base_moved]" in done.err) == (65, True)
    assert git(checkout, "status", "--porcelain") == ""


def test_a_changed_target_is_refused_whole(airlock: Airlock, checkout: Path, out: Path) -> None:
    write(checkout, {"src/a.py": b"edited\n"})

    done = airlock("apply", out)

    assert done.code == 65
    assert not (checkout / "src/b.py").exists()
    assert (checkout / "src/a.py").read_bytes() == b"edited\n"


@pytest.mark.parametrize("damage", ["patch", "document", "absent", "no patch"])
def test_a_folder_that_is_no_finished_attempt_is_refused(
    airlock: Airlock, checkout: Path, out: Path, damage: str
) -> None:
    match damage:
        case "patch":
            with (out / "agent.diff").open("ab") as file:
                file.write(b"\n")
        case "document":
            (out / "attempt.json").write_text("{")
        case "absent":
            shutil.rmtree(out)
        case _:
            document = json.loads((out / "attempt.json").read_text()) | {"agentPatch": None}
            (out / "attempt.json").write_text(json.dumps(document))

    done = airlock("apply", out)

    assert done.code == 65
    assert "Traceback" not in done.err
    assert git(checkout, "status", "--porcelain") == ""
