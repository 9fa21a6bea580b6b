"""No byte of a filtered file leaves by any tool, and no answer tells that there is one.

Two checkouts differ only in what is filtered: one holds secrets, each with a canary, the
other does not have those files at all. Both are staged and given the same random requests
through the whole conversation. Every answer must be the same, word for word, and hold no
canary; and a filtered path must be answered as one is that nobody has.
"""

import base64
import json
import shutil
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.stage.diff import make_patch
from broker.stage.exclusions import exclusion_of_path
from broker.stage.snapshot import Staged
from broker.stage.store import BlobStore, blob_digest
from broker.stage.tree import StagedTree
from tests.attempts import bench
from tests.attempts.steps import Step, complete, tool
from tests.stage.differential.writer import git_id
from tests.stateful.secret_worlds import LINKS, SECRETS, VISIBLE, Worlds, hold_canaries

EXAMPLES, FULL = 30, 1_500


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worlds]:
    made = Worlds(tmp_path_factory.mktemp("worlds"))
    yield made
    for staged in made.stages:
        staged.tree.store.close()


#: Paths that nobody has, of names that no row of the table knows.
MISSING = ("missing.txt", "src/nothing.py", "deploy/id_rsx", "config/token.jsom", "a/b/c")
#: Filtered files by other names, and the folders that only they are in.
ALIASES = (
    "./.env", ".//.env", ".env/", ".ENV", ".env ", ".env.", "src/../.env", ".aws", ".aws/",
    "deploy", "node_modules", "NOTES/key.txt", "notes/key.txt\x00", "notes/key.txt/", ".git/config",
    ".git/HEAD", "infra/", "dist", ".odla-references/x", "link.txt/..", "notes/folder/credentials",
    "vendor/inner/.git/HEAD", "vendor", "..", "", "/", "~/.aws/credentials", "airlock.recipes.json",
)  # fmt: skip

PATHS = st.one_of(
    st.sampled_from(sorted(SECRETS)),
    st.sampled_from(sorted(SECRETS)),
    st.sampled_from(LINKS),
    st.sampled_from(sorted(VISIBLE)),
    st.sampled_from(MISSING),
    st.sampled_from(ALIASES),
)
DIGESTS = st.one_of(
    # The right digest of a filtered or of a visible file, and one of nothing.
    st.sampled_from([blob_digest(text.encode()) for text in SECRETS.values()]),
    st.sampled_from([blob_digest(data) for data in VISIBLE.values()]),
    st.just(bytes(32)),
).map(lambda raw: "sha256:" + raw.hex())
QUERIES = st.sampled_from(
    ["Qz0", "XvKw", "TOKEN=", "PRIVATE", "access_", "secret", "one", "KEY", ".", "password", "//"]
)
PATTERNS = st.sampled_from([".", "Q[a-z][0-9]+", "(?i)qz", "^.{1,200}$", "TOKEN|KEY", "(", "[^a]+"])
PREFIXES = st.one_of(
    st.just(""), PATHS, st.sampled_from(["n", ".", "notes/", "config/", ".e", "d", "src/"])
)


def name(path: str, side: str) -> str:
    tab = "\t" if " " in path else ""
    return f"{side}/{path}{tab}"


def modified(path: str, old: str, new: str) -> str:
    return f"--- {name(path, 'a')}\n+++ {name(path, 'b')}\n@@ -1 +1 @@\n-{old}\n+{new}\n"


def created(path: str, text: str) -> str:
    return f"--- /dev/null\n+++ {name(path, 'b')}\n@@ -0,0 +1 @@\n+{text}\n"


def deleted(path: str, text: str) -> str:
    return f"--- {name(path, 'a')}\n+++ /dev/null\n@@ -1 +0,0 @@\n-{text}\n"


def moved(verb: str, old: str, new: str) -> str:
    return (
        f"diff --git a/{old} b/{new}\nsimilarity index 100%\n{verb} from {old}\n{verb} to {new}\n"
    )


def mode_changed(path: str, new: str) -> str:
    return f"diff --git a/{path} b/{path}\nold mode 100644\nnew mode {new}\n"


def based_on(path: str, secret: str) -> str:
    """A binary delta of nothing but a copy of what the filtered file ``secret`` holds."""
    data = SECRETS[secret].encode()
    old = git_id(data).decode()
    body = "delta 5\n" + "Mc$|)3;Hu>8\n" + "\n"
    return (
        f"diff --git a/{path} b/{path}\nindex {old}..{'1' * 40} 100644\nGIT binary patch\n{body}\n"
    )


def begin(path: str, verb: str, other: str) -> str:
    body = {
        "Add": f"*** Add File: {path}\n+x\n",
        "Delete": f"*** Delete File: {path}\n",
        "Update": f"*** Update File: {path}\n@@\n-{other}\n+x\n",
        "Move": f"*** Update File: {path}\n*** Move to: moved.txt\n@@\n-{other}\n+x\n",
    }[verb]
    return f"*** Begin Patch\n{body}*** End Patch\n"


