"""Whatever our patch engine accepts, stock git accepts, and both make the same tree."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.stage.store import BlobStore
from tests.stage.differential.cases import Tally, run
from tests.stage.differential.judge import GitJudge
from tests.stage.patches import scratch_store

#: Patches of the short form, and of the full one: that many in each of its parts.
SHORT = 400
PARTS, PART = 40, 1_000


@pytest.fixture(scope="module")
def store() -> Iterator[BlobStore]:
    with scratch_store() as store:
        yield store


def assert_agreement(tally: Tally) -> None:
    print(tally)
    for before, patch, mine, theirs in tally.differing[:3]:
        print("BEFORE", before, "PATCH", patch.decode("latin-1"), "OURS", mine, "GIT", theirs)
    assert tally.differing == []


def test_what_we_accept_is_to_git_the_same_tree(store: BlobStore, tmp_path: Path) -> None:
    tally = run(store, GitJudge(tmp_path / "judge"), seed=2026, patches=SHORT)

    assert_agreement(tally)
    # The generator makes good patches, and bad ones.
    assert tally.accepted > SHORT // 3
    assert sum(tally.refused.values()) > SHORT // 5


@pytest.mark.full
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("part", range(PARTS))
def test_what_we_accept_is_to_git_the_same_tree_in_full(
    store: BlobStore, tmp_path: Path, part: int
) -> None:
    assert_agreement(run(store, GitJudge(tmp_path / "judge"), seed=part, patches=PART))
