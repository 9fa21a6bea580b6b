"""The kept inputs of fuzzing: each is a plan that means what git says, or a refusal, and soon."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.stage.begin_patch import parse_any_patch, parse_begin_patch
from broker.stage.patch_grammar import parse_patch
from broker.stage.store import BlobStore
from tests.stage.differential.cases import Tally, ours
from tests.stage.differential.judge import GitJudge, listed
from tests.stage.fuzz_patches import BEFORE, SLOWEST_SECONDS, corpus, fuzz, run
from tests.stage.patches import scratch_store, tree_of


@pytest.fixture(scope="module")
def store() -> Iterator[BlobStore]:
    with scratch_store() as store:
        yield store


def test_each_is_a_plan_or_a_refusal_in_every_grammar(store: BlobStore) -> None:
    tree = tree_of(store, BEFORE)
    places = set()
    for data in corpus():
        for parse in (parse_patch, parse_any_patch, parse_begin_patch):
            seen = run(data, parse, tree)
            places.add(seen.place)
            assert seen.seconds < SLOWEST_SECONDS
    # They are kept because they differ.
    assert len(places) > 100


def test_what_is_accepted_is_to_git_the_same_tree(store: BlobStore, tmp_path: Path) -> None:
    judge, tally = GitJudge(tmp_path / "judge"), Tally()
    judge.load(BEFORE)
    tree = tree_of(store, BEFORE)
    for data in corpus():
        after = ours(tree, data, tally)
        if after is not None:
            tally.accepted += 1
            assert judge.cached(data) == listed(after), data
    assert tally.accepted > 5


def test_a_second_of_fuzzing_finds_no_exception() -> None:
    fuzzer = fuzz(1.0, seed=2026, out=None)
    assert [what for what, _ in fuzzer.bugs if not what.endswith(" ms")] == []
    assert fuzzer.runs["inputs"] > len(corpus())