TEXTS = st.sampled_from(["x", "2", "# A thing", "TOKEN=", "one", "[default]", ""])
PATCHES = st.one_of(
    st.builds(modified, PATHS, TEXTS, TEXTS),
    st.builds(created, PATHS, TEXTS),
    st.builds(deleted, PATHS, TEXTS),
    st.builds(moved, st.sampled_from(["rename", "copy"]), PATHS, st.sampled_from(MISSING)),
    st.builds(moved, st.sampled_from(["rename", "copy"]), st.sampled_from(sorted(VISIBLE)), PATHS),
    st.builds(mode_changed, PATHS, st.sampled_from(["100755", "120000"])),
    st.builds(based_on, PATHS, st.sampled_from(sorted(SECRETS))),
    st.builds(begin, PATHS, st.sampled_from(["Add", "Delete", "Update", "Move"]), TEXTS),
    st.builds(lambda one, other: one + other, *(st.builds(created, PATHS, TEXTS),) * 2),
)

#: A tool and its input. ``cursor`` None of a list stands for the cursor of the page before.
REQUESTS = st.one_of(
    st.builds(lambda path: ("read_file", {"path": path}), PATHS),
    st.builds(
        lambda path, start: ("read_file", {"path": path, "startLine": start, "maxLines": 1}),
        PATHS,
        st.integers(1, 3),
    ),
    st.builds(
        lambda path, at: ("read_file", {"path": path, "encoding": "base64", "startByte": at}),
        PATHS,
        st.integers(0, 9),
    ),
    st.builds(lambda prefix: ("list_files", {"prefix": prefix}), PREFIXES),
    st.builds(lambda limit: ("list_files", {"limit": limit, "cursor": None}), st.integers(1, 4)),
    st.builds(lambda cursor: ("list_files", {"cursor": cursor}), PATHS.filter(bool)),
    st.builds(lambda text, at: ("search_files", {"query": text, "prefix": at}), QUERIES, PREFIXES),
    st.builds(
        lambda text, at: ("search_files", {"query": text, "regex": True, "prefix": at}),
        PATTERNS,
        PREFIXES,
    ),
    st.builds(lambda patch: ("apply_patch", {"patch": patch}), PATCHES),
    st.builds(lambda patch: ("apply_patch", {"patch": patch}), PATCHES),
    st.builds(
        lambda path, digest, old: (
            "edit_file",
            {"path": path, "digest": digest, "edits": [{"old": old, "new": "y"}]},
        ),
        PATHS,
        DIGESTS,
        TEXTS.filter(bool),
    ),
    st.builds(
        lambda path, digest: ("write_file", {"path": path, "content": "x\n", "digest": digest}),
        PATHS,
        DIGESTS,
    ),
    st.builds(lambda path: ("write_file", {"path": path, "content": "x\n"}), PATHS),
    st.builds(
        lambda path, digest: ("delete_file", {"path": path, "digest": digest}), PATHS, DIGESTS
    ),
    st.just(("run_recipe", {"recipeId": "check"})),
)
Request = tuple[str, dict[str, Any]]

#: What differs between two attempts, or between two moments.
_OWN = frozenset({"attemptId", "decisionId", "actionDigest", "policyDigest", "durationMs"})


def plain(value: Any) -> Any:
    """A frame without what is of its attempt alone."""
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items() if name not in _OWN}
    return [plain(each) for each in value] if isinstance(value, list) else value


async def converse(
    folder: Path, staged: Staged, requests: list[Request]
) -> tuple[list[Any], bytes, list[dict[str, bytes]]]:
    """Every frame that the agent got, its result patch, and the files that recipes got."""

    def staged_tree(store: BlobStore, files: Mapping[str, bytes]) -> StagedTree:
        del store, files
        return staged.tree

    made_tree, bench.make_tree = bench.make_tree, staged_tree
    try:
        conversing = bench.conversing(folder)
        async with conversing as (world, agent):
            cursor = None
            for number, (kind, given) in enumerate(requests):
                given = {**given}
                if "cursor" in given and given["cursor"] is None:
                    given |= {"cursor": cursor} if cursor else {}
                    if not cursor:
                        del given["cursor"]
                agent.send(tool(f"q{number}", kind, **given))
                answer = await agent.answer(f"q{number}")
                if kind == "list_files" and answer["ok"]:
                    cursor = answer["result"].get("nextCursor")
            agent.send(complete())
        tree = world.world.gate.tree
        return agent.frames, make_patch(staged.tree, tree), world.engine.runs
    finally:
        bench.make_tree = made_tree


