"""Our patch between two trees is that difference to stock git, and git's is that to us."""

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.stage.store import BlobStore
from tests.stage.differential.judge import GitJudge
from tests.stage.differential.round_trips import commits_of, random_pair, round_trip, survey
from tests.stage.differential.trees import changed, result, tree
from tests.stage.patches import Exact, scratch_store
from tests.stage.repositories import git

SHORT, FULL = 150, 2_000
#: A colon-separated list of repositories whose commits the full form checks.
REAL = "AIRLOCK_TEST_REPOSITORIES"
COMMITS = 200


@pytest.fixture(scope="module")
def store() -> Iterator[BlobStore]:
    with scratch_store() as store:
        yield store


def assert_round_trips(store: BlobStore, folder: Path, *, seed: int, pairs: int) -> None:
    chance, judge = random.Random(seed), GitJudge(folder / "judge")
    for number in range(pairs):
        before, after = random_pair(chance)
        wrong = round_trip(store, judge, before, after, utf8=number % 3 == 0)
        assert wrong == "", (before, after)


def test_git_makes_the_second_tree_of_the_first(store: BlobStore, tmp_path: Path) -> None:
    assert_round_trips(store, tmp_path, seed=1, pairs=SHORT)


@pytest.mark.full
@pytest.mark.timeout(1_800)
def test_git_makes_the_second_tree_of_the_first_in_full(store: BlobStore, tmp_path: Path) -> None:
    assert_round_trips(store, tmp_path, seed=2, pairs=FULL)


def history(folder: Path, *, commits: int) -> Path:
    """A repository whose commits are random changes of the ones before."""
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    chance = random.Random(7)
    files: Exact = tree(chance)
    stream = bytearray()
    for number in range(commits):
        if number:
            files = result(files, changed(files, chance)) or tree(chance)
        stream += b"commit refs/heads/main\ncommitter A <a@example.invalid> %d +0000\n" % number
        stream += b"data 1\nx\ndeleteall\n"
        for path, (data, mode) in files.items():
            quoted = path.replace("\\", "\\\\").replace('"', '\\"').encode()
            stream += b'M %o inline "%b"\ndata %d\n%b\n' % (mode, quoted, len(data), data)
        # What is never staged changes now and then.
        stream += b"M 100644 inline .env\ndata %d\n%d\nM 120000 inline link\ndata 1\na\n\n" % (
            len(str(number // 4)), number // 4,
        )  # fmt: skip
    git(folder, "fast-import", "--quiet", data=bytes(stream))
    return folder


def test_the_commits_of_a_history_go_there_and_back(tmp_path: Path) -> None:
    repository = history(tmp_path / "repository", commits=40)
    (tmp_path / "scratch").mkdir()

    found = survey(repository, tmp_path / "scratch", commits=39)

    assert found.wrong == []
    assert found.commits == len(commits_of(repository, 39)) == 39
    assert found.whole > 25
    assert found.theirs > 20
    assert found.theirs + found.theirs_filtered + found.same == 39


@pytest.mark.full
@pytest.mark.timeout(3_600)
def test_real_commits_go_there_and_back(tmp_path: Path) -> None:
    repositories = [each for each in os.environ.get(REAL, "").split(":") if each]
    if not repositories:
        pytest.skip(f"no repositories in {REAL}")
    for number, repository in enumerate(repositories):
        scratch = tmp_path / str(number)
        scratch.mkdir()
        found = survey(Path(repository), scratch, commits=COMMITS)
        print(repository, found)
        assert found.wrong == []
        assert found.commits == COMMITS
