"""A corpus of names and contents: what must never be staged, and its near misses that must be."""

import json
from pathlib import Path
from typing import Any

import pytest

from broker.stage.exclusions import exclusion_of_content, exclusion_of_path
from broker.stage.patch_grammar import parse_patch
from broker.stage.patch_plan import PatchRefusal
from broker.stage.snapshot import Staged, stage_checkout
from tests.stage.patches import patched, refusal, scratch_store, tree_of
from tests.stage.repositories import git, repository, write

DATA = Path(__file__).parents[1] / "data" / "secret_corpus.json"
CASES: list[dict[str, Any]] = json.loads(DATA.read_bytes())["cases"]
GO = [case for case in CASES if case["reason"] is not None]
STAY = [case for case in CASES if case["reason"] is None]


def name_of(case: dict[str, Any]) -> str:
    return f"{case['path']!a}-{case['reason']}"


def bytes_of(case: dict[str, Any]) -> bytes:
    return "".join(case["content"]).encode()


def place_of(number: int) -> str:
    """Every case has a folder of its own: several have one name."""
    return f"case{number:03}/{CASES[number]['path']}"


def test_the_corpus_is_whole() -> None:
    assert (len(GO), len(STAY)) == (60, 60)
    assert len({(case["path"], bytes_of(case)) for case in CASES}) == len(CASES)
    # It is itself a file that a stage of this project has.
    assert exclusion_of_path("tests/data/secret_corpus.json") is None
    assert exclusion_of_content("tests/data/secret_corpus.json", DATA.read_bytes()) is None


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_the_table_knows_it(case: dict[str, Any]) -> None:
    path = case["path"]

    assert (exclusion_of_path(path) or exclusion_of_content(path, bytes_of(case))) == case["reason"]


@pytest.fixture(scope="module", params=["tracked", "untracked", "commit"])
def staged(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("corpus")
    (folder / "scratch").mkdir()
    files = {place_of(number): bytes_of(case) for number, case in enumerate(CASES)}
    kept = request.param != "untracked"
    checkout = repository(folder / "checkout", {"README.md": b"x\n", **(files if kept else {})})
    if request.param == "untracked":
        write(checkout, files)
    ref = git(checkout, "rev-parse", "HEAD").strip() if request.param == "commit" else None
    made = stage_checkout(checkout, scratch=folder / "scratch", ref=ref)
    yield made
    made.tree.store.close()


def test_a_stage_has_the_near_misses_and_none_of_the_rest(staged: Staged) -> None:
    kept = {place_of(number) for number, case in enumerate(CASES) if case["reason"] is None}

    assert set(staged.tree.paths) - {"README.md"} == kept
    for number, case in enumerate(CASES):
        if case["reason"] is None:
            assert staged.tree.read(place_of(number)) == bytes_of(case)


def test_what_is_left_out_is_listed_with_its_reason(staged: Staged) -> None:
    reasons = {each.path: each.reason for each in staged.excluded}
    for number, case in enumerate(CASES):
        parts = place_of(number).split("/")
        above = ["/".join(parts[:end]) for end in range(1, len(parts) + 1)]
        listed = [reasons[path] for path in above if path in reasons]
        assert listed == ([] if case["reason"] is None else [case["reason"]]), name_of(case)
    assert len(reasons) == len(GO)


def creation(path: str, data: bytes) -> bytes:
    """A patch that makes the file; a tab ends a name with a blank in it."""
    lines = data.split(b"\n")
    mark = b"" if data.endswith(b"\n") else b"\\ No newline at end of file\n"
    body = lines[:-1] if data.endswith(b"\n") else lines
    name = b'"b/%b"' % path.encode().replace(b'"', b'\\"') if '"' in path else b"b/" + path.encode()
    return b"--- /dev/null\n+++ %b%b\n@@ -0,0 +1,%d @@\n%b%b" % (
        name, b"\t" if b" " in name else b"", len(body), b"".join(b"+%b\n" % x for x in body), mark
    )  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_a_patch_makes_it_or_not_by_the_same_table(case: dict[str, Any]) -> None:
    patch = creation("new/" + case["path"], bytes_of(case))
    with scratch_store() as store:
        before = tree_of(store, {"README.md": b"x\n"})
        if case["reason"] is None:
            made = patched(before, patch)
            assert made.read("new/" + case["path"]) == bytes_of(case)
            return
        refused = refusal(before, patch)

    assert isinstance(refused, PatchRefusal)
    assert refused.code == "patch_path_secret"
    assert parse_patch(patch).files