def check(worlds: Worlds, requests: list[Request]) -> None:
    worlds.runs += 1
    results = []
    for number, staged in enumerate(worlds.stages):
        # The agent is told the name of the folder, so it must be one name.
        folder = worlds.folder / f"run{worlds.runs}-{number}"
        folder.mkdir()
        results.append(trio.run(partial(converse, folder / "attempt", staged, requests)))
        shutil.rmtree(folder)
    (frames, patch, runs), (other_frames, other_patch, other_runs) = results
    for frame, other in zip(frames, other_frames, strict=True):
        assert plain(frame) == plain(other)
        assert not hold_canaries(json.dumps(frame, ensure_ascii=False).encode())
        for text in _texts_of(frame):
            assert not hold_canaries(text)
    assert patch == other_patch
    assert not hold_canaries(patch)
    assert runs == other_runs
    for files in runs:
        assert not any(exclusion_of_path(path) for path in files)
        assert not any(hold_canaries(data) for data in files.values())


def _texts_of(value: Any) -> Iterator[bytes]:
    """Every text of a frame, and what it is as base64."""
    if isinstance(value, dict):
        for each in value.values():
            yield from _texts_of(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts_of(each)
    elif isinstance(value, str):
        yield value.encode()
        try:
            yield base64.b64decode(value, validate=True)
        except ValueError:
            return


def test_the_stages_of_both_are_one_and_have_no_canary(worlds: Worlds) -> None:
    one, other = worlds.stages

    assert one.tree.digest == other.tree.digest
    assert one.base_tree.digest == other.base_tree.digest
    assert {*one.tree.paths} == {*VISIBLE, ".gitignore", "airlock.recipes.json"}
    assert not any(hold_canaries(one.tree.read(path)) for path in one.tree.paths)
    # The judge sees what it is to look for.
    assert all(hold_canaries(text.encode()) for text in SECRETS.values())
    assert all(hold_canaries(base64.b64encode(text.encode())) for text in SECRETS.values())


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(requests=st.lists(REQUESTS, min_size=20, max_size=60))
def test_no_answer_tells_what_is_filtered(worlds: Worlds, requests: list[Request]) -> None:
    check(worlds, requests)


@pytest.mark.full
@pytest.mark.timeout(1_800)
@settings(max_examples=FULL, deadline=None, suppress_health_check=list(HealthCheck))
@given(requests=st.lists(REQUESTS, min_size=20, max_size=60))
def test_no_answer_tells_what_is_filtered_in_full(worlds: Worlds, requests: list[Request]) -> None:
    check(worlds, requests)


def probes(path: str) -> list[Step]:
    """Every tool that takes a path, on ``path``, with nothing in it that is right."""
    digest = "sha256:" + "1" * 64
    steps = [
        tool("read", "read_file", path=path),
        tool("bytes", "read_file", path=path, encoding="base64"),
        tool("list", "list_files", prefix=path),
        tool("search", "search_files", query="a", prefix=path),
        tool("modify", "apply_patch", patch=modified(path, "x", "y")),
        tool("delete", "apply_patch", patch=deleted(path, "x")),
        tool("rename", "apply_patch", patch=moved("rename", path, "renamed.txt")),
        tool("copy", "apply_patch", patch=moved("copy", path, "copied.txt")),
        tool("mode", "apply_patch", patch=mode_changed(path, "100755")),
        tool("begin", "apply_patch", patch=begin(path, "Delete", "x")),
        tool("edit", "edit_file", path=path, digest=digest, edits=[{"old": "x", "new": "y"}]),
        tool("remove", "delete_file", path=path, digest=digest),
        tool("write", "write_file", path=path, content="x", digest=digest),
    ]
    return [*steps, complete()]


async def answers(folder: Path, path: str) -> dict[str, Any]:
    async with bench.conversing(folder, files=VISIBLE) as (_, agent):
        for step in probes(path):
            agent.send(step)
            if "requestId" in step["frame"]:
                await agent.answer(step["frame"]["requestId"])
    return {name: plain(finals[0]) for name, finals in agent.finals().items()}


@pytest.mark.parametrize("path", sorted(path for path in SECRETS if exclusion_of_path(path)))
async def test_a_filtered_path_is_answered_by_its_name_alone(
    tmp_path: Path, worlds: Worlds, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answers where the file is there, and where there never was one."""
    nowhere = await answers(tmp_path / "nowhere", path)
    monkeypatch.setattr(bench, "make_tree", lambda store, files: worlds.stages[0].tree)
    there = await answers(tmp_path / "there", path)

    assert there == nowhere
    assert not hold_canaries(json.dumps(there).encode())


@pytest.mark.parametrize("path", sorted(SECRETS) + list(LINKS))
async def test_reads_of_a_filtered_and_of_a_missing_path_are_one_answer(
    tmp_path: Path, worlds: Worlds, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "make_tree", lambda store, files: worlds.stages[0].tree)
    folder, _, last = path.rpartition("/")
    missing = f"{folder}/m{last}.x".lstrip("/")
    found = []
    for number, each in enumerate((path, missing)):
        got = await answers(tmp_path / str(number), each)
        names = ["read", "bytes", "list", "search"]
        if exclusion_of_path(path) is None:
            # The name is no reason: only its content is, so a patch too is told the same.
            names += ["modify", "delete", "rename", "copy", "mode", "begin", "edit", "remove"]
        found.append({name: got[name] for name in names})

    assert found[0] == found[1]
