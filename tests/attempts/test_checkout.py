"""The checkout is only read; what comes out is patches that stock git takes."""

import os
from pathlib import Path
from typing import Any

import pytest

from tests.attempts.checkouts import FILES, checkout, creation, dirty, status, survey
from tests.attempts.puppetry import Played
from tests.attempts.steps import Step, answer, complete, read, tool
from tests.stage.repositories import git

pytestmark = pytest.mark.engine

MOVED = (
    "diff --git a/tools/check b/tools/check\nold mode 100644\nnew mode 100755\n"
    "diff --git a/README.md b/README.md\ndeleted file mode 100644\n"
    "--- a/README.md\n+++ /dev/null\n@@ -1 +0,0 @@\n-# A small thing\n"
)
LINES = (
    "diff --git a/lines.txt b/lines.txt\n--- a/lines.txt\n+++ b/lines.txt\n"
    "@@ -1,4 +1,4 @@\n line 1\n-line 2\n+line two\n line 3\n line 4\n"
)


def work() -> list[Step]:
    """Reads, a recipe that writes all over its copy, and patches of every kind."""
    return [
        read("r", "value.txt"),
        tool("c1", "run_recipe", recipeId="check"),
        answer("c1"),
        tool("p1", "apply_patch", patch=LINES),
        tool("p2", "apply_patch", patch=creation("added/deep/file.txt", "one", "two")),
        tool("p3", "apply_patch", patch=MOVED),
        tool("c2", "run_recipe", recipeId="check"),
        answer("c2"),
        complete(),
    ]


def files(extra: dict[str, bytes] | None = None) -> dict[str, bytes]:
    return {
        **FILES,
        "tools/check": b"rm -rf README.md lines.txt; echo changed >value.txt; mkdir -p new; "
        b"echo x >new/made; exit 0\n",
        **(extra or {}),
    }


def apply(folder: Path, patch: Path) -> None:
    git(folder, "apply", "--binary", "--index", str(patch))


def tree_digest(folder: Path, scratch: Path) -> str:
    """What stock git says under sha256 about the files of a checkout."""
    git(folder, "checkout-index", "-a", "-f", f"--prefix={scratch}/")
    git(scratch, "init", "-q", "--object-format=sha256")
    git(scratch, "add", "-A", "-f")
    return "sha256:" + git(scratch, "write-tree").strip()


def clone(repo: Path, folder: Path, commit: str) -> Path:
    git(repo, "clone", "-q", "--no-local", str(repo), str(folder))
    git(folder, "checkout", "-q", commit)
    return folder


async def test_a_clean_checkout_is_untouched_and_the_patch_gives_the_candidate(
    puppet: Any, tmp_path: Path
) -> None:
    repo = checkout(tmp_path / "repo", files())
    before, said = survey(repo), status(repo)

    played: Played = await puppet(work(), repo=repo)

    assert survey(repo) == before
    assert status(repo) == said == ""
    assert [played.answer(name)["ok"] for name in ("p1", "p2", "p3")] == [True] * 3
    document = played.document
    assert document["outcome"] == "succeeded"
    assert document["candidate"]["verified"] is True
    assert [each["status"] for each in document["recipes"]] == ["passed", "passed"]
    assert document["base"]["treeDigest"] == document["stage"]["treeDigest"]
    assert document["localPatch"] is None
    landed = clone(repo, tmp_path / "landed", document["base"]["commit"])
    (tmp_path / "base").mkdir()
    assert tree_digest(landed, tmp_path / "base") == document["base"]["treeDigest"]
    apply(landed, played.out / "patch.diff")
    (tmp_path / "judged").mkdir()
    assert tree_digest(landed, tmp_path / "judged") == document["candidate"]["treeDigest"]
    assert sorted(git(landed, "status", "--porcelain").splitlines()) == [
        "A  added/deep/file.txt",
        "D  README.md",
        "M  lines.txt",
        "M  tools/check",
    ]


async def test_a_dirty_checkout_is_untouched_and_each_patch_fits_its_place(
    puppet: Any, tmp_path: Path
) -> None:
    repo = dirty(tmp_path / "repo")
    before, said = survey(repo), status(repo)
    assert len(said.splitlines()) == 3

    played: Played = await puppet(work(), repo=repo)

    assert survey(repo) == before
    assert status(repo) == said
    document = played.document
    commit = document["base"]["commit"]
    assert document["candidate"]["verified"] is True
    # base -> candidate
    landed = clone(repo, tmp_path / "landed", commit)
    apply(landed, played.out / "patch.diff")
    (tmp_path / "judged").mkdir()
    assert tree_digest(landed, tmp_path / "judged") == document["candidate"]["treeDigest"]
    # base -> stage -> candidate
    steps = clone(repo, tmp_path / "steps", commit)
    apply(steps, played.out / "local.patch")
    (tmp_path / "stage").mkdir()
    assert tree_digest(steps, tmp_path / "stage") == document["stage"]["treeDigest"]
    assert (steps / "new/untracked.txt").read_bytes() == b"new\n"
    assert not (steps / "gone.txt").exists()
    assert not (steps / "noise.log").exists()
    apply(steps, played.out / "agent.diff")
    (tmp_path / "both").mkdir()
    assert tree_digest(steps, tmp_path / "both") == document["candidate"]["treeDigest"]
    # The agent's part fits the checkout as it is, on a copy of it.
    copied = clone(repo, tmp_path / "copy", commit)
    git(repo, "checkout-index", "-a", "-f", f"--prefix={copied}/")
    for path in ("lines.txt", "new/untracked.txt"):
        (copied / path).parent.mkdir(exist_ok=True)
        (copied / path).write_bytes((repo / path).read_bytes())
    git(copied, "apply", "--binary", str(played.out / "agent.diff"))
    assert (copied / "lines.txt").read_bytes().endswith(b"line 20\nmine\n")


async def test_an_attempt_without_a_change_leaves_no_patch(puppet: Any, repo: Path) -> None:
    before = survey(repo)

    played: Played = await puppet([read("r", "value.txt"), answer("r"), complete()])

    assert survey(repo) == before
    assert played.document["patch"] is None
    assert not list(played.out.glob("*.diff"))
    assert not list(played.out.glob("*.patch"))
    assert played.document["candidate"] == {
        "treeDigest": played.document["stage"]["treeDigest"],
        "verified": True,
    }


async def test_a_checkout_without_a_commit_can_be_worked_on(puppet: Any, tmp_path: Path) -> None:
    repo = tmp_path / "unborn"
    repo.mkdir()
    git(repo, "init", "-q", "-b", "main")
    (repo / "value.txt").write_bytes(b"1\n")
    before = survey(repo)

    played: Played = await puppet(
        [tool("p", "apply_patch", patch=creation("a.txt", "a")), answer("p"), complete()],
        repo=repo,
    )

    assert survey(repo) == before
    assert played.document["base"]["commit"] is None
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    git(fresh, "init", "-q")
    apply(fresh, played.out / "patch.diff")
    (tmp_path / "judged").mkdir()
    assert tree_digest(fresh, tmp_path / "judged") == played.document["candidate"]["treeDigest"]


async def test_a_checkout_in_a_folder_whose_name_is_no_text_can_be_worked_on(
    puppet: Any, tmp_path: Path
) -> None:
    repo = checkout(Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe")))
    before = survey(repo)

    played: Played = await puppet([read("r", "value.txt"), answer("r"), complete()], repo=repo)

    assert survey(repo) == before
    assert played.document["outcome"] == "succeeded"
    assert played.document["repo"].endswith("/\ufffd\ufffd")
