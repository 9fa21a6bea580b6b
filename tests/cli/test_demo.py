"""``airlock demo``: the main job, as a person sees it the first time."""

import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import Airlock
from tests.stage.repositories import git


@pytest.mark.engine
def test_the_demo_fails_its_tests_patches_them_and_passes(
    airlock: Airlock, tmp_path: Path, state: Path
) -> None:
    assert shutil.which("bwrap"), "bubblewrap is not installed"

    done = airlock("demo", "--out", tmp_path / "out", "--json")

    assert done.code == 0, done.err
    document = done.document
    assert document["outcome"] == "succeeded"
    assert [run["status"] for run in document["recipes"]] == ["failed", "passed"]
    assert document["candidate"]["verified"] is True
    assert document["decisions"]["allow"] > 5
    assert document["decisions"]["requireApproval"] >= 3
    checkout = Path(document["repo"])
    assert git(checkout, "status", "--porcelain") == ""
    git(checkout, "apply", "--binary", "--check", str(tmp_path / "out/patch.diff"))

    applied = airlock("apply", tmp_path / "out", "--json")

    assert applied.document["candidate"] == {
        "treeDigest": document["candidate"]["treeDigest"],
    }
    assert git(checkout, "status", "--porcelain") == " M tally/split.py\n"
