"""Two trees, our patch between them, and stock git: does it make the second of the first?

``python -m tests.stage.differential.round_trips REPOSITORY [COMMITS]`` asks it of real
commits: each is staged with its parent, and both ways between them are tried: our patch by
stock git, and git's own diff by our engine. The repository is only read.
"""

import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from broker.stage.diff import make_patch
from broker.stage.patch_grammar import parse_patch
from broker.stage.patch_plan import RESULT_BOUNDS, PatchRefusal, sources, targets
from broker.stage.patching import apply_plan
from broker.stage.snapshot import Staged, stage_checkout
from broker.stage.store import BlobStore
from broker.stage.tree import StagedTree
from tests.stage.differential.judge import GitJudge, listed
from tests.stage.differential.trees import changed, result, tree
from tests.stage.patches import Exact, tree_of
from tests.stage.repositories import ENVIRONMENT

#: What git diffs are asked for, in turn.
DIFFS: Final = (["-M"], ["-C", "-C"], ["--no-renames"], ["-U1", "-M"])


def random_pair(chance: random.Random) -> tuple[Exact, Exact]:
    """A tree and what it becomes: by a few changes, or all of it another."""
    before = tree(chance)
    if chance.random() < 0.3:
        return before, tree(chance)
    return before, result(before, changed(before, chance))


def round_trip(
    store: BlobStore, judge: GitJudge, before: Exact, after: Exact, *, utf8: bool
) -> str:
    """``""`` when git makes ``after`` of ``before`` with our patch, else what is wrong."""
    old, new = tree_of(store, before), tree_of(store, after)
    patch = make_patch(old, new, utf8=utf8)
    if old.digest == new.digest:
        return "" if patch == b"" else "a patch between equal trees"
    if apply_plan(parse_patch(patch, bounds=RESULT_BOUNDS), old).digest != new.digest:
        return "we make another tree"
    judge.load(before)
    return "" if judge.cached(patch) == listed(new) else "git makes another tree"


@dataclass
class Survey:
    """What became of the commits of one repository."""

    commits: int = 0
    same: int = 0  #: commits that change nothing but what is filtered
    whole: int = 0  #: our patch applied to all of the parent, filtered files included
    filtered: int = 0  #: our patch applied to the staged files of the parent alone
    theirs: int = 0  #: git's diff applied by us
    theirs_filtered: int = 0  #: git's diff names a filtered path, and is not asked about
    theirs_refused: dict[str, int] = field(default_factory=dict)
    too_large: int = 0
    wrong: list[tuple[str, str]] = field(default_factory=list)


def commits_of(repository: Path, count: int) -> list[tuple[str, str]]:
    """So many commits and their first parents, evenly over the whole history."""
    lines = _git(repository, "rev-list", "--no-merges", "--parents", "HEAD").splitlines()
    pairs = [(parts[0], parts[1]) for parts in map(str.split, lines) if len(parts) > 1]
    step = max(len(pairs) / count, 1.0)
    return [pairs[int(at * step)] for at in range(min(count, len(pairs)))]


def survey(repository: Path, scratch: Path, *, commits: int) -> Survey:
    """Every one of ``commits`` commits, there and back."""
    found = Survey()
    judge = GitJudge(scratch / "judge", objects=_objects(repository))
    for number, (commit, parent) in enumerate(commits_of(repository, commits)):
        stages = [_staged(repository, ref, scratch) for ref in (parent, commit)]
        try:
            _check(judge, found, repository, (commit, parent), stages, DIFFS[number % len(DIFFS)])
        finally:
            for staged in stages:
                staged.tree.store.close()
    return found


def _check(
    judge: GitJudge,
    found: Survey,
    repository: Path,
    commits: tuple[str, str],
    stages: list[Staged],
    options: list[str],
) -> None:
    commit, parent = commits
    before, after = (staged.tree for staged in stages)
    found.commits += 1
    if before.digest == after.digest:
        found.same += 1
        return
    new_names = judge.load_tree(commit)
    wanted = {path: new_names[path] for path in after.paths}
    old_names = judge.load_tree(parent)
    try:
        patch = make_patch(before, after)
    except PatchRefusal as refused:
        found.too_large += 1
        if refused.code != "payload_too_large":
            found.wrong.append((commit, f"no patch: {refused.code}"))
    else:
        rest = {path: name for path, name in old_names.items() if before.get(path) is None}
        if not any(_in_the_way(path, after) for path in rest):
            found.whole += 1
            if judge.cached(patch) != rest | wanted:
                found.wrong.append((commit, "our patch on the whole parent"))
        found.filtered += 1
        judge.load_listed({path: old_names[path] for path in before.paths})
        if judge.cached(patch) != wanted:
            found.wrong.append((commit, "our patch on the staged parent"))
    diff = subprocess.run(
        ["git", "diff", "--no-color", "--no-ext-diff", "--no-textconv", "--binary", "--full-index",
         *options, parent, commit],
        cwd=repository, env=ENVIRONMENT, capture_output=True, check=True,
    ).stdout  # fmt: skip
    _check_theirs(found, commit, stages, diff)


def _check_theirs(found: Survey, commit: str, stages: list[Staged], diff: bytes) -> None:
    before, after = (staged.tree for staged in stages)
    try:
        plan = parse_patch(diff, bounds=RESULT_BOUNDS)
        paths = {target.path for target in targets(plan)} | {*sources(plan)}
        if any(before.get(path) is None and after.get(path) is None for path in paths):
            found.theirs_filtered += 1
            return
        made = apply_plan(plan, before, bounds=RESULT_BOUNDS)
    except PatchRefusal as refused:
        found.theirs_refused[refused.code] = found.theirs_refused.get(refused.code, 0) + 1
        found.wrong.append((commit, f"git's diff is refused: {refused.code}"))
        return
    found.theirs += 1
    if made.digest != after.digest:
        found.wrong.append((commit, "git's diff makes another tree of ours"))


def _in_the_way(path: str, tree: StagedTree) -> bool:
    """Whether a filtered path of the parent stands where the new tree has a file or folder."""
    parts = path.split("/")
    above = ["/".join(parts[:end]) for end in range(1, len(parts) + 1)]
    return tree.is_directory(path) or any(tree.get(each) is not None for each in above)


def _staged(repository: Path, ref: str, scratch: Path) -> Staged:
    cache = scratch / "cache"
    cache.mkdir(exist_ok=True)
    return stage_checkout(repository, scratch=scratch, ref=ref, cache=cache)


def _objects(repository: Path) -> Path:
    return Path(_git(repository, "rev-parse", "--absolute-git-dir").strip()) / "objects"


def _git(repository: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=repository, env=ENVIRONMENT, capture_output=True, check=True
    ).stdout.decode()


def main() -> int:
    repository = Path(sys.argv[1]).resolve()
    commits = int(sys.argv[2]) if len(sys.argv) > 2 else 200
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        found = survey(repository, Path(scratch), commits=commits)
    for name, value in msgspec.to_builtins(found).items():
        print(f"{name}: {value}")
    print(f"seconds: {time.monotonic() - start:.0f}")
    return 1 if found.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
